"""`verify` is quick enough to be run every night: a floor far below what an idle core does."""

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
"""Of this process's own time, so that a busy machine does not count; 200,000 and more where it is idle."""


async def test_events_per_second(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), inline=True, synchronous="OFF")
    engine = Engine(store)
    await engine.open()
    for _ in range(JOBS // 1_000):
        await engine.submit_many([Submission("mail", {"n": n}) for n in range(1_000)])
    settled: list[Settlement] = []
    for _ in range(JOBS // 1_000 + 1):
        done = await engine.settle_and_claim(settled, engine.claim_request("w1", 1_000, 30.0))
        settled = [Settlement(one.id, one.token, one.contract, Succeeded("1")) for one in done.claimed]
    spent = []
    for _ in range(3):
        start = time.process_time()
        report = await verify(store)
        spent.append(time.process_time() - start)
    await engine.close()
    assert (report.ok, report.jobs, report.events) == (True, JOBS, 3 * JOBS)
    assert report.events / min(spent) > EVENTS_PER_SECOND
