"""One connection and the transactions on it, run on the caller's thread or in batches on a thread of its own."""

import os
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

import apsw

from detent.core.errors import SchemaMismatch, StoreRefused, StoreUnavailable
from detent.stores.lanes import LaneCache
from detent.system.clock import block_thread

from .claim import SqliteTx
from .user_transaction import UserTransaction

T = TypeVar("T")
Act = Callable[[SqliteTx], Awaitable[T]]
_MAX_BATCH = 256
_BUSY_SECONDS = 60.0
_STATEMENT_CACHE_SIZE = 500
"""Large enough for all statements of the store, so that each is compiled once."""
APPLICATION_ID = 0x44544E54
"""Marks the file as Detent's ("DTNT"), so that the database of another program is not migrated by mistake."""
_WAL_LIMIT = 64 << 20
"""Bytes. A log that grew beyond this while a reader held a snapshot is truncated when it starts again."""
_RELAXED = 1
"""SQLite's synchronous=NORMAL: in WAL mode a commit does not wait for the disk."""
PendingCall = tuple[Act[Any], Future[Any], bool]


def connect(path: str, synchronous: str) -> apsw.Connection:
    try:
        connection = apsw.Connection(path, statementcachesize=_STATEMENT_CACHE_SIZE)
        connection.set_busy_handler(_wait_for_lock)
        refuse_foreign_file(connection)
        _use_wal(connection)
        connection.pragma("synchronous", synchronous)
        connection.pragma("temp_store", 2)
        connection.pragma("journal_size_limit", _WAL_LIMIT)
        connection.pragma("cache_size", -16_384)
        # Plans must not depend on bound values, or every new value compiles the statement again.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    except apsw.Error as error:
        raise StoreUnavailable(f"cannot open {path}: {error}; check that the folder exists and is writable") from error
    return connection


def connect_read_only(path: str) -> apsw.Connection:
    """Open a file that cannot be written, without its log: for files on read-only media."""
    wal = Path(f"{path}-wal")
    if wal.exists() and wal.stat().st_size:
        raise StoreUnavailable(
            f"{path} cannot be written and has a -wal file with commits that are not in it yet; copy both to a folder"
            " that can be written and use the copy"
        )
    try:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(f"file:{quote(os.path.abspath(path))}?immutable=1", flags=flags)
        refuse_foreign_file(connection)
    except apsw.Error as error:
        raise StoreUnavailable(f"cannot open {path}: {error}; check the file and its permissions") from error
    return connection


def _use_wal(connection: apsw.Connection) -> None:
    """Switch to WAL mode. This needs an exclusive lock, for which SQLite does not call the busy handler."""
    for tries in range(100):
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            _wait_for_lock(tries)
    connection.pragma("journal_mode", "wal")


def refuse_foreign_file(connection: apsw.Connection) -> None:
    """Raise SchemaMismatch for the database of another program, before anything in it (even its mode) is changed."""
    connection.execute("BEGIN")  # one snapshot: another process may be migrating the file right now
    try:
        is_detent_file = connection.pragma("application_id") == APPLICATION_ID
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' LIMIT 1").fetchall()
    finally:
        connection.execute("COMMIT")
    if tables and not is_detent_file:
        raise SchemaMismatch(
            f"the file belongs to another program: it has a table {tables[0][0]!r}; choose another file", have=0
        )


def _wait_for_lock(tries: int) -> bool:
    """Busy handler while another process writes: sleeps 0.2 to 5 ms, so that all writers make progress."""
    block_thread(min(0.000_2 * (tries + 1), 0.005))
    return tries * 0.005 < _BUSY_SECONDS


