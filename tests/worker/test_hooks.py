"""Hooks after the end of executions, hooks of a worker's start and stop, and middleware around handlers."""

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import detent
from detent import Context, Detent, EndedExecution, Fail, Retry, SyncContext
from detent.core.errors import InvalidInput
from support.waiting import until
from support.worker.running import working

pytestmark = pytest.mark.anyio
Next = Callable[[], Awaitable[Any]]


def declare_jobs(app: Detent) -> Any:
    @app.job("work", backoff=[0], max_retries=1)
    async def work(act: str) -> str:
        if act == "retry":
            raise Retry("later")
        if act == "fail":
            raise Fail("declined", code="DECLINED", retryable=False)
        return act

    return work


@pytest.mark.parametrize("mode", ["async", "plain"])
async def test_hooks_after_the_commit(app: Detent, mode: str) -> None:
    """Each end is reported once, when the status can be read; with payload, result, error, delay and dead letter."""
    ends = list[tuple[str, EndedExecution]]()
    threads = set[threading.Thread]()

    def note(kind: str) -> Any:
        def plain(ended: EndedExecution) -> None:
            threads.add(threading.current_thread())
            ends.append((kind, ended))

        async def on_the_loop(ended: EndedExecution) -> None:
            job = await (await app.handle(ended.job_id)).job()
            assert job.error_code == ended.error_code and job.execution_no >= ended.execution_no
            plain(ended)

        return plain if mode == "plain" else on_the_loop

    app.on_success(note("success"))
    app.on_failure(note("failure"))
    app.on_dead_letter(note("dead letter"))
    work = declare_jobs(app)
    async with working(app):
        good, retried, failed = await work.enqueue_many([{"act": act} for act in ("good", "retry", "fail")])
        await until(lambda: len(ends) == 6)
    of_job = {handle.id: [(k, e) for k, e in ends if e.job_id == handle.id] for handle in (good, retried, failed)}
    ((kind, ended),) = of_job[good.id]
    assert kind == "success" and ended.result == "good" and ended.payload == {"act": "good"}
    assert ended.failure is ended.exception is ended.traceback is ended.error_message is None
    assert [(kind, ended.execution_no, ended.retry_in) for kind, ended in of_job[retried.id]] == [
        ("failure", 1, 0),
        ("failure", 2, None),
        ("dead letter", 2, None),
    ]
    (_, first), (_, last) = of_job[failed.id]
    assert first.error_code == "DECLINED" and isinstance(first.exception, Fail) and "declined" in str(first.traceback)
    assert last.dlq_id == (await failed.job()).dlq_id and last.result is None
    on_loop = threading.main_thread()
    assert threads == {on_loop} if mode == "async" else on_loop not in threads
    await app.close()
    await until(lambda: not any(thread.is_alive() for thread in threads - {on_loop}))


async def test_what_a_hook_raises_is_logged(app: Detent, caplog: pytest.LogCaptureFixture) -> None:
    """The other hooks are called, and no settlement is lost."""
    called = list[str]()

    @app.on_worker_start
    def start() -> None:
        raise ValueError("start")

    @app.on_worker_stop
    async def stop() -> None:
        called.append("stop")
        raise ValueError("stop")

    @app.on_success
    async def broken(ended: EndedExecution) -> None:
        raise ValueError("async hook")

    @app.on_success
    async def cancelled(ended: EndedExecution) -> None:
        raise asyncio.CancelledError("cancelled hook")

    @app.on_success
    def broken_too(ended: EndedExecution) -> None:
        raise SystemExit("plain hook")

    @app.on_success
    def works(ended: EndedExecution) -> None:
        called.append(ended.job_id)

    work = declare_jobs(app)
    async with working(app):
        handle = await work.enqueue(act="good")
        assert await handle.result(10) == "good"
        await until(lambda: called)
    assert called == [handle.id, "stop"]
    lines = [(r.levelname, r.getMessage(), str(r.exc_info and r.exc_info[1])) for r in caplog.records]
    expected = {"start": "start", "stop": "stop", "broken": "async hook", "broken_too": "plain hook"}
    expected["cancelled"] = "cancelled hook"
    for name, error in expected.items():
        (line,) = [line for line in lines if line[1].split(" for job ")[0].split()[2].endswith(f".{name}")]
        assert line[0] == "ERROR" and line[2] == error


