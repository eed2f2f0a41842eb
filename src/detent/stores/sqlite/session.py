"""One connection and the transactions on it, run on the caller's thread or on a thread of its own."""

import asyncio
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import apsw

from detent.core.errors import DatabaseUnusable, SchemaMismatch, StoreUnavailable
from detent.ports.clock import Clock
from detent.stores.lanes import LaneCache
from detent.system.clock import block_thread
from detent.system.run_now import run_now
from detent.system.tasks import complete

from .claim import SqliteTx
from .errors import translate
from .user_transaction import UserTransaction

T = TypeVar("T")
Act = Callable[[SqliteTx], Awaitable[T]]
_BUSY_SECONDS = 60.0
_STATEMENT_CACHE_SIZE = 500
"""Large enough for all statements of the store, so that each is compiled once."""
VERSION_TABLE = "detent_schema"
"""The table with the version of the schema: a file that has it has Detent's tables."""
_EARLY_APPLICATION_ID = 0x44544E54
_WAL_LIMIT = 64 << 20
"""Bytes. A log that grew beyond this while a reader held a snapshot is truncated when it starts again."""
_RELAXED = 1
"""SQLite's synchronous=NORMAL: in WAL mode a commit does not wait for the disk."""


class Call(NamedTuple):
    """An act that waits to be run. relaxed: its commit need not wait for the disk; the next durable one will."""

    act: Act[Any]
    relaxed: bool = False
    short: bool = False
    """It takes so little time that it may run on the event loop's thread."""


Done = Callable[[list[Any]], None]
"""Called with the result or the error of each act of a batch."""
QueuedBatch = tuple[Sequence[Call], asyncio.AbstractEventLoop, Done]
"""`done` is called on the event loop."""


def connect(path: str, synchronous: str, *, may_install: bool = False) -> apsw.Connection:
    """may_install: add Detent's tables to a file that has tables of another program."""
    _create_private(path)
    try:
        connection = apsw.Connection(path, statementcachesize=_STATEMENT_CACHE_SIZE)
        connection.set_busy_handler(_wait_for_lock)
        refuse_foreign_file(connection, may_install=may_install)
        _use_wal(connection)
        connection.pragma("synchronous", synchronous)
        connection.pragma("temp_store", 2)
        connection.pragma("journal_size_limit", _WAL_LIMIT)
        connection.pragma("cache_size", -16_384)
        # Plans must not depend on bound values, or every new value compiles the statement again.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    except apsw.Error as error:
        if isinstance(error, apsw.CantOpenError) and (problem := write_problem(Path(path))):
            raise DatabaseUnusable(f"cannot open {path}: {problem}", code="DATABASE_PATH_INVALID") from error
        waits = isinstance(error, apsw.BusyError)
        message = f"cannot open {path}: {error}; check that the folder exists and is writable"
        raise (StoreUnavailable if waits else DatabaseUnusable)(message, code="STORE_UNAVAILABLE") from error
    return connection


def _create_private(path: str) -> None:
    """Create a missing file for this user only. SQLite gives the -wal and -shm files the mode of the database."""
    if path != ":memory:" and not os.path.exists(path):
        with suppress(OSError):  # SQLite reports what is wrong, or another process has just created the file
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def write_problem(path: Path) -> str | None:
    """Why the database cannot be written. WAL keeps two more files beside it, so the folder must be writable too."""
    folder = path.parent
    if not folder.is_dir():
        advice = "create it, or correct the URL: an absolute path has four slashes"
        return f"folder {folder.absolute()} does not exist; {advice}"
    if path.is_dir():
        return f"{path} is a folder, not a file; choose another path"
    if path.exists() and not os.access(path, os.W_OK):
        return f"{path} is not writable; change its permissions"
    if not os.access(folder, os.W_OK):
        return f"folder {folder} is not writable, and SQLite writes its WAL file there; change its permissions"
    return None


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


def refuse_foreign_file(connection: apsw.Connection, *, may_install: bool = False) -> None:
    """Raise SchemaMismatch for a file without Detent's tables, before anything in it (even its mode) is changed.

    Empty files pass, and files of other programs if `may_install`.
    """
    connection.execute("BEGIN")  # one snapshot: another process may be migrating the file right now
    try:
        is_early_layout = connection.pragma("application_id") == _EARLY_APPLICATION_ID
        names: Any = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    finally:
        connection.execute("COMMIT")
    tables = [name for (name,) in names]
    if VERSION_TABLE in tables or not tables:
        return
    if is_early_layout:
        raise SchemaMismatch(
            "the file was made by a development version of Detent, whose tables cannot be read any more; use a new"
            " file",
            have=0,
        )
    if taken := [name for name in tables if name.startswith("detent_")]:
        raise SchemaMismatch(
            f"the file has a table {taken[0]!r} but no table {VERSION_TABLE!r}, so it is not Detent's; use another"
            f" file",
            have=0,
        )
    if not may_install:
        raise SchemaMismatch(
            f"the file belongs to another program: it has a table {tables[0]!r}; choose another file, or run"
            " `detent migrate` to add Detent's tables, whose names begin with detent_",
            have=0,
        )


def _wait_for_lock(tries: int) -> bool:
    """Busy handler while another process writes: sleeps 0.2 to 5 ms, so that all writers make progress."""
    block_thread(min(0.000_2 * (tries + 1), 0.005))
    return tries * 0.005 < _BUSY_SECONDS


