"""`app.sync`: the client for code without an event loop, from one thread or several."""

import asyncio
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from detent import Context, Detent, Handle, SyncContext
from detent.client.dead_letters import DeadLetters
from detent.client.jobs import Jobs
from detent.client.schedules import Schedules
from detent.client.sync import SyncDeadLetters, SyncHandle, SyncJobs, SyncSchedules
from detent.core.errors import JobFailed, NotFound


@contextmanager
def running_worker(app: Detent) -> Iterator[None]:
    """Run a worker in a thread until the end of the block."""
    stop: list[object] = []
    started = threading.Event()

    async def main() -> None:
        worker = await app.worker()
        stop.append((asyncio.get_running_loop(), worker.stop))
        started.set()
        await worker.run(handle_signals=False)
        await app.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert started.wait(30)
    try:
        yield
    finally:
        for loop, call in stop:  # type: ignore[misc]
            loop.call_soon_threadsafe(call)
        thread.join(30)
        assert not thread.is_alive()


def loops() -> list[threading.Thread]:
    """Threads of blocking clients, those of other tests included."""
    return [thread for thread in threading.enumerate() if thread.name == "detent-sync"]


def test_enqueue_and_wait_without_a_loop(plain: Detent) -> None:
    @plain.job("add")
    async def add(n: int, m: int = 1) -> int:
        return n + m

    @plain.job("fail")
    def fail() -> None:
        raise ValueError("no")

    with running_worker(plain):
        handle = plain.sync.enqueue(add, n=2, m=3)
        assert handle.result(timeout=20) == 5
        assert handle.status() == "succeeded" and handle.show()["result"] == 5
        assert [event["event"] for event in handle.events()] == ["job.created", "job.claimed", "job.succeeded"]
        many = plain.sync.enqueue_many(add, [{"n": n} for n in range(5)])
        assert [handle.result(20) for handle in many] == [1, 2, 3, 4, 5]
        bad = plain.sync.run(fail.using(max_retries=0).enqueue())
        with pytest.raises(JobFailed):
            plain.sync.run(bad.result(20))


def test_from_several_threads_at_once(plain: Detent) -> None:
    @plain.job("add")
    async def add(n: int) -> int:
        return n

    ids: list[str] = []

    def work(first: int) -> None:
        ids.extend([plain.sync.enqueue(add, n=first + n).id for n in range(20)])

    before = len(loops())
    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(ids)) == 160
    assert len(loops()) == before + 1


def test_signal_cancel_and_the_key_without_a_loop(plain: Detent) -> None:
    @plain.job("wait")
    async def wait() -> None: ...

    handle = plain.sync.enqueue(wait.using(key="k"))
    again = plain.sync.enqueue(wait.using(key="k"))
    assert (handle.hit, again.hit, again.id) == (False, True, handle.id)
    assert handle.signal("go", {"by": "ana"}) is True
    assert handle.signal("go", {"by": "bob"}) is False
    assert handle.cancel("no need").status == "cancelled"
    with pytest.raises(JobFailed):
        handle.result(timeout=5)


def test_result_with_a_timeout(plain: Detent) -> None:
    @plain.job("wait")
    async def wait() -> None: ...

    handle = plain.sync.enqueue(wait)
    with pytest.raises(TimeoutError, match="and continues"):
        handle.result(timeout=0.05)
    assert handle.status() == "queued"


def test_close_ends_the_thread_and_the_next_call_opens_again(plain: Detent) -> None:
    @plain.job("wait")
    async def wait() -> None: ...

    before = len(loops())
    plain.sync.enqueue(wait)
    plain.sync.close()
    plain.sync.close()
    assert len(loops()) == before
    assert plain.sync.enqueue(wait).status() == "queued"


def test_from_inside_a_running_loop(plain: Detent) -> None:
    """A blocking call inside a running event loop works, because the client has its own loop."""

    @plain.job("wait")
    async def wait() -> None: ...

    async def main() -> str:
        status = plain.sync.enqueue(wait).status()
        await plain.close()
        return status

    assert asyncio.run(main()) == "queued"


def coroutine_methods(cls: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(cls, inspect.iscoroutinefunction) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("original", "twin", "internal"),
    [
        (Handle, SyncHandle, set()),
        (Schedules, SyncSchedules, {"declare"}),
        (DeadLetters, SyncDeadLetters, set()),
        (Jobs, SyncJobs, set()),
        (Context, SyncContext, {"begin_transaction", "finish", "close"}),
    ],
)
def test_blocking_classes_have_every_async_method(original: type, twin: type, internal: set[str]) -> None:
    names = coroutine_methods(original) - internal
    assert len(names) >= 6 and not coroutine_methods(twin)
    for name in names:
        ours, theirs = inspect.signature(getattr(twin, name)), inspect.signature(getattr(original, name))
        assert ours.parameters == theirs.parameters, name
        assert "await " not in getattr(twin, name).__doc__


def test_schedules_and_dead_letters_without_a_loop(plain: Detent) -> None:
    @plain.job("report")
    def report(region: str) -> None: ...

    schedule = plain.sync.schedules.add("nightly", report, {"region": "eu"}, cron="30 2 * * *")
    assert plain.sync.schedules.get("nightly") == schedule
    assert plain.sync.schedules.edit("nightly", queue="slow").queue == "slow"
    assert plain.sync.dead_letters.list() == []
    with pytest.raises(NotFound):
        plain.sync.dead_letters.requeue("00000000-0000-4000-8000-000000000000", reason="none")
