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

from .database import Database, shown_url

_CONNECT_SECONDS = 5.0
_RISKS = {
    "fsync": "a power loss may corrupt the database",
    "full_page_writes": "a power loss may leave torn pages",
    "synchronous_commit": "a crash may lose the last commits",
}
"""What may happen if these settings are off."""


def scripts() -> list[tuple[int, str]]:
    """The migrations in order, each with the statement that records it, so that psql can run them."""
    return [(number, recorded(number, text)) for number, text in migrations()]


def describe_server(url: str) -> Database:
    facts, problem = read_facts(url)
    return Database(
        location=shown_url(url),
        schema=facts.get("schema") or None,
        newest=migrations()[-1][0],
        durability=_durability(facts),
        durable=bool(facts) and all(facts[name] != "off" for name in _RISKS),
        engine=f"PostgreSQL {facts['server_version']}" if facts else "Postgres",
        exists=True,
        problem=problem,
        kind="server",
    )


def _durability(facts: dict[str, Any]) -> str:
    """What a commit survives on this server."""
    if not facts:
        return "the server does not answer"
    for setting, risk in _RISKS.items():
        if facts[setting] == "off":
            return f"{setting} = off: {risk}"
    return f"fsync on every commit, synchronous_commit = {facts['synchronous_commit']}"


def read_facts(url: str) -> tuple[dict[str, Any], str | None]:
    """The server's settings and schema version (empty if it cannot be reached), and its problem or None."""
    store = store_from(url)
    if not isinstance(store, PostgresStore):
        raise InvalidInput("this is not a Postgres URL; write postgresql://user@host/database", code="URL_INVALID")
    try:
        return asyncio.run(_read_facts(store.url))
    except (*UNAVAILABLE, asyncpg.PostgresError) as error:
        return {}, f"cannot connect to the server: {type(error).__name__}: {error}"


async def _read_facts(url: str) -> tuple[dict[str, Any], str | None]:
    connection: Any = await Hosts(url).connect(timeout=_CONNECT_SECONDS, statement_cache_size=0)
    try:
        facts = {name: await connection.fetchval(f"SHOW {name}") for name in ("server_version", *_RISKS)}
        facts["schema"] = await schema_version(connection)
        standby = await connection.fetchval("SELECT pg_is_in_recovery()")
        return facts, "the server is a read-only standby; connect to the primary" if standby else None
    finally:
        await connection.close()
