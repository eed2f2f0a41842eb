"""The hot statements are index probes, on an empty vacuumed table as on a full one, planned for once or for all."""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.ports.claims import ClaimRequest
from detent.stores.lanes import LaneCache
from detent.stores.postgres.claims.claim import SETTINGS, Edges, lane_values, settle_and_claim_values
from detent.stores.postgres.dialect import Query, compiled, queries
from detent.stores.postgres.insert import _PLACES, Shape, statement
from detent.stores.postgres.store import POOL_SETTINGS, PostgresStore
from support.postgres.crowd import finished, forget
from support.servers.databases import Database, house, versions

pytestmark = pytest.mark.anyio
BIG = {"jobs", "events", "notes", "queue", "timers", "claims", "deadlines", "steps", "progress"}
ID = "01900000-0000-7000-8000-000000000001"
HELD = json.dumps({ID: "token"})
NAMES = json.dumps(["standard", "formal"])
CLAIMS = (
    "settle_and_claim", "settle_and_claim_from_lane", "settle_and_claim_from_rank", "claim", "claim_suspect",
    "claim_by_id",
)  # fmt: skip
LIMITED = ("settle_and_inspect", "claim_limited")
ON_CLAIM_CONNECTIONS = frozenset({*CLAIMS, *LIMITED})
POOLED = (
    "extend", "check_leases", "sweep_claims", "expired", "due_blocked", "reclaimable", "promote", "past_deadline",
    "lock", "lock_skip_locked", "update_job", "insert_event", "put_claim", "put_awaiting_approval",
    "drop_awaiting_approval", "put_deadline", "move_to_lane", "expire_leases", "record_step", "record_steps",
    "next_due", "any_leased_or_due", "adopt", "jobs_ahead", "events", "notes",
    "progress_after",
)  # fmt: skip
WALKED = {
    "any_leased_or_due": {"claims"},
    "adopt": {"claims"},
    "settle_and_inspect": {"claims"},
    "jobs": {"jobs"},
}
"""These may walk a table: a row of claims is one claim of a worker, and `jobs` stops at the end of a page."""
DUE = {"expired": {"claims"}, "reclaimable": {"claims"}}
"""These may sort what has become due."""
_SHAPES = (
    Shape(("id", "effect_root"), ("payload",), ("state", "version", "lane", "created_at", "updated_at", "due_at")),
    Shape(("job_id",), (), ("seq", "edge", "at", "execution_no", "retries", "lane")),
)


def texts() -> dict[str, Query]:
    """Every hot statement, as the server sees it."""
    known = queries(own_clock=False)
    found = {name: compiled(known[name]) for name in (*POOLED, *CLAIMS, *LIMITED)}
    found["jobs"] = compiled(known["jobs"].replace("{where}", "id < :before"))
    found["insert"] = Query(statement(*_SHAPES, False, frozenset(_PLACES), "detent."), ())
    return found


def values(name: str, edges: Edges) -> dict[str, Any]:
    if name in ON_CLAIM_CONNECTIONS:
        lane_cache = LaneCache(groups={1: ("standard", "default", "mail")}, version=1)
        request = ClaimRequest("w1", "t", 100, 30_000_000)
        limits = {
            key: [] for key in ("closed", "lanes", "quotas", "meters", "seen", "rooms", "takes", "spent", "rated")
        }
        pairs = {"pair_lanes": [], "pair_meters": [], "named_ids": [ID], "named_tokens": ["t"], "named_counts": ["0"]}
        bounds = {"first": -1, "last": (1 << 55) - 1, "at_most": 100, "dated": True, "counting": True}
        from_lane = lane_values(lane_cache, 1)
        return settle_and_claim_values([], request, lane_cache, edges, 1, 0) | limits | pairs | bounds | from_lane
    common = {"ids": json.dumps([ID]), "held": HELD, "contracts": NAMES, "types": NAMES, "limit": 100, "lease": 1}
    rows = {"id": ID, "job_id": ID, "before": ID, "check_at": 1, "deadline_at": 1, "lane": 1, "token": "token"}
    return {
        **common,
        **rows,
        "horizon": 5,
        "tokens": json.dumps(["token"]),
        "phase": "blocked",
        "at_most": 100,
        "at": 1,
    }


async def edges_of(url: str) -> Edges:
    store = PostgresStore(url)
    await store.open({}, CONTRACTS)
    await store.close()
    return store._edges


async def generic_plan(connection: Any, query: Query) -> Any:
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    await connection.execute(f"PREPARE hot AS {query.text}")
    known = await connection.fetchval(
        "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'hot'"
    )
    nothing = f"({', '.join(['NULL'] * known)})" if known else ""
    found = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE hot{nothing}")
    await connection.execute("DEALLOCATE hot")
    return json.loads(found)[0]["Plan"]


