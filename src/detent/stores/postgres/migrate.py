"""Numbered migrations of a Postgres database under an advisory lock, and the check generated from its contracts."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from importlib.resources import files

import asyncpg

from detent.core.contract.model import Contract, Move
from detent.core.errors import SchemaMismatch, StoreUnavailable
from detent.stores.contract_registry import reconcile
from detent.stores.sql_files import load_queries

from .dialect import compiled
from .tx import Connection

_LOCK = 0x44544E54
_RECORDS = "CREATE TABLE IF NOT EXISTS detent_schema (version integer NOT NULL)"
_TRIES = 20
_PATIENCE = "500ms"
_MARK = """SELECT obj_description(oid, 'pg_constraint') FROM pg_constraint
WHERE conname = 'jobs_contract' AND conrelid = 'jobs'::regclass"""


def migrations() -> list[tuple[int, str]]:
    folder = files(__package__).joinpath("migrations")
    found = [(int(f.name[:4]), f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".sql")]
    return sorted(found)


def recorded(number: int, text: str) -> str:
    """A migration that writes down that it was run, for people who run SQL themselves."""
    return f"BEGIN;\n{_RECORDS};\n{text.strip()}\nINSERT INTO detent_schema VALUES ({number});\nCOMMIT;"


async def schema_version(connection: Connection) -> int:
    if await connection.fetchval("SELECT to_regclass('detent_schema')") is None:
        return 0
    version: int = await connection.fetchval("SELECT coalesce(max(version), 0) FROM detent_schema")
    return version


async def ensure_schema(connection: Connection, *, may_migrate: bool) -> None:
    """A database is migrated only by those who were asked to; everyone else gets a clear error."""
    newest = migrations()[-1][0]
    have = await schema_version(connection)
    if have == newest:
        return
    if have > newest:
        # Additive migrations leave older programs able to work: newer ones say from which schema on they are not.
        if await _oldest_allowed(connection) <= newest:
            return
        raise SchemaMismatch(
            f"the database has schema {have}, this Detent knows {newest}; upgrade Detent", have=have, want=newest
        )
    if not may_migrate:
        what = "is empty" if have == 0 else f"has schema {have}"
        raise SchemaMismatch(
            f"the database {what}, this Detent needs schema {newest}; run `detent migrate`", have=have, want=newest
        )
    await _migrate(connection)


async def _oldest_allowed(connection: Connection) -> int:
    """A migration that old programs cannot live with is recorded with a negative number beside its own."""
    breaking: int | None = await connection.fetchval("SELECT -min(version) FROM detent_schema WHERE version < 0")
    return breaking or 0


async def _migrate(connection: Connection) -> None:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(_RECORDS)
        have: int = await connection.fetchval("SELECT coalesce(max(version), 0) FROM detent_schema")
        for number, text in migrations():
            if number > have:
                await connection.execute(text)
                await connection.execute("INSERT INTO detent_schema VALUES ($1)", number)


async def register(
    connection: Connection, own: Mapping[str, Contract], carried: Mapping[str, Contract]
) -> dict[str, Contract]:
    """Store new declarations and replace the check that holds rows to them; answers all contracts known."""
    known = reconcile(await _stored(connection), own, carried)
    if not known.to_write:
        return known.contracts
    for _ in range(_TRIES):
        with suppress(asyncpg.LockNotAvailableError):
            return await _write_declarations(connection, own, carried)
    raise StoreUnavailable("somebody holds the jobs table, so new contracts cannot be declared; end that transaction")


async def _write_declarations(
    connection: Connection, own: Mapping[str, Contract], carried: Mapping[str, Contract]
) -> dict[str, Contract]:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        known = reconcile(await _stored(connection), own, carried)
        put = compiled(load_queries()["put_contract"])
        for name, (text, ours) in known.to_write.items():
            values = {"name": name, "definition": text, "carried": ours}
            await connection.execute(put.text, *(values[n] for n in put.names))
        rules = rules_sql(known.contracts.values())
        mark = blake2b(rules.encode(), digest_size=9).hexdigest()
        if await connection.fetchval(_MARK) != mark:
            # Whoever waits for this lock makes all others wait behind it: better to give up soon and come back.
            await connection.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            await connection.execute(f"{rules} COMMENT ON CONSTRAINT jobs_contract ON jobs IS '{mark}';")
    return known.contracts


async def _stored(connection: Connection) -> dict[str, tuple[str, bool]]:
    return {row[0]: (row[1], row[2]) for row in await connection.fetch(load_queries()["contracts"])}


def rules_sql(contracts: Iterable[Contract]) -> str:
    """What the database must know of statuses: phase, next_retry_at, whether an end can be left.

    NOT VALID: old rows were held to the old check, no scan is needed. One array and one short condition, because
    every statement reads them from the catalog again; what seldom happens is looked at by a function.
    """
    contracts = list(contracts)
    allowed = _array(
        f"{c.name}/{status}/{phase}/{'at' if status in c.retry_at_statuses else '-'}"
        for c in contracts
        for status, phase in c.statuses.items()
    )
    reopened = _array(f"{c.name}/{s}" for c in contracts for s in c.statuses if c.edge(s, Move.REOPEN))
    return f"""
    ALTER TABLE jobs DROP CONSTRAINT IF EXISTS jobs_contract;
    ALTER TABLE jobs ADD CONSTRAINT jobs_contract CHECK (contract || '/' || status || '/' || phase ||
      CASE WHEN next_retry_at IS NULL THEN '/-' ELSE '/at' END = ANY ({allowed})) NOT VALID;
    CREATE OR REPLACE FUNCTION detent_end_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF OLD.contract || '/' || OLD.status <> ALL ({reopened})
          AND (OLD.version <> NEW.version OR OLD.status <> NEW.status OR OLD.phase <> NEW.phase) THEN
        RAISE EXCEPTION 'jobs: an end is final'
          USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
      END IF;
      RETURN NULL;
    END $$;
    DROP TRIGGER IF EXISTS jobs_ended ON jobs;
    CREATE TRIGGER jobs_ended AFTER UPDATE OF status, phase, version ON jobs FOR EACH ROW
      WHEN (OLD.phase = 'final') EXECUTE FUNCTION detent_end_is_final();"""


def _array(words: Iterable[str]) -> str:
    """A text array as one literal."""
    quoted = ('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words)
    return "'{" + ", ".join(quoted).replace("'", "''") + "}'::text[]"
