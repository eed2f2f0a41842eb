"""Query plans of every GET route: no query reads a whole table that grows with the number of jobs.

The queries are recorded while the routes are called, so that a new query of a page is checked too.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import apsw
import asyncpg
import pytest

from detent.stores.named_queries import NamedQueries
from detent.stores.postgres.dialect import compiled, queries, without_locks
from detent.stores.postgres.store import POOL_SETTINGS
from detent.stores.postgres.tx import PostgresTxQueries
from detent.stores.sql_files import in_namespace
from detent.stores.sqlite.tx import SQL, SqliteTxQueries
from support.stores import SqlitePlace
from support.web.api import API, Api

from .test_access_matrix import make_things, read_rows

pytestmark = pytest.mark.anyio
GROWING = frozenset({
    "jobs", "events", "notes", "steps", "log_lines", "progress", "signals", "dead_letters", "series", "deliveries",
    "audit", "keys", "fires", "job_traces", "job_errors", "error_groups", "queue", "timers", "votes", "losses",
})  # fmt: skip
"""Tables that grow with the number of jobs or with time. The others have a row per queue, worker, schedule, ..."""
COUNTING = {"counts", "counts_of_tenant", "dead_letter_counts", "dead_letters_of_tenant", "backlog"}
"""Read all rows of a table or index; they are shared and reused, see SharedCounts."""
PARTIAL = {"jobs_asking", "jobs_leased"}
"""Indexes of SQLite that have only the jobs that wait for an approval or run."""
ORDERED = {
    "audit", "jobs", "job_window", "job_window_end", "dead_letter_window", "dead_letter_window_end", "oldest_due",
}  # fmt: skip
"""Without a condition they read the first or last rows of an index in its order, and stop at their limit."""
IN_COMMIT_ORDER = {"count_events", "count_notes", "count_hot_events", "time_events", "tail"}
"""They read a range of the log by a BRIN index, which needs a bitmap scan; see tail_mode."""
MANY_ROWS = """UPDATE pg_class SET relpages = (pg_relation_size(oid) > 0)::int,
  reltuples = CASE WHEN pg_relation_size(oid) > 0 THEN 1000000 ELSE -1 END