async def custom_plan(connection: Any, query: Query, given: dict[str, Any]) -> Any:
    await connection.execute("SET plan_cache_mode = force_custom_plan")
    found = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {query.text}", *(given[n] for n in query.names))
    return json.loads(found)[0]["Plan"]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def below(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The node and its inputs, without the CTEs that are computed apart from it."""
    yield node
    for part in node.get("Plans", ()):
        if part["Parent Relationship"] not in ("InitPlan", "SubPlan"):
            yield from below(part)


def faults(plan: dict[str, Any], name: str) -> list[str]:
    """What is not an index probe: whole tables, indexes without a condition, sorts and hashes of a big table."""
    found, walked = [], WALKED.get(name, set())
    for node in nodes(plan):
        kind, table = node["Node Type"], table_of(node)
        if table in BIG - walked and kind not in ("Index Scan", "Index Only Scan", "Tid Scan", "ModifyTable"):
            found.append(f"{kind} on {table}")
        if kind.startswith("Index") and table in BIG - walked and "Index Cond" not in node:
            found.append(f"{kind} over all of {node['Index Name']}")
        if kind in ("Sort", "Incremental Sort", "Hash", "Materialize"):
            sorted_tables = [table_of(n) for n in below(node) if table_of(n) in BIG and not is_one(n)]
            found += [f"{kind} of {table}" for table in sorted_tables if table not in walked | DUE.get(name, set())]
    return found


def table_of(node: dict[str, Any]) -> str | None:
    """The table that a node reads; partitions of events count as events."""
    name: str | None = node.get("Relation Name")
    return "events" if name is not None and name.startswith("events_") else name


def is_one(node: dict[str, Any]) -> bool:
    """True for a probe by primary key: there are as many rows as were asked for."""
    return node.get("Index Name") == "jobs_pkey" and str(node.get("Index Cond", "")).startswith("(id = ")


async def all_faults(url: str) -> dict[str, list[str]]:
    found, edges = {}, await edges_of(url)
    for name, query in texts().items():
        settings = SETTINGS if name in ON_CLAIM_CONNECTIONS else POOL_SETTINGS
        connection: Any = await asyncpg.connect(url, server_settings=settings)
        try:
            plans = [await generic_plan(connection, query)]
            given = values(name, edges)
            if query.names and given.keys() >= set(query.names):
                plans.append(await custom_plan(connection, query, given))
        finally:
            await connection.close()
        found[name] = [fault for plan in plans for fault in faults(plan, name)]
    return {name: wrong for name, wrong in found.items() if wrong}


@pytest.fixture(params=versions() or ["none"])
def on_each(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database on every version of the server there is."""
    database = house(request.param).database()
    yield database
    database.release()


async def test_on_an_empty_vacuumed_table(on_each: Database) -> None:
    on_each.sql("VACUUM (ANALYZE)")
    assert await all_faults(on_each.url) == {}


async def test_on_a_table_that_was_never_looked_at(on_each: Database) -> None:
    forget(on_each)
    assert await all_faults(on_each.url) == {}


@pytest.mark.parametrize("rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.drill)])
async def test_behind_many_finished_jobs(engine: Engine, database: Database, rows: int) -> None:
    await finished(engine, database, rows)
    assert await all_faults(database.url) == {}
    assert await touched(database) < 40
    forget(database)


async def test_the_newest_events_are_found_by_their_index(engine: Engine, database: Database) -> None:
    """With a limit the planner prefers to read a table from its start, where the oldest events are."""
    connection: Any = await asyncpg.connect(database.url, server_settings=POOL_SETTINGS)
    texts = queries(own_clock=False)
    async with connection.transaction():
        for mode in ("tail_mode", "window_mode"):
            await connection.execute(compiled(texts[mode]).text)
        plan = await generic_plan(connection, compiled(texts["events_of_worker"]))
    await connection.close()
    kinds = {node["Node Type"] for node in nodes(plan) if table_of(node) == "events"}
    assert kinds == {"Bitmap Heap Scan"}, plan


async def touched(database: Database) -> int:
    """Blocks an idle claim looks at."""
    connection: Any = await asyncpg.connect(database.url, server_settings=SETTINGS)
    query, given = texts()["claim"], values("claim", await edges_of(database.url))
    await connection.execute("UPDATE detent.lane_version SET value = 1")
    arguments = [given[name] for name in query.names]
    plan = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query.text}", *arguments))[
        0
    ]["Plan"]
    await connection.close()
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def test_the_hot_statement_is_prepared_once(engine: Engine, database: Database) -> None:
    """asyncpg forgets statements that are too long for its cache, and asks the server for types it does not know."""
    store = engine.store
    assert isinstance(store, PostgresStore)
    for _ in range(3):
        await engine.claim(engine.claim_request("w1", 5))
    found = await store._claim_connections[0].fetch(
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'WITH RECURSIVE%'"
    )
    assert [row[0] for row in found] == [1]
