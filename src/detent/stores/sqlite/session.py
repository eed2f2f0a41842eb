"""One connection and the transactions on it: alone on the caller's thread, or shared by whoever waits."""

import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar, cast

import apsw

from detent.core.errors import SchemaMismatch, StoreRefused, StoreUnavailable
from detent.stores.lanes import LaneBook
from detent.system.clock import nap

from .claim import SqliteTx
from .user_transaction import UserTransaction

T = TypeVar("T")
Act = Callable[[SqliteTx], Awaitable[T]]
_SHARED_AT_MOST = 256
_BUSY_SECONDS = 60.0
_STATEMENTS = 500
"""Compiled ones that are kept: all that the store has, so that none is compiled again and again."""
APPLICATION_ID = 0x44544E54
"""Marks the file as Detent's ("DTNT"), so that another program's database is not migrated by mistake."""
_RELAXED = 1
"""SQLite's synchronous=NORMAL: in WAL mode a commit does not wait for the disk."""
Posted = tuple[Act[Any], Future[Any], bool]


def connect(path: str, synchronous: str) -> apsw.Connection:
    try:
        connection = apsw.Connection(path, statementcachesize=_STATEMENTS)
        connection.set_busy_handler(_wait_for_lock)
        refuse_foreign_file(connection)
        _use_wal(connection)
        connection.pragma("synchronous", synchronous)
        connection.pragma("temp_store", 2)
        connection.pragma("cache_size", -16_384)
        # Plans must not depend on bound values, or every new value compiles the statement again.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    except apsw.Error as error:
        raise StoreUnavailable(f"cannot open {path}: {error}; check that the folder exists and is writable") from error
    return connection


def _use_wal(connection: apsw.Connection) -> None:
    """Switching needs the file alone for a moment, and SQLite does not call the busy handler for it."""
    for tries in range(100):
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            _wait_for_lock(tries)
    connection.pragma("journal_mode", "wal")


def refuse_foreign_file(connection: apsw.Connection) -> None:
    """Another program's database is not ours to touch, not even its journal mode."""
    connection.execute("BEGIN")  # one snapshot: another process may be migrating the file right now
    try:
        ours = connection.pragma("application_id") == APPLICATION_ID
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' LIMIT 1").fetchall()
    finally:
        connection.execute("COMMIT")
    if tables and not ours:
        raise SchemaMismatch(
            f"the file is not Detent's: it already has a table {tables[0][0]!r}; choose another file", have=0
        )


def _wait_for_lock(tries: int) -> bool:
    """Another process writes: wait in small steps, so that busy processes take turns."""
    nap(min(0.000_2 * (tries + 1), 0.005))
    return tries * 0.005 < _BUSY_SECONDS


