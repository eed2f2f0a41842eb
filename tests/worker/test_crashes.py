"""Worker processes are killed at random times under load: no job is lost, none ends twice."""

import random
import signal
from pathlib import Path

import pytest

from detent.proof.verify.verify import verify
from support.waiting import until, until_now
from support.worker.job_app import CONTRACTS
from support.worker.processes import Bench, bench_in

pytestmark = pytest.mark.anyio
JOBS = 5_000
KILLS, DRILLED_KILLS = 8, 25
LEASE_SECONDS = 1.5
SHARES = {"standard": 4_000, "p3c": 250, "formal": 250, "streams": 200, "men": 200, "gate-b2": 100}


async def enqueue_all(bench: Bench) -> None:
    assert set(SHARES) == set(CONTRACTS) and sum(SHARES.values()) == JOBS
    async with bench.app:
        for contract, share in SHARES.items():
            await bench.app.jobs[f"quick-{contract}"].enqueue_many([{"n": n} for n in range(share)])


@pytest.mark.long
@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.drill) if n else n for n in range(4)])
async def test_kill_minus_nine_loses_nothing_and_ends_nothing_twice(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    kills = DRILLED_KILLS if seed else KILLS
    options = {"slots": 8, "lease_seconds": LEASE_SECONDS}
    with bench_in(tmp_path) as bench:
        await enqueue_all(bench)
        workers = [bench.start(**options) for _ in range(2)]
        goals = sorted(draw.sample(range(50, JOBS - 200), kills))
        for goal in goals:
            until_now(lambda goal=goal: bench.ended() >= goal, 60)
            number = draw.randrange(len(workers))
            workers[number].send_signal(signal.SIGKILL)
            workers[number].wait()
            workers[number] = bench.start(ready=False, **options)
        await until(lambda: bench.ended() == JOBS, 90)
        for worker in workers:
            worker.terminate()
            assert worker.wait(30) == 0
        await check(bench, kills)


async def check(bench: Bench, kills: int) -> None:
    """Check the tables directly, then with `verify`."""
    assert bench.sql("SELECT count(*), count(DISTINCT id) FROM detent_job_list") == [(JOBS, JOBS)]
    failed = bench.sql("SELECT id, contract, status, error_code FROM detent_job_list WHERE result IS NULL")
    assert not failed, "every job succeeds"
    finals = bench.sql(
        "SELECT j.id, count(*) FROM detent_job_list j JOIN detent_event_list e ON e.job_id = j.id"
        " AND e.target = j.status GROUP BY j.id"
    )
    assert len(finals) == JOBS and {n for _, n in finals} == {1}, "exactly one final event per job"
    gaps = bench.sql(
        "SELECT j.id FROM detent_job_list j JOIN detent_event_list e ON e.job_id = j.id "
        "GROUP BY j.id HAVING count(*) <> j.version OR max(e.seq) <> j.version OR min(e.seq) <> 1"
    )
    assert not gaps
    crossed = bench.sql("SELECT id FROM detent_job_list WHERE result <> json_extract(payload, '$.n')")
    assert not crossed, "a job has the result of another job"
    lost = bench.sql("SELECT count(*) FROM detent_job_list WHERE execution_no > 1")[0][0]
    print(f"\n{kills} workers killed, {lost} jobs lost their worker and succeeded")
    assert lost >= kills
    async with bench.app:
        engine = await bench.app.ready()
        report = await verify(engine.store, engine.contracts)
    assert report.ok, report.violations[:5]
    assert (report.jobs, report.events) == (JOBS, bench.sql("SELECT count(*) FROM detent_event_list")[0][0])
