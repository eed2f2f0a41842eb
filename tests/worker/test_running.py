"""What a worker claims, when it wakes, and how it stops handlers."""

import asyncio
import threading
import time
from typing import Any

import pytest

from detent import Cancel, Context, Detent, SyncContext
from detent.core.access import Scope
from detent.core.errors import JobFailed
from detent.engine import Submission
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


async def test_claims_only_what_it_can_run(app: Detent) -> None:
    @app.job("runnable", queue="mail")
    async def runnable() -> int:
        return 1

    engine = await app.ready()
    unknown = (await engine.jobs.submit(Submission("unknown", queue="mail"))).job
    other_queue = await runnable.using(queue="other").enqueue()
    handle = await runnable.enqueue()
    async with working(app, queues=frozenset({"mail"})) as worker:
        assert await within(10, handle.result()) == 1
        await within(10, worker.idle.wait())
        assert (await engine.jobs.get(unknown.id)).execution_no == 0
        assert (await other_queue.job()).execution_no == 0
    assert (await engine.jobs.get(unknown.id)).phase == "claimable"


@pytest.mark.parametrize("plain", [False, True], ids=["async", "thread"])
async def test_never_more_at_once_than_slots(app: Detent, plain: bool) -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def count(step: int) -> None:
        nonlocal running, most
        with lock:
            running += step
            most = max(most, running)

    if plain:

        @app.job("work")
        def work_plain(n: int) -> None:
            count(1)
            time.sleep(0.002)
            count(-1)

        job: Any = work_plain
    else:

        @app.job("work")
        async def work(n: int) -> None:
            count(1)
            await asyncio.sleep(0.002)
            count(-1)

        job = work
    handles = await job.enqueue_many([{"n": n} for n in range(60)])
    async with working(app, slots=3):
        for handle in handles:
            await within(20, handle.result())
    assert most == 3


async def test_a_paused_queue_is_left_alone_until_it_is_resumed(app: Detent) -> None:
    @app.job("work", queue="mail")
    async def work() -> int:
        return 1

    engine = await app.ready()
    await engine.limits.pause("queue", "mail", Scope("ann", "not now"))
    handle = await work.enqueue()
    async with working(app) as worker:
        await within(10, worker.idle.wait())
        marker = app.jobs["work"].using(queue="open")
        await within(10, (await marker.enqueue()).result())
        assert (await handle.job()).execution_no == 0
        await engine.limits.resume("queue", "mail", Scope("ann"))
        assert await within(10, handle.result()) == 1


