"""Soft timeouts, cancel requests, forced cancels and the stop of a worker, as handlers meet them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent import Cancel, CancelRequested, Context, Detent, JobFailed, Snooze, SoftTimeout, SyncContext
from detent.core.errors import InvalidInput
from detent.core.outcome import Cancelled, Failed
from detent.worker.runner import outcome_of
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio


async def test_a_soft_timeout_is_raised_where_an_async_handler_awaits(app: Detent) -> None:
    """Also through task groups and gather, whose tasks are cancelled; the handler may still call its context."""
    cancelled: list[str] = []

    async def part(name: str) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    @app.job("partial", soft_timeout=0.1, timeout=30)
    async def partial(ctx: Context, how: str) -> list[str]:
        try:
            if how == "sleep":
                await part("sleep")
            elif how == "gather":
                await asyncio.gather(part("a"), part("b"))
            elif how == "step":
                await ctx.step("part", part, "step")
            else:
                async with asyncio.TaskGroup() as group:
                    group.create_task(part("c"))
                    group.create_task(part("d"))
        except SoftTimeout:
            assert ctx.cancelled and ctx.cancel_reason == "soft timeout"
            await ctx.step("clean up", asyncio.sleep, 0.001)
            return ["partial"]
        return ["complete"]

    async with working(app):
        for how in ("sleep", "gather", "step", "group"):
            assert await within(20, (await partial.enqueue(how=how)).result()) == ["partial"]
        assert sorted(cancelled) == ["a", "b", "c", "d", "sleep", "step"], "SoftTimeout is a CancelledError, too"


async def test_an_uncaught_soft_timeout_fails_the_execution_with_the_code_of_a_timeout(app: Detent) -> None:
    @app.job("slow", soft_timeout="0.1s", max_retries=1, backoff=[0])
    async def slow(ctx: Context) -> None:
        await asyncio.sleep(60 if ctx.execution_no == 1 else 0)

    @app.job("slow-thread", soft_timeout=0.1, max_retries=0)
    def slow_thread(ctx: SyncContext) -> None:
        while True:
            ctx.step("part", threading.Event().wait, 0.01)

    async with working(app, slots=2) as worker:
        handle = await slow.enqueue()
        await within(20, handle.result())
        assert (await handle.job()).execution_no == 2
        retried = next(event for event in await handle.events() if event["event"] == "job.retrying")
        assert retried["data"]["error_code"] == "JOB_TIMEOUT" and "soft timeout of 0.1 s" in str(retried["data"])
        thread = await slow_thread.enqueue()
        with pytest.raises(JobFailed) as failed:
            await within(20, thread.result())
        assert failed.value.extra["job_code"] == "JOB_TIMEOUT"
        await until(lambda: worker.state.free == 2)


async def test_the_timeout_still_ends_a_handler_that_ignores_its_soft_timeout(app: Detent) -> None:
    @app.job("stubborn", soft_timeout=0.05, timeout=0.3, max_retries=0)
    async def stubborn(ctx: Context) -> None:
        try:
            await asyncio.sleep(60)
        except SoftTimeout:
            await asyncio.sleep(60)

    async with working(app, slots=1) as worker:
        handle = await stubborn.enqueue()
        with pytest.raises(JobFailed) as failed:
            await within(20, handle.result())
        assert failed.value.extra["job_code"] == "JOB_TIMEOUT"
        assert "timeout of 0.3 s" in str((await handle.job()).error_message)
        await until(lambda: worker.state.free == 1)


async def test_the_context_knows_the_deadline(app: Detent) -> None:
    @app.job("work", timeout=timedelta(seconds=50))
    async def work(ctx: Context) -> float:
        assert ctx.deadline is not None
        return (ctx.deadline - datetime.now(UTC)).total_seconds()

    @app.job("no-limit")
    def no_limit(ctx: SyncContext) -> bool:
        return ctx.deadline is None

    async with working(app):
        assert 40 < await within(20, (await work.enqueue()).result()) <= 50
        assert 10 < await within(20, (await work.using(timeout="20s").enqueue()).result()) <= 20
        assert await within(20, (await no_limit.enqueue()).result())


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_cancel_request_is_raised_once_by_the_next_call_of_the_context(app: Detent, kind: str) -> None:
    """Steps of the clean-up run after it; no further model is called, although the handler catches Exception."""
    calls: list[str] = []
    started = threading.Event()

    def model(name: str) -> None:
        calls.append(name)

    @app.job("agent")
    async def agent(ctx: Context) -> None:
        started.set()
        await until(lambda: ctx.cancelled)
        for number in range(3):
            try:
                await ctx.step("model", model, f"call {number}")
            except CancelRequested as request:
                await ctx.step("clean up", model, f"clean up: {request.reason}")
                await ctx.step("report", model, "report")
                raise
            except Exception:
                continue

    @app.job("agent-thread")
    def agent_thread(ctx: SyncContext) -> None:
        started.set()
        while not ctx.cancelled:
            threading.Event().wait(0.01)
        try:
            ctx.progress(0.5)
        except CancelRequested as request:
            ctx.step("clean up", model, f"clean up: {request.reason}")
            ctx.step("report", model, "report")
            raise

    handle = await (agent if kind == "async" else agent_thread).enqueue()
    async with working(app, lease_seconds=1):
        await until(started.is_set)
        await handle.cancel("too expensive", actor="ann")
        await until(lambda: _is(handle, "cancelled"))
    assert calls == ["clean up: too expensive", "report"]
    last = (await handle.events())[-1]
    assert (last["actor"], last["data"]["reason"]) == ("ann", "too expensive")


async def _is(handle: Any, status: str) -> bool:
    return bool(await handle.status() == status)


async def test_every_call_of_the_context_raises_the_cancel_request(app: Detent) -> None:
    running: list[str] = []

    @app.job("other")
    async def other() -> None: ...

    async def transaction(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    calls: dict[str, Callable[[Context], Awaitable[Any]]] = {
        "wait_for": lambda ctx: ctx.wait_for("never"),
        "sleep": lambda ctx: ctx.sleep(60),
        "progress": lambda ctx: ctx.progress(0.1),
        "approval": lambda ctx: ctx.approval("may I?"),
        "enqueue": lambda ctx: _enqueue(ctx, other),
        "gather": lambda ctx: ctx.gather(),
        "transaction": transaction,
    }

    @app.job("work")
    async def work(ctx: Context, call: str) -> str:
        running.append(call)
        await until(lambda: ctx.cancelled)
        await calls[call](ctx)
        return "went on"

    async with working(app, lease_seconds=1):
        handles = await work.enqueue_many([{"call": call} for call in calls])
        await until(lambda: len(running) == len(calls))
        for handle in handles:
            await handle.cancel(actor="ann")
        for handle in handles:
            await until(lambda handle=handle: _is(handle, "cancelled"))
            events = [event["event"] for event in await handle.events() if not event["note"]]
            assert events[-2:] == ["job.claimed", "job.cancelled"]


async def _enqueue(ctx: Context, job: Any) -> None:
    await ctx.enqueue(job)


async def test_a_forced_cancel_ends_the_job_at_once_and_its_result_is_refused(app: Detent) -> None:
    """The handler of "standard" would get 30 seconds; the async one is stopped, the thread fenced."""
    started, stopped, go_on = threading.Event(), asyncio.Event(), threading.Event()

    @app.job("loop")
    async def loop() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    @app.job("thread")
    def thread() -> str:
        started.set()
        go_on.wait(30)
        return "too late"

    async with working(app, lease_seconds=1):
        handle = await loop.enqueue()
        await until(started.is_set)
        assert (await handle.cancel("now", force=True)).status == "cancelled"
        await within(20, stopped.wait())
        started.clear()
        handle = await thread.enqueue()
        await until(started.is_set)
        assert (await handle.cancel(force=True)).status == "cancelled"
        go_on.set()
        await until(lambda: _noted(handle, "settle.refused"))
        assert (await handle.job()).result is None


async def _noted(handle: Any, name: str) -> bool:
    return any(event["event"] == name for event in await handle.events())


async def test_a_handler_can_end_early_when_its_worker_stops(app: Detent) -> None:
    started = asyncio.Event()

    @app.job("long")
    async def long(ctx: Context) -> None:
        started.set()
        assert not ctx.stopping
        await until(lambda: ctx.stopping)
        assert not ctx.cancelled, "it may go on until the grace is over"
        raise Snooze(0)

    @app.job("ends")
    async def ends(ctx: Context) -> str:
        await until(lambda: ctx.stopping)
        return "done"

    handle, other = await long.enqueue(), await ends.enqueue()
    worker = await app.worker(grace_seconds=60)
    task = asyncio.create_task(worker.run(handle_signals=False))
    await within(20, started.wait())
    waiting = await long.enqueue()
    await until(lambda: len(worker.state.held) >= 2)
    worker.stop()
    assert await within(20, task) == 0
    job = await handle.job()
    assert (job.status, job.failures) == ("queued", 0), "released, and not charged"
    assert (await other.job()).result == '"done"'
    assert (await waiting.job()).failures == 0


async def test_the_grace_is_25_seconds_unless_the_settings_say_otherwise(app: Detent, tmp_path: Any) -> None:
    from detent.observability.settings import load_settings

    assert (await app.worker()).grace_seconds == 25
    file = tmp_path / "detent.toml"
    file.write_text("[worker]\ngrace_seconds = 4\nmax_jobs_per_process = 7\n")
    app.config = load_settings(str(file))
    assert (await app.worker()).grace_seconds == 4
    assert (await app.worker(grace_seconds=5)).grace_seconds == 5
    file.write_text("[worker]\ngrace_seconds = '4'\n")
    with pytest.raises(InvalidInput, match=r"worker.grace_seconds must be a number"):
        load_settings(str(file))
    with pytest.raises(InvalidInput, match="a worker has no option processes"):
        await app.worker(processes=2)
    with pytest.raises(InvalidInput, match="grace_seconds must be a number from 0"):
        await app.worker(grace_seconds=-1)


async def test_a_handler_may_still_raise_cancel(app: Detent) -> None:
    @app.job("work")
    async def work() -> None:
        raise Cancel("not needed")

    async with working(app):
        handle = await work.enqueue()
        await until(lambda: _is(handle, "cancelled"))


async def test_cancel_requests_from_a_task_group_cancel_the_job(app: Detent) -> None:
    """With another exception among them the execution fails."""

    async def work() -> None: ...

    handler, codes = app.job("work")(work).handler, {"execution_failed": "FAILED"}
    nested = BaseExceptionGroup("tasks", [BaseExceptionGroup("inner", [CancelRequested("enough")])])
    assert outcome_of(nested, handler, codes) == Cancelled("enough")
    mixed = BaseExceptionGroup("tasks", [CancelRequested("enough"), ValueError("broken")])
    assert isinstance(outcome_of(mixed, handler, codes), Failed)
