"""The schema of a SQLite file and its later migrations, and the statuses and transitions of declared contracts."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import apsw

from detent.core.contract.model import Contract
from detent.core.job import Micros
from detent.stores.contract_registry import changed_contracts, check_unfinished, edge_names, new_states, reconcile
from detent.stores.sql_files import SchemaState, in_namespace, load_migrations

from .session import VERSION_TABLE
from .tx import NAMESPACE, SQL


def migrations() -> list[tuple[int, str]]:
    """(number, SQL) in order: the schema is number 1, the files of the folder migrations follow."""
    return [(number, in_namespace(text, NAMESPACE)) for number, text in load_migrations(__name__.rpartition(".")[0])]


def recorded(number: int, text: str) -> str:
    """The migration with the statement that records it, for operators who run the SQL themselves."""
    return f"BEGIN;\n{text.strip()}\nINSERT INTO {VERSION_TABLE} (version) VALUES ({number});\nCOMMIT;"


def schema_version(connection: apsw.Connection) -> int:
    """The number of the last migration, 0 for a file without Detent's tables."""
    return _schema_state(connection).version


def _schema_state(connection: apsw.Connection) -> SchemaState:
    tables: Any = connection.execute(
        "SELECT name FROM sqlite_schema WHERE name IN (?, ?)", (VERSION_TABLE, f"{NAMESPACE}edges")
    ).fetchall()
    if (VERSION_TABLE,) not in tables:
        return SchemaState(0)
    rows: Any = connection.execute(f"SELECT max(version), -min(version) FROM {VERSION_TABLE}").fetchall()
    return SchemaState(rows[0][0] or 0, rows[0][1] or 0, outdated=rows[0][0] is not None and len(tables) < 2)


def ensure_schema(connection: apsw.Connection, *, may_migrate: bool) -> None:
    """Create the schema in an empty file; migrate an older one if `may_migrate`, otherwise raise SchemaMismatch."""
    state = _schema_state(connection)
    if state.needs_migration(migrations()[-1][0], may_migrate=may_migrate or not state.version):
        _migrate(connection)


def _migrate(connection: apsw.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        have = schema_version(connection)  # another process may have been faster
        for number, text in migrations():
            if number > have:
                connection.execute(text)
                connection.execute(f"INSERT INTO {VERSION_TABLE} (version) VALUES (?)", (number,))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def register(
    connection: apsw.Connection, own: Mapping[str, Contract], builtin: Mapping[str, Contract] = MappingProxyType({})
) -> dict[str, Contract]:
    """Store new declarations, their statuses and transitions; returns all contracts of the database."""
    registry = reconcile(_stored(connection), own, builtin)
    if not registry.to_write:
        return registry.contracts
    connection.execute("BEGIN IMMEDIATE")
    try:
        stored = _stored(connection)
        registry = reconcile(stored, own, builtin)
        for before, after in changed_contracts(stored, own):
            rows: Any = connection.execute(SQL["unfinished_statuses"], {"contract": after.name})
            check_unfinished(before, after, {row[0] for row in rows})
        for name, (text, carried_by_detent) in registry.to_write.items():
            connection.execute(SQL["put_contract"], {"name": name, "definition": text, "carried": carried_by_detent})
        known: Any = connection.execute(SQL["states"]).fetchall()
        connection.executemany(SQL["put_state"], new_states(registry.contracts.values(), known))
        connection.executemany(SQL["put_edge"], edge_names(registry.contracts.values()))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return registry.contracts


def stored_contracts(
    connection: apsw.Connection, own: Mapping[str, Contract], builtin: Mapping[str, Contract]
) -> dict[str, Contract]:
    """The contracts of the database as `register` would return them, without writing anything."""
    return reconcile(_stored(connection), own, builtin).contracts


def stored_names(connection: apsw.Connection) -> dict[tuple[str, ...], int]:
    """The numbers of all statuses and transitions, as the lane cache keeps them."""
    states: Any = connection.execute(SQL["states"])
    edges: Any = connection.execute(SQL["edges"])
    return {("state", *names): number for number, *names in states} | {("edge", *names): n for n, *names in edges}


def latest_time(connection: apsw.Connection) -> Micros:
    """The time of the last event, or of the last heartbeat of a worker if that is later."""
    rows: Any = connection.execute(SQL["latest_time"]).fetchall()
    return int(rows[0][0])


def _stored(connection: apsw.Connection) -> dict[str, tuple[str, bool]]:
    rows: Any = connection.execute(SQL["contracts"])
    return {name: (text, bool(builtin)) for name, text, builtin in rows}
