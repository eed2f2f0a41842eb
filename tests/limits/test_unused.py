"""Where no limit, weight, deadline or second priority is in use, a claim is the statement it always was, and one."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement, Submission
from detent.stores.postgres.dialect import compiled, queries
from detent.stores.postgres.store import PostgresStore
from detent.stores.sqlite.store import SqliteStore
from support.servers.databases import house, newest

pytestmark = pytest.mark.anyio
OURS = re.compile(r"\b(limits|meters|tenants|deadline_at)\b")
PLAIN = ("settle_and_claim", "claim", "claim_suspect")
TABLES = re.compile(r"\bdetent\.(\w+)")


async def drain(engine: Engine, jobs: int, batch: int) -> None:
    held: list[Settlement] = []
    for _ in range(jobs // batch + 2):
        done = await engine.settle_and_claim(held, engine.claim_request("w1", batch))
        held = [Settlement(one.id, one.token, one.contract, Succeeded(None)) for one in done.claimed]


def test_the_plain_statement_knows_nothing_of_limits() -> None:
    texts = queries(False)
    for name in PLAIN:
        assert not OURS.search(texts[name]) and "{" not in texts[name]
        assert set(TABLES.findall(texts[name])) == {"jobs", "queue", "timers", "claims", "events", "lane_version"}
        assert not {"first", "last", "closed"} & set(compiled(texts[name]).names), "where it starts is in the text"
    for name in ("settle_and_inspect", "claim_limited"):
        assert OURS.search(texts[name]), "those that do know are found by this"


async def test_a_drain_on_postgres_runs_that_one_statement_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    honest = PostgresStore._run_claim_query

    async def watched(self: PostgresStore, name: str, values: Mapping[str, Any]) -> list[Any]:
        ran.append(name)
        return await honest(self, name, values)

    monkeypatch.setattr(PostgresStore, "_run_claim_query", watched)
    database = house(newest()).database()
    engine = Engine(PostgresStore(database.url), CONTRACTS)
    await engine.open()
    try:
        await engine.jobs.submit_many([Submission("noop", tenant_id=f"t{n % 3}", priority=7) for n in range(60)])
        await drain(engine, 60, 20)
        assert set(ran) == {"settle_and_claim", "claim"}, "with something to settle, and without"
        assert ran.count("settle_and_claim") == 60 // 20
        assert len(ran) == 60 // 20 + 2 + 1, "and one more, by the first claim, which had not heard of the lanes"
    finally:
        await engine.close()
        database.release()


async def test_a_drain_on_sqlite_reads_nothing_of_limits(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), inline=True, synchronous="OFF")
    engine = Engine(store, CONTRACTS)
    await engine.open()
    try:
        await engine.jobs.submit_many([Submission("noop", tenant_id=f"t{n % 3}", priority=7) for n in range(60)])
        await engine.claim(engine.claim_request("w1", 1))  # reads the book once
        ran: list[str] = []
        assert store._writer is not None
        store._writer.connection.exec_trace = lambda cursor, sql, bindings: ran.append(sql) is None
        await drain(engine, 60, 20)
        assert ran and not [text for text in ran if OURS.search(text)]
    finally:
        await engine.close()
