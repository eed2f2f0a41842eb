"""The schema of a Postgres database, its later migrations, and the states of its contracts; under an advisory lock."""

from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

import asyncpg

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.core.errors import StoreUnavailable
from detent.stores.contract_registry import (
    changed_contracts,
    check_unfinished,
    declaration,
    edge_names,
    new_states,
    reconcile,
)
from detent.stores.sql_files import SchemaState, in_namespace, load_migrations
from detent.system.retry import RetryPolicy

from .connections import Connection, read_committed
from .dialect import DEFAULT_SCHEMA, compiled, namespace_of, queries

_ADVISORY_LOCK = 0x44544E54
_LOCKED = RetryPolicy((asyncpg.LockNotAvailableError,), (0.0,) * 19)
_LOCK_TIMEOUT = "500ms"
_MIGRATION_SECONDS = 3_600.0
_CREATE_SCHEMA = "CREATE SCHEMA IF NOT EXISTS detent;"


def migrations(schema: str = DEFAULT_SCHEMA) -> list[tuple[int, str]]:
    """(number, SQL) in order: the schema is number 1, the files of the folder migrations follow."""
    return [(number, _in_schema(text, schema)) for number, text in load_migrations(__name__.rpartition(".")[0])]


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
    parts = [text.strip(), f"INSERT INTO {namespace}schema (version) VALUES ({number});"]
    if number == 1:  # the first open by a role that owns the tables would do this
        parts += [
            f"INSERT INTO {namespace}contracts (name, definition, carried)"
            f" VALUES ({_literal(name)}, {_literal(declaration(contract))}, true);"
            for name, contract in CONTRACTS.items()
        ]
        parts.append(states_sql(CONTRACTS.values(), [], namespace))
    return "\n".join(["BEGIN;", *parts, "COMMIT;"])


async def schema_version(connection: Connection, schema: str = DEFAULT_SCHEMA) -> int:
    """The number of the last migration, 0 if the schema has no tables of Detent."""
    return (await _schema_state(connection, schema)).version


async def _schema_state(connection: Connection, schema: str) -> SchemaState:
    table, edges = f"{namespace_of(schema)}schema", f"{namespace_of(schema)}edges"
    if await connection.fetchval("SELECT to_regclass($1)", table) is None:
        early = await connection.fetchval("SELECT to_regclass('public.detent_schema')")
        return SchemaState(0, outdated=early is not None)
    query = f"SELECT coalesce(max(version), 0), coalesce(-min(version), 0), to_regclass($1) IS NULL FROM {table}"
    version, oldest, outdated = (await connection.fetch(query, edges))[0]
    return SchemaState(version, oldest, outdated and version > 0)


async def ensure_schema(connection: Connection, schema: str, *, may_migrate: bool) -> None:
    """Check the schema version; migrate an older schema if `may_migrate`, otherwise raise SchemaMismatch."""
    newest = migrations()[-1][0]
    if (await _schema_state(connection, schema)).needs_migration(newest, may_migrate=may_migrate):
        await _migrate(connection, schema)
    elif may_migrate:
        await _add_event_partitions(connection, schema)


async def _add_event_partitions(connection: Connection, schema: str) -> None:
    """Add partitions that are needed soon, however large events_default is; nothing if the role may not."""
    texts = queries(False, schema)
    if await connection.fetch(texts["event_partitioning"]):
        await connection.execute(compiled(texts["add_event_partitions"]).text, None, timeout=_MIGRATION_SECONDS)


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
                await connection.execute(f"INSERT INTO {namespace_of(schema)}schema (version) VALUES ($1)", number)


async def register(
    connection: Connection, schema: str, own: Mapping[str, Contract], builtin: Mapping[str, Contract]
) -> dict[str, Contract]:
    """Store new declarations, their statuses and transitions; returns all contracts of the database."""
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
        known = [(row[0], row[1], row[2]) for row in await connection.fetch(texts["states"])]
        await connection.execute(states_sql(registry.contracts.values(), known, namespace_of(schema)))
        changed = list(changed_contracts(stored, own))
        if changed:
            # A status has gone: no job may get it after this check. While this waits for its lock, all other statements
            # queue behind it: time out soon and retry.
            await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            await connection.execute(f"LOCK TABLE {namespace_of(schema)}jobs IN SHARE ROW EXCLUSIVE MODE")
        for before, after in changed:
            query = compiled(texts["unfinished_statuses"])
            check_unfinished(before, after, {row[0] for row in await connection.fetch(query.text, after.name)})
    return registry.contracts


async def _stored(connection: Connection, schema: str) -> dict[str, tuple[str, bool]]:
    return {row[0]: (row[1], row[2]) for row in await connection.fetch(queries(False, schema)["contracts"])}


def states_sql(contracts: Iterable[Contract], known: Sequence[tuple[int, str, str]], namespace: str) -> str:
    """The statements that add the statuses and transitions of these contracts, and allow the new states.

    known: as for `new_states`. NOT VALID: existing rows passed the previous check.
    """
    contracts = tuple(contracts)
    rows = new_states(contracts, known)
    states = [
        f"({number}, {', '.join(map(_literal, (contract, status, phase)))}, {retry_at}, {reopens})"
        for number, contract, status, phase, retry_at, reopens in rows
    ]
    edge_rows = ", ".join("(" + ", ".join(map(_literal, edge)) + ")" for edge in edge_names(contracts))
    ids = [number for number, *_ in (*known, *rows)]
    allowed = ", ".join(map(str, sorted(ids)))
    put_states = (
        f"INSERT INTO {namespace}states (id, contract, status, phase, retry_at, reopens) VALUES {', '.join(states)};"
    )
    return f"""
    {put_states if states else ""}
    INSERT INTO {namespace}edges (event, source, target) VALUES {edge_rows} ON CONFLICT DO NOTHING;
    ALTER DOMAIN {namespace}state DROP CONSTRAINT IF EXISTS known;
    ALTER DOMAIN {namespace}state ADD CONSTRAINT known CHECK (VALUE = ANY ('{{{allowed}}}'::int[])) NOT VALID;"""


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
