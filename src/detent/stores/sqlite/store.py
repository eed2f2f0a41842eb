"""The SQLite store: one writer and one reader connection, and word of other processes' commits."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import TypeVar

import apsw

from detent.core.contract.model import Contract
from detent.core.errors import StoreUnavailable
from detent.core.job import Change, Micros, Step
from detent.ports.claims import ClaimRequest, StoreBatchResult, Success
from detent.ports.clock import Clock
from detent.system.clock import SystemClock

from .batcher import CallBatcher
from .claim import SqliteTx
from .migrate import ensure_schema, register
from .session import Act, Session, connect, run_now
from .user_transaction import UserTransaction

__all__ = ["SqliteStore", "run_now"]

T = TypeVar("T")
_LOOK_SECONDS = 0.005
"""How often an idle process looks whether another one has committed; one look costs microseconds."""

_TRANSACTION_SECONDS = 5.0
"""How long a user's transaction may hold the one writer."""


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
        transaction_seconds: float = _TRANSACTION_SECONDS,
    ) -> None:
        self.path = path
        self.inline = inline
        self.synchronous = synchronous
        self.contracts: dict[str, Contract] = {}
        self.skips_locked_rows = False
        self.max_batches_in_flight = 1
        self._clock = clock or SystemClock()
        self._may_migrate = may_migrate
        self._transaction_seconds = transaction_seconds
        self._loan: UserTransaction | None = None
        self._writer: Session | None = None
        self._reader: Session | None = None
        self._watcher: apsw.Connection | None = None
        self._turns: dict[tuple[asyncio.AbstractEventLoop, str], CallBatcher] = {}
        self._sleepers: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[bool]]] = set()

    async def open(self, own: Mapping[str, Contract], carried: Mapping[str, Contract]) -> None:
        self.open_now(own, carried)

    def open_now(self, own: Mapping[str, Contract], carried: Mapping[str, Contract] = MappingProxyType({})) -> None:
        """Open the file (making it if need be), check its schema, teach it these contracts."""
        if self._writer is None:
            connection = connect(self.path, self.synchronous)
            ensure_schema(connection, may_migrate=self._may_migrate)
            self._writer = self._reader = Session(connection, "BEGIN IMMEDIATE", self._make_tx)
            if not self.inline:
                self._writer.start_thread("detent-sqlite-writer")
            if self.path != ":memory:":
                self._watcher = connect(self.path, self.synchronous)
                self._reader = Session(connect(self.path, self.synchronous), "BEGIN", self._make_tx)
                if not self.inline:
                    self._reader.start_thread("detent-sqlite-reader")
            self._writer.committed = self._tell_sleepers
        self.contracts = register(self._writer.connection, own, carried)

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        if self._reader is not None and self._reader is not self._writer:
            self._reader.close()
        if self._writer is not None:
            self._writer.close()
        if self._watcher is not None:
            self._watcher.close()
        self._writer = self._reader = self._watcher = None
        self._turns.clear()

    @property
    def commits(self) -> int:
        return self._writer.commits if self._writer else 0

    def now(self) -> Micros:
        return self._clock.now()

    async def uptime(self) -> float:
        return float("inf")

    def sibling(self) -> "SqliteStore":
        return self

    async def write(self, act: Act[T]) -> T:
        return await self._on(self._writer, act)

    async def read(self, act: Act[T]) -> T:
        return await self._on(self._reader, act)

    async def _on(self, session: Session | None, act: Act[T], *, relaxed: bool = False) -> T:
        if session is None:
            raise StoreUnavailable("the store is closed; open it first")
        if self.inline:
            return session.run(act, relaxed=relaxed)
        return await asyncio.wrap_future(session.post(act, relaxed=relaxed))

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        return await self._soon("insert", lambda tx: tx.insert(changes))

    async def record_step(self, step: Step, token: str) -> bool:
        return await self._soon("step", lambda tx: tx.record_step(step, token))

    async def begin(self) -> UserTransaction:
        if self._writer is None:
            raise StoreUnavailable("the store is closed; open it first")
        self._loan = UserTransaction(self._writer, self._clock, self._transaction_seconds)
        return await self._loan.begin()

    def forsake(self) -> None:
        """Undo what a process that died had begun; only where processes are played on one connection."""
        if self._loan is not None:
            self._loan.forsake()

    async def settle_and_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> StoreBatchResult:
        async def act(tx: SqliteTx) -> StoreBatchResult:
            refused = await tx.succeed(successes) if successes else []
            claimed = await tx.claim(request) if request else []
            return StoreBatchResult(claimed, refused)

        if successes:
            return await self.write(act)
        # A claim that settles nothing need not reach the disk: losing it costs a fenced rerun.
        return await self._soon("claim", act, relaxed=True)

    def held_back(self) -> tuple[bool, Micros | None]:
        book = self._writer.book if self._writer else None
        return (book.held_back, book.opens_at) if book else (False, None)

    async def _soon(self, kind: str, act: Act[T], *, relaxed: bool = False) -> T:
        """Share a commit with whoever else asks in this turn of the loop; see CallBatcher."""
        if self.inline or self._writer is None:
            return await self._on(self._writer, act, relaxed=relaxed)
        loop = asyncio.get_running_loop()
        turns = self._turns.get((loop, kind))
        if turns is None:
            turns = self._turns[loop, kind] = CallBatcher(self._writer, self._clock)
        future: Future[T] = Future()
        value: T = await turns.add((act, future, relaxed), loop)
        return value

    def watch(self) -> "FileWatch":
        return FileWatch(self)

    def version(self) -> tuple[int, int]:
        """Moves with every commit: other processes' through the file, our own by count where there is no file."""
        seen: int = self._watcher.pragma("data_version") if self._watcher else 0
        if self._watcher is None and self._writer is not None:
            return 0, self._writer.connection.total_changes()
        return seen, 0

    async def told(self, seconds: float) -> None:
        """Sleep until our own writer commits, at most this long."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        sleeper = (loop, future)
        self._sleepers.add(sleeper)
        alarm = loop.call_later(seconds, _wake, future)
        try:
            await future
        finally:
            alarm.cancel()
            self._sleepers.discard(sleeper)

    def _tell_sleepers(self) -> None:
        for loop, told in tuple(self._sleepers):
            try:
                loop.call_soon_threadsafe(_wake, told)
            except RuntimeError:  # that loop has been closed; its sleeper is gone with it
                self._sleepers.discard((loop, told))

    def _make_tx(self, session: Session) -> SqliteTx:
        return SqliteTx(session.connection, self._clock.now(), session.book, self.contracts)


def _wake(told: "asyncio.Future[bool]") -> None:
    if not told.done():
        told.set_result(True)


class FileWatch:
    """Own commits are told at once; those of other processes are seen in the file's data version."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._seen = store.version()

    async def changed(self, timeout: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while True:
            version = self._store.version()
            if version != self._seen:
                self._seen = version
                return True
            left = end - loop.time()
            if left <= 0:
                return False
            await self._store.told(min(_LOOK_SECONDS, left))