class Session:
    """Runs acts on one connection. `begin` is the SQL that opens a transaction: BEGIN IMMEDIATE to write, or BEGIN."""

    def __init__(
        self, connection: apsw.Connection, begin: str, clock: Clock, tx_type: type[SqliteTx] = SqliteTx
    ) -> None:
        self.connection = connection
        self.lane_cache = LaneCache()
        self.tx = tx_type(connection, 0, self.lane_cache, {})
        """The transaction of every act: they run one after the other."""
        self.commits = 0
        self.changes_committed = 0
        """Rows changed by all committed transactions. Other threads read it: they may not ask a connection in use."""
        self.lock = threading.RLock()
        self.queue: queue.SimpleQueue[QueuedBatch | UserTransaction | None] = queue.SimpleQueue()
        """What the session's own thread will run; None ends it."""
        self.waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[bool]]] = set()
        """Tasks that wait for the next commit, each with its event loop."""
        self.check_file: Callable[[], None] = lambda: None
        """Raises if the file on disk is not the one that is open; called before a commit is acknowledged."""
        self.wal: str | None = None
        """The path of the log, which is opened after a commit that may concern other processes, see file_watch.py."""
        self.closed = False
        """True: the thread ends, and takes nothing from the queue any more."""
        self._begin_sql = begin
        self._clock = clock
        self._durable = self._level = connection.pragma("synchronous")
        self._thread: threading.Thread | None = None

    def start_thread(self, name: str) -> None:
        self._thread = threading.Thread(target=self._run_thread, name=name, daemon=True)
        self._thread.start()

    @property
    def has_thread(self) -> bool:
        return self._thread is not None

    def run(self, act: Act[T], *, relaxed: bool = False) -> T:
        """Run an act in a transaction of its own, on this thread."""
        (outcome,) = self.run_batch([Call(act, relaxed)])
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    def run_batch(self, calls: Sequence[Call]) -> list[Any]:
        """Run the acts in one transaction; returns the result or the error of each. One that fails changes nothing."""
        relaxed = False not in [call.relaxed for call in calls]
        try:
            with self.lock:
                try:
                    tx = self.begin(relaxed=relaxed)
                    if len(calls) == 1:
                        outcomes = [run_now(calls[0].act(tx))]
                    else:
                        outcomes = [self._run_in_savepoint(tx, call.act) for call in calls]
                    self.commit()
                except BaseException:
                    self.undo()
                    raise
        except BaseException as error:
            outcomes = [translate(error)] * len(calls)
        if self.waiters:
            self.wake_waiters()
        return outcomes

    def close(self) -> None:
        self.closed = True
        if self._thread is not None:
            self.queue.put(None)
            self._thread.join()
        self.connection.close()
        self.queue.put(None)
        self._run_thread()  # fails what was queued after the end of the thread

    def begin(self, *, relaxed: bool = False) -> SqliteTx:
        level = min(_RELAXED, self._durable) if relaxed else self._durable
        try:
            if level != self._level:
                self.connection.pragma("synchronous", level)
                self._level = level
            self.connection.execute(self._begin_sql)
        except apsw.Error as error:
            raise translate(error) from error
        self.tx.now = self._clock.now()
        return self.tx

    def commit(self) -> None:
        try:
            self.connection.execute("COMMIT")
            self.commits += 1
            changes = self.connection.total_changes()
        except BaseException as error:
            self.undo()
            raise translate(error) from error
        if changes != self.changes_committed:
            self.changes_committed = changes
            if self.wal and self._level == self._durable:  # claims concern nobody else
                with suppress(OSError):  # the other processes poll, too
                    os.close(os.open(self.wal, os.O_RDONLY | os.O_CLOEXEC))
        self.check_file()

    def undo(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self._clear_lane_cache()

    def wake_waiters(self) -> None:
        for loop, future in tuple(self.waiters):
            try:
                loop.call_soon_threadsafe(complete, future)
            except RuntimeError:  # the loop is closed, and so is its waiter
                self.waiters.discard((loop, future))

    def _run_thread(self) -> None:
        """The thread's loop: one batch of acts, or one user transaction, after the other."""
        while (item := self.queue.get()) is not None:
            if isinstance(item, UserTransaction):
                item.serve()
            else:
                calls, loop, done = item
                outcomes = self.run_batch(calls)
                with suppress(RuntimeError):  # the loop is closed, and so are the callers
                    loop.call_soon_threadsafe(done, outcomes)

    def _run_in_savepoint(self, tx: SqliteTx, act: Act[T]) -> T | BaseException:
        """Run one act of a shared transaction; if it fails, only its own writes are rolled back."""
        self.connection.execute("SAVEPOINT act")
        try:
            value = run_now(act(tx))
            self.connection.execute("RELEASE act")
            return value
        except BaseException as error:
            if not self.connection.in_transaction:
                raise
            self.connection.execute("ROLLBACK TO act")
            self.connection.execute("RELEASE act")
            self._clear_lane_cache()
            return translate(error)

    def _clear_lane_cache(self) -> None:
        """After a rollback: rows interned in that transaction do not exist, so cached ids may be wrong."""
        self.lane_cache.version = 0
        self.lane_cache.interned.clear()