class Session:
    """Runs acts on one connection. `begin` decides whether it may write."""

    def __init__(self, connection: apsw.Connection, begin: str, make_tx: Callable[["Session"], SqliteTx]) -> None:
        self.connection = connection
        self.book = LaneBook()
        self.commits = 0
        self._begin = begin
        self._make_tx = make_tx
        self.lock = threading.RLock()
        self._waiting: queue.SimpleQueue[Posted | UserTransaction | None] = queue.SimpleQueue()
        self._durable = self._level = connection.pragma("synchronous")
        self._thread: threading.Thread | None = None
        self.committed: Callable[[], None] = lambda: None

    def start_thread(self, name: str) -> None:
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def post(self, act: Act[T], *, relaxed: bool = False) -> Future[T]:
        """relaxed: the commit need not wait for the disk (a later durable one takes it along)."""
        future: Future[T] = Future()
        self._waiting.put((act, future, relaxed))
        return future

    def post_all(self, batch: list["Posted"]) -> None:
        for posted in batch:
            self._waiting.put(posted)

    def run(self, act: Act[T], *, relaxed: bool = False) -> T:
        """Begin, act, commit, on this thread."""
        value, problem = self._run(act, relaxed)
        self.committed()
        if problem is not None:
            raise problem
        return cast("T", value)

    def run_if_free(self, batch: list["Posted"]) -> bool:
        """Share one commit on this thread, unless the other thread is at work: then it is left to that one."""
        if not self._waiting.empty() or not self.lock.acquire(blocking=False):
            return False
        try:
            self._share(batch)
        finally:
            self.lock.release()
        return True

    def close(self) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
        self.connection.close()

    @property
    def has_thread(self) -> bool:
        return self._thread is not None

    def lend(self, loan: UserTransaction) -> None:
        """When its turn comes, the thread serves nobody else until the loan is over."""
        self._waiting.put(loan)

    def begin(self) -> None:
        self._open(relaxed=False)

    def transaction(self) -> SqliteTx:
        return self._make_tx(self)

    def undo(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self._forget()

    def _serve(self) -> None:
        """The thread: whatever waits goes into one commit; a loan has the connection to itself."""
        while True:
            batch: list[Posted] = []
            item = self._waiting.get()
            while isinstance(item, tuple):
                batch.append(item)
                if len(batch) == _SHARED_AT_MOST or self._waiting.empty():
                    break
                item = self._waiting.get()
            if batch:
                self._share(batch)
            if isinstance(item, UserTransaction):
                item.serve()
            elif item is None:
                return

    def _run(self, act: Act[T], relaxed: bool) -> tuple[T | None, BaseException | None]:
        try:
            with self.lock:
                return self._alone(self._open(relaxed), act)
        except BaseException as error:
            return None, translate(error)

    def _share(self, batch: list[Posted]) -> None:
        if len(batch) == 1:
            outcomes = [self._run(batch[0][0], batch[0][2])]
        else:
            try:
                with self.lock:
                    tx = self._open(all(relaxed for _, _, relaxed in batch))
                    outcomes = [self._guarded(tx, act) for act, _, _ in batch]
                    self.commit()
            except BaseException as error:
                outcomes = [(None, translate(error))] * len(batch)
        self.committed()
        for (_, future, _), (value, problem) in zip(batch, outcomes, strict=True):
            if not future.set_running_or_notify_cancel():
                continue
            if problem is None:
                future.set_result(value)
            else:
                future.set_exception(problem)

    def _alone(self, tx: SqliteTx, act: Act[T]) -> tuple[T | None, BaseException | None]:
        """An act with a transaction to itself needs no savepoint."""
        try:
            value = run_now(act(tx))
        except BaseException as error:
            self.undo()
            return None, translate(error)
        self.commit()
        return value, None

    def _guarded(self, tx: SqliteTx, act: Act[T]) -> tuple[T | None, BaseException | None]:
        """Run one act so that its failure undoes its own writes and nobody else's."""
        self.connection.execute("SAVEPOINT act")
        try:
            value = run_now(act(tx))
            self.connection.execute("RELEASE act")
            return value, None
        except BaseException as error:
            if not self.connection.in_transaction:
                raise
            self.connection.execute("ROLLBACK TO act")
            self.connection.execute("RELEASE act")
            self._forget()
            return None, translate(error)

    def _open(self, relaxed: bool) -> SqliteTx:
        level = min(_RELAXED, self._durable) if relaxed else self._durable
        try:
            if level != self._level:
                self.connection.pragma("synchronous", level)
                self._level = level
            self.connection.execute(self._begin)
        except apsw.Error as error:
            raise translate(error) from error
        return self._make_tx(self)

    def commit(self) -> None:
        try:
            self.connection.execute("COMMIT")
            self.commits += 1
        except BaseException as error:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._forget()
            raise translate(error) from error

    def _forget(self) -> None:
        """What was interned in a transaction that did not commit does not exist."""
        self.book.version = 0
        self.book.interned.clear()


def run_now(awaitable: Awaitable[T]) -> T:
    """Drive a coroutine that never suspends to its end."""
    coroutine: Coroutine[Any, Any, T] = awaitable  # type: ignore[assignment]
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("an act awaited something else than its transaction")


def translate(error: BaseException) -> BaseException:
    """Locked, full, read-only or broken files are one kind of trouble for the caller: the store is not available."""
    if not isinstance(error, apsw.Error):
        return error
    if isinstance(error, apsw.ConstraintError):
        return StoreRefused(f"the database refused a row that contradicts itself: {error}")
    return StoreUnavailable(f"SQLite: {type(error).__name__}: {error}; check the file, its disk and its permissions")
