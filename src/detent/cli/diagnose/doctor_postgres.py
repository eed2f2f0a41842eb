"""The doctor's checks of a Postgres server: version, old snapshots, indexes, vacuum, its clock. Reads only."""

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg

from detent.client.connect import store_from
from detent.core.times import SECOND
from detent.engine.reads.why import span
from detent.stores.postgres.store import PostgresStore
from detent.system.clock import SystemClock

from .doctor_sqlite import EXPECTED
from .finding import Finding

_OLDEST = 140_000
_OLD_SNAPSHOT_SECONDS = 300
_APART_SECONDS = 2.0
_DEAD_AT_LEAST = 10_000
_SNAPSHOTS = """
SELECT pid, coalesce(application_name, ''), state, extract(epoch FROM clock_timestamp() - xact_start)::float8
FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'
ORDER BY xact_start LIMIT 1"""
_INDEXES = """
SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid IN (to_regclass('jobs'), to_regclass('events'), to_regclass('notes'))"""
_TABLES = """
SELECT relname, n_live_tup, n_dead_tup, seq_scan, idx_scan, extract(epoch FROM now() - last_autovacuum)::float8
FROM pg_stat_user_tables WHERE relid IN (to_regclass('jobs'), to_regclass('events'))"""


def findings(url: str) -> Iterator[Finding]:
    store = store_from(url)
    assert isinstance(store, PostgresStore), "asked about servers only"
    yield from asyncio.run(_look(store.url))


async def _look(url: str) -> list[Finding]:
    connection: Any = await asyncpg.connect(url, timeout=5.0, statement_cache_size=0)
    try:
        clock = SystemClock()
        before = clock.now()
        theirs = await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        apart = abs(theirs - (before + clock.now()) // 2) / SECOND
        number = int(await connection.fetchval("SHOW server_version_num"))
        autovacuum = await connection.fetchval("SHOW autovacuum")
        snapshots, indexes = await connection.fetch(_SNAPSHOTS), await connection.fetch(_INDEXES)
        tables = await connection.fetch(_TABLES)
    finally:
        await connection.close()
    return [_version(number), _clock(apart), _snapshots(snapshots), _indexes(indexes), *_vacuum(tables, autovacuum)]


def _version(number: int) -> Finding:
    told = f"PostgreSQL {number // 10_000}.{number % 10_000}"
    return Finding("version", number >= _OLDEST, told, "" if number >= _OLDEST else "upgrade to PostgreSQL 14 or newer")


def _clock(apart: float) -> Finding:
    says = f"the server's clock and this machine's are {apart:.2f} s apart"
    if apart > _APART_SECONDS:
        return Finding("skew", False, says, "let both follow one time server; leases go by the server's clock")
    return Finding("skew", True, says)


def _snapshots(rows: list[Any]) -> Finding:
    age = rows[0][3] or 0.0 if rows else 0.0
    if not rows or age < _OLD_SNAPSHOT_SECONDS:
        return Finding("snapshots", True, "nobody keeps an old one")
    pid, name, state, _ = rows[0]
    says = f"process {pid} ({name or 'no name'}, {state}) keeps a snapshot for {span(int(age * SECOND))}"
    return Finding(
        "snapshots", False, says, f"end it: SELECT pg_terminate_backend({pid}); until then nothing is vacuumed"
    )


def _indexes(rows: list[Any]) -> Finding:
    there: dict[str, bool] = {row[0]: row[1] for row in rows}
    broken = sorted((EXPECTED - set(there)) | {name for name, valid in there.items() if not valid})
    if broken:
        do = "REINDEX what is invalid; `detent migrate --sql` prints how missing ones are made"
        return Finding("indexes", False, f"missing or invalid: {', '.join(broken)}", do)
    return Finding("indexes", True, "all there and valid")


def _vacuum(rows: list[Any], autovacuum: str) -> Iterator[Finding]:
    if autovacuum == "off":
        yield Finding("vacuum", False, "autovacuum is off: claiming slows down by the hour", "set autovacuum = on")
        return
    for name, live, dead, scans, probes, since in rows:
        says = f"{name}: {dead} dead rows beside {live} live ones"
        ago = "never" if since is None else f"{span(int(since * SECOND))} ago"
        bloated = dead > _DEAD_AT_LEAST and dead > live
        do = f"VACUUM {name}; last vacuumed by itself {ago}" if bloated else ""
        yield Finding("vacuum", not bloated, says, do)
        if name == "jobs" and scans > 1_000 and scans > (probes or 0):
            told = f"jobs was read whole {scans} times, by index {probes or 0} times"
            yield Finding("index use", False, told, "look for foreign queries on jobs, or ANALYZE jobs")
