"""A job that kills its worker process is given up, and takes no other job along."""

from pathlib import Path

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.proof.verify.verify import verify

from .processes import bench_in
from .waiting import until

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
            given_up = await engine.job(poison.id)
    crashes = len(bench.diary_entries("crashed"))
    jobs = bench.sql("SELECT result, failures, interruptions FROM jobs WHERE job_type LIKE 'neighbour-%'")
    print(f"\n{contract}: {crashes} crashes, {given_up.status}; charged neighbours: {sorted(job[1] for job in jobs)}")
    assert report.ok, report.violations[:5]
    assert given_up.result is None and given_up.error_code is not None
    assert crashes <= MAX_CRASHES
    assert len(jobs) == NEIGHBOURS and all(job[0] is not None for job in jobs), "every neighbour succeeds"
    assert all(failures <= (2 if CONTRACTS[contract].loss.charged else 0) for _, failures, _ in jobs)
