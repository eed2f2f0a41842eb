"""Inspects a Postgres server without opening an engine."""

import asyncio
from typing import Any

import asyncpg

from detent.client.connect import store_from
from detent.core.errors import InvalidInput
from detent.stores.postgres.connections import Hosts
from detent.stores.postgres.errors import UNAVAILABLE
from detent.stores.postgres.migrate import migrations, recorded, schema_version
from detent.stores.postgres.store import PostgresStore

_CONNECT_SECONDS = 5.0
_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")
UNKNOWN = "the server does not answer"


def scripts(schema: str) -> list[tuple[int, str]]:
    """The migrations in order, each with the statement that records it, so that psql can run them."""
    return [(number, recorded(number, text, schema)) for number, text in migrations(schema)]


def newest() -> int:
    return migrations()[-1][0]


def read_facts(url: str) -> tuple[dict[str, Any], str | None]:
    """The server's settings and schema version (empty if it cannot be reached), and its problem or None."""
    store = store_from(url)
    if not isinstance(store, PostgresStore):
        raise InvalidInput("this is not a Postgres URL; write postgresql://user@host/database", code="URL_INVALID")
    try:
        return asyncio.run(_read_facts(store.url, store.schema))
    except (*UNAVAILABLE, asyncpg.PostgresError) as error:
        return {}, f"cannot connect to the server: {type(error).__name__}: {error}"


async def _read_facts(url: str, schema: str) -> tuple[dict[str, Any], str | None]:
    connection: Any = await Hosts(url).connect(timeout=_CONNECT_SECONDS, statement_cache_size=0)
    try:
        facts = {name: await connection.fetchval(f"SHOW {name}") for name in ("server_version", *_SETTINGS)}
        facts["schema"] = await schema_version(connection, schema)
        standby = await connection.fetchval("SELECT pg_is_in_recovery()")
        return facts, "the server is a read-only standby; connect to the primary" if standby else None
    finally:
        await connection.close()


def is_durable(facts: dict[str, Any]) -> bool:
    return bool(facts) and all(facts[name] != "off" for name in _SETTINGS)


def durability(facts: dict[str, Any]) -> str:
    """What a commit survives on this server."""
    if not facts:
        return UNKNOWN
    if facts["fsync"] == "off":
        return "fsync = off: a power loss may corrupt the database"
    if facts["full_page_writes"] == "off":
        return "full_page_writes = off: a power loss may leave torn pages"
    if facts["synchronous_commit"] == "off":
        return "synchronous_commit = off: a crash may lose the last commits"
    return f"fsync on every commit, synchronous_commit = {facts['synchronous_commit']}"
