"""The writer lent to a user's transaction: a few statements on its own thread, while everybody else waits in line."""

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

if TYPE_CHECKING:
    from .session import Session

T = TypeVar("T")
_CONTROL = re.compile(r"\s*(begin|commit|end|rollback(?!\s+(transaction\s+)?to))\b", re.IGNORECASE)
_NUMBERED = re.compile(r"\$\d")


class UserTransaction:
    """One transaction of a user's on the writer. It ends by commit or rollback, or when its time is over."""

    def __init__(self, session: "Session", clock: Clock, seconds: float) -> None:
        self.connection = Connection(self)
        self._session = session
        self._clock = clock
        self._seconds = seconds
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._begun: Future[None] = Future()
        self._deadline = 0.0
        self._over: Exception | None = None

    async def begin(self) -> "UserTransaction":
        if self._session.has_thread:
            self._session.lend(self)
            await asyncio.wrap_future(self._begun)
        else:
            self._begin()
        return self

    async def call(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run this on the connection, where the transaction is."""

        def apply_policy() -> T:
            self._check_open()
            value = work(self._session.connection)
            if not self._session.connection.in_transaction:
                self._over = _ended("it was ended by a statement of its own")
                raise self._over
            return value

        return await self._where_it_is(apply_policy)

    async def commit(self, act: Callable[[Any], Awaitable[T]]) -> T:
        """One last act in the transaction, then its commit; if either fails, nothing of it has happened."""
        return await self._where_it_is(lambda: self._commit(act))

    async def rollback(self) -> None:
        await self._where_it_is(self._rollback)

    def forsake(self) -> None:
        """Its process is gone, as far as anyone can tell: nothing of it happens. For stores without a thread."""
        self._rollback()

    @property
    def over(self) -> bool:
        return self._over is not None

    def serve(self) -> None:
        """In the writer's thread, until it is over."""
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
                    work, answer = self._calls.get(timeout=max(0.0, self._deadline - self._clock.monotonic()))
                except queue.Empty:
                    self._time_is_over()
                    break
                _settle(work, answer)
        self._session.committed()
        self._turn_down()

    def _turn_down(self) -> None:
        """What was said while it ended finds it over."""
        with suppress(queue.Empty):
            while True:
                _settle(*self._calls.get_nowait())

    def _begin(self) -> None:
        self._session.begin()
        self._deadline = self._clock.monotonic() + self._seconds

    async def _where_it_is(self, work: Callable[[], T]) -> T:
        if self._over is not None or not self._session.has_thread:
            return work()
        answer: Future[T] = Future()
        self._calls.put((work, answer))
        if self._over is not None:
            self._turn_down()
        return await asyncio.wrap_future(answer)

    def _check_open(self) -> None:
        if self._over is None and self._clock.monotonic() > self._deadline:
            self._time_is_over()
        if self._over is not None:
            raise self._over

    def _commit(self, act: Callable[[Any], Awaitable[T]]) -> T:
        from .session import run_now, translate

        self._check_open()
        try:
            value = run_now(act(self._session.transaction()))
            self._session.commit()
        except BaseException as error:
            self._rollback()
            raise translate(error) from error
        self._over = _ended("it is committed")
        return value

    def _rollback(self) -> None:
        if self._over is None:
            self._undo(_ended("it was rolled back"))

    def _time_is_over(self) -> None:
        self._undo(
            TransactionTooLong(
                f"SQLite has one writer, and this transaction held it for over {self._seconds:g} s; it was undone. Do "
                "slow work before it, and keep only your writes in it",
                seconds=self._seconds,
            )
        )

    def _undo(self, why: Exception) -> None:
        self._over = why
        self._session.undo()


class Connection:
    """Plain SQL in the transaction. Values are written `?` or, as in Postgres, `$1`, `$2`, …"""

    def __init__(self, loan: UserTransaction) -> None:
        self._loan = loan

    async def execute(self, query: str, *values: Any) -> str:
        """Run one statement; the answer is its verb and how many rows it changed, as in "UPDATE 3"."""
        _check(query)

        def work(connection: apsw.Connection) -> str:
            before = connection.total_changes()
            connection.execute(query, _bound(query, values)).fetchall()
            verb = query.split(None, 1)[0].upper()
            changed = f"{connection.total_changes() - before}"
            return f"{verb} 0 {changed}" if verb == "INSERT" else f"{verb} {changed}"

        return await self._loan.call(work)

    async def executemany(self, query: str, many: Iterable[Sequence[Any]]) -> None:
        _check(query)
        rows = [_bound(query, values) for values in many]
        await self._loan.call(lambda connection: connection.executemany(query, rows).fetchall())

    async def fetch(self, query: str, *values: Any) -> list["Row"]:
        _check(query)

        def work(connection: apsw.Connection) -> list[Row]:
            cursor = connection.execute(query, _bound(query, values))
            rows = []
            for values_of_row in cursor:
                names = tuple(column[0] for column in cursor.get_description())
                rows.append(Row(values_of_row, names))
            return rows

        return await self._loan.call(work)

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


def _settle(work: Callable[[], Any], answer: "Future[Any]") -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(work())
    except BaseException as error:
        answer.set_exception(error)


def _bound(query: str, values: Sequence[Any]) -> Any:
    if _NUMBERED.search(query):
        return {str(number): value for number, value in enumerate(values, 1)}
    return tuple(values)


def _check(query: str) -> None:
    if _CONTROL.match(query):
        raise InvalidInput(
            "ctx.transaction() is committed or undone with its step or its job; leave BEGIN, COMMIT and ROLLBACK out",
            code="TRANSACTION_CONTROL",
        )


def _ended(how: str) -> InvalidInput:
    return InvalidInput(f"this transaction is over: {how}; open another one", code="TRANSACTION_OVER")
