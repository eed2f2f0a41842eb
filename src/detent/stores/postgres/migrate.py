"""Numbered migrations of a Postgres database under an advisory lock, and the CHECK generated from its contracts."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from importlib.resources import files

import asyncpg

from detent.core.contract.model import Contract, Move
from detent.core.errors import SchemaMismatch, StoreUnavailable
from detent.stores.contract_registry import changed_contracts, check_unfinished, reconcile
from detent.stores.sql_files import load_queries
from detent.system.retry import RetryPolicy

from .connections import Connection, read_committed
from .dialect import compiled

_ADVISORY_LOCK = 0x44544E54
_CREATE_SCHEMA_TABLE = "CREATE TABLE IF NOT EXISTS detent_schema (version integer NOT NULL)"
_LOCKED = RetryPolicy((asyncpg.LockNotAvailableError,), (0.0,) * 19)
_LOCK_TIMEOUT = "500ms"
_MIGRATION_SECONDS = 3_600.0
_CONSTRAINT_DIGEST = """SELECT obj_description(oid, 'pg_constraint') FROM pg_constraint
WHERE conname = 'jobs_contract' AND conrelid = 'jobs'::regclass"""


def migrations() -> list[tuple[int, str]]:
    folder = files(__name__.rpartition(".")[0]).joinpath("migrations")
    migration_files = [(int(f.name[:4]), f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".sql")]
    return sorted(migration_files)


def recorded(number: int, text: str) -> str:
    """The migration with the statements that record it, for operators who run the SQL themselves."""
    return f"BEGIN;\n{_CREATE_SCHEMA_TABLE};\n{text.strip()}\nINSERT INTO detent_schema VALUES ({number});\nCOMMIT;"


async def schema_version(connection: Connection) -> int:
    if await connection.fetchval("SELECT to_regclass('detent_schema')") is None:
        return 0
    version: int = await connection.fetchval("SELECT coalesce(max(version), 0) FROM detent_schema")
    return version


async def ensure_schema(connection: Connection, *, may_migrate: bool) -> None:
    """Check the schema version; migrate an older schema if `may_migrate`, otherwise raise SchemaMismatch."""
    newest = migrations()[-1][0]
    current = await schema_version(connection)
    if current == newest:
        return
    if current > newest:
        # Older programs work with additive migrations; a breaking one records the oldest schema it allows.
        if await _oldest_allowed(connection) <= newest:
            return
        raise SchemaMismatch(
            f"the database has schema {current}, this Detent knows {newest}; upgrade Detent",
            have=current,
            want=newest,
        )
    if not may_migrate:
        what = "is empty" if current == 0 else f"has schema {current}"
        raise SchemaMismatch(
            f"the database {what}, this Detent needs schema {newest}; run `detent migrate`",
            have=current,
            want=newest,
        )
    await _migrate(connection)


async def _oldest_allowed(connection: Connection) -> int:
    """The schema a program must know at least: a breaking migration also records its number as a negative one."""
    breaking: int | None = await connection.fetchval("SELECT -min(version) FROM detent_schema WHERE version < 0")
    return breaking or 0


async def _migrate(connection: Connection) -> None:
    async with read_committed(connection):
        await connection.execute("SET LOCAL lock_timeout = 0")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _ADVISORY_LOCK, timeout=_MIGRATION_SECONDS)
        await connection.execute(_CREATE_SCHEMA_TABLE)
        current: int = await connection.fetchval("SELECT coalesce(max(version), 0) FROM detent_schema")
        for number, text in migrations():
            if number > current:
                await connection.execute(text, timeout=_MIGRATION_SECONDS)
                await connection.execute("INSERT INTO detent_schema VALUES ($1)", number)


async def register(
    connection: Connection, own: Mapping[str, Contract], builtin: Mapping[str, Contract]
) -> dict[str, Contract]:
    """Store new declarations and replace the CHECK generated from them; returns all contracts of the database."""
    registry = reconcile(await _stored(connection), own, builtin)
    if not registry.to_write:
        return registry.contracts
    try:
        return await _LOCKED.run(lambda: _write_declarations(connection, own, builtin))
    except asyncpg.LockNotAvailableError as error:
        raise StoreUnavailable(
            "new contracts cannot be declared, because another transaction holds a lock on table jobs; end that"
            " transaction"
        ) from error


async def _write_declarations(
    connection: Connection, own: Mapping[str, Contract], builtin: Mapping[str, Contract]
) -> dict[str, Contract]:
    async with read_committed(connection):
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _ADVISORY_LOCK)
        stored = await _stored(connection)
        registry = reconcile(stored, own, builtin)
        put = compiled(load_queries()["put_contract"])
        for name, (text, carried_by_detent) in registry.to_write.items():
            values = {"name": name, "definition": text, "carried": carried_by_detent}
            await connection.execute(put.text, *(values[n] for n in put.names))
        rules = rules_sql(registry.contracts.values())
        digest = blake2b(rules.encode(), digest_size=9).hexdigest()
        if await connection.fetchval(_CONSTRAINT_DIGEST) != digest:
            # While this waits for its table lock, all other statements queue behind it: time out soon and retry.
            await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            await connection.execute(f"{rules} COMMENT ON CONSTRAINT jobs_contract ON jobs IS '{digest}';")
        # Now that the table is locked, if a status has gone: no job can get that status after this check.
        for before, after in changed_contracts(stored, own):
            query = compiled(load_queries()["unfinished_statuses"])
            check_unfinished(before, after, {row[0] for row in await connection.fetch(query.text, after.name)})
    return registry.contracts


async def _stored(connection: Connection) -> dict[str, tuple[str, bool]]:
    return {row[0]: (row[1], row[2]) for row in await connection.fetch(load_queries()["contracts"])}


def rules_sql(contracts: Iterable[Contract]) -> str:
    """The CHECK on status, phase and next_retry_at, and the trigger that keeps final jobs final unless reopened.

    NOT VALID: existing rows passed the previous CHECK, so no scan is needed. The CHECK is one array and one short
    condition, because every statement reads it from the catalog; the rare case (a final row changes) is a trigger.
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


def _array(texts: Iterable[str]) -> str:
    """An SQL literal of type text[]."""
    quoted = ('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts)
    return "'{" + ", ".join(quoted).replace("'", "''") + "}'::text[]"