class Session:
    """Runs acts on one connection. `begin` is the SQL that opens a transaction: BEGIN IMMEDIATE to write, or BEGIN."""

    def __init__(self, connection: apsw.Connection, begin: str, make_tx: Callable[["Session"], SqliteTx]) -> None:
        self.connection = connection
        self.lane_cache = LaneCache()
        self.commits = 0
        self._begin_sql = begin
        self._make_tx = make_tx
        self.lock = threading.RLock()
        self._waiting: queue.SimpleQueue[PendingCall | UserTransaction | None] = queue.SimpleQueue()
        self._durable = self._level = connection.pragma("synchronous")
        self._thread: threading.Thread | None = None
        self.committed: Callable[[], None] = lambda: None
        self.check_file: Callable[[], None] = lambda: None
        """Raises if the file on disk is not the one that is open; called before a commit is acknowledged."""

    def start_thread(self, name: str) -> None:
        self._thread = threading.Thread(target=self._run_thread, name=name, daemon=True)
        self._thread.start()

    def enqueue(self, act: Act[T], *, relaxed: bool = False) -> Future[T]:
        """Queue an act for the thread. relaxed: its commit need not wait for the disk; the next durable one will."""
        future: Future[T] = Future()
        self._waiting.put((act, future, relaxed))
        return future

    def enqueue_all(self, batch: list["PendingCall"]) -> None:
        for call in batch:
            self._waiting.put(call)

    def run(self, act: Act[T], *, relaxed: bool = False) -> T:
        """Run an act in a transaction of its own, on this thread."""
        value, failure = self._run(act, relaxed)
        self.committed()
        if failure is not None:
            raise failure
        return cast("T", value)

    def run_if_free(self, batch: list["PendingCall"]) -> bool:
        """Run a batch on this thread; False, and nothing done, if the session's own thread has work."""
        if not self._waiting.empty() or not self.lock.acquire(blocking=False):
            return False
        try:
            self._run_batch(batch)
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

    def enqueue_transaction(self, transaction: UserTransaction) -> None:
        """Queue a user transaction. The thread does nothing else until it has ended."""
        self._waiting.put(transaction)

    def begin(self) -> None:
        self._open(relaxed=False)

    def transaction(self) -> SqliteTx:
        return self._make_tx(self)

    def undo(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self._clear_lane_cache()

    def _run_thread(self) -> None:
        """The thread's loop: queued acts share one commit; a user transaction has the connection to itself."""
        while True:
            batch: list[PendingCall] = []
            item = self._waiting.get()
            while isinstance(item, tuple):
                batch.append(item)
                if len(batch) == _MAX_BATCH or self._waiting.empty():
                    break
                item = self._waiting.get()
            if batch:
                self._run_batch(batch)
            if isinstance(item, UserTransaction):
                item.serve()
            elif item is None:
                return

    def _run(self, act: Act[T], relaxed: bool) -> tuple[T | None, BaseException | None]:
        try:
            with self.lock:
                return self._run_alone(self._open(relaxed), act)
        except BaseException as error:
            return None, translate(error)

    def _run_batch(self, batch: list[PendingCall]) -> None:
        if len(batch) == 1:
            outcomes = [self._run(batch[0][0], batch[0][2])]
        else:
            try:
                with self.lock:
                    tx = self._open(all(relaxed for _, _, relaxed in batch))
                    outcomes = [self._run_in_savepoint(tx, act) for act, _, _ in batch]
                    self.commit()
            except BaseException as error:
                outcomes = [(None, translate(error))] * len(batch)
        self.committed()
        for (_, future, _), (value, failure) in zip(batch, outcomes, strict=True):
            if not future.set_running_or_notify_cancel():
                continue
            if failure is None:
                future.set_result(value)
            else:
                future.set_exception(failure)

    def _run_alone(self, tx: SqliteTx, act: Act[T]) -> tuple[T | None, BaseException | None]:
        """Run one act in a transaction of its own, which needs no savepoint."""
        try:
            value = run_now(act(tx))
        except BaseException as error:
            self.undo()
            return None, translate(error)
        self.commit()
        return value, None

    def _run_in_savepoint(self, tx: SqliteTx, act: Act[T]) -> tuple[T | None, BaseException | None]:
        """Run one act of a shared transaction; if it fails, only its own writes are rolled back."""
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
            self._clear_lane_cache()
            return None, translate(error)

    def _open(self, relaxed: bool) -> SqliteTx:
        level = min(_RELAXED, self._durable) if relaxed else self._durable
        try:
            if level != self._level:
                self.connection.pragma("synchronous", level)
                self._level = level
            self.connection.execute(self._begin_sql)
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
            self._clear_lane_cache()
            raise translate(error) from error
        self.check_file()

    def _clear_lane_cache(self) -> None:
        """After a rollback: rows interned in that transaction do not exist, so cached ids may be wrong."""
        self.lane_cache.version = 0
        self.lane_cache.interned.clear()


def run_now(awaitable: Awaitable[T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    coroutine: Coroutine[Any, Any, T] = awaitable  # type: ignore[assignment]
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("an act must await nothing but its transaction")


def translate(error: BaseException) -> BaseException:
    """The Detent error for an apsw error. Locked, full, read-only and broken files all become StoreUnavailable."""
    if not isinstance(error, apsw.Error):
        return error
    if isinstance(error, apsw.ConstraintError):
        return StoreRefused(f"the database refused a row that violates a constraint: {error}")
    return StoreUnavailable(f"SQLite: {type(error).__name__}: {error}; check the file, its disk and its permissions")
