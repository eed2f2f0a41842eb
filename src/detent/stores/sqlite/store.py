"""The SQLite store: one writer connection, one reader connection, and a watch on the commits of other processes."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import methodcaller
from types import MappingProxyType
from typing import TypeVar

import apsw

from detent.core.contract.model import Contract
from detent.core.errors import StoreUnavailable
from detent.core.job import Change, Micros, Step
from detent.ports.claims import ClaimLimits, ClaimRequest, StoreBatchResult, Success
from detent.ports.clock import Clock
from detent.ports.tx import Tx
from detent.stores.lanes import LaneCache
from detent.stores.tx_queries import StoreTx
from detent.system.clock import SteadyClock
from detent.system.run_now import run_now
from detent.system.tasks import wait_for_future

from .batcher import LoopBatcher
from .claim import SqliteTx
from .file_guard import FileGuard
from .file_watch import CommitReports, FileWatch
from .migrate import ensure_schema, latest_time, register, stored_contracts, stored_names
from .session import Act, Call, Session, connect, connect_read_only
from .user_transaction import UserTransaction

__all__ = ["SqliteStore", "run_now"]

T = TypeVar("T")
_TRANSACTION_SECONDS = 5.0
"""How long a user transaction may hold the writer."""


class SqliteStore:
    """Jobs in one SQLite file. `inline` runs every act on the caller's thread: for the simulator and sync callers."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        inline: bool = False,
        synchronous: str = "FULL",
        may_migrate: bool = True,
        transaction_seconds: float = _TRANSACTION_SECONDS,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self.read_only = read_only
        """Nothing will be written: a file on read-only media may be opened, too."""
        self.inline = inline
        self.synchronous = synchronous
        self.contracts: dict[str, Contract] = {}
        self.skips_locked_rows = False
        self.max_batches_in_flight = 1
        self.claim_limits: ClaimLimits = LaneCache()
        self._clock = clock or SteadyClock()
        self._may_migrate = may_migrate
        self._transaction_seconds = transaction_seconds
        self._user_transaction: UserTransaction | None = None
        self._writer: Session | None = None
        self._reader: Session | None = None
        self._watcher: apsw.Connection | None = None
        self._guard: FileGuard | None = None
        self._commit_reports: CommitReports | None = None
        self._batchers: dict[tuple[asyncio.AbstractEventLoop, Session], LoopBatcher] = {}
        self._waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[bool]]] = set()

    async def open(self, own: Mapping[str, Contract], builtin: Mapping[str, Contract]) -> None:
        self.open_now(own, builtin)

    def open_now(self, own: Mapping[str, Contract], builtin: Mapping[str, Contract] = MappingProxyType({})) -> None:
        """Open or create the file, check its schema and register the contracts."""
        if self.read_only and not _can_write(self.path):
            self._open_read_only(own, builtin)
            return
        if self._writer is None:
            self._guard = FileGuard(self.path) if self.path != ":memory:" else None
            try:
                self._writer = self._open_connections()
            except BaseException:
                self._writer = None
                self.close_now()
                raise
        self._use_contracts(register(self._writer.connection, own, builtin))
        if isinstance(self._clock, SteadyClock):
            self._clock.start_from(latest_time(self._writer.connection))

    def _open_connections(self) -> Session:
        """Open the writer, and for a file the reader and the watcher; returns the writer's session."""
        connection = connect(self.path, self.synchronous, may_install=self._may_migrate)
        try:
            ensure_schema(connection, may_migrate=self._may_migrate)
        except BaseException:
            connection.close()
            raise
        writer = self._reader = Session(connection, "BEGIN IMMEDIATE", self._clock)
        if not self.inline:
            writer.start_thread("detent-sqlite-writer")
        if self._guard is not None:
            self._watcher = connect(self.path, self.synchronous)
            self._reader = Session(connect(self.path, self.synchronous), "BEGIN", self._clock)
            if not self.inline:
                self._reader.start_thread("detent-sqlite-reader")
            self._guard.opened()
            writer.wal = self._guard.wal
            self._commit_reports = CommitReports(writer.wal, writer.wake_waiters)
            writer.check_file = self._guard.check
        writer.waiters = self._waiters
        return writer

    def _open_read_only(self, own: Mapping[str, Contract], builtin: Mapping[str, Contract]) -> None:
        connection = connect_read_only(self.path)
        ensure_schema(connection, may_migrate=False)
        self._reader = Session(connection, "BEGIN", self._clock)
        if not self.inline:
            self._reader.start_thread("detent-sqlite-reader")
        self._use_contracts(stored_contracts(connection, own, builtin))

    def _use_contracts(self, contracts: dict[str, Contract]) -> None:
        self.contracts = contracts
        if self._writer is not None:
            self.claim_limits = self._writer.lane_cache
            self._writer.lane_cache.interned |= stored_names(self._writer.connection)
        for session in (self._writer, self._reader):
            if session is not None:
                session.tx.registered_contracts = contracts

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        if self._reader is not None and self._reader is not self._writer:
            self._reader.close()
        if self._writer is not None:
            self._writer.close()
        if self._commit_reports is not None:
            self._commit_reports.close()
        if self._watcher is not None:
            self._watcher.close()
        if self._guard is not None:
            self._guard.close()
        self._writer = self._reader = self._watcher = self._guard = self._commit_reports = None
        self._batchers.clear()

    @property
    def commits(self) -> int:
        return self._writer.commits if self._writer else 0

    def now(self) -> Micros:
        return self._clock.now()

    async def uptime(self) -> float:
        return float("inf")

    def sibling(self) -> "SqliteStore":
        return self

    async def write(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        return await self._on(self._writer, lambda tx: act(StoreTx(tx)))

    async def read(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        return await self._on(self._reader, lambda tx: act(StoreTx(tx)))

    async def _on(self, session: Session | None, act: Act[T], *, short: bool = False, relaxed: bool = False) -> T:
        """Run an act on a session. Short ones may share a commit, see batcher.py."""
        if session is None:
            problem = "the file was opened for reading only" if self._reader else "the store is closed; open it first"
            raise StoreUnavailable(problem)
        if self.inline:
            return session.run(act, relaxed=relaxed)
        loop = asyncio.get_running_loop()
        batcher = self._batchers.get((loop, session))
        if batcher is None:
            batcher = self._batchers[loop, session] = LoopBatcher(session, loop)
        result: T = await batcher.run(Call(act, relaxed, short))
        return result

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        return await self._on(self._writer, methodcaller("insert", changes), short=True)

    async def record_step(self, step: Step, token: str) -> bool:
        return await self._on(self._writer, methodcaller("record_step", step, token), short=True)

    async def begin(self) -> UserTransaction:
        if self._writer is None:
            raise StoreUnavailable("the store is closed; open it first")
        self._user_transaction = UserTransaction(self._writer, self._clock, self._transaction_seconds)
        return await self._user_transaction.begin()

    def abandon_transaction(self) -> None:
        """Roll back the open user transaction, as if its process had died. For the simulator."""
        if self._user_transaction is not None:
            self._user_transaction.abandon()

    async def settle_and_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> StoreBatchResult:
        async def act(tx: SqliteTx) -> StoreBatchResult:
            refused = await tx.succeed(successes) if successes else []
            claimed = await tx.claim(request) if request else []
            return StoreBatchResult(claimed, refused)

        if successes:
            return await self._on(self._writer, act)
        # A lost claim only costs a repeated run under a new token, so its commit need not wait for the disk.
        return await self._on(self._writer, act, short=True, relaxed=True)

    def watch(self, *, ends: bool = False) -> FileWatch:
        """Sees every commit, so ends of jobs as well."""
        return FileWatch(self)

    def version(self) -> tuple[int, int]:
        """Changes with every commit: the file's data_version, or the changes committed if the database is in memory."""
        if self._watcher is not None:
            return self._watcher.pragma("data_version"), 0
        return 0, self._writer.changes_committed if self._writer is not None else 0

    async def wait_for_commit(self, seconds: float) -> None:
        """Sleep until this process commits or another one reports a commit, at most this long."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        waiter, reports = (loop, future), self._commit_reports
        self._waiters.add(waiter)
        if reports is not None:
            reports.begin(loop)
        try:
            await wait_for_future(future, seconds)
        finally:
            self._waiters.discard(waiter)
            if reports is not None:
                reports.end(loop)


def _can_write(path: str) -> bool:
    """False for an existing file on read-only media, or without the permissions for it and its folder."""
    folder = os.path.dirname(os.path.abspath(path))
    return not os.path.exists(path) or (os.access(path, os.W_OK) and os.access(folder, os.W_OK))
