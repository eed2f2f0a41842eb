"""Worker processes that are stopped, suspended, blocked and terminated."""

import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.core.contract.model import Phase
from detent.engine import Engine
from support.pids import gone
from support.waiting import until, until_now, within
from support.worker.job_app import CONTRACTS
from support.worker.processes import Bench, bench_in

pytestmark = pytest.mark.anyio
HANDED_BACK = {
    # contract: (status, failures) after a shutdown; streams lets the lease expire
    "gate-b2": ("retrying", 1),
    "men": ("ready", 1),
    "p3c": ("interrupted", 0),
    "streams": ("running", 0),
    "formal": ("Queued", 0),
    "standard": ("queued", 0),
}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_in(tmp_path) as bench:
        yield bench


def stop(process: subprocess.Popen[bytes], *, within_seconds: float) -> int:
    """Send SIGTERM and return the exit code; some seconds are added, because the machine may be busy."""
    process.terminate()
    return process.wait(within_seconds + 10)


async def test_a_suspended_worker_is_refused_noted_and_stops_its_handler(bench: Bench) -> None:
    """SIGSTOP for longer than the lease, then SIGCONT: meanwhile another worker has run the job."""
    async with bench.app as app:
        lease = {"lease_seconds": 1.0, "slots": 4}
        suspended = bench.start(**lease)
        held = await app.jobs["hold-standard"].enqueue()
        late = await app.jobs["thread"].enqueue(seconds=1.0)
        await until(lambda: held.id in bench.diary_entries("started") and late.id in bench.diary_entries("thread"))
        suspended.send_signal(signal.SIGSTOP)
        engine = await app.ready()
        await until(lambda: _expired(engine, held.id, late.id))
        other = bench.start(**lease)
        assert await within(30, late.result()) == "execution 2"
        await until(lambda: bench.diary_entries("started").count(held.id) == 2)
        assert held.id not in bench.diary_entries("stopped")
        suspended.send_signal(signal.SIGCONT)
        await until(lambda: held.id in bench.diary_entries("stopped"))
        await until(lambda: _notes(bench, late.id, "settle.refused"))
        job = await late.job()
        assert (job.status, job.result, job.execution_no) == ("succeeded", '"execution 2"', 2)
        owner = (await held.job()).worker or ""
        assert f"-{other.pid}-" in owner, "the worker that holds the job now is not disturbed"
        assert bench.diary_entries("stopped").count(held.id) == 1


async def _expired(engine: Engine, *ids: str) -> bool:
    """Sweep like another process; True when the leases have expired."""
    await engine.expire()
    return not [job_id for job_id in ids if (await engine.jobs.get(job_id)).phase is Phase.LEASED]


@pytest.mark.long
async def test_a_suspended_worker_does_not_outlast_a_timeout(bench: Bench) -> None:
    """Its lease is long, its timeout is not: SIGSTOP while the handler runs, SIGCONT after the sweep."""
    async with bench.app as app:
        suspended = bench.start(lease_seconds=60.0)
        late = await app.jobs["thread"].using(timeout=1.5, max_retries=0).enqueue(seconds=2.5)
        await until(lambda: late.id in bench.diary_entries("thread"))
        suspended.send_signal(signal.SIGSTOP)
        engine = await app.ready()
        await until(lambda: _expired(engine, late.id))
        suspended.send_signal(signal.SIGCONT)
        await until(lambda: _notes(bench, late.id, "settle.refused"))
        job = await late.job()
        assert (job.status, job.error_code, job.execution_no) == ("failed", "JOB_TIMEOUT", 1)


async def test_a_handler_that_blocks_the_event_loop_does_not_outlast_its_timeout(bench: Bench) -> None:
    """The worker cannot stop it and its heartbeats go on; the success comes later than the timeout."""
    async with bench.app as app:
        bench.start(lease_seconds=60.0)
        late = await app.jobs["block"].using(timeout=0.2, max_retries=0).enqueue(seconds=0.5)
        await until(lambda: _notes(bench, late.id, "settle.refused"))
        engine = await app.ready()
        await until(lambda: _expired(engine, late.id))
        job = await late.job()
        assert (job.status, job.error_code, job.execution_no) == ("failed", "JOB_TIMEOUT", 1)


def _notes(bench: Bench, job_id: str, name: str) -> list[Any]:
    return bench.sql("SELECT n FROM detent_notes WHERE job_id = ? AND name = ?", job_id, name)


@pytest.mark.long
async def test_a_blocked_loop_loses_no_other_lease(bench: Bench) -> None:
    """One handler blocks the event loop for three leases while other jobs run, wait for a slot, or have just ended."""
    lease = 2.0
    async with bench.app as app:
        engine = await app.ready()
        handles = await app.jobs["nap"].enqueue_many([{"seconds": s} for s in (0.1, 0.11, 0.12, 6.1)])
        handles += await app.jobs["block"].enqueue_many([{"seconds": 3 * lease + 0.2}] * 1)
        handles += await app.jobs["quick-p3c"].enqueue_many([{"n": 1}])
        bench.start(lease_seconds=lease, slots=len(handles))
        await until(lambda: bench.diary_entries("blocking"))
        blocked = time.monotonic()
        while bench.ended() < len(handles):
            assert await engine.expire() == [], f"a lease was lost {time.monotonic() - blocked:.1f} s into the block"
            assert time.monotonic() - blocked < 60
        assert {(await handle.job()).execution_no for handle in handles} == {1}
        assert not bench.sql("SELECT * FROM detent_notes WHERE name = 'settle.refused'")


