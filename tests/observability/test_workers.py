"""Workers: listing them, remote drain and stop, and the report after one is lost."""

import asyncio
from pathlib import Path

import pytest

from detent import Context, Detent
from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.engine.reads import workers
from detent.worker.reclaim_grace import ReclaimGrace
from detent.worker.sweeper import Sweeper
from support.acts import LEASE_SECONDS, NAMES, claim, refused, submit
from support.clock import FakeClock
from support.waiting import until, until_now
from support.worker.processes import Bench, bench_in

from .test_alerts import register_worker

pytestmark = pytest.mark.anyio


async def test_a_command_needs_a_live_worker(engine: Engine, clock: FakeClock) -> None:
    await refused(engine.workers.send_command("nobody", workers.DRAIN, Scope("ann")), "WORKER_NOT_FOUND", 404)
    await register_worker(engine, "w1")
    await refused(engine.workers.send_command("w1", "explode", Scope("ann")), "WORKER_ORDER_INVALID", 422)
    await engine.workers.send_command("w1", workers.DRAIN, Scope("ann", "deploy"))
    seen = await engine.workers.overview()
    assert seen.views()[0]["order"]["act"] == "drain"
    (_, _, entry) = (await engine.audit())[0]
    assert (entry.actor, entry.act, entry.subject, entry.reason) == ("ann", "worker.drain", "w1", "deploy")
    clock.advance(1_000)
    await refused(engine.workers.send_command("w1", workers.STOP, Scope("ann")), "WORKER_NOT_FOUND")


async def test_held_jobs_of_a_worker(engine: Engine, clock: FakeClock) -> None:
    await register_worker(engine, "w1", "mail", "report")
    job = await submit(engine, job_type="report", queue="slow")
    await claim(engine, 1, worker="w1")
    (view,) = (await engine.workers.overview()).views()
    assert [(held["id"], held["job_type"], held["queue"]) for held in view["held"]] == [(job.id, "report", "slow")]
    assert view["job_types"] == ["mail", "report"] and view["live"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_recovery_is_reported(engine: Engine, clock: FakeClock, name: str) -> None:
    await register_worker(engine, "dies")
    jobs = [await submit(engine, name) for _ in range(3)]
    assert len(await claim(engine, 3, worker="dies")) == 3
    clock.advance(LEASE_SECONDS + 2)
    if CONTRACTS[name].loss.move == "RECLAIM":
        taken = await engine.claim(engine.claim_request("heir", 3, LEASE_SECONDS, reclaim=True))
        assert len(taken) == 3
    else:
        assert len(await engine.expire()) == 3
    (report,) = [recovery.view() for recovery in await engine.workers.recoveries()]
    assert report["worker"] == "dies" and report["reclaimed"] == 3
    assert report["charged"] == (3 if CONTRACTS[name].loss.charged and CONTRACTS[name].loss.move != "RECLAIM" else 0)
    assert report["took_seconds"] == LEASE_SECONDS + 2
    assert {held_job["id"] for held_job in report["jobs"]} == {job.id for job in jobs}
    for held_job in report["jobs"]:
        assert held_job["status"] == (await engine.jobs.get(held_job["id"])).status


async def test_the_sweeper_logs_a_loss(engine: Engine, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    await register_worker(engine, "dies")
    await submit(engine)
    await claim(engine, 1, worker="dies")
    sweeper = Sweeper(engine, clock, ReclaimGrace(1_000.0))
    clock.advance(LEASE_SECONDS + 1)
    await sweeper.sweep()
    assert "loss of worker dies: 1 jobs reclaimed, 1 counted as failures, 0 failed permanently" in caplog.text


@pytest.fixture
def bench(tmp_path: Path):
    with bench_in(tmp_path) as bench:
        yield bench


def lone_worker(bench: Bench) -> str:
    return str(until_now(lambda: bench.sql("SELECT id FROM detent_workers"))[0][0])


async def test_remote_drain_of_a_worker_process(bench: Bench) -> None:
    """Running jobs finish, no new job is claimed, and the process exits with 0."""
    app = bench.app
    process = bench.start(slots=2, lease_seconds=2)
    nap = app.jobs["nap"]
    first = await nap.enqueue(seconds=1.5)
    await until(lambda: bench.diary_entries("napping"))
    engine = await app.ready()
    await engine.workers.send_command(lone_worker(bench), workers.DRAIN, Scope("ann"))
    await until(lambda: "draining" in str(bench.sql("SELECT state FROM detent_workers")) or process.poll() is not None)
    second = await nap.enqueue(seconds=0)
    assert await asyncio.to_thread(process.wait, 30) == 0
    assert await first.status() == "succeeded"
    assert await second.status() == "queued"
    assert bench.sql("SELECT count(*) FROM detent_worker_commands") == [(0,)]
    await app.close()


async def test_remote_stop_of_a_worker_process(bench: Bench) -> None:
    app = bench.app
    process = bench.start(slots=2, lease_seconds=2, grace_seconds=0.2)
    job = await app.jobs["nap"].enqueue(seconds=60)
    await until(lambda: bench.diary_entries("napping"))
    engine = await app.ready()
    await engine.workers.send_command(lone_worker(bench), workers.STOP, Scope("ann"))
    assert await asyncio.to_thread(process.wait, 30) == 0
    assert await job.status() == "queued"
    await app.close()


async def test_a_killed_worker_leaves_a_report(bench: Bench) -> None:
    app = bench.app
    process = bench.start(slots=4, lease_seconds=1)
    await app.jobs["nap"].enqueue_many([{"seconds": 60}] * 3)
    await until(lambda: len(bench.diary_entries("napping")) == 3)
    lost = lone_worker(bench)
    process.kill()
    process.wait()
    other = bench.start(slots=4, lease_seconds=1, ready=False)
    engine = await app.ready()
    (report,) = await until(lambda: engine.workers.recoveries())
    assert report.worker == lost
    assert await until(lambda: _reclaimed(engine, 3))
    assert report.duration < 30_000_000
    other.terminate()
    await app.close()


async def _reclaimed(engine: Engine, number: int) -> bool:
    return sum(len(report.losses) for report in await engine.workers.recoveries()) == number


async def test_draining_waits_for_running_jobs_without_a_limit(tmp_path: Path) -> None:
    app = Detent(f"sqlite:///{tmp_path / 'jobs.db'}")
    started, go = asyncio.Event(), asyncio.Event()

    @app.job("wait")
    async def wait(ctx: Context) -> None:
        started.set()
        await go.wait()

    async with app:
        handle = await wait.enqueue()
        worker = await app.worker(slots=1, grace_seconds=0.01)
        task = asyncio.create_task(worker.run(handle_signals=False))
        await started.wait()
        worker.drain()
        await asyncio.sleep(worker.grace_seconds)  # longer than a stop would wait: its timer has fired by now
        assert worker.state.held and not task.done(), "the grace of a stop does not hold for a drain"
        go.set()
        assert await asyncio.wait_for(task, 30) == 0
        assert await handle.status() == "succeeded"
