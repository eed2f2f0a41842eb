"""A job that kills its worker process is given up and takes no other job along; healthy jobs are not slowed down."""

from pathlib import Path

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.times import SECOND
from detent.proof.verify.verify import verify
from support.waiting import until
from support.worker.processes import bench_in

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
NEIGHBOURS = 20
MAX_CRASHES = 10
OPTIONS = {"slots": 32, "lease_seconds": 0.5}


@pytest.mark.parametrize("contract", list(CONTRACTS))
async def test_poison_among_neighbours(tmp_path: Path, contract: str) -> None:
    with bench_in(tmp_path) as bench:
        async with bench.app:
            half = [{"n": n} for n in range(NEIGHBOURS // 2)]
            await bench.app.jobs[f"neighbour-{contract}"].enqueue_many(half)
            poison = await bench.app.jobs[f"poison-{contract}"].enqueue()
            await bench.app.jobs[f"neighbour-{contract}"].enqueue_many(half)
            worker = bench.start(ready=False, **OPTIONS)

            def ended_after_restarts() -> bool:
                nonlocal worker
                if worker.poll() is not None:
                    worker = bench.start(ready=False, **OPTIONS)
                return bench.ended() == NEIGHBOURS + 1

            await until(ended_after_restarts, 120)
            worker.terminate()
            worker.wait(30)
            engine = await bench.app.ready()
            report = await verify(engine.store, engine.contracts)
            given_up = await engine.jobs.get(poison.id)
    crashes = len(bench.diary_entries("crashed"))
    jobs = bench.sql("SELECT result, failures, interruptions FROM detent_job_list WHERE job_type LIKE 'neighbour-%'")
    print(f"\n{contract}: {crashes} crashes, {given_up.status}; charged neighbours: {sorted(job[1] for job in jobs)}")
    assert report.ok, report.violations[:5]
    assert given_up.result is None and given_up.error_code is not None
    assert crashes <= MAX_CRASHES
    assert len(jobs) == NEIGHBOURS and all(job[0] is not None for job in jobs), "every neighbour succeeds"
    assert all(failures <= (2 if CONTRACTS[contract].loss.charged else 0) for _, failures, _ in jobs)


@pytest.mark.parametrize("contract", list(CONTRACTS))
async def test_the_drain_recovers_after_a_kill(tmp_path: Path, contract: str) -> None:
    """Two workers; one that holds 64 healthy jobs is killed and replaced. Jobs per second before and 5 s after."""
    jobs, options = 8_000, {"slots": 64, "lease_seconds": 2.0}
    with bench_in(tmp_path) as bench:
        async with bench.app:
            await bench.app.jobs[f"neighbour-{contract}"].enqueue_many([{"n": n} for n in range(jobs)])
            victim, _ = bench.start(**options), bench.start(**options)
            await until(lambda: bench.ended() > jobs // 4, 60)
            victim.kill()
            victim.wait()
            killed_at = bench.app.engine.store.now()
            bench.start(ready=False, **options)
            await until(lambda: bench.ended() == jobs, 60)
            engine = await bench.app.ready()
            report = await verify(engine.store, engine.contracts)
    ended = [row[0] for row in bench.sql("SELECT finished_at FROM detent_job_list")]
    lost = bench.sql("SELECT count(*) FROM detent_job_list WHERE failures + interruptions > 0")[0][0]
    before, after = (
        sum(start < at <= start + 2 * SECOND for at in ended)
        for start in (killed_at - 2 * SECOND, killed_at + 5 * SECOND)
    )
    print(
        f"\n{contract}: {lost} jobs lost with the worker; jobs in 2 s: {before} before, {after} from 5 s after the kill"
    )
    assert report.ok and lost >= 32
    assert max(ended) > killed_at + 7 * SECOND, "the jobs ran out before the second interval ended"
    assert after >= 0.9 * before