async def test_a_stop_under_load_hands_jobs_back_by_the_rule_of_each_contract(bench: Bench) -> None:
    async with bench.app as app:
        process = bench.start(slots=24, lease_seconds=30, grace_seconds=1.0)
        held = {name: await app.jobs[f"hold-{name}"].enqueue() for name in CONTRACTS}
        await until(lambda: len(bench.diary_entries("started")) == len(held))
        for name in CONTRACTS:
            await app.jobs[f"quick-{name}"].enqueue_many([{"n": n} for n in range(150)])
        await until(lambda: bench.ended() > 30)
        begun = time.monotonic()
        assert stop(process, within_seconds=1.0) == 0
        print(f"\nended {time.monotonic() - begun:.2f} s after SIGTERM, the grace was 1 s")
        for name, handle in held.items():
            job = await handle.job()
            assert (job.status, job.failures) == HANDED_BACK[name], name
        assert {handle.id for handle in held.values()} == set(bench.diary_entries("stopped"))
        charged = bench.sql(
            "SELECT contract, count(*) FROM detent_job_list WHERE job_type LIKE 'quick-%' AND failures > 0 GROUP BY 1"
        )
        assert {contract for contract, _ in charged} <= {"gate-b2", "men"}, "other contracts do not charge a stop"
        left = bench.sql("SELECT DISTINCT contract FROM detent_job_list WHERE phase = 'leased'")
        assert left == [("streams",)]
        assert not bench.sql("SELECT * FROM detent_workers"), "its row is deleted"
        assert 30 < bench.ended() < 900


async def test_work_that_ends_within_the_grace_is_not_interrupted(bench: Bench) -> None:
    async with bench.app as app:
        process = bench.start(grace_seconds=20)
        handle = await app.jobs["nap"].enqueue(seconds=0.7)
        await until(lambda: bench.diary_entries("napping"))
        begun = time.monotonic()
        assert stop(process, within_seconds=20) == 0
        assert time.monotonic() - begun < 15, "it waits for the job, not for the grace"
        job = await handle.job()
        assert (job.status, job.execution_no) == ("succeeded", 1)


async def test_a_second_signal_stops_at_once(bench: Bench) -> None:
    async with bench.app as app:
        process = bench.start(grace_seconds=300, lease_seconds=1.0)
        handle = await app.jobs["hold-standard"].enqueue()
        await until(lambda: bench.diary_entries("started"))
        process.terminate()
        await until(lambda: bench.sql("SELECT 1 FROM detent_workers WHERE state = 'stopping'"))
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        job = await handle.job()
        assert (job.status, job.failures) == ("queued", 0) and bench.diary_entries("stopped") == [handle.id]


@pytest.mark.parametrize(("job_type", "payload"), [("thread", {"seconds": 60}), ("stubborn", {})])
async def test_a_handler_that_does_not_end_does_not_keep_the_process_alive(
    bench: Bench, job_type: str, payload: dict[str, Any]
) -> None:
    """A thread cannot be interrupted, and a coroutine may swallow its cancellation."""
    async with bench.app as app:
        process = bench.start(grace_seconds=0.2)
        handle = await app.jobs[job_type].enqueue(**payload)
        await until(lambda: bench.diary_entries(job_type))
        assert stop(process, within_seconds=3) == 0
        job = await handle.job()
        assert (job.status, job.failures) == ("queued", 0)


async def test_a_busy_child_process_does_not_keep_its_worker_alive(bench: Bench) -> None:
    """Also: an exception that cannot be unpickled does not break the pool, and a broken pool is created again."""
    async with bench.app as app:
        process = bench.start(grace_seconds=0.2, slots=1, handler_processes=1)
        compute = app.jobs["compute"]
        unpicklable, dies = await compute.enqueue(act="unpicklable"), await compute.enqueue(act="die")
        fine = await compute.enqueue(act="fine")
        child = await within(60, fine.result())
        assert child != process.pid
        assert "Unpicklable" in ((await unpicklable.job()).error_message or "")
        assert (await dies.job()).error_code == "HANDLER_PROCESS_DIED"
        hangs = await compute.enqueue(act="hang")
        await until(lambda: bench.diary_entries("hanging"))
        assert stop(process, within_seconds=3) == 0
        assert (await hangs.job()).status == "queued"
        until_now(lambda: gone(child))


async def test_two_signals_end_even_a_blocked_loop(bench: Bench) -> None:
    async with bench.app as app:
        process = bench.start(lease_seconds=1.0)
        await app.jobs["block"].enqueue(seconds=60)
        await until(lambda: bench.diary_entries("blocking"))
        process.terminate()
        begun = time.monotonic()
        await until(lambda: time.monotonic() - begun > 1.2)
        assert process.poll() is None, "one signal waits for the loop"
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM


async def test_wakes_on_an_enqueue_in_another_process(bench: Bench) -> None:
    """The median time from the call of enqueue to the start of the handler; the goal on an idle machine is 12 ms."""
    async with bench.app as app:
        bench.start(slots=4)
        times_ms = []
        for number in range(45):
            handle = await app.jobs["stamp"].enqueue(sent=time.time())
            seconds = await within(30, handle.result())
            if number >= 5:
                times_ms.append(seconds * 1_000)
            pause = time.monotonic() + 0.02
            await until(lambda pause=pause: time.monotonic() > pause)
        middle = statistics.median(times_ms)
        print(f"\npickup across processes: p50 {middle:.1f} ms, p90 {statistics.quantiles(times_ms, n=10)[-1]:.1f} ms")
        assert middle < 100
