"""The database's time as a process carries it forward: never ahead of the database's own."""

import asyncio
import time
from typing import Any

import pytest

from detent.client.connect import store_from
from detent.core.contract.builtin import CONTRACTS
from detent.core.errors import StaleLease
from detent.core.outcome import Succeeded
from detent.core.times import SECOND
from detent.engine import Engine, Submission
from detent.stores.postgres.dialect import DATABASE_CLOCK
from detent.stores.postgres.store import PostgresStore
from detent.system.clock import SystemClock
from support.servers.databases import Database
from support.waiting import until

pytestmark = pytest.mark.anyio
_DELAY_SECONDS = 0.05


@pytest.mark.parametrize("hours", [-1, 1])
async def test_the_clock_of_a_worker_plays_no_part_in_a_timeout(
    database: Database, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """A worker whose clock is an hour off neither outlasts a timeout nor loses a job that has time."""
    monkeypatch.setattr(SystemClock, "now", lambda self: time.time_ns() // 1_000 + hours * 3_600 * SECOND)
    engine = Engine(store_from(database.url))
    await engine.open()
    try:
        for timeout_ms in (1, 60_000):
            await engine.jobs.submit(Submission("mail", contract="men", timeout_ms=timeout_ms, max_retries=0))
        held = {job.timeout_ms: job for job in await engine.claim(engine.claim_request("w", 2, 30.0))}
        await until(lambda: _is_past(engine, held[1].id))
        with pytest.raises(StaleLease):
            await engine.settle(held[1].id, held[1].token, Succeeded())
        assert (await engine.settle(held[60_000].id, held[60_000].token, Succeeded())).status == "succeeded"
        (late,) = await until(engine.expire)
        assert (late.status, late.error_code) == ("failed", "TASK_RETRY_EXHAUSTED")
    finally:
        await engine.close()


async def _is_past(engine: Engine, job_id: str) -> bool:
    return (await engine.jobs.get(job_id)).times_out_at < engine.store.now()


class SlowWay:
    """The question is long on its way, as on a busy machine."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetchval(self, text: str) -> Any:
        await asyncio.sleep(_DELAY_SECONDS)
        return await self._connection.fetchval(text)


async def test_a_question_that_took_its_time_does_not_put_us_ahead(database: Database) -> None:
    """Ends dated ahead of the database's clock would stand behind the claims that they made room for."""
    store = store_from(database.url)
    assert isinstance(store, PostgresStore)
    await store.open(CONTRACTS, {})
    try:
        async with store._acquired() as connection:
            await store._set_clock(SlowWay(connection))
            ours = store.now()
            theirs = await connection.fetchval(f"SELECT {DATABASE_CLOCK}")
        assert theirs - 10_000_000 < ours <= theirs
    finally:
        await store.close()
