"""Other people's connections, made to look like ours: asyncpg's, and psycopg 3's with and without an event loop.

Nothing here begins, commits or rolls back. What was given as text comes back as text, ids included.
"""

from collections.abc import Iterable
from typing import Any, Protocol
from uuid import UUID

from detent.core.errors import InvalidInput


class CallerConnection(Protocol):
    """What a transaction needs of a connection."""

    blocks: bool
    """True: its calls do not give way to an event loop, they block."""

    def in_transaction(self) -> bool:
        """Would a statement be undone by the owner's rollback?"""
        ...

    async def fetch(self, text: str, *values: Any) -> list[tuple[Any, ...]]: ...

    async def execute(self, text: str, *values: Any) -> str: ...


class AsyncpgConnection:
    """A connection of asyncpg, from a pool or not. Its codecs are the owner's and stay as they are."""

    blocks = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def in_transaction(self) -> bool:
        answer: bool = self._connection.is_in_transaction()
        return answer

    async def fetch(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return _plain(await self._connection.fetch(text, *values))

    async def execute(self, text: str, *values: Any) -> str:
        tag: str = await self._connection.execute(text, *values)
        return tag


class PsycopgConnection:
    """A psycopg AsyncConnection. Its raw cursor takes `$1` as it stands; the owner's row factory is passed by."""

    blocks = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def in_transaction(self) -> bool:
        return _psycopg_in_transaction(self._connection)

    async def fetch(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        from psycopg import AsyncRawCursor
        from psycopg.rows import tuple_row

        async with AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(text.encode(), _arrays(values))
            return _plain(await cursor.fetchall())

    async def execute(self, text: str, *values: Any) -> str:
        from psycopg import AsyncRawCursor

        async with AsyncRawCursor(self._connection) as cursor:
            await cursor.execute(text.encode(), _arrays(values))
            return cursor.statusmessage or ""


class PsycopgSyncConnection:
    """A psycopg Connection: coroutines that never suspend, driven to their end on the owner's thread."""

    blocks = True

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def in_transaction(self) -> bool:
        return _psycopg_in_transaction(self._connection)

    async def fetch(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        from psycopg import RawCursor
        from psycopg.rows import tuple_row

        with RawCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(text.encode(), _arrays(values))
            return _plain(cursor.fetchall())

    async def execute(self, text: str, *values: Any) -> str:
        from psycopg import RawCursor

        with RawCursor(self._connection) as cursor:
            cursor.execute(text.encode(), _arrays(values))
            return cursor.statusmessage or ""


def caller_connection(connection: Any) -> CallerConnection:
    """The connection in our shape, or a refusal that says which kinds can be handed over."""
    if callable(getattr(connection, "is_in_transaction", None)) and callable(getattr(connection, "fetch", None)):
        return AsyncpgConnection(connection)
    if any(kind.__module__.partition(".")[0] == "psycopg" for kind in type(connection).__mro__):
        from psycopg import AsyncConnection, Connection

        if isinstance(connection, AsyncConnection):
            return PsycopgConnection(connection)
        if isinstance(connection, Connection):
            return PsycopgSyncConnection(connection)
    raise InvalidInput(
        f"{type(connection).__module__}.{type(connection).__qualname__} is no asyncpg or psycopg 3 connection; "
        "hand over the driver's own (from SQLAlchemy: connection.get_raw_connection(), then .driver_connection)",
        code="CONNECTION_UNKNOWN",
    )


def _psycopg_in_transaction(connection: Any) -> bool:
    """Without autocommit, the first statement begins a transaction by itself."""
    return not connection.autocommit or connection.info.transaction_status.name != "IDLE"


def _arrays(values: Iterable[Any]) -> list[Any]:
    """psycopg takes a tuple for a row and a list for an array; ours are arrays."""
    return [list(value) if isinstance(value, tuple) else value for value in values]


def _plain(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [tuple(str(value) if isinstance(value, UUID) else value for value in row) for row in rows]
