"""Empty migrated databases on servers that live as long as the test run; a used one is emptied and used again."""

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.engine import Engine
from detent.stores.postgres.store import PostgresStore
from support.servers.ending import AT_THE_END
from support.servers.postgres import NONE, VOLATILE, Server, installations

GIVEN = "given"
"""The name of a server that $DETENT_TEST_POSTGRES brings instead of those we find."""
SEARCH_PATH = "public, seen, detent"
"""For connections that read the tables past Detent; Detent's own connections do not have it. `seen` has the views."""
SEARCH_DETENT = "-c search_path=public,seen,detent"
"""The same as the parameter `options` of libpq."""
_SEEN = """CREATE SCHEMA seen;
CREATE VIEW seen.jobs AS SELECT * FROM detent.job_list;
CREATE VIEW seen.events AS SELECT * FROM detent.event_list"""
_TABLES = """SELECT relname FROM pg_class WHERE relnamespace = 'detent'::regnamespace AND relkind IN ('r', 'p')
AND NOT relispartition"""
_TRUNCATE_EACH = 40
_numbers = count(1)


def versions() -> list[str]:
    """Names of the servers the tests run on, the newest last; with none there is no green."""
    return [GIVEN] if os.environ.get("DETENT_TEST_POSTGRES") else list(installations())


def newest() -> str:
    return (versions() or [NONE])[-1]


@cache
def house(version: str) -> "House":
    """The server of this version, started when it is first asked for, removed at the end of the run."""
    if version == GIVEN:
        return House(os.environ["DETENT_TEST_POSTGRES"])
    if version not in installations():
        raise RuntimeError(NONE)
    server = Server(installations()[version], VOLATILE)
    AT_THE_END.callback(server.remove)
    return House(server.init().start().url())


class House:
    """One server with its template and the databases made from it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._admin = psycopg.connect(url, autocommit=True)
        self._free: list[Database] = []
        self._made: list[str] = []
        AT_THE_END.callback(self._leave)
        self._template = self.blank()
        with ThreadPoolExecutor(1) as thread:  # whoever asks may have an event loop running here
            thread.submit(asyncio.run, migrated(self.url(self._template))).result()
        with psycopg.connect(self.url(self._template), autocommit=True) as connection:
            connection.execute(_SEEN)

    def url(self, database: str) -> str:
        return with_database(self._url, database)

    def database(self) -> "Database":
        """An empty, migrated one; give it back with `release`."""
        if self._free:
            return self._free.pop()
        name = self.blank(self._template)
        return Database(self, self.url(name))

    def blank(self, template: str = "template0") -> str:
        """The name of a new database without anything of Detent in it, or a copy of another."""
        name = f"detent_{os.getpid()}_{next(_numbers)}"
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        self._made.append(name)
        return name

    def release(self, database: "Database") -> None:
        if database.empty():
            self._free.append(database)
        else:
            database.close()

    def _leave(self) -> None:
        """Of a server we only visit, take our databases along."""
        for name in self._made:
            self._admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._admin.close()


class Database:
    """One database, looked at and emptied past Detent."""

    def __init__(self, house: House, url: str) -> None:
        self.house = house
        self.url = url
        self._connection = psycopg.connect(url, autocommit=True, options=SEARCH_DETENT)
        self._tables = [row[0] for row in self.sql(_TABLES)]
        self._kept = {name: self.rows(f"detent.{name}") for name in ("contracts", "schema", "states")}
        self._filled = [
            name for name in self._tables if name not in (*self._kept, "lane_version", "edges", "event_partitions")
        ]
        self._used = 0

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement, values or None)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []

    def named(self, statement: str) -> list[dict[str, Any]]:
        """Rows by column name; ids as Detent spells them."""
        cursor = self._connection.execute(statement)  # type: ignore[arg-type]
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, map(_plain, row), strict=True)) for row in cursor]

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return sorted(self.sql(f"SELECT * FROM {table}"), key=repr)

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        return {table: self.rows(f"detent.{table}") for table in self._tables}

    def empty(self) -> bool:
        """As new, or False if that cannot be had cheaply: a test declared contracts of its own."""
        self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                 " AND pid <> pg_backend_pid()")  # fmt: skip
        if any(self.rows(f"detent.{name}") != kept for name, kept in self._kept.items()):
            return False
        self._used += 1
        if self._used % _TRUNCATE_EACH:  # a small table is emptied ten times quicker by deleting
            self.sql("; ".join(f"DELETE FROM detent.{name}" for name in self._filled))
        else:
            self.sql(f"TRUNCATE {', '.join(f'detent.{name}' for name in self._filled)}")
        self.sql("UPDATE lane_version SET value = 1")
        return True

    def release(self) -> None:
        self.house.release(self)

    def close(self) -> None:
        self._connection.close()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


async def migrated(url: str, contracts: Mapping[str, Contract] = CONTRACTS) -> None:
    engine = Engine(PostgresStore(url, may_migrate=True), contracts)
    await engine.open()
    await engine.close()


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    parts = conninfo_to_dict(url)
    user, host, port = parts.get("user", ""), parts.get("host", "127.0.0.1"), parts.get("port", 5432)
    password = f":{parts['password']}" if parts.get("password") else ""
    assert make_conninfo(url)
    return f"postgresql://{user}{password}@{host}:{port}/{name}"
