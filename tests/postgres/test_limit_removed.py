"""The last limit is removed while a claim within limits runs: the plain claim after it claims the rest only."""

from dataclasses import replace
from typing import Any

import pytest

from detent.core.access import Scope
from detent.engine import Engine, Submission
from detent.ports.claims import Claimed, ClaimRequest
from detent.stores.lanes import LaneCache
from detent.stores.postgres.claims.limited_claim import PostgresTx
from detent.stores.postgres.store import PostgresStore
from support.acts import claim
from support.servers.databases import Database

pytestmark = pytest.mark.anyio


async def test_in_one_statement(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = engine.store
    within_limits = store._settle_and_claim_limited
    await prepare(engine)

    async def claim_one_and_remove(successes: Any, request: ClaimRequest) -> Any:
        outcome = await within_limits(successes, replace(request, limit=1))
        await engine.limits.remove(Scope("ann"), queue="default")
        await store._refresh_lane_cache()
        return outcome

    monkeypatch.setattr(store, "_settle_and_claim_limited", claim_one_and_remove)
    assert len(await claim(engine, 3)) == 3


async def test_in_a_transaction(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(PostgresStore(database.url, bouncer=True))
    await engine.open()
    within_limits = PostgresTx._claim_limited
    await prepare(engine)

    async def claim_one_and_remove(tx: PostgresTx, request: ClaimRequest) -> list[Claimed]:
        claimed = await within_limits(tx, replace(request, limit=1))
        monkeypatch.setattr(LaneCache, "needs_plan", False)  # removing it for real would wait for this transaction
        return claimed

    monkeypatch.setattr(PostgresTx, "_claim_limited", claim_one_and_remove)
    try:
        assert len(await claim(engine, 3)) == 3
    finally:
        await engine.close()


async def prepare(engine: Engine) -> None:
    await engine.jobs.submit_many([Submission("mail") for _ in range(10)])
    await engine.limits.set(Scope("ann"), queue="default", concurrency=8)
    await engine.store.read(lambda tx: tx.queries.refresh_lane_cache())
