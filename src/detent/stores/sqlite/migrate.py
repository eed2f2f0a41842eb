"""Numbered migrations of a SQLite file, and the triggers generated from the contracts it knows."""

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import apsw

from ...core.contract import Contract
from ...core.declare import contract_from, contract_to
from ...core.errors import SchemaMismatch
from .tx import SQL

APPLICATION_ID = 0x44544E54
"""Marks the file as Detent's ("DTNT"), so that another program's database is not migrated by mistake."""


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
    if have == 0:
        _refuse_foreign_file(connection)
    elif have > newest:
        raise SchemaMismatch(
            f"the database has schema {have}, this Detent knows {newest}; upgrade Detent or use another file",
            have=have,
            want=newest,
        )
    elif not may_migrate:
        raise SchemaMismatch(
            f"the database has schema {have}, this Detent needs {newest}; run `detent migrate`", have=have, want=newest
        )
    _migrate(connection, newest)


def _refuse_foreign_file(connection: apsw.Connection) -> None:
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' LIMIT 1").fetchall()
    if tables:
        raise SchemaMismatch(
            f"the file is not Detent's: it already has a table {tables[0][0]!r}; choose another file", have=0
        )


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


def known_contracts(connection: apsw.Connection) -> dict[str, Contract]:
    """The contracts the database has seen, as declared when they were last used."""
    return {name: contract_from(json.loads(text)) for name, text in connection.execute(SQL["contracts"])}


def register(connection: apsw.Connection, contracts: Mapping[str, Contract]) -> None:
    """Store these declarations and regenerate the triggers that hold rows to them; nothing to do if unchanged."""
    wanted = {name: json.dumps(contract_to(c), sort_keys=True) for name, c in contracts.items()}
    stored: dict[Any, Any] = {row[0]: row[1] for row in connection.execute(SQL["contracts"])}
    if all(stored.get(name) == text for name, text in wanted.items()):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for name, text in wanted.items():
            connection.execute(SQL["put_contract"], (name, text))
        connection.execute(triggers(known_contracts(connection).values()))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def triggers(contracts: Iterable[Contract]) -> str:
    """What the database must know of statuses: which exist, in which phase, and which carry next_retry_at."""
    contracts = list(contracts)
    allowed = _list(f"{c.name}/{s}/{p}" for c in contracts for s, p in c.statuses.items())
    timed = _list(f"{c.name}/{s}" for c in contracts for s in sorted(c.retry_at_statuses))
    body = f"""BEGIN
      SELECT RAISE(ABORT, 'jobs: status and phase are not in the contract')
        WHERE NEW.contract || '/' || NEW.status || '/' || NEW.phase NOT IN ({allowed});
      SELECT RAISE(ABORT, 'jobs: next_retry_at is set if and only if the status says so')
        WHERE (NEW.next_retry_at IS NOT NULL) <> (NEW.contract || '/' || NEW.status IN ({timed}));
    END;"""
    return f"""
    DROP TRIGGER IF EXISTS jobs_contract_insert;
    DROP TRIGGER IF EXISTS jobs_contract_update;
    CREATE TRIGGER jobs_contract_insert BEFORE INSERT ON jobs {body}
    CREATE TRIGGER jobs_contract_update
      BEFORE UPDATE OF contract, status, phase, next_retry_at ON jobs {body}"""


def _list(words: Iterable[str]) -> str:
    return ", ".join("'" + word.replace("'", "''") + "'" for word in words)