WHERE relkind = 'r' AND relnamespace = 'detent'::regnamespace AND (relname = ANY($1) OR relname LIKE 'events%')"""
"""Let the planner believe that these tables are large, whatever autovacuum told it. -1 is a table that was never
analyzed: the planner assumes ten pages, although this one is empty."""
FILTERS = (
    "queue=q", "status=queued", "phase=leased", "tenant_id=t", "text=x", "worker=w", "error_code=E", "trace_id=t",
    "parent_id=01900000-0000-7000-8000-000000000001", "since=2026-01-01T00:00:00Z", "until=2026-01-01T00:00:00Z",
    "min_duration_seconds=9", "min_attempts=2", "roots=true",
)  # fmt: skip
DEAD_LETTER_FILTERS = (
    "status=open",
    "status=discarded",
    "queue=q",
    "error_code=E",
    "text=x",
    "since=2026-01-01T00:00:00Z",
)
Recorded = dict[str, tuple[str, str | None, dict[str, Any]]]
"""Text of the condition and name -> name, condition and values of a query."""


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """The queries that run during the test."""
    seen: Recorded = {}

    def recording(run: Callable[..., Any]) -> Callable[..., Any]:
        async def query(self: NamedQueries, name: str, where: str | None = None, /, **values: Any) -> Any:
            seen[f"{name} {where or ''}"] = name, where, {"now": self.now, **values}
            return await run(self, name, where, **values)

        return query

    for store in (SqliteTxQueries, PostgresTxQueries):
        monkeypatch.setattr(store, "query", recording(store.query))
    return seen


async def call_all(api: Api, recorded: Recorded) -> None:
    """Call every GET route, and the lists with each of their filters."""
    boss = await api.person("boss", "admin")
    ids = (await make_things(api, boss, "own")).ids
    recorded.clear()
    for row in read_rows().values():
        if row.method == "GET" and "stream" not in row.path:
            names = {**ids, "name": "standard"} if "/contracts/" in row.path else ids
            search = {"q": "own"} if row.path.endswith("/search") else None
            response = await boss.get(row.path.format(**names), params=search)
            assert response.status_code in row.answers, (row.path, response.text)
    paths = [f"jobs?{text}" for text in FILTERS] + [f"dlq/items?{text}" for text in DEAD_LETTER_FILTERS]
    paths += [f"dlq/groups?{text}" for text in DEAD_LETTER_FILTERS]
    paths += [f"series?span={span}&{of}=own" for span in ("5m", "30d") for of in ("queue", "job_type", "tenant_id")]
    paths += [f"series/groups?by={by}" for by in ("queue", "job_type", "tenant")]
    paths += [
        "job-types/own-type",
        "search?q=01900000",
        f"jobs/{ids['job_id']}/logs?cursor=1.5",
        f"audit?subject={ids['job_id']}",
        "audit?cursor=9",
    ]
    for path in paths:
        response = await boss.get(f"{API}/{path}")
        assert response.status_code == 200, (path, response.text)


async def test_no_route_reads_a_whole_table(api: Api, recorded: Recorded) -> None:
    await call_all(api, recorded)
    assert len({name for name, _, _ in recorded.values()}) > 60, sorted(recorded)
    explain = _sqlite_faults if isinstance(api.place, SqlitePlace) else _postgres_faults
    found = await explain(api, [entry for entry in recorded.values() if entry[0] not in COUNTING])
    assert found == {}, json.dumps(found, indent=1)


async def _sqlite_faults(api: Api, entries: list[Any]) -> dict[str, list[str]]:
    connection, found = apsw.Connection(str(api.place.path)), {}  # type: ignore[attr-defined]
    for name, where, values in entries:
        text = SQL[name].replace("{where}", in_namespace(where or "", "detent_"))
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values)]
        scans = [line for line in plan if line.startswith("SCAN") and _table(text, line.split()[1]) in GROWING]
        scans = [line for line in scans if line.rpartition(" detent_")[2] not in PARTIAL]
        if name not in ORDERED and scans:
            found[f"{name} {where or ''}"] = plan
    connection.close()
    return found


def _table(text: str, alias: str) -> str:
    """The table that an alias of a statement, or a view that it names, stands for."""
    match = re.search(rf"detent_(\w+) (?:AS )?{re.escape(alias)}\b", text)
    return match[1] if match else {"j": "jobs", "e": "events"}.get(alias, alias).removeprefix("detent_")


async def _postgres_faults(api: Api, entries: list[Any]) -> dict[str, list[str]]:
    connection: Any = await asyncpg.connect(api.place.database.url, server_settings=POOL_SETTINGS)  # type: ignore[attr-defined]
    texts, found = queries(own_clock=False), {}
    await connection.execute("BEGIN")
    await connection.execute(MANY_ROWS, sorted(GROWING))
    for name, where, values in entries:
        if not texts[name].startswith(("SELECT", "WITH")):
            continue
        await connection.execute(f"SET enable_bitmapscan = {'on' if name in IN_COMMIT_ORDER else 'off'}")
        query = compiled(without_locks(texts[name].replace("{where}", in_namespace(where or "", "detent."))))
        arguments = [values[parameter] for parameter in query.names]
        plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {query.text}", *arguments))[0]["Plan"]
        scans = [node for node in _nodes(plan) if _reads_all(node)]
        if name not in ORDERED and scans:
            found[f"{name} {where or ''}"] = [f"{node['Node Type']} on {node['Relation Name']}" for node in scans]
    await connection.close()
    return found


def _reads_all(node: dict[str, Any]) -> bool:
    table = re.sub(r"^events_\w+", "events", node.get("Relation Name", ""))
    return table in GROWING and "Index Cond" not in node and "Recheck Cond" not in node


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)
