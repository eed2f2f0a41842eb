"""The SQLite store: one writer thread that shares commits among waiting acts, or everything inline."""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import apsw

from ...clock import SystemClock, nap
from ...core.contract import Contract
from ...core.errors import DetentError, StoreUnavailable
from ...core.job import Change, Micros
from ...ports import ClaimRequest, Clock, Cycle, Success
from ..lanes import LaneBook
from .hot import SqliteTx
from .migrate import ensure_schema, known_contracts, register

T = TypeVar("T")
Act = Callable[[SqliteTx], Awaitable[T]]
_SHARED_AT_MOST = 256
_BUSY_SECONDS = 60.0


class SqliteStore:
    """One file. `inline` runs every act on the caller's thread: for the simulator, for plain synchronous callers."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        inline: bool = False,
        synchronous: str = "FULL",
        may_migrate: bool = True,
    ) -> None:
        self.path = path
        self.inline = inline
        self.synchronous = synchronous
        self.contracts: dict[str, Contract] = {}
        self.commits = 0
        self._clock = clock or SystemClock()
        self._may_migrate = may_migrate
        self._book = LaneBook()
        self._connection: apsw.Connection | None = None
        self._waiting: queue.SimpleQueue[tuple[Act[Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()

    async def open(self, contracts: Mapping[str, Contract]) -> None:
        self.open_now(contracts)

    def open_now(self, contracts: Mapping[str, Contract]) -> None:
        """Open the file (making it if need be), check its schema, teach it these contracts."""
        if self._connection is None:
            self._connection = self._connect()
            ensure_schema(self._connection, may_migrate=self._may_migrate)
        register(self._connection, contracts)
        self.contracts = {**known_contracts(self._connection), **contracts}
        if not self.inline and self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="detent-sqlite", daemon=True)
            self._thread.start()

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def now(self) -> Micros:
        return self._clock.now()

    async def write(self, act: Act[T]) -> T:
        if self.inline:
            return self._alone(act)
        future: Future[T] = Future()
        self._waiting.put((act, future))
        return await asyncio.wrap_future(future)

    async def read(self, act: Act[T]) -> T:
        return await self.write(act)

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        return await self.write(lambda tx: tx.insert(changes))

    async def cycle(self, successes: Sequence[Success], request: ClaimRequest | None) -> Cycle:
        async def act(tx: SqliteTx) -> Cycle:
            refused = await tx.succeed(successes) if successes else []
            claimed = await tx.claim(request) if request else []
            return Cycle(claimed, refused)

        return await self.write(act)

    def _connect(self) -> apsw.Connection:
        try:
            connection = apsw.Connection(self.path)
            connection.set_busy_handler(self._wait_for_lock)
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", self.synchronous)
            connection.pragma("foreign_keys", False)
            connection.pragma("temp_store", 2)
            connection.pragma("cache_size", -65_536)
        except apsw.Error as error:
            raise StoreUnavailable(f"cannot open {self.path}: {error}") from error
        return connection

    @staticmethod
    def _wait_for_lock(tries: int) -> bool:
        """Another process writes: wait in small steps, so that two busy processes take turns."""
        pause = min(0.000_2 * (tries + 1), 0.005)
        nap(pause)
        return tries * 0.005 < _BUSY_SECONDS

    def _serve(self) -> None:
        """The writer thread: whatever waits goes into one commit."""
        while (first := self._waiting.get()) is not None:
            batch = [first]
            stop = False
            while len(batch) < _SHARED_AT_MOST and not self._waiting.empty():
                more = self._waiting.get()
                if more is None:
                    stop = True
                    break
                batch.append(more)
            self._commit(batch)
            if stop:
                return

    def _commit(self, batch: list[tuple[Act[Any], Future[Any]]]) -> None:
        outcomes: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            with self._lock:
                tx = self._begin()
                for act, future in batch:
                    outcomes.append((future, *self._guarded(tx, act)))
                self._end()
        except BaseException as error:
            outcomes = [(future, None, _told(error)) for _, future in batch]
        for future, value, problem in outcomes:
            if future.cancelled():
                continue
            if problem is None:
                future.set_result(value)
            else:
                future.set_exception(problem)

    def _guarded(self, tx: SqliteTx, act: Act[T]) -> tuple[T | None, BaseException | None]:
        """Run one act so that its failure undoes its own writes and nobody else's."""
        connection = tx.connection
        connection.execute("SAVEPOINT act")
        try:
            value = run_now(act(tx))
            connection.execute("RELEASE act")
            return value, None
        except BaseException as error:
            if not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO act")
            connection.execute("RELEASE act")
            self._book.version = 0
            self._book.interned.clear()
            return None, _told(error)

    def _alone(self, act: Act[T]) -> T:
        with self._lock:
            tx = self._begin()
            value, problem = self._guarded(tx, act)
            self._end()
        if problem is not None:
            raise problem
        return value  # type: ignore[return-value]

    def _begin(self) -> SqliteTx:
        if self._connection is None:
            raise StoreUnavailable("the store is closed; open it first")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise _told(error) from error
        return SqliteTx(self._connection, self._clock.now(), self._book, self.contracts)

    def _end(self) -> None:
        assert self._connection is not None
        try:
            self._connection.execute("COMMIT")
            self.commits += 1
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._book.version = 0
            self._book.interned.clear()
            raise _told(error) from error


def run_now(awaitable: Awaitable[T]) -> T:
    """Drive a coroutine that never suspends to its end."""
    coroutine: Coroutine[Any, Any, T] = awaitable  # type: ignore[assignment]
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("an act awaited something else than its transaction")


def _told(error: BaseException) -> BaseException:
    """Locked, full, read-only or broken files are one kind of trouble for the caller: the store is not available."""
    if isinstance(error, apsw.ConstraintError | DetentError) or not isinstance(error, apsw.Error):
        return error
    return StoreUnavailable(f"SQLite: {type(error).__name__}: {error}; check the file, its disk and its permissions")
