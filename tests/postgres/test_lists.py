"""Lists behind very many rows: whatever is filtered for, a page touches a bounded number of them."""

from itertools import combinations
from typing import Any

import pytest

from detent.engine import Engine
from detent.engine.reads.listing import _TEXT_WINDOW, _WINDOW
from detent.ports.listing import Filter
from detent.ports.tx import Tx
from support.postgres.crowd import claimable, finished
from support.servers.databases import Database

pytestmark = pytest.mark.anyio
ABSENT = {
    "status": "failed",
    "phase": "blocked",
    "queue": "nowhere",
    "tenant_id": "nobody",
    "job_type": "nothing",
    "contract": "men",
    "text": "no such words",
    "text_outside": "no such words",
    "since": 1 << 60,
    "until": 1,
}
FILTERS = [
    {name: ABSENT[name] for name in names}
    for number in (0, 1, 2)
    for names in combinations(ABSENT, number)
    if {"text", "text_outside"} - set(names)
]
FILTERS += [
    {"worker": "nobody"},
    {"roots": False},
    {"min_attempts": 99},
    {"max_duration": -1},
    {"statuses": ("failed", "running")},
]
BY_THIN_TABLE = [{"parent_id": "x"}, {"trace_id": "x"}, {"trace_id": "trace-x", "queue": "x"}, {"error_code": "x"}]
MOST_READ = 2 * _WINDOW + 10
"""The window twice: its matches and its end; and what the planner reads to know the range of the ids."""
ONLY_JOBS = {"phase", "worker", "roots", "min_attempts", "max_duration", "statuses"}
_TOUCHED = """SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)
FROM pg_stat_xact_user_tables WHERE relname = $1"""
_LETTERS = """INSERT INTO dead_letters (id, job_id, tenant_id, contract, job_type, queue, status, error_code, payload,
  context, retries, first_failed_at, created_at, updated_at, error_group)
SELECT 'l' || lpad(g::text, 9, '0'), gen_random_uuid(), 'default', 'standard', 'mail', 'default',
  CASE WHEN g = 1 THEN 'open' ELSE 'discarded' END, 'BOOM', '{}', '{}', 0, g, g, g, 'g'
FROM generate_series(1, 30000) g"""


async def touched(engine: Engine, chosen: Filter, table: str, of: str | None = None) -> tuple[int, int]:
    """(rows of the table, or of another, that one look of a page reads, rows it finds)."""
    searched = chosen.text is not None or chosen.text_outside is not None
    window = _TEXT_WINDOW if searched else _WINDOW

    async def look(tx: Tx) -> tuple[int, int]:
        connection: Any = tx.queries.connection  # type: ignore[attr-defined]
        before = await connection.fetchval(_TOUCHED, of or table)
        call = tx.jobs.job_window if table == "jobs" else tx.dead_letters.dead_letter_window
        found, _ = await call(chosen, window, None)
        return await connection.fetchval(_TOUCHED, of or table) - before, len(found)

    return await engine.store.write(look)


@pytest.mark.parametrize("rows", [30_000, pytest.param(1_000_000, marks=pytest.mark.drill)])
async def test_a_page_touches_a_bounded_number_of_rows(engine: Engine, database: Database, rows: int) -> None:
    await finished(engine, database, rows)
    middle = f"01900000-0000-7000-8000-{rows // 2:012d}"
    for fields in FILTERS:
        for before in (None, middle):
            seen, _ = await touched(engine, Filter(**fields, before=before), "jobs")
            assert 0 < seen <= MOST_READ, (fields, before, seen)
            probed, _ = await touched(engine, Filter(**fields, before=before), "jobs", of="queue")
            assert probed == 0, "they have ended"
    for fields in BY_THIN_TABLE:
        seen, _ = await touched(engine, Filter(**fields), "jobs")  # type: ignore[arg-type]
        assert seen <= 10, (fields, seen)
    page, cursor = await engine.jobs.page(Filter(queue="nowhere"), seconds=0)
    assert page == [] and cursor is not None, "there is more to look at"
    page, cursor = await engine.jobs.page(Filter(queue="nowhere"), seconds=600)
    assert page == [] and cursor is None, "all were looked at"


async def test_a_page_of_a_backlog_reads_little_of_the_queue(engine: Engine, database: Database) -> None:
    await claimable(engine, database, 30_000)
    for fields in ({}, {"phase": "claimable"}, {"tenant_id": "nobody"}, {"text": "no such words"}):
        for table in ("jobs", "queue"):
            seen, _ = await touched(engine, Filter(**fields), "jobs", of=table)
            assert seen <= MOST_READ, (fields, table, seen)


async def test_pages_of_dead_letters_are_bounded_too(engine: Engine, database: Database) -> None:
    database.sql(_LETTERS)
    database.sql("VACUUM (ANALYZE) dead_letters")
    for fields in FILTERS:
        if not fields.keys() & ONLY_JOBS:
            seen, _ = await touched(engine, Filter(**fields), "dead_letters")
            assert 0 < seen <= MOST_READ, (fields, seen)
    assert (await engine.dead_letters.groups(Filter(status="open"))).groups[0].count == 1
    assert (await engine.dead_letters.groups(Filter())).groups[0].count == 20_000, "the newest ones"
    page, cursor = await engine.dead_letters.page(Filter(status="requeued"), seconds=0)
    assert page == [] and cursor is not None, "there is more to look at"
    page, _ = await engine.dead_letters.page(Filter(status="open"), seconds=0)
    assert [one.id for one in page] == ["l000000001"], "those that are open have an index of their own"
    whole, cursor = [], None
    while True:
        page, cursor = await engine.dead_letters.page(Filter(limit=499, before=cursor))
        whole += page
        if cursor is None:
            break
    assert [one.id for one in whole] == [f"l{number:09d}" for number in range(30_000, 0, -1)]