async def test_wakes_at_once_on_an_enqueue_in_the_same_process(app: Detent) -> None:
    """The median time from the call of enqueue to the start of the handler; also printed."""
    started: dict[int, float] = {}

    @app.job("work")
    async def work(n: int) -> None:
        started[n] = time.perf_counter()

    took = []
    async with working(app) as worker:
        for n in range(60):
            await within(10, worker.idle.wait())
            before = time.perf_counter()
            await work.enqueue(n=n)
            await until(lambda n=n: n in started)
            took.append(started[n] - before)
    middle = sorted(took)[len(took) // 2] * 1_000
    print(f"\npickup in process, from the call of enqueue: p50 {middle:.2f} ms")
    assert middle < 50


async def test_a_job_due_later_starts_when_it_is_due(app: Detent) -> None:
    @app.job("work")
    async def work() -> float:
        return time.time()

    async with working(app):
        due = time.time() + 0.4
        assert 0 <= await within(10, (await work.using(delay=0.4).enqueue()).result()) - due < 2


@pytest.mark.parametrize(
    ("contract", "code"), [("standard", "JOB_TIMEOUT"), ("gate-b2", "JOB_TIMEOUT"), ("men", "TASK_RETRY_EXHAUSTED")]
)
async def test_a_deadline_before_the_result_wins(app: Detent, contract: str, code: str) -> None:
    stopped = asyncio.Event()
    retries = {} if contract == "gate-b2" else {"max_retries": 0}

    @app.job("slow", contract=contract, timeout=0.1, **retries)  # type: ignore[arg-type]
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    handle = await slow.enqueue()
    async with working(app):
        await within(10, stopped.wait())
        await until(lambda: _failed(handle))
        job = await handle.job()
        events = await handle.events()
        if contract == "gate-b2":
            assert job.error_code == code and job.failures == 1 and job.phase == "claimable"
        else:
            assert (job.error_code, job.phase) == (code, "final")
        assert any("0.1 s" in str(event["data"]) for event in events)
        if contract == "men":
            assert "TASK_TIMEOUT" in (job.error_message or "")


async def _failed(handle: Any) -> bool:
    return (await handle.job()).failures == 1


async def test_a_result_before_the_deadline_wins(app: Detent) -> None:
    @app.job("quick", timeout=0.3)
    async def quick() -> str:
        await asyncio.sleep(0.05)
        return "in time"

    async with working(app):
        handle = await quick.enqueue()
        assert await within(10, handle.result()) == "in time"
        await asyncio.wait_for(_past(0.4), 10)
        assert (await handle.job()).status == "succeeded"


async def _past(seconds: float) -> None:
    end = time.monotonic() + seconds
    await until(lambda: time.monotonic() > end)


async def test_a_handler_that_swallows_its_cancellation_keeps_its_slot_but_not_its_job(app: Detent) -> None:
    go_on, seen = asyncio.Event(), []

    @app.job("stubborn", timeout=0.1, max_retries=0)
    async def stubborn() -> str:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
        return "too late"

    @app.job("other")
    async def other() -> int:
        return 1

    handle = await stubborn.enqueue()
    async with working(app, slots=2) as worker:
        await until(lambda: seen)
        with pytest.raises(JobFailed) as failed:
            await within(10, handle.result())
        assert failed.value.extra["job_code"] == "JOB_TIMEOUT"
        assert (worker.state.abandoned, worker.state.free) == (1, 1)
        assert await within(10, (await other.enqueue()).result()) == 1
        go_on.set()
        await until(lambda: worker.state.abandoned == 0)
        await until(lambda: _noted(handle, "settle.refused"))
        assert (await handle.job()).result is None
        assert await within(10, (await other.enqueue()).result()) == 1


async def _noted(handle: Any, name: str) -> bool:
    return any(event["event"] == name and event["note"] for event in await handle.events())


async def test_a_slot_survives_cancellations_inside_the_handler(app: Detent) -> None:
    """A cancelled inner task, and the late cancellation of a job that was claimed again."""
    executions = []

    @app.job("inner", max_retries=0)
    async def inner() -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    @app.job("again", contract="men", timeout=0.1, max_retries=1)
    async def again(ctx: Context) -> int:
        executions.append(ctx.execution_no)
        if ctx.execution_no > 1:
            return ctx.execution_no
        try:
            await asyncio.sleep(60)
        finally:  # cleans up until this worker has claimed the job again
            await until(lambda: len(executions) > 1)
        return 0

    both_run = asyncio.Barrier(2)

    @app.job("pair")
    async def pair() -> int:
        await both_run.wait()
        task = asyncio.current_task()
        return task.cancelling() if task else -1

    async with working(app, slots=2) as worker:
        with pytest.raises(JobFailed) as failed:
            await within(10, (await inner.enqueue()).result())
        assert failed.value.extra["job_code"] == "JOB_EXECUTION_FAILED"
        assert await within(10, (await again.enqueue()).result()) == 2
        await until(lambda: (worker.state.abandoned, worker.state.free) == (0, 2))
        handles = await pair.enqueue_many([{}, {}])
        assert [await within(10, handle.result()) for handle in handles] == [0, 0]


async def test_a_thread_past_its_timeout_loses_its_job_and_keeps_its_slot(app: Detent) -> None:
    go_on = threading.Event()
    started: list[int] = []

    @app.job("slow", timeout=0.1, max_retries=0)
    def slow(ctx: SyncContext) -> str:
        started.append(1)
        go_on.wait(30)
        assert ctx.cancelled and ctx.cancel_reason == "timeout"
        return "too late"

    @app.job("quick")
    def quick() -> int:
        return 1

    first, second = await slow.enqueue(), await slow.enqueue()
    async with working(app, slots=2) as worker:
        await until(lambda: worker.state.abandoned == 2)
        waiting = await quick.enqueue()
        for handle in (first, second):
            with pytest.raises(JobFailed) as failed:
                await within(10, handle.result())
            assert failed.value.extra["job_code"] == "JOB_TIMEOUT"
        assert worker.state.free == 0
        await asyncio.wait_for(_past(0.3), 10)
        assert (await waiting.job()).execution_no == 0, "no slot is free, so nothing may be claimed"
        go_on.set()
        assert await within(10, waiting.result()) == 1
        await until(lambda: _noted(first, "settle.refused"))
        assert (await first.job()).status == (await second.job()).status == "failed"
    assert len(started) == 2


@pytest.mark.parametrize("contract", ["p3c", "men"])
async def test_an_immediate_cancel_ends_the_job_and_stops_the_handler(app: Detent, contract: str) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @app.job("long", contract=contract)
    async def long(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    handle = await long.enqueue()
    async with working(app, lease_seconds=1.0) as worker:
        await within(10, started.wait())
        job = await handle.cancel("no need", actor="ann")
        assert job.status == "cancelled" and not stopped.is_set()
        await within(10, stopped.wait())
        await until(lambda: worker.state.free == worker.state.slots)
        with pytest.raises(JobFailed) as failed:
            await handle.result()
        assert failed.value.extra["status"] == "cancelled"


async def test_the_late_result_of_a_cancelled_thread_is_refused_and_noted(app: Detent) -> None:
    started, go_on = threading.Event(), threading.Event()

    @app.job("long", contract="p3c")
    def long(ctx: SyncContext) -> str:
        started.set()
        go_on.wait(30)
        return "too late"

    handle = await long.enqueue()
    async with working(app, lease_seconds=1.0) as worker:
        await until(started.is_set)
        await handle.cancel(actor="ann")
        await until(lambda: worker.state.abandoned == 1)
        go_on.set()
        await until(lambda: _noted(handle, "settle.refused"))
        job = await handle.job()
        assert (job.status, job.result) == ("cancelled", None)


async def test_a_cooperative_cancel_reaches_the_handler(app: Detent) -> None:
    started, reasons = asyncio.Event(), []

    @app.job("long")
    async def long(ctx: Context) -> None:
        started.set()
        await until(lambda: ctx.cancelled)
        reasons.append(ctx.cancel_reason)
        raise Cancel("on request")

    handle = await long.enqueue()
    async with working(app, lease_seconds=1.0):
        await within(10, started.wait())
        assert (await handle.cancel("wrong address", actor="ann")).phase == "leased"
        await until(lambda: _is(handle, "cancelled"))
    assert reasons == ["wrong address"]
    last = (await handle.events())[-1]
    assert last["actor"] == "ann" and last["data"]["reason"] == "wrong address"


async def test_a_result_before_the_end_of_the_grace_counts(app: Detent) -> None:
    started = asyncio.Event()

    @app.job("long")
    async def long(ctx: Context) -> str:
        started.set()
        await until(lambda: ctx.cancelled)
        return "almost there anyway"

    handle = await long.enqueue()
    async with working(app, lease_seconds=1.0):
        await within(10, started.wait())
        await handle.cancel(actor="ann")
        assert await within(10, handle.result()) == "almost there anyway"


async def test_a_handler_that_ignores_the_request_is_forced(app: Detent) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @app.job("long")
    async def long(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    handle = await long.enqueue()
    async with working(app, lease_seconds=1.0, cancel_grace_seconds=0.2):
        await within(10, started.wait())
        await handle.cancel(actor="ann")
        await within(10, stopped.wait())
        await until(lambda: _is(handle, "cancelled"))


async def _is(handle: Any, status: str) -> bool:
    return bool(await handle.status() == status)


async def test_a_lost_lease_stops_the_handler(app: Detent) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @app.job("long")
    async def long(ctx: Context) -> int:
        if ctx.execution_no > 1:
            return ctx.execution_no
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            assert ctx.cancelled
            stopped.set()
        return 0

    handle = await long.enqueue()
    async with working(app, lease_seconds=1.0):
        await within(10, started.wait())
        await _expire(app, handle.id)
        await within(10, stopped.wait())
        assert await within(10, handle.result()) == 2


async def _expire(app: Detent, job_id: str) -> None:
    """Expire the lease as another process would."""
    engine = await app.ready()

    async def act(tx: Any) -> None:
        tx.queries.connection.execute("UPDATE detent_jobs SET lease_until = 0 WHERE id = ?", (job_id,))

    await engine.store.write(act)
    await engine.expire()


async def test_until_idle_ends_when_no_work_is_left(app: Detent) -> None:
    done = []

    @app.job("work")
    async def work(n: int) -> None:
        done.append(n)

    await work.enqueue_many([{"n": n} for n in range(5)])
    await work.using(delay=0.5).enqueue(n=5)
    await work.using(delay=3600).enqueue(n=6)
    worker = await app.worker(until_idle=True)
    assert await within(20, worker.run(handle_signals=False)) == 0
    assert sorted(done) == [0, 1, 2, 3, 4, 5]
