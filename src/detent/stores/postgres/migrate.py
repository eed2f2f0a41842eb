"""Numbered migrations of a Postgres database under an advisory lock, and the CHECK generated from its contracts."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from zlib import crc32

import asyncpg

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract, Move
from detent.core.errors import SchemaMismatch, StoreUnavailable
from detent.stores.contract_registry import changed_contracts, check_unfinished, declaration, reconcile
from detent.stores.sql_files import in_namespace, load_migrations
from detent.system.retry import RetryPolicy

from .connections import Connection, read_committed
from .dialect import DEFAULT_SCHEMA, compiled, namespace_of, queries

_ADVISORY_LOCK = 0x44544E54
_LOCKED = RetryPolicy((asyncpg.LockNotAvailableError,), (0.0,) * 19)
_LOCK_TIMEOUT = "500ms"
_MIGRATION_SECONDS = 3_600.0
_CREATE_SCHEMA = "CREATE SCHEMA IF NOT EXISTS detent;"
_CONSTRAINT_DIGEST = """SELECT obj_description(oid, 'pg_constraint') FROM pg_constraint
WHERE conname = 'jobs_contract' AND conrelid = 'detent.jobs'::regclass"""


def migrations(schema: str = DEFAULT_SCHEMA) -> list[tuple[int, str]]:
    """(number, SQL) in order: schema.sql is number 1, the files of the folder migrations follow."""
    return [(number, _in_schema(text, schema)) for number, text in load_migrations(__package__)]


def _in_schema(text: str, schema: str) -> str:
    """The text for this schema. CREATE SCHEMA IF NOT EXISTS needs rights on the database even if the schema exists."""
    namespace = namespace_of(schema)
    name = namespace[:-1]
    create = f"DO $$ BEGIN IF to_regnamespace('{name}') IS NULL THEN CREATE SCHEMA {name}; END IF; END $$;"
    before, marker, after = text.partition(_CREATE_SCHEMA)
    return in_namespace(before, namespace) + (create if marker else "") + in_namespace(after, namespace)


def recorded(number: int, text: str, schema: str = DEFAULT_SCHEMA) -> str:
    """The migration with the statements that record it, for operators who run the SQL themselves."""
    namespace = namespace_of(schema)
    parts = [text.strip(), f"INSERT INTO {namespace}schema VALUES ({number});"]
    if number == 1:  # the first open by a role that owns the tables would do this
        parts += [
            f"INSERT INTO {namespace}contracts (name, definition, carried)"
            f" VALUES ({_literal(name)}, {_literal(declaration(contract))}, true);"
            for name, contract in CONTRACTS.items()
        ]
        parts.append(_rules_with_digest(CONTRACTS.values(), namespace)[0])
    return "\n".join(["BEGIN;", *parts, "COMMIT;"])


async def schema_version(connection: Connection, schema: str = DEFAULT_SCHEMA) -> int:
    """The number of the last migration, 0 if the schema has no tables of Detent."""
    table = f"{namespace_of(schema)}schema"
    if await connection.fetchval("SELECT to_regclass($1)", table) is None:
        return 0
    version: int = await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {table}")
    return version


async def ensure_schema(connection: Connection, schema: str, *, may_migrate: bool) -> None:
    """Check the schema version; migrate an older schema if `may_migrate`, otherwise raise SchemaMismatch."""
    newest = migrations()[-1][0]
    current = await schema_version(connection, schema)
    if current == newest:
        return
    if current > newest:
        # Older programs work with additive migrations; a breaking one records the oldest schema it allows.
        if await _oldest_allowed(connection, schema) <= newest:
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
    await _migrate(connection, schema)


async def _oldest_allowed(connection: Connection, schema: str) -> int:
    """The schema a program must know at least: a breaking migration also records its number as a negative one."""
    query = f"SELECT -min(version) FROM {namespace_of(schema)}schema WHERE version < 0"
    breaking: int | None = await connection.fetchval(query)
    return breaking or 0


async def _lock(connection: Connection, schema: str, **options: float) -> None:
    """Wait until no other process migrates or declares contracts in this schema; held until the transaction ends."""
    key = crc32(schema.encode()) - (1 << 31)
    await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", _ADVISORY_LOCK, key, **options)


async def _migrate(connection: Connection, schema: str) -> None:
    async with read_committed(connection):
        await connection.execute("SET LOCAL lock_timeout = 0")
        await _lock(connection, schema, timeout=_MIGRATION_SECONDS)
        current = await schema_version(connection, schema)
        for number, text in migrations(schema):
            if number > current:
                await connection.execute(text, timeout=_MIGRATION_SECONDS)
                await connection.execute(f"INSERT INTO {namespace_of(schema)}schema VALUES ($1)", number)


async def register(
    connection: Connection, schema: str, own: Mapping[str, Contract], builtin: Mapping[str, Contract]
) -> dict[str, Contract]:
    """Store new declarations and replace the CHECK generated from them; returns all contracts of the database."""
    registry = reconcile(await _stored(connection, schema), own, builtin)
    if not registry.to_write:
        return registry.contracts
    try:
        return await _LOCKED.run(lambda: _write_declarations(connection, schema, own, builtin))
    except asyncpg.LockNotAvailableError as error:
        raise StoreUnavailable(
            "new contracts cannot be declared, because another transaction holds a lock on table jobs; end that"
            " transaction"
        ) from error


async def _write_declarations(
    connection: Connection, schema: str, own: Mapping[str, Contract], builtin: Mapping[str, Contract]
) -> dict[str, Contract]:
    async with read_committed(connection):
        await _lock(connection, schema)
        stored = await _stored(connection, schema)
        texts = queries(False, schema)
        registry = reconcile(stored, own, builtin)
        put = compiled(texts["put_contract"])
        for name, (text, carried_by_detent) in registry.to_write.items():
            values = {"name": name, "definition": text, "carried": carried_by_detent}
            await connection.execute(put.text, *(values[n] for n in put.names))
        rules, digest = _rules_with_digest(registry.contracts.values(), namespace_of(schema))
        if await connection.fetchval(in_namespace(_CONSTRAINT_DIGEST, namespace_of(schema))) != digest:
            # While this waits for its table lock, all other statements queue behind it: time out soon and retry.
            await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            await connection.execute(rules)
        # Now that the table is locked, if a status has gone: no job can get that status after this check.
        for before, after in changed_contracts(stored, own):
            query = compiled(texts["unfinished_statuses"])
            check_unfinished(before, after, {row[0] for row in await connection.fetch(query.text, after.name)})
    return registry.contracts


async def _stored(connection: Connection, schema: str) -> dict[str, tuple[str, bool]]:
    return {row[0]: (row[1], row[2]) for row in await connection.fetch(queries(False, schema)["contracts"])}


def _rules_with_digest(contracts: Iterable[Contract], namespace: str) -> tuple[str, str]:
    """The statements of `rules_sql` with a comment on the CHECK, which holds their digest; and the digest."""
    rules = rules_sql(contracts, namespace)
    digest = blake2b(rules.encode(), digest_size=9).hexdigest()
    return f"{rules}\n    COMMENT ON CONSTRAINT jobs_contract ON {namespace}jobs IS '{digest}';", digest


def rules_sql(contracts: Iterable[Contract], namespace: str) -> str:
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
    ALTER TABLE {namespace}jobs DROP CONSTRAINT IF EXISTS jobs_contract;
    ALTER TABLE {namespace}jobs ADD CONSTRAINT jobs_contract CHECK (contract || '/' || status || '/' || phase ||
      CASE WHEN next_retry_at IS NULL THEN '/-' ELSE '/at' END = ANY ({allowed})) NOT VALID;
    CREATE OR REPLACE FUNCTION {namespace}end_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF OLD.contract || '/' || OLD.status <> ALL ({reopened})
          AND (OLD.version <> NEW.version OR OLD.status <> NEW.status OR OLD.phase <> NEW.phase) THEN
        RAISE EXCEPTION 'jobs: an end is final'
          USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
      END IF;
      RETURN NULL;
    END $$;
    DROP TRIGGER IF EXISTS jobs_ended ON {namespace}jobs;
    CREATE TRIGGER jobs_ended AFTER UPDATE OF status, phase, version ON {namespace}jobs FOR EACH ROW
      WHEN (OLD.phase = 'final') EXECUTE FUNCTION {namespace}end_is_final();"""


def _array(texts: Iterable[str]) -> str:
    """An SQL literal of type text[]."""
    quoted = ('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts)
    return _literal("{" + ", ".join(quoted) + "}") + "::text[]"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