async def test_hooks_are_finished_before_the_worker_ends(app: Detent) -> None:
    called = list[str]()

    @app.on_worker_start
    async def start() -> None:
        called.append("start")

    @app.on_success
    async def slow(ended: EndedExecution) -> None:
        await asyncio.sleep(0.05)
        called.append("success")

    @app.on_worker_stop
    def stop() -> None:
        called.append("stop")

    work = declare_jobs(app)
    await work.enqueue_many([{"act": "good"}] * 3)
    worker = await app.worker(until_idle=True)
    assert await worker.run(handle_signals=False) == 0
    assert called == ["start", "success", "success", "success", "stop"]


async def test_a_hook_that_hangs(app: Detent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are settled, and the worker ends."""
    monkeypatch.setattr("detent.worker.worker._SHUTDOWN_SECONDS", 0.05)
    monkeypatch.setattr("detent.engine.engine.CLOSE_SECONDS", 0.05)

    @app.on_success
    async def hangs(ended: EndedExecution) -> None:
        await asyncio.Event().wait()

    work = declare_jobs(app)
    handles = await work.enqueue_many([{"act": "good"}] * 3)
    async with working(app):
        assert [await handle.result(10) for handle in handles] == ["good"] * 3
    await app.close()  # here, where it waits for a moment only


async def test_middleware_in_order(app: Detent) -> None:
    """Async ones around both kinds of handlers, plain ones in the thread of plain handlers; the context is shared."""
    order = list[str]()

    @app.middleware
    async def outer(ctx: Context, call_next: Next) -> Any:
        order.append("outer")
        ctx.state["trail"] = ["outer"]
        try:
            return await call_next()
        finally:
            order.append("outer ends")

    @app.middleware
    def plain(ctx: SyncContext, call_next: Callable[[], Any]) -> Any:
        order.append("plain")
        ctx.state["trail"].append(threading.current_thread().name)
        return call_next()

    @app.middleware
    async def inner(ctx: Context, call_next: Next) -> Any:
        order.append("inner")
        return f"<{await call_next()}>"

    @app.job("loop")
    async def on_the_loop(ctx: Context) -> str:
        order.append("handler")
        return "".join(ctx.state["trail"])

    @app.job("thread")
    def in_a_thread(ctx: SyncContext) -> str:
        assert ctx.state["trail"].pop() == threading.current_thread().name
        return "".join(ctx.state["trail"])

    @app.job("without")
    def without_context() -> str:
        return "without"

    async with working(app):
        assert await (await on_the_loop.enqueue()).result(10) == "<outer>"
        assert order == ["outer", "inner", "handler", "outer ends"]
        assert await (await in_a_thread.enqueue()).result(10) == "<outer>"
        assert order[4:] == ["outer", "inner", "plain", "outer ends"]
        assert await (await without_context.enqueue()).result(10) == "<without>"


async def test_the_outcome_of_middleware_is_that_of_the_execution(app: Detent) -> None:
    current: contextvars.ContextVar[str] = contextvars.ContextVar("current", default="none")

    @app.middleware
    async def guard(ctx: Context, call_next: Next) -> Any:
        if ctx.execution_no == 1:
            raise Retry("not yet", after=0)
        token = current.set(ctx.job_id)
        try:
            return await call_next()
        except KeyError:
            return "replaced"
        finally:
            current.reset(token)

    @app.job("thread")
    def in_a_thread(ctx: SyncContext) -> str:
        ctx.sleep(0.01)
        return f"{current.get()} in execution {ctx.execution_no}"

    @app.job("broken")
    async def broken() -> str:
        raise KeyError("nothing")

    async with working(app):
        handle = await in_a_thread.enqueue()
        assert await handle.result(10) == f"{handle.id} in execution 3", "a wait passes through, and runs it again"
        assert await (await broken.enqueue()).result(10) == "replaced"
    assert current.get() == "none"


async def test_hooks_and_plain_middleware_of_a_process_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Plain middleware runs in the child, hooks in the worker; the traceback is that of the child, also in the log."""
    (tmp_path / "far_app.py").write_text(
        "import os\nfrom detent import Detent\napp = Detent('sqlite:///far.db')\n"
        "@app.middleware\ndef pid(ctx, call_next):\n    return [ctx.deadline and os.getpid(), call_next()]\n"
        "@app.job('far', run_in='process', max_retries=0, timeout=60)\ndef far(fail: bool) -> list:\n"
        "    if fail:\n        raise ValueError('far away')\n    return os.getpid()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(detent.__file__).parent.parent}")
    import far_app  # type: ignore[import-not-found]

    ends = list[EndedExecution]()
    far_app.app.on_failure(ends.append)
    async with far_app.app as app, working(app):
        first, second = await (await far_app.far.enqueue(fail=False)).result(30)
        assert first == second
        await far_app.far.enqueue(fail=True)
        await until(lambda: ends)
    assert ends[0].exception is None and "far_app.py" in str(ends[0].traceback)
    assert caplog.text.count("raise ValueError('far away')") == 2, "with the failure and with the dead letter"


@pytest.mark.parametrize("name, arguments", [("on_failure", 0), ("on_worker_start", 1), ("middleware", 1)])
def test_a_hook_with_other_parameters_is_refused(tmp_path: Path, name: str, arguments: int) -> None:
    app = Detent(f"sqlite:///{tmp_path / 'jobs.db'}")

    def without() -> None: ...

    def with_one(first: Any) -> None: ...

    with pytest.raises(InvalidInput, match="called with") as refusal:
        getattr(app, name)(with_one if arguments else without)
    assert refusal.value.code == "HOOK_INVALID"
    assert app.hooks.failure == app.hooks.worker_start == app.hooks.plain_middleware == []


async def test_slow_hooks_slow_the_claims_down(app: Detent, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many calls waiting, a worker waits before its next claim; it does not stop."""
    monkeypatch.setattr("detent.worker.reporting.ExecutionReporter.wait_for_hooks.__defaults__", (1, 0.02))
    released, called = asyncio.Event(), list[str]()

    @app.on_success
    async def slow(ended: EndedExecution) -> None:
        await released.wait()
        called.append(ended.job_id)

    work = declare_jobs(app)
    handles = await work.enqueue_many([{"act": "good"}] * 20)
    async with working(app, slots=4):
        for handle in handles:
            await handle.result(10)
        assert not called
        released.set()
        await until(lambda: len(called) == 20)


async def test_a_worker_warns_of_unknown_queues_and_of_no_jobs(app: Detent, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "detent.client.app")
    await app.worker()
    assert "declares no jobs" in caplog.text
    caplog.clear()
    work = declare_jobs(app)
    app.limit(queue="limited", concurrency=1)
    await app.close()  # limits are declared when it is opened
    await work.using(queue="used").enqueue(act="good")
    await app.worker(queues=frozenset({"default", "limited", "used"}))
    assert not caplog.text
    await app.worker(queues=frozenset({"default", "typo"}))
    assert "no job, limit or pause has the queue typo; known queues: default, limited, used" in caplog.text


async def cpu_seconds_of_a_drain(url: str, *, hooks: bool) -> float:
    """CPU time of a worker for 10,000 no-op jobs; unlike the elapsed time it varies little on a busy machine."""
    app, called = Detent(url), list[int]()

    @app.job("noop")
    async def noop() -> None: ...

    async def count(ended: EndedExecution) -> None:
        called.append(ended.execution_no)

    async def around(ctx: Context, call_next: Next) -> Any:
        return await call_next()

    if hooks:
        for declare, hook in ((app.on_success, count), (app.on_failure, count), (app.on_dead_letter, count)):
            declare(hook)
        app.middleware(around)
    async with app:
        await noop.enqueue_many([{}] * 10_000)
        worker = await app.worker(slots=500, until_idle=True)
        began = time.process_time()
        await worker.run(handle_signals=False)
        spent = time.process_time() - began
    assert len(called) == 10_000 * hooks
    return spent


@pytest.mark.drill
async def test_hooks_and_middleware_cost_little(tmp_path: Path) -> None:
    """The throughput of a no-op drain with hooks and middleware is at least 0.9 of that without."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    for number in range(14):
        hooks = number % 2 == 0
        spent[hooks].append(await cpu_seconds_of_a_drain(f"sqlite:///{tmp_path / f'{number}.db'}", hooks=hooks))
    ratio = min(spent[False]) / min(spent[True])
    print(f"throughput with hooks and middleware: {ratio:.3f} of that without")
    assert ratio >= 0.9
