"""Transactions of user code (`ctx.transaction()`), on connections of a separate pool with the server's defaults."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from detent.core.errors import InvalidInput
from detent.stores.tx_queries import StoreTx

from .caller_connection import AsyncpgConnection
from .connections import LONG_SECONDS, STATEMENT_SECONDS, read_committed, terminate_idle
from .errors import translate

if TYPE_CHECKING:
    from .store import PostgresStore

T = TypeVar("T")
_WAIT_SECONDS = 30.0


class UserTransactions:
    """Opens user transactions on a separate pool, so that they never block the engine's own connections."""

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
        transaction = UserTransaction(self._store, self._pool, connection)
        try:
            await transaction.begin()
        except BaseException as error:
            await self._pool.release(connection)
            raise translate(error) from error
        return transaction

    def terminate_idle(self) -> None:
        if self._pool is not None:
            terminate_idle(self._pool)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None


class UserTransaction:
    """One transaction of user code. `connection` is a plain asyncpg connection."""

    def __init__(self, store: "PostgresStore", pool: Any, connection: Any) -> None:
        self.connection = connection
        self._store = store
        self._pool = pool
        self._transaction = read_committed(connection)
        self._over = False

    async def begin(self) -> None:
        async with asyncio.timeout(STATEMENT_SECONDS):
            await self._transaction.start()

    async def commit(self, act: Callable[[StoreTx], Awaitable[T]]) -> T:
        """Run a last act in the transaction and commit it; if either fails, everything is rolled back."""
        if self._over or not self.connection.is_in_transaction():
            await self.rollback()
            raise InvalidInput(
                "this transaction is over: user code ended it; do not run COMMIT or ROLLBACK in ctx.transaction()",
                code="TRANSACTION_OVER",
            )
        queries = self._store.queries_on(AsyncpgConnection(self.connection))
        try:
            async with asyncio.timeout(LONG_SECONDS):
                value = await act(StoreTx(queries))
                await self._transaction.commit()
        except BaseException as error:
            await self.rollback()
            raise translate(error) from error
        await self._release()
        self._store.notify_commit(other_processes=queries.made_ready, ended=queries.ended)
        return value

    async def rollback(self) -> None:
        if self._over:
            return
        try:
            async with asyncio.timeout(STATEMENT_SECONDS):
                if self.connection.is_in_transaction():
                    await self._transaction.rollback()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self.connection.terminate()
        finally:
            await self._release()

    async def _release(self) -> None:
        self._over = True
        await self._pool.release(self.connection)
