"""Transactions of user code (`ctx.transaction()`) on the writer connection; all other writes wait until they end."""

import asyncio
import queue
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from detent.core.errors import InvalidInput, TransactionTooLong
from detent.ports.clock import Clock
from detent.ports.tx import Tx
from detent.stores.tx_queries import StoreTx
from detent.system.run_now import run_now

from .errors import translate

if TYPE_CHECKING:
    from .claim import SqliteTx
    from .session import Session

T = TypeVar("T")
_CONTROL = re.compile(r"\s*(begin|commit|end|rollback(?!\s+(transaction\s+)?to))\b", re.IGNORECASE)
_NUMBERED = re.compile(r"\$\d")


class UserTransaction:
    """One transaction of user code on the writer. It ends by commit, rollback or timeout."""

    def __init__(self, session: "Session", clock: Clock, seconds: float) -> None:
        self.connection = Connection(self)
        self._session = session
        self._clock = clock
        self._seconds = seconds
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._begun: Future[None] = Future()
        self._deadline = 0.0
        self._over: Exception | None = None
        self._tx: SqliteTx

    async def begin(self) -> "UserTransaction":
        if self._session.has_thread:
            self._session.queue.put(self)  # the thread does nothing else until it has ended
            await asyncio.wrap_future(self._begun)
        else:
            self._begin()
        return self

    async def call(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run a function on the connection, on the thread that owns the transaction."""

        def checked_work() -> T:
            self._check_open()
            value = work(self._session.connection)
            if not self._session.connection.in_transaction:
                self._over = _ended("user code ended it")
                raise self._over
            return value

        return await self._on_writer_thread(checked_work)

    async def commit(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        """Run a last act in the transaction and commit it; if either fails, everything is rolled back."""
        return await self._on_writer_thread(lambda: self._commit(act))

    async def rollback(self) -> None:
        await self._on_writer_thread(self._rollback)

    def abandon(self) -> None:
        """Roll back as if the process had died. For stores without a thread."""
        self._rollback()

    @property
    def over(self) -> bool:
        return self._over is not None

    def serve(self) -> None:
        """Run the queued calls on the writer's thread until the transaction ends."""
        with self._session.lock:
            try:
                self._begin()
            except BaseException as error:
                self._over = _ended("it could not begin")
                self._begun.set_exception(error)
                return
            self._begun.set_result(None)
            while self._over is None:
                try:
                    work, future = self._calls.get(timeout=max(0.0, self._deadline - self._clock.monotonic()))
                except queue.Empty:
                    self._time_out()
                    break
                _settle(work, future)
        self._session.wake_waiters()
        self._fail_waiting_calls()

    def _fail_waiting_calls(self) -> None:
        """Run the calls that were queued while the transaction ended; each raises that it is over."""
        with suppress(queue.Empty):
            while True:
                _settle(*self._calls.get_nowait())

    def _begin(self) -> None:
        self._tx = self._session.begin()
        self._deadline = self._clock.monotonic() + self._seconds

    async def _on_writer_thread(self, work: Callable[[], T]) -> T:
        if self._over is not None or not self._session.has_thread:
            return work()
        future: Future[T] = Future()
        self._calls.put((work, future))
        if self._over is not None:
            self._fail_waiting_calls()
        return await asyncio.wrap_future(future)

    def _check_open(self) -> None:
        if self._over is None and self._clock.monotonic() > self._deadline:
            self._time_out()
        if self._over is not None:
            raise self._over

    def _commit(self, act: Callable[[Tx], Awaitable[T]]) -> T:

        self._check_open()
        try:
            self._tx.now = self._clock.now()
            value = run_now(act(StoreTx(self._tx)))
            self._session.commit()
        except BaseException as error:
            self._rollback()
            raise translate(error) from error
        self._over = _ended("it is committed")
        return value

    def _rollback(self) -> None:
        if self._over is None:
            self._roll_back(_ended("it was rolled back"))

    def _time_out(self) -> None:
        self._roll_back(
            TransactionTooLong(
                f"SQLite has one writer, and this transaction held it for more than {self._seconds:g} s; it was rolled "
                "back. Do slow work before the transaction, and keep only writes in it",
                seconds=self._seconds,
            )
        )

    def _roll_back(self, reason: Exception) -> None:
        self._over = reason
        self._session.undo()


class Connection:
    """The connection of a user transaction. Parameters are written `?` or, as in Postgres, `$1`, `$2`, …"""

    def __init__(self, transaction: UserTransaction) -> None:
        self._transaction = transaction

    async def execute(self, query: str, *values: Any) -> str:
        """Run one statement; returns its verb and the number of changed rows, as in "UPDATE 3"."""
        _check(query)

        def work(connection: apsw.Connection) -> str:
            before = connection.total_changes()
            connection.execute(query, _bound(query, values)).fetchall()
            verb = query.split(None, 1)[0].upper()
            changed = f"{connection.total_changes() - before}"
            return f"{verb} 0 {changed}" if verb == "INSERT" else f"{verb} {changed}"

        return await self._transaction.call(work)

    async def executemany(self, query: str, many: Iterable[Sequence[Any]]) -> None:
        _check(query)
        rows = [_bound(query, values) for values in many]
        await self._transaction.call(lambda connection: connection.executemany(query, rows).fetchall())

    async def fetch(self, query: str, *values: Any) -> list["Row"]:
        _check(query)

        def work(connection: apsw.Connection) -> list[Row]:
            cursor = connection.execute(query, _bound(query, values))
            rows = []
            for values_of_row in cursor:
                names = tuple(column[0] for column in cursor.get_description())
                rows.append(Row(values_of_row, names))
            return rows

        return await self._transaction.call(work)

    async def fetchrow(self, query: str, *values: Any) -> "Row | None":
        rows = await self.fetch(query, *values)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *values: Any, column: int = 0) -> Any:
        row = await self.fetchrow(query, *values)
        return None if row is None else row[column]


class Row(tuple[Any, ...]):
    """One row, by position or by column name."""

    names: tuple[str, ...]

    def __new__(cls, values: Iterable[Any], names: tuple[str, ...]) -> "Row":
        row = super().__new__(cls, values)
        row.names = names
        return row

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.names.index(key) if isinstance(key, str) else key)

    def keys(self) -> tuple[str, ...]:
        return self.names


def _settle(work: Callable[[], Any], future: "Future[Any]") -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


def _bound(query: str, values: Sequence[Any]) -> Any:
    if _NUMBERED.search(query):
        return {str(number): value for number, value in enumerate(values, 1)}
    return tuple(values)


def _check(query: str) -> None:
    if _CONTROL.match(query):
        raise InvalidInput(
            "ctx.transaction() commits or rolls back with its step or job; do not run BEGIN, COMMIT or ROLLBACK in it",
            code="TRANSACTION_CONTROL",
        )


def _ended(reason: str) -> InvalidInput:
    return InvalidInput(f"this transaction is over: {reason}; open another one", code="TRANSACTION_OVER")
