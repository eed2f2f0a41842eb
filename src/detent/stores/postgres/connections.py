"""What every connection of ours has in common."""

from typing import Any


async def prepare(connection: Any) -> None:
    """Ids are text on our side of the wire."""
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")


async def nothing_to_reset(_connection: Any) -> None:
    """Acts leave no session state behind, so there is nothing to ask the server for."""


def drop(connection: Any) -> None:
    if connection is not None and not connection.is_closed():
        connection.terminate()
