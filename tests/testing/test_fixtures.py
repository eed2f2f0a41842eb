"""The fixtures `detent_app` and `detent_worker`: a database in memory per test, and virtual time."""

import time
from datetime import timedelta
from typing import Any

import pytest

from detent import Context, Detent, EndedExecution, Retry
from detent.core.errors import InvalidInput
from detent.testing.memory import TestWorker, on_memory


def declare(app: Detent) -> dict[str, Any]:
    seen: list[Any] = []

    @app.job("child")
    async def child(n: int) -> int:
        return n * 2

    @app.job("charge", max_retries=2, backoff=[3600])
    async def charge(ctx: Context, order_id: int) -> str:
        if ctx.retries == 0:
            raise Retry("busy")
        answer = await ctx.wait_for("confirmed", timeout=86_400)
        doubled = await ctx.gather(ctx.enqueue(child, n=order_id))
        return f"{answer} {doubled[0]}"

    @app.schedule(cron="0 2 * * *")
    @app.job("report")
    def report() -> None:
        seen.append("report")

    return {"charge": charge, "child": child, "report": report, "seen": seen}


async def scenario(jobs: dict[str, Any], worker: TestWorker) -> None:
    handle = await jobs["charge"].enqueue(order_id=7)
    worker.assert_enqueued(jobs["charge"], order_id=7, times=1)
    await worker.drain()
    assert await handle.status() == "retrying"
    await worker.advance("59 m")
    assert await handle.status() == "retrying"
    await worker.advance(timedelta(minutes=1))
    assert await handle.status() == "parked"
    await handle.signal("confirmed", "yes")
    await worker.drain()
    assert await handle.result(timeout=0) == "yes 14"
    worker.assert_enqueued(jobs["child"], n=7)
    assert jobs["seen"] == []
    await worker.advance("2 d")
    assert jobs["seen"] == ["report", "report"]


@pytest.mark.anyio
async def test_retry_wait_child_and_schedule(detent_application: Detent) -> None:
    jobs = declare(detent_application)
    with on_memory(detent_application) as worker:
        await scenario(jobs, worker)


@pytest.mark.anyio
async def test_that_takes_less_than_a_tenth_of_a_second(detent_application: Detent) -> None:
    jobs = declare(detent_application)
    took = []
    for _ in range(3):
        began = time.perf_counter()
        with on_memory(detent_application) as worker:
            jobs["seen"].clear()
            await scenario(jobs, worker)
        took.append(time.perf_counter() - began)
    assert min(took) < 0.1


def test_plain_functions(detent_app: Detent, detent_worker: TestWorker) -> None:
    @detent_app.job("add")
    def add(a: int, b: int) -> int:
        return a + b

    handle = detent_app.sync.enqueue(add, a=1, b=2)
    assert handle.status() == "queued"
    assert detent_worker.sync.drain() == 1
    assert handle.result(timeout=0) == 3


@pytest.mark.parametrize("times", [None, 2])
def test_a_job_that_was_not_enqueued(detent_app: Detent, detent_worker: TestWorker, times: int | None) -> None:
    @detent_app.job("add")
    def add(a: int) -> int:
        return a

    detent_app.sync.enqueue(add, a=1)
    with pytest.raises(AssertionError, match=r"all add jobs: .*'a': 1"):
        detent_worker.assert_enqueued(add, a=1 if times else 2, times=times)


@pytest.mark.anyio
async def test_eager(detent_app: Detent, detent_worker: TestWorker) -> None:
    @detent_app.job("outer")
    async def outer() -> str:
        await inner.enqueue()
        return "done"

    @detent_app.job("inner")
    async def inner() -> str:
        return "done"

    with detent_worker.eager():
        handle = await outer.enqueue()
        assert await handle.result(timeout=0) == "done"
        (first,) = await inner.enqueue_many([{}])
        assert await first.result(timeout=0) == "done"
    assert [job.status for job in detent_worker.enqueued(inner)] == ["succeeded"] * 2
    later = await inner.enqueue()
    assert await later.status() == "queued"


@pytest.mark.anyio
async def test_hooks_and_limits_are_those_of_the_application() -> None:
    """A job that a hook enqueues runs in the same drain."""
    app, seen = Detent("sqlite:///:memory:", max_payload=100), list[str]()

    @app.job("work", max_retries=0)
    async def work(text: str) -> None:
        if text == "fail":
            raise ValueError(text)

    @app.on_success
    async def succeeded(ended: EndedExecution) -> None:
        seen.append(f"success {ended.payload['text']}")

    @app.on_failure
    async def failed(ended: EndedExecution) -> None:
        seen.append("failure")
        await work.enqueue(text="after the failure")

    with on_memory(app) as worker:
        await work.enqueue(text="fail")
        await worker.drain()
        assert seen == ["failure", "success after the failure"]
        with pytest.raises(InvalidInput):
            await work.enqueue(text="x" * 100)


def test_each_test_has_its_own_database(detent_app: Detent) -> None:
    app = Detent("sqlite:///:memory:")

    @app.job("add")
    def add() -> None: ...

    for _ in range(2):
        with on_memory(app) as worker:
            assert worker.enqueued(add) == []
            app.sync.enqueue(add)
            assert len(worker.enqueued(add)) == 1
    app.sync.close()
