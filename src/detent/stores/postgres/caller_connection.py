"""Adapters for connections of the application: asyncpg, and psycopg 3 async and sync.

They never begin, commit or roll back. Rows are plain tuples, with uuid values as text.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol
from uuid import UUID

from detent.core.errors import InvalidInput


class CallerConnection(Protocol):
    """What a transaction needs from a connection."""

    blocks: bool
    """True: calls block the thread instead of suspending."""

    def in_transaction(self) -> bool:
        """True if a rollback by the connection's owner would undo the next statement."""
        ...

    async def fetch(self, text: str, *values: Any, timeout: float | None = None) -> list[tuple[Any, ...]]:
        """timeout: in seconds; the connection's own time limit if None, or if the driver has none per statement."""
        ...

    async def execute(self, text: str, *values: Any) -> str: ...


class AsyncpgConnection:
    """An asyncpg connection, from a pool or not. The owner's type codecs are not changed."""

    blocks = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def in_transaction(self) -> bool:
        inside: bool = self._connection.is_in_transaction()
        return inside

    async def fetch(self, text: str, *values: Any, timeout: float | None = None) -> list[tuple[Any, ...]]:
        return _plain(await self._connection.fetch(text, *values))

    async def execute(self, text: str, *values: Any) -> str:
        tag: str = await self._connection.execute(text, *values)
        return tag


class PsycopgConnection:
    """A psycopg AsyncConnection. Raw cursors accept `$1`; the owner's row factory is not used."""

    blocks = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def in_transaction(self) -> bool:
        """Without autocommit, psycopg begins a transaction with the first statement."""
        return not self._connection.autocommit or self._connection.info.transaction_status.name != "IDLE"

    async def fetch(self, text: str, *values: Any, timeout: float | None = None) -> list[tuple[Any, ...]]:
        return _plain((await self._run(text, values))[0])

    async def execute(self, text: str, *values: Any) -> str:
        return (await self._run(text, values))[1]

    async def _run(self, text: str, values: Sequence[Any]) -> tuple[list[Any], str]:
        """The rows of a statement, and its command tag."""
        from psycopg import AsyncRawCursor
        from psycopg.rows import tuple_row

        async with AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(text.encode(), _arrays(values))
            return await cursor.fetchall() if cursor.description else [], cursor.statusmessage or ""


class PsycopgSyncConnection(PsycopgConnection):
    """A blocking psycopg Connection: coroutines that never suspend and run to their end on the owner's thread."""

    blocks = True

    async def _run(self, text: str, values: Sequence[Any]) -> tuple[list[Any], str]:
        from psycopg import RawCursor
        from psycopg.rows import tuple_row

        with RawCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(text.encode(), _arrays(values))
            return cursor.fetchall() if cursor.description else [], cursor.statusmessage or ""


def caller_connection(connection: Any) -> CallerConnection:
    """The adapter for a connection; raises InvalidInput if it is neither of asyncpg nor of psycopg 3."""
    if callable(getattr(connection, "is_in_transaction", None)) and callable(getattr(connection, "fetch", None)):
        return AsyncpgConnection(connection)
    if any(kind.__module__.partition(".")[0] == "psycopg" for kind in type(connection).__mro__):
        from psycopg import AsyncConnection, Connection

        if isinstance(connection, AsyncConnection):
            return PsycopgConnection(connection)
        if isinstance(connection, Connection):
            return PsycopgSyncConnection(connection)
    raise InvalidInput(
        f"{type(connection).__module__}.{type(connection).__qualname__} is not an asyncpg or psycopg 3 connection; "
        "pass the driver's connection (from SQLAlchemy: connection.get_raw_connection(), then .driver_connection)",
        code="CONNECTION_UNKNOWN",
    )


def _arrays(values: Iterable[Any]) -> list[Any]:
    """psycopg sends a tuple as a row value and a list as an array; our parameters are arrays."""
    return [list(value) if isinstance(value, tuple) else value for value in values]


def _plain(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [tuple(str(value) if isinstance(value, UUID) else value for value in row) for row in rows]
