"""Numbered migrations of a SQLite file, and the rows its triggers know the contracts by."""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import apsw

from detent.core.contract.model import Contract, Move
from detent.core.errors import SchemaMismatch
from detent.stores.contract_registry import reconcile

from .session import APPLICATION_ID
from .tx import SQL


def migrations() -> list[tuple[int, str]]:
    folder = files(__package__).joinpath("migrations")
    found = [(int(f.name[:4]), f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".sql")]
    return sorted(found)


def schema_version(connection: apsw.Connection) -> int:
    version: int = connection.pragma("user_version")
    return version


def ensure_schema(connection: apsw.Connection, *, may_migrate: bool) -> None:
    """An empty file gets the newest schema; another version is refused unless migrating was asked for."""
    newest = migrations()[-1][0]
    have = schema_version(connection)
    if have == newest:
        return
    if have > newest:
        raise SchemaMismatch(
            f"the database has schema {have}, this Detent knows {newest}; upgrade Detent or use another file",
            have=have,
            want=newest,
        )
    if have and not may_migrate:
        raise SchemaMismatch(
            f"the database has schema {have}, this Detent needs {newest}; run `detent migrate`", have=have, want=newest
        )
    _migrate(connection, newest)


def _migrate(connection: apsw.Connection, newest: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        have = schema_version(connection)  # another process may have been faster
        for number, text in migrations():
            if number > have:
                connection.execute(text)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", newest)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def register(
    connection: apsw.Connection, own: Mapping[str, Contract], carried: Mapping[str, Contract] = MappingProxyType({})
) -> dict[str, Contract]:
    """Store new declarations and write the rows that hold jobs to them; answers all contracts known."""
    known = reconcile(_stored(connection), own, carried)
    if not known.to_write:
        return known.contracts
    connection.execute("BEGIN IMMEDIATE")
    try:
        known = reconcile(_stored(connection), own, carried)
        for name, (text, ours) in known.to_write.items():
            connection.execute(SQL["put_contract"], {"name": name, "definition": text, "carried": ours})
        connection.executemany(SQL["put_status"], status_rows(known.contracts.values()))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return known.contracts


def _stored(connection: apsw.Connection) -> dict[str, tuple[str, bool]]:
    rows: Any = connection.execute(SQL["contracts"])
    return {name: (text, bool(carried)) for name, text, carried in rows}


def status_rows(contracts: Iterable[Contract]) -> list[tuple[str, str, str, bool, bool]]:
    """What the database must know of statuses: phase, whether they carry next_retry_at, whether they can be left."""
    return [
        (c.name, status, str(phase), status in c.retry_at_statuses, c.edge(status, Move.REOPEN) is not None)
        for c in contracts
        for status, phase in c.statuses.items()
    ]
