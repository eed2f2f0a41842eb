"""The Postgres store: a pool for acts, two connections for the hot statement, one that listens."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import asyncpg

from detent.core.contract.model import Contract
from detent.core.errors import StoreUnavailable
from detent.core.job import Change, Micros, Step
from detent.core.uniform_batch import UniformBatch
from detent.ports.claims import Claimed, ClaimRequest, StoreBatchResult, Success
from detent.ports.clock import Clock
from detent.stores.lanes import LaneBook
from detent.stores.tx_queries import TxQueries
from detent.system.clock import SystemClock

from .batcher import InsertBatcher, StepBatcher
from .caller_connection import CallerConnection
from .claim import AGAIN, SETTINGS, Answer, Edges, in_turn, run_settle_and_claim, settle_and_claim_values
from .claim_by_id import Taken, claim_by_id_values
from .connections import Hosts, drop, nothing_to_reset, prepare
from .dialect import DATABASE_CLOCK, compiled, queries
from .errors import TIES, translate
from .limited_claim import PlanningTx as PostgresTx
from .limited_claim import claim_within_limits
from .lost_claims import LostClaims, less
from .migrate import ensure_schema, register
from .notifications import Listener, Notifier, ServerWatch, SideConnection, Waiters
from .tx import Connection, PostgresTxQueries
from .user_transaction import UserTransaction, UserTransactions

log = logging.getLogger("detent.postgres")
T = TypeVar("T")
Act = Callable[[PostgresTx], Awaitable[T]]
_REPEATS = 10
_SLOW_SECONDS = 0.02
_FLOOR_SECONDS = 1.0
_COMMAND_SECONDS = 60.0
_HOT_SECONDS = 5.0
"""What never waits for a lock and takes milliseconds: longer than this, and the way to the server is silent."""
_CONNECT_SECONDS = 10.0
MAX_BATCHES_IN_FLIGHT = 2
"""One is computed by the server while the other waits for the disk or is on the wire; a third gains nothing."""
POOL_SETTINGS = {"enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}
"""A plan cached while the tables were empty must not scan them when they are full."""


class PostgresStore:
    """One database, seen from one event loop."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        may_migrate: bool = False,
        pool_size: int = 8,
        bouncer: bool = False,
        command_seconds: float = _COMMAND_SECONDS,
    ) -> None:
        self.url = url
        self.contracts: dict[str, Contract] = {}
        self.skips_locked_rows = True
        self.max_batches_in_flight = MAX_BATCHES_IN_FLIGHT
        self.bouncer = bouncer
        """True: behind PgBouncer in transaction mode; no session state, no LISTEN, no prepared statements."""
        self._own_clock = clock
        self._clock = clock or SystemClock()
        self._may_migrate = may_migrate
        self._pool_size = pool_size
        self._command_seconds = command_seconds
        self._texts = queries(clock is not None)
        self._pool: asyncpg.Pool[Any] | None = None
        self._hot: list[Connection] = []
        self._hot_turns = asyncio.Semaphore(MAX_BATCHES_IN_FLIGHT)
        self._book = LaneBook()
        self._hosts = Hosts(url)
        self._floors_since = 0.0
        self._edges = Edges({})
        self._offset: Micros = 0
        self._sleepers = Waiters()
        self._orphans = LostClaims()
        self._lanes = PostgresTxQueries(None, 0, self._book, self._texts, self._intern_apart)
        self._inserts = InsertBatcher(lambda: self._connect(POOL_SETTINGS, self._command_seconds))
        self._aside = SideConnection(lambda: self._connect({"synchronous_commit": "off"}))
        self._bell = Notifier(self._aside)
        self._ear: Listener | None = None
        self._loans = UserTransactions(self, pool_size)
        self._recorder = StepBatcher(self._acquired, compiled(self._texts["record_steps"]), self.now)

    async def open(self, own: Mapping[str, Contract], carried: Mapping[str, Contract]) -> None:
        if self._pool is None:
            try:
                self._pool = await asyncpg.create_pool(
                    self.url,
                    min_size=0,
                    max_size=self._pool_size,
                    init=prepare,
                    reset=nothing_to_reset,
                    server_settings=None if self.bouncer else POOL_SETTINGS,
                    command_timeout=self._command_seconds,
                    timeout=_CONNECT_SECONDS,
                    **self._connect_options(connect=self._hosts.connect),
                )
            except Exception as error:
                raise translate(error) from error
            try:
                await self._guard(self._check_schema())
            except BaseException:  # the next attempt must check again
                self._pool.terminate()
                self._pool = None
                raise
        self.contracts = await self._guard(self._register(own, carried))
        self._edges = Edges(self.contracts)

    async def _check_schema(self) -> None:
        assert self._pool is not None
        async with self._pool.acquire() as connection:
            await ensure_schema(connection, may_migrate=self._may_migrate)
            await self._set_clock(connection)

    async def _set_clock(self, connection: Connection) -> None:
        """With every server we come to. Rather behind than ahead: an end must not look later than what followed it."""
        ask = f"SELECT {DATABASE_CLOCK}"  # several times: the quickest answer tells most
        self._offset = max([await connection.fetchval(ask) - int(self._clock.monotonic() * 1e6) for _ in range(3)])

    async def _register(self, own: Mapping[str, Contract], carried: Mapping[str, Contract]) -> dict[str, Contract]:
        assert self._pool is not None
        async with self._pool.acquire() as connection:
            return await register(connection, own, carried)

    async def close(self) -> None:
        if self._ear is not None:
            await self._ear.close()
            self._ear = None
        self._loans.close()
        await self._bell.close()
        await self._aside.close()
        await self._inserts.close()
        while self._hot:
            drop(self._hot.pop())
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    def now(self) -> Micros:
        """The database's time, carried forward on our monotonic clock; a test's clock if it brought one."""
        if self._own_clock is not None:
            return self._own_clock.now()
        return self._offset + int(self._clock.monotonic() * 1_000_000)

    async def uptime(self) -> float:
        async def act(tx: PostgresTx) -> float:
            text = "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8"
            return await tx.connection.fetchval(text)  # type: ignore[no-any-return]

        return await self.read(act)

    def sibling(self) -> "PostgresStore":
        return PostgresStore(
            self.url, clock=self._own_clock, pool_size=1, bouncer=self.bouncer, command_seconds=_HOT_SECONDS
        )

    async def write(self, act: Act[T]) -> T:
        """One transaction; repeated when the database broke a tie against it."""
        for attempt in range(_REPEATS):
            claims: list[ClaimRequest] = []
            try:
                async with self._acquired() as connection, connection.transaction():
                    tx = self._tx(connection, writes=True)
                    claims = tx.claims
                    value = await act(tx)
                if tx.wrote:
                    self.tell(ring=tx.made_ready)
                return value
            except TIES as error:
                lost: BaseException = error
                await asyncio.sleep(0.001 * attempt)
            except Exception as error:
                trouble = translate(error)
                self._orphans.lose(claims, trouble)
                raise trouble from error
        raise translate(lost)

    async def read(self, act: Act[T]) -> T:
        try:
            async with (
                self._acquired() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                return await act(self._tx(connection, writes=False))
        except Exception as error:
            raise translate(error) from error

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        kinds, times = ([changes.first], len(changes)) if isinstance(changes, UniformBatch) else (changes, 1)
        if any(change.notes or change.outbox_item for change in kinds):
            return await self.write(lambda tx: tx.insert(changes))
        if self._pool is None:
            raise StoreUnavailable("the store is closed; open it first")
        lanes = [await self._lanes.lane_of(change.after) for change in kinds]
        present = await self._inserts.insert(changes, lanes * times)
        self.tell(ring=any(change.after.ready for change in kinds))
        return present

    async def begin(self) -> UserTransaction:
        return await self._loans.begin()

    async def user_pool(self, size: int) -> "asyncpg.Pool[Any]":
        """Connections as their users expect them: none of our settings, none of our codecs."""
        options = self._connect_options(connect=self._hosts.connect)
        return await asyncpg.create_pool(self.url, min_size=0, max_size=size, timeout=_CONNECT_SECONDS, **options)

    async def record_step(self, step: Step, token: str) -> bool:
        return await self._recorder.record(step, token)

    async def settle_and_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> StoreBatchResult:
        """One statement, one round trip, one commit; again at once when there is reason to."""
        if request and request.named is not None:
            return await (self._settle_then_claim if self.bouncer else self._take)(successes, request)
        if self._orphans and request:
            adopted = await self._adopt(request)
            if adopted:
                rest = await self.settle_and_claim(successes, less(request, len(adopted)))
                return StoreBatchResult(adopted + rest.claimed, rest.refused)
        try:
            return await self._settle_and_claim(successes, request)
        except Exception as error:
            self._orphans.lose([request] if request else [], error)
            raise

    async def _adopt(self, request: ClaimRequest) -> list[Claimed]:
        """What an earlier claim of this worker took before its answer was lost, and nobody has taken since."""
        tokens = self._orphans.tokens(request.worker)
        rows = await self.write(lambda tx: tx.query("adopt", tokens=tokens, lease=request.lease))
        return self._orphans.found(request.worker, rows, self._clock.monotonic())

    async def _settle_and_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> StoreBatchResult:
        if self.bouncer:
            return await self._settle_then_claim(successes, request)
        async with self._hot_turns:
            if self._book.ruled and request:
                done = await self._settle_and_claim_limited(successes, request)
                if not self._book.ruled:  # the last limit has just gone
                    done.claimed += (await self._settle_and_claim_hot([], request)).claimed
                return done
            answer = await self._settle_and_claim_hot(successes, request)
            done, wrote = StoreBatchResult(answer.claimed, answer.unsettled(successes)), answer.wrote
            for _ in range(AGAIN):
                request = answer.rest(request, self._book) if request else None
                if request is None:
                    break
                if answer.version != self._book.version:
                    await self._refresh_book()
                if self._book.ruled:
                    done.claimed += (await self._settle_and_claim_limited([], request)).claimed
                    break
                answer = await self._settle_and_claim_hot([], request)
                done.claimed += answer.claimed
                wrote |= answer.wrote
        if wrote:  # an idle claim must not wake the claimer
            self.tell(ring=False)
        return done

    async def _take(self, successes: Sequence[Success], request: ClaimRequest) -> StoreBatchResult:
        """Jobs by their ids: whoever asks again for what it already holds is translate so by the engine."""
        async with self._hot_turns:
            values = claim_by_id_values(successes, request, self._edges, self.now())
            answer = Taken(await self._run_hot("claim_by_id", values))
        if answer.wrote:
            self.tell(ring=False)
        return StoreBatchResult(answer.claimed, answer.unsettled(successes))

    async def _settle_and_claim_limited(self, successes: Sequence[Success], request: ClaimRequest) -> StoreBatchResult:
        """Two statements instead of one; others who are held back by a limit hear that something has ended."""
        done = await claim_within_limits(
            self._run_hot, self._refresh_book, self._book, self._edges, successes, request, self.now()
        )
        if done.wrote:
            self.tell(ring=bool(successes))
        return StoreBatchResult(done.claimed, done.refused)

    async def _settle_then_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> StoreBatchResult:
        async def act(tx: PostgresTx) -> StoreBatchResult:
            refused = await tx.succeed(successes) if successes else []
            return StoreBatchResult(await tx.claim(request) if request else [], refused)

        return await self.write(act)

    async def _settle_and_claim_hot(self, successes: Sequence[Success], request: ClaimRequest | None) -> Answer:
        started = self._clock.monotonic()
        if self._book.floors and started - self._floors_since > _FLOOR_SECONDS:
            self._book.floors.clear()
        # Losing a bare claim costs a fenced rerun, so its commit need not reach the disk.
        values = settle_and_claim_values(successes, request, self._book, self._edges, self.now(), relaxed=not successes)
        name, more = in_turn(self._book, successes, request)
        answer = Answer(await self._run_hot(name, values | more if more else values), request.token if request else "")
        if more:
            answer.relieved(self._book)
        slow = self._clock.monotonic() - started > _SLOW_SECONDS
        if slow and not self._book.floors:
            self._floors_since = started
        answer.advance(self._book, remember_floors=slow or bool(self._book.floors))
        return answer

    async def _run_hot(self, name: str, values: Mapping[str, Any]) -> list[Any]:
        query = compiled(self._texts[name])
        connection: Connection | None = None
        try:
            for _ in range(_REPEATS):
                connection = connection or await self._hot_connection()
                try:
                    rows = await run_settle_and_claim(connection, query, values)
                    break
                except TIES:
                    continue
            else:
                raise StoreUnavailable("the database broke ten ties in a row against this worker; it will try again")
        except BaseException as error:
            drop(connection)
            raise translate(error) from error
        self._hot.append(connection)
        return rows

    async def _refresh_book(self) -> None:
        await self.read(lambda tx: tx.refresh_book())

    async def _hot_connection(self) -> Connection:
        while self._hot:
            connection = self._hot.pop()
            if not connection.is_closed():
                return connection
        connection = await self._connect(SETTINGS)
        await self._set_clock(connection)
        return connection

    async def _connect(
        self, settings: Mapping[str, str] | None = None, command_seconds: float = _HOT_SECONDS
    ) -> Connection:
        connection = await self._hosts.connect(
            server_settings=None if self.bouncer or not settings else dict(settings),
            timeout=_CONNECT_SECONDS,
            command_timeout=command_seconds,
            **self._connect_options(),
        )
        await prepare(connection)
        return connection

    def _connect_options(self, **more: Any) -> dict[str, Any]:
        return {"statement_cache_size": 0, **more} if self.bouncer else more

    def _acquired(self) -> Any:
        if self._pool is None:
            raise StoreUnavailable("the store is closed; open it first")
        return self._pool.acquire(timeout=_CONNECT_SECONDS)

    def _tx(self, connection: Connection, *, writes: bool) -> PostgresTx:
        return PostgresTx(
            connection, self.now(), self._book, self._texts, self._intern_apart, writes=writes, edges=self._edges
        )

    def held_back(self) -> tuple[bool, Micros | None]:
        return self._book.held_back, self._book.opens_at

    def borrow(
        self, connection: CallerConnection, run: Callable[[Coroutine[Any, Any, int]], int] | None = None
    ) -> PostgresTx:
        """A transaction that is somebody else's to commit. run: the way from their thread to this store's loop."""

        async def intern(table: str, values: dict[str, str]) -> int:
            return run(self._intern_apart(table, values)) if run else await self._intern_apart(table, values)

        return PostgresTx(connection, self.now(), self._book, self._texts, intern, edges=self._edges)

    async def _intern_apart(self, table: str, values: dict[str, str]) -> int:
        """On a connection of its own: a part of a lane stays even if the act that named it is undone."""

        async def act(connection: Connection) -> int:
            async with connection.transaction():
                tx = PostgresTxQueries(connection, self.now(), self._book, self._texts, self._intern_apart)
                return await TxQueries.intern(tx, table, values)

        return await self._aside.run(act)

    def watch(self) -> ServerWatch:
        if self._ear is None and not self.bouncer:
            self._ear = Listener(self._connect, lambda: self.tell(ring=False))
        return ServerWatch(self._sleepers.told)

    def tell(self, *, ring: bool) -> None:
        """Something was committed: everyone here who waits looks again, and other processes are rung."""
        self._sleepers.tell()
        if ring and not self.bouncer:
            self._bell.ring()

    async def _guard(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except Exception as error:
            raise translate(error) from error
