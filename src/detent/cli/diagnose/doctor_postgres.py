"""A Postgres server: its schema and durability, without opening an engine; and the doctor's checks of it.

The checks: version, clock, isolation, old snapshots, indexes, partitions, vacuum. Reads only.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg

from detent.client.connect import shown_url, store_from
from detent.core.times import SECOND, first_id
from detent.engine.reads.why import span
from detent.stores.postgres.connections import Hosts
from detent.stores.postgres.dialect import namespace_of
from detent.stores.postgres.errors import UNAVAILABLE
from detent.stores.postgres.migrate import migrations, recorded, schema_version
from detent.stores.postgres.store import PostgresStore
from detent.stores.sql_files import in_namespace
from detent.system.clock import SystemClock

from .database import Database, Finding

_REQUIRED_INDEXES = {"jobs_pkey", "jobs_task", "queue_pkey", "timers_pkey", "claims_pkey", "events_pkey"}
_CONNECT_SECONDS = 5.0
_RISKS = {
    "fsync": "a power loss may corrupt the database",
    "full_page_writes": "a power loss may leave torn pages",
    "synchronous_commit": "a crash may lose the last commits",
}
"""What may happen if these settings are off."""
_MIN_VERSION = 140_000
_OLD_SNAPSHOT_SECONDS = 300
_MAX_SKEW_SECONDS = 2.0
_MIN_DEAD_ROWS = 10_000
_ISOLATION = "read committed"
_SNAPSHOTS = """
SELECT pid, coalesce(application_name, ''), state, extract(epoch FROM clock_timestamp() - xact_start)::float8
FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'
ORDER BY xact_start LIMIT 1"""
_INDEXES = """
SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid IN (to_regclass('detent.jobs'), to_regclass('detent.queue'), to_regclass('detent.timers'),
  to_regclass('detent.claims'), to_regclass('detent.events'), to_regclass('detent.notes'))"""
_PARTITIONS = """
SELECT current_user, has_function_privilege('detent.add_event_partitions(bigint, bigint)', 'EXECUTE')
  AND has_function_privilege('detent.drop_event_partition(text)', 'EXECUTE'),
  count(*), coalesce(bool_or($1::uuid >= first_id AND $1::uuid < end_id), false),
  pg_relation_size('detent.events_default')
FROM detent.event_partition_list"""
_SOON_SECONDS = 86_400
_MAX_PARTITIONS = 300
_TABLES = """
SELECT relname, n_live_tup, n_dead_tup, seq_scan, idx_scan, extract(epoch FROM now() - last_autovacuum)::float8
FROM pg_stat_user_tables
WHERE relid IN (to_regclass('detent.jobs'), to_regclass('detent.queue'))
  OR relid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('detent.events'))"""


def scripts(schema: str) -> list[tuple[int, str]]:
    """The migrations in order, each with the statement that records it, so that psql can run them."""
    return [(number, recorded(number, text, schema)) for number, text in migrations(schema)]


def describe_server(url: str) -> Database:
    facts, problem = read_facts(url)
    return Database(
        location=shown_url(url),
        schema=facts.get("schema") or None,
        newest=migrations()[-1][0],
        durability=_durability(facts),
        durable=bool(facts) and all(facts[name] != "off" for name in _RISKS),
        engine=f"PostgreSQL {facts['server_version']}" if facts else "Postgres",
        exists=True,
        problem=problem,
        kind="server",
    )


def _durability(facts: dict[str, Any]) -> str:
    """What a commit survives on this server."""
    if not facts:
        return "not connected"
    if risks := [f"{setting} = off: {risk}" for setting, risk in _RISKS.items() if facts[setting] == "off"]:
        return "; ".join(risks)
    return f"fsync on every commit, synchronous_commit = {facts['synchronous_commit']}"


def read_facts(url: str) -> tuple[dict[str, Any], str | None]:
    """The server's settings and schema version (empty if it cannot be reached), and its problem or None."""
    try:
        return asyncio.run(_read_facts(*_server(url)))
    except (*UNAVAILABLE, asyncpg.PostgresError) as error:
        return {}, f"cannot connect to the server: {type(error).__name__}: {error}"


async def _read_facts(url: str, schema: str) -> tuple[dict[str, Any], str | None]:
    connection: Any = await Hosts(url).connect(timeout=_CONNECT_SECONDS, statement_cache_size=0)
    try:
        facts = {name: await connection.fetchval(f"SHOW {name}") for name in ("server_version", *_RISKS)}
        facts["schema"] = await schema_version(connection, schema)
        standby = await connection.fetchval("SELECT pg_is_in_recovery()")
        return facts, "the server is a read-only standby; connect to the primary" if standby else None
    finally:
        await connection.close()


def _server(url: str) -> tuple[str, str]:
    """(the URL for the driver, the schema)."""
    store = store_from(url)
    assert isinstance(store, PostgresStore), "the caller checks the kind of store"
    return store.url, store.schema


def findings(url: str) -> list[Finding]:
    return asyncio.run(_read_findings(*_server(url)))


