"""A tenant with very many jobs delays the single job of another by no more than one batch, weights or not."""

from pathlib import Path

import pytest

from detent.client.connect import store_from
from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement, Submission
from support.servers.databases import house, newest

pytestmark = pytest.mark.anyio
BATCH = 100
SIZES = [20_000, pytest.param(1_000_000, marks=pytest.mark.drill)]


async def delay(url: str, jobs: int, weighted: bool) -> int:
    """Batches that are claimed from the submit of the single job until it begins."""
    engine = Engine(store_from(url), CONTRACTS)
    await engine.open()
    try:
        for _ in range(jobs // 2_000):
            await engine.jobs.submit_uniform(Submission("work", tenant_id="big"), [{}] * 2_000)
        if weighted:
            await engine.limits.set_quota("big", Scope("ann"), weight=99)
        done = await engine.settle_and_claim([], engine.claim_request("w1", BATCH))
        single = (await engine.jobs.submit(Submission("work", tenant_id="small"))).job.id
        for batches in range(1, 10):
            held = [Settlement(one.id, one.token, one.contract, Succeeded(None)) for one in done.claimed]
            done = await engine.settle_and_claim(held, engine.claim_request("w1", BATCH))
            if single in [one.id for one in done.claimed]:
                return batches
        raise AssertionError("it has not begun within ten batches")
    finally:
        await engine.close()


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("jobs", SIZES)
async def test_on_one_file(tmp_path: Path, jobs: int, weighted: bool) -> None:
    assert await delay(f"sqlite:///{tmp_path}/jobs.db", jobs, weighted) == 1


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("jobs", SIZES)
async def test_on_one_server(jobs: int, weighted: bool) -> None:
    database = house(newest()).database()
    try:
        assert await delay(database.url, jobs, weighted) == 1
    finally:
        database.release()
