"""`verify` is fast: a lower bound on events per second, far below what an idle core reaches."""

import time
from pathlib import Path

import pytest

from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement, Submission
from detent.proof.verify.verify import verify
from detent.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
JOBS = 8_000
EVENTS_PER_SECOND = 80_000
"""Per second of CPU time of this process, so that a busy machine does not matter; an idle one reaches 200,000."""


async def test_events_per_second(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), inline=True, synchronous="OFF")
    engine = Engine(store)
    await engine.open()
    for _ in range(JOBS // 1_000):
        await engine.jobs.submit_many([Submission("mail", {"n": n}) for n in range(1_000)])
    settlements: list[Settlement] = []
    for _ in range(JOBS // 1_000 + 1):
        result = await engine.settle_and_claim(settlements, engine.claim_request("w1", 1_000, 30.0))
        settlements = [Settlement(job.id, job.token, job.contract, Succeeded("1")) for job in result.claimed]
    spent = []
    for _ in range(3):
        start = time.process_time()
        report = await verify(store)
        spent.append(time.process_time() - start)
    await engine.close()
    assert (report.ok, report.jobs, report.events) == (True, JOBS, 3 * JOBS)
    assert report.events / min(spent) > EVENTS_PER_SECOND