async def _read_findings(url: str, schema: str) -> list[Finding]:
    connection: Any = await asyncpg.connect(url, timeout=_CONNECT_SECONDS, statement_cache_size=0)
    try:
        clock = SystemClock()
        before = clock.now()
        server_time = await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        apart = abs(server_time - (before + clock.now()) // 2) / SECOND
        number = int(await connection.fetchval("SHOW server_version_num"))
        isolation = await connection.fetchval("SHOW default_transaction_isolation")
        autovacuum = await connection.fetchval("SHOW autovacuum")
        snapshots, indexes = (
            await connection.fetch(_SNAPSHOTS),
            await connection.fetch(in_namespace(_INDEXES, namespace_of(schema))),
        )
        soon = first_id(server_time + _SOON_SECONDS * SECOND)
        partitions: Any = await connection.fetchrow(in_namespace(_PARTITIONS, namespace_of(schema)), soon)
        tables = await connection.fetch(in_namespace(_TABLES, namespace_of(schema)))
    finally:
        await connection.close()
    checks = [_version(number), _clock(apart), _isolation(isolation), _snapshots(snapshots), _indexes(indexes)]
    checks.append(_partitions(partitions, namespace_of(schema)))
    return [*checks, *_vacuum(tables, autovacuum, namespace_of(schema))]


def _version(number: int) -> Finding:
    advice = "" if number >= _MIN_VERSION else "upgrade to PostgreSQL 14 or newer"
    return Finding("version", not advice, f"PostgreSQL {number // 10_000}.{number % 10_000}", advice)


def _clock(apart: float) -> Finding:
    message = f"the clocks of the server and this machine differ by {apart:.2f} s"
    advice = "synchronise both clocks (NTP); leases use the server's clock" if apart > _MAX_SKEW_SECONDS else ""
    return Finding("skew", not advice, message, advice)


def _isolation(level: str) -> Finding:
    """Detent sets the level of its own connections; transactions of the application get the server's default."""
    if level == _ISOLATION:
        return Finding("isolation", True, f"default_transaction_isolation is {level}")
    message = f"default_transaction_isolation is {level}; Detent's own connections use {_ISOLATION}"
    advice = f"begin transactions that enqueue jobs with ISOLATION LEVEL {_ISOLATION.upper()}, or change the default"
    return Finding("isolation", True, message, advice)


def _snapshots(rows: list[Any]) -> Finding:
    age = rows[0][3] or 0.0 if rows else 0.0
    if not rows or age < _OLD_SNAPSHOT_SECONDS:
        return Finding("snapshots", True, "no old snapshot is open")
    pid, name, state, _ = rows[0]
    message = f"process {pid} ({name or 'no name'}, {state}) has kept a snapshot open for {span(int(age * SECOND))}"
    advice = f"end it: SELECT pg_terminate_backend({pid}); until then vacuum cannot remove dead rows"
    return Finding("snapshots", False, message, advice)


def _indexes(rows: list[Any]) -> Finding:
    existing: dict[str, bool] = {row[0]: row[1] for row in rows}
    broken = sorted((_REQUIRED_INDEXES - set(existing)) | {name for name, valid in existing.items() if not valid})
    if broken:
        advice = "REINDEX the invalid ones; `detent migrate --sql` prints the definitions of missing ones"
        return Finding("indexes", False, f"missing or invalid: {', '.join(broken)}", advice)
    return Finding("indexes", True, "all required indexes exist and are valid")


def _partitions(row: Any, namespace: str) -> Finding:
    role, has_rights, number, has_next, spare = row
    message = f"events: {number} partitions, {spare >> 20} MB outside of them"
    if not has_rights:
        functions = ", ".join(f"{namespace}{name}" for name in ("add_event_partitions", "drop_event_partition"))
        advice = f"as the owner: GRANT EXECUTE ON FUNCTION {functions} TO {role}; or run `detent migrate` every week"
        return Finding("partitions", False, f"{message}; role {role} may not add and drop them", advice)
    if not has_next:
        advice = "run `detent migrate` at a quiet time: it locks and reads what is outside; workers do it up to 64 MB"
        return Finding("partitions", False, f"{message}; none for tomorrow", advice)
    if number > _MAX_PARTITIONS:
        advice = (
            f"make new ones wider: UPDATE {namespace}event_partitions SET days = 30; or keep jobs for a shorter time"
        )
        return Finding("partitions", False, f"{message}: reads of all events lock each of them", advice)
    return Finding("partitions", True, message)


def _vacuum(rows: list[Any], autovacuum: str, namespace: str) -> Iterator[Finding]:
    if autovacuum == "off":
        yield Finding("vacuum", False, "autovacuum is off: claiming gets slower over time", "set autovacuum = on")
        return
    for name, live, dead, scans, probes, since in rows:
        message = f"{name}: {dead} dead rows, {live} live rows"
        ago = "never" if since is None else f"{span(int(since * SECOND))} ago"
        bloated = dead > _MIN_DEAD_ROWS and dead > live
        advice = f"run VACUUM {namespace}{name}; last autovacuum: {ago}" if bloated else ""
        yield Finding("vacuum", not bloated, message, advice)
        if name == "jobs" and scans > 1_000 and scans > (probes or 0):
            usage = f"table jobs: {scans} full scans, {probes or 0} index scans"
            advice = f"look for queries of other applications on {namespace}jobs, or run ANALYZE {namespace}jobs"
            yield Finding("index use", False, usage, advice)
