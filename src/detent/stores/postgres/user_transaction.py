"""Connections lent to users' transactions: from a pool of their own, with the server's own settings."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from detent.core.errors import InvalidInput

from .caller_connection import AsyncpgConnection
from .errors import translate

if TYPE_CHECKING:
    from .store import PostgresStore

T = TypeVar("T")
_WAIT_SECONDS = 30.0


class UserTransactions:
    """Apart from the store's own pool, so that users' transactions never keep the engine waiting."""

    def __init__(self, store: "PostgresStore", size: int) -> None:
        self._store = store
        self._size = size
        self._pool: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()

    async def begin(self) -> "UserTransaction":
        try:
            async with self._opening:
                if self._pool is None:
                    self._pool = await self._store.user_pool(self._size)
            connection = await self._pool.acquire(timeout=_WAIT_SECONDS)
        except Exception as error:
            raise translate(error) from error
        loan = UserTransaction(self._store, self._pool, connection)
        try:
            await loan.begin()
        except BaseException as error:
            await self._pool.release(connection)
            raise translate(error) from error
        return loan

    def close(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None


class UserTransaction:
    """One transaction of a user's. The connection is asyncpg's own."""

    def __init__(self, store: "PostgresStore", pool: Any, connection: Any) -> None:
        self.connection = connection
        self._store = store
        self._pool = pool
        self._transaction = connection.transaction()
        self._over = False

    async def begin(self) -> None:
        await self._transaction.start()

    async def commit(self, act: Callable[[Any], Awaitable[T]]) -> T:
        """One last act in the transaction, then its commit; if either fails, nothing of it has happened."""
        if self._over or not self.connection.is_in_transaction():
            await self.rollback()
            raise InvalidInput(
                "this transaction is over: it was ended by a statement of its own; leave COMMIT and ROLLBACK out",
                code="TRANSACTION_OVER",
            )
        tx = self._store.borrow(AsyncpgConnection(self.connection))
        try:
            value = await act(tx)
            await self._transaction.commit()
        except BaseException as error:
            await self.rollback()
            raise translate(error) from error
        await self._give_back()
        self._store.tell(ring=tx.made_ready)
        return value

    async def rollback(self) -> None:
        if self._over:
            return
        try:
            if self.connection.is_in_transaction():
                await self._transaction.rollback()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self.connection.terminate()
        finally:
            await self._give_back()

    async def _give_back(self) -> None:
        self._over = True
        await self._pool.release(self.connection)
