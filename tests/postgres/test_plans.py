"""The hot statements are index probes, on an empty vacuumed table as on a full one, planned for once or for all."""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.ports.claims import ClaimRequest
from detent.stores.lanes import GROUP_MASK, PARTY_BITS, PARTY_MASK, LaneCache
from detent.stores.postgres.claim import SETTINGS, Edges, settle_and_claim_values
from detent.stores.postgres.dialect import Query, compiled, queries
from detent.stores.postgres.insert import Shape, statement
from detent.stores.postgres.store import POOL_SETTINGS, PostgresStore
from support.postgres.crowd import finished
from support.servers.databases import Database, house, versions

pytestmark = pytest.mark.anyio
BIG = {"jobs", "events", "notes"}
ID = "01900000-0000-7000-8000-000000000001"
HELD = json.dumps({ID: "token"})
NAMES = json.dumps(["standard", "formal"])
LANES = {"shift": PARTY_BITS, "group_mask": GROUP_MASK, "party_mask": PARTY_MASK, "groups": "[1, 2]", "paused": "[]"}
HOT = ("settle_and_claim", "claim")
SCANNED = frozenset({"any_leased_or_due", "jobs"})
"""These may walk an index from its end: they stop at the first row, or at the end of the page."""


_SHAPES = (
    Shape(
        ("id", "effect_root"),
        ("payload",),
        ("contract", "job_type", "queue", "tenant_id", "status", "phase", "version", "lane"),
    ),
    Shape(("job_id",), (), ("seq", "event", "target", "at")),
)


def texts() -> dict[str, Query]:
    """Every hot statement, as the server sees it; those that claim come on a connection of their own."""
    known = queries(own_clock=False)
    names = ("extend", "check_leases", "expired", "due_blocked", "reclaimable", "promote", "lock", "lock_skip_locked")
    found = {name: compiled(known[name]) for name in (*names, "any_leased_or_due", "events", "notes", *HOT)}
    found["update_job"] = compiled(known["update_job"])
    found["jobs"] = compiled(known["jobs"].replace("{where}", "id < :before"))
    found["insert"] = Query(statement(*_SHAPES, single=False, namespace="detent."), ())
    return found


def values(name: str) -> dict[str, Any]:
    if name in HOT:
        lane_cache = LaneCache(groups={1: ("standard", "default", "mail")}, version=1)
        return settle_and_claim_values([], ClaimRequest("w1", "t", 100, 30_000_000), lane_cache, Edges(CONTRACTS), 0)
    common = {"ids": json.dumps([ID]), "held": HELD, "contracts": NAMES, "types": NAMES, "limit": 100, "lease": 1}
    return {**common, **LANES, "before": ID, "horizon": 5, "job_id": ID}


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


async def custom_plan(connection: Any, query: Query, name: str) -> Any:
    await connection.execute("SET plan_cache_mode = force_custom_plan")
    given = values(name)
    found = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {query.text}", *(given[n] for n in query.names))
    return json.loads(found)[0]["Plan"]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def faults(plan: dict[str, Any], *, walks: bool) -> list[str]:
    """What is not an index probe: whole tables, indexes without a condition, sorts and hashes of a big table."""
    found = []
    for node in nodes(plan):
        kind, table = node["Node Type"], node.get("Relation Name")
        if table in BIG and kind not in ("Index Scan", "Index Only Scan", "Tid Scan", "ModifyTable"):
            found.append(f"{kind} on {table}")
        if kind.startswith("Index") and table in BIG and "Index Cond" not in node and not walks:
            found.append(f"{kind} over all of {node['Index Name']}")
        if kind in ("Sort", "Incremental Sort", "Hash", "Materialize"):
            found += [f"{kind} of {n['Relation Name']}" for n in nodes(node) if n.get("Relation Name") in BIG]
    return found


async def all_faults(url: str) -> dict[str, list[str]]:
    found = {}
    for name, query in texts().items():
        settings = SETTINGS if name in HOT else POOL_SETTINGS
        connection: Any = await asyncpg.connect(url, server_settings=settings)
        try:
            plans = [await generic_plan(connection, query)]
            if query.names and name != "update_job":
                plans.append(await custom_plan(connection, query, name))
        finally:
            await connection.close()
        found[name] = [fault for plan in plans for fault in faults(plan, walks=name in SCANNED)]
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
    on_each.sql("TRUNCATE jobs, events")
    assert await all_faults(on_each.url) == {}


@pytest.mark.parametrize("rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.drill)])
async def test_behind_many_finished_jobs(engine: Engine, database: Database, rows: int) -> None:
    await finished(engine, database, rows)
    assert await all_faults(database.url) == {}
    assert await touched(database) < 40
    database.sql("TRUNCATE jobs, events")


async def touched(database: Database) -> int:
    """Blocks an idle claim looks at."""
    connection: Any = await asyncpg.connect(database.url, server_settings=SETTINGS)
    query, given = texts()["claim"], values("claim")
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
