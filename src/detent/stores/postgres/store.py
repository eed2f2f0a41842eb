"""The Postgres store: a pool for transactions, two connections for claim statements, one that listens."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import asyncpg

from detent.core.contract.model import Contract
from detent.core.errors import StoreUnavailable
from detent.core.job import Change, Micros, Step
from detent.core.uniform_batch import UniformBatch
from detent.ports.claims import Claimed, ClaimLimits, ClaimRequest, StoreBatchResult, Success
from detent.ports.clock import Clock
from detent.stores.lanes import LaneCache
from detent.stores.tx_queries import StoreTx, TxQueries
from detent.system.clock import SystemClock
from detent.system.retry import CONFLICT

from .batcher import InsertBatcher, StepBatcher
from .caller_connection import CallerConnection
from .claim import MAX_REPEATS, SETTINGS, ClaimResult, Edges, claim_statement, fetch_rows, settle_and_claim_values
from .claim_by_id import claim_by_id_values
from .connections import (
    CONNECT_SECONDS,
    LONG_SECONDS,
    LOST,
    READ_COMMITTED,
    STATEMENT_SECONDS,
    Connection,
    Hosts,
    prepare,
    read_committed,
    skip_reset,
    terminate,
    terminate_idle,
)
from .dialect import DATABASE_CLOCK, DEFAULT_SCHEMA, Query, compiled, namespace_of, queries
from .errors import translate
from .limited_claim import PostgresTx, claim_within_limits
from .lost_claims import LostClaims, OpenClaims, remaining_request
from .migrate import ensure_schema, register
from .names import Names
from .notifications import Listener, Notifier, ServerWatch, SideConnection, Waiters
from .user_transaction import UserTransaction, UserTransactions

log = logging.getLogger("detent.postgres")
T = TypeVar("T")
Act = Callable[[StoreTx], Awaitable[T]]
_SLOW_CLAIM_SECONDS = 0.02
_FLOOR_SECONDS = 1.0
_ACQUIRE_SECONDS = 10.0
"""How long a call waits for a free connection of the pool."""
_LOCK_SHARE, _BEGIN_SHARE = 0.75, 0.25
"""Parts of the time limit of a statement: for waiting for a lock, and for a BEGIN."""
_SUSPICIOUS_SECONDS = 0.3
"""A call that was cancelled after so long may have waited for a connection that no longer answers."""
MAX_BATCHES_IN_FLIGHT = 2
"""The server executes one batch while the other waits for the disk or the network; a third gains nothing."""
POOL_SETTINGS = {"enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}
"""Planner options: a plan cached while the tables were empty must not scan them when they are full."""


class PostgresStore:
    """Jobs in one Postgres database, used from one event loop."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        may_migrate: bool = False,
        pool_size: int = 8,
        bouncer: bool = False,
        schema: str = DEFAULT_SCHEMA,
        command_seconds: float = STATEMENT_SECONDS,
    ) -> None:
        self.url = url
        self.schema = schema
        """The schema of Detent's tables; also the channel of NOTIFY."""
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
        self._texts = queries(clock is not None, schema)
        self._namespace = namespace_of(schema)
        self._pool: asyncpg.Pool[Any] | None = None
        self._claim_connections: list[Connection] = []
        self._claim_slots = asyncio.Semaphore(MAX_BATCHES_IN_FLIGHT)
        self._lane_cache = LaneCache()
        self.claim_limits: ClaimLimits = self._lane_cache
        self._hosts = Hosts(url)
        self._floors_since = 0.0
        self._names = Names(self._lane_cache, self._intern_apart)
        self._edges = Edges({}, self._names)
        self._open_claims = OpenClaims()
        self._offset: Micros = 0
        self._waiters = Waiters()
        self._reading: dict[Connection, float] = {}
        """Connections in read-only transactions, and since when."""
        self._lost_claims = LostClaims()
        self._lanes = self._tx(None, writes=True)
        """Without a connection: used only for `lane_of`."""
        self._insert_batcher = InsertBatcher(
            lambda: self._connect(POOL_SETTINGS),
            self._namespace,
            self._names,
            self._single_statement,
            self._connection_lost,
        )
        self._side_connection = SideConnection(lambda: self._connect({"synchronous_commit": "off"}))
        self._notifier = Notifier(self._side_connection, schema)
        self._listener: Listener | None = None
        self._user_transactions = UserTransactions(self, pool_size)
        self._step_batcher = StepBatcher(
            self._acquired, self._single_statement, compiled(self._texts["record_steps"]), self.now
        )

    async def open(self, own: Mapping[str, Contract], builtin: Mapping[str, Contract]) -> None:
        if self._pool is None:
            try:
                self._pool = await asyncpg.create_pool(
                    self.url,
                    min_size=0,
                    max_size=self._pool_size,
                    init=prepare,
                    reset=skip_reset,
                    server_settings=self._session_settings(POOL_SETTINGS),
                    command_timeout=self._command_seconds,
                    timeout=CONNECT_SECONDS,
                    **self._connect_options(connect=self._hosts.connect),
                )
            except Exception as error:
                raise translate(error) from error
            try:
                await self._translated(self._check_schema())
            except BaseException:  # the next attempt must check again
                self._pool.terminate()
                self._pool = None
                raise
        self.contracts = await self._translated(self._register(own, builtin))
        self._edges = Edges(self.contracts, self._names)

    async def _check_schema(self) -> None:
        async with self._acquired() as connection:
            await ensure_schema(connection, self.schema, may_migrate=self._may_migrate)
            await self._set_clock(connection)

    async def _set_clock(self, connection: Connection) -> None:
        """Measure the offset to the server's clock; done for every new server connection.

        The estimate is never ahead of the server, so that no event gets a later time than the events after it.
        """
        clock_sql = f"SELECT {DATABASE_CLOCK}"  # three times: the reply with the shortest delay is the most exact
        self._offset = max(
            [await connection.fetchval(clock_sql) - int(self._clock.monotonic() * 1e6) for _ in range(3)]
        )

    async def _register(self, own: Mapping[str, Contract], builtin: Mapping[str, Contract]) -> dict[str, Contract]:
        async with self._acquired() as connection:
            contracts = await register(connection, self.schema, own, builtin)
            self._names.set_states(await connection.fetch(self._texts["states"]))
            self._names.edge_ids |= {
                (row[1], row[2], row[3]): row[0] for row in await connection.fetch(self._texts["edges"])
            }
            return contracts

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        self._user_transactions.close()
        await self._notifier.close()
        await self._side_connection.close()
        await self._insert_batcher.close()
        await self._step_batcher.close()
        while self._claim_connections:
            terminate(self._claim_connections.pop())
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    def now(self) -> Micros:
        """The database's time, computed from the monotonic clock and the measured offset; or the clock of a test."""
        if self._own_clock is not None:
            return self._own_clock.now()
        return self._offset + int(self._clock.monotonic() * 1_000_000)

    async def uptime(self) -> float:
        ((seconds,),) = await self.read(lambda tx: tx.queries.query("uptime"))
        return float(seconds)

    def sibling(self) -> "PostgresStore":
        return PostgresStore(
            self.url,
            clock=self._own_clock,
            pool_size=1,
            bouncer=self.bouncer,
            schema=self.schema,
            command_seconds=self._command_seconds,
        )

    async def write(self, act: Act[T]) -> T:
        """Run an act in one transaction, which is repeated after a conflict."""
        return await CONFLICT.run(lambda: self._write(act))

    async def _write(self, act: Act[T]) -> T:
        claims: list[ClaimRequest] = []
        try:
            async with self._transaction("read_committed") as connection:
                tx = self._tx(connection, writes=True)
                claims = tx.claims
                value = await act(StoreTx(tx))
        except Exception as error:
            store_error = translate(error)
            self._lost_claims.add(claims, store_error)
            raise store_error from error
        self._open_claims.settle(tx.ended_leases)
        if tx.wrote:
            self.notify_commit(other_processes=tx.made_ready)
        return value

    async def read(self, act: Act[T]) -> T:
        try:
            async with self._transaction("repeatable_read", readonly=True) as connection:
                return await act(StoreTx(self._tx(connection, writes=False)))
        except Exception as error:
            raise translate(error) from error

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        samples, repeats = ([changes.first], len(changes)) if isinstance(changes, UniformBatch) else (changes, 1)
        if any(change.notes or change.outbox_item for change in samples):
            return await self.write(lambda tx: tx.jobs.insert(changes))
        if self._pool is None:
            raise StoreUnavailable("the store is closed; open it first")
        lanes = [await self._lanes.lane_of(change.after) for change in samples]
        present = await self._insert_batcher.insert(changes, lanes * repeats)
        self.notify_commit(other_processes=any(change.after.ready for change in samples))
        return present

    async def begin(self) -> UserTransaction:
        return await self._user_transactions.begin()

    async def user_pool(self, size: int) -> "asyncpg.Pool[Any]":
        """A pool for user transactions, without our planner options and type codecs."""
        options = self._connect_options(connect=self._hosts.connect)
        return await asyncpg.create_pool(self.url, min_size=0, max_size=size, timeout=CONNECT_SECONDS, **options)

    async def record_step(self, step: Step, token: str) -> bool:
        return await self._step_batcher.record(step, token)

    async def settle_and_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> StoreBatchResult:
        """Settle and claim in one statement and one commit; repeated at once if it returned too few jobs for a
        temporary reason."""
        if request and request.named is not None:
            return await (self._settle_then_claim if self.bouncer else self._settle_and_claim_by_id)(successes, request)
        if self._lost_claims and request:
            adopted = await self._adopt(request)
            if adopted:
                batch = await self.settle_and_claim(successes, remaining_request(request, len(adopted)))
                return StoreBatchResult(adopted + batch.claimed, batch.refused)
        try:
            return await self._settle_and_claim(successes, request)
        except Exception as error:
            self._lost_claims.add([request] if request else [], error)
            raise

    async def _adopt(self, request: ClaimRequest) -> list[Claimed]:
        """Jobs leased by an earlier claim of this worker whose result was lost; their leases are extended."""
        tokens = self._lost_claims.tokens(request.worker)
        rows = await self.write(lambda tx: tx.queries.query("adopt", tokens=tokens, lease=request.lease))
        await self._names.load_lanes((row[1] for row in rows), self._find_name)
        claimed = [self._names.claimed(row) for row in rows]
        self._lost_claims.adopt(request.worker, claimed, self._clock.monotonic())
        return claimed

    async def _settle_and_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> StoreBatchResult:
        if self.bouncer:
            return await self._settle_then_claim(successes, request)
        async with self._claim_slots:
            if self._lane_cache.needs_plan and request:
                outcome = await self._settle_and_claim_limited(successes, request)
                remaining = remaining_request(request, len(outcome.claimed))
                if not self._lane_cache.needs_plan and remaining:  # the last limit has just been removed
                    outcome.claimed += (await self._settle_and_claim_once([], remaining)).claimed
                return outcome
            result = await self._settle_and_claim_once(successes, request)
            outcome, wrote = StoreBatchResult(result.claimed, self._settled(result, successes)), result.wrote
            for _ in range(MAX_REPEATS):
                request = result.remaining(request, self._lane_cache) if request else None
                if request is None:
                    break
                if result.version != self._lane_cache.version:
                    await self._refresh_lane_cache()
                if self._lane_cache.needs_plan:
                    outcome.claimed += (await self._settle_and_claim_limited([], request)).claimed
                    break
                result = await self._settle_and_claim_once([], request)
                outcome.claimed += result.claimed
                wrote |= result.wrote
        if wrote:  # a claim that found nothing must not wake the worker that made it
            self.notify_commit(other_processes=False)
        return outcome

    async def _settle_and_claim_by_id(self, successes: Sequence[Success], request: ClaimRequest) -> StoreBatchResult:
        """Claim jobs by id. Jobs that the worker already holds are not returned again; the engine handles that."""
        async with self._claim_slots:
            worker, done = await self._names.actor(request.worker), self._open_claims.take_done()
            values = claim_by_id_values(successes, request, self._edges, worker, self.now(), done)
            result = await ClaimResult.of(
                await self._run_claim_query("claim_by_id", values), self._names, self._find_name
            )
            self._open_claims.add(result.claim, result.claimed)
        if result.wrote:
            self.notify_commit(other_processes=False)
        return StoreBatchResult(result.claimed, self._settled(result, successes))

    def _settled(self, result: ClaimResult, successes: Sequence[Success]) -> list[Success]:
        """Note which claims have no jobs left; returns the successes that were not settled."""
        unsettled = result.unsettled(successes)
        left = {success.id for success in unsettled}
        self._open_claims.settle(success.id for success in successes if success.id not in left)
        return unsettled

    async def _settle_and_claim_limited(self, successes: Sequence[Success], request: ClaimRequest) -> StoreBatchResult:
        """Settle and claim within limits, in two statements. Settling notifies other processes, because it may free
        places of a limit that they wait for."""
        outcome = await claim_within_limits(
            self._run_claim_query,
            self._refresh_lane_cache,
            self._lane_cache,
            self._edges,
            self._names,
            self._find_name,
            successes,
            request,
            self.now(),
            done=self._open_claims.take_done(),
        )
        refused = {success.id for success in outcome.refused}
        self._open_claims.settle(success.id for success in successes if success.id not in refused)
        for result in outcome.claims:
            self._open_claims.add(result.claim, result.claimed)
        if outcome.wrote:
            self.notify_commit(other_processes=bool(successes))
        return StoreBatchResult(outcome.claimed, outcome.refused)

    async def _settle_then_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> StoreBatchResult:
        """Settle and claim as an ordinary transaction of several statements, for use behind PgBouncer."""

        async def act(tx: StoreTx) -> StoreBatchResult:
            refused = await tx.claims.succeed(successes) if successes else []
            return StoreBatchResult(await tx.claims.claim(request) if request else [], refused)

        return await self.write(act)

    async def _settle_and_claim_once(self, successes: Sequence[Success], request: ClaimRequest | None) -> ClaimResult:
        started = self._clock.monotonic()
        if self._lane_cache.floors and started - self._floors_since > _FLOOR_SECONDS:
            self._lane_cache.floors.clear()
        # A lost claim only costs a repeated run under a new token, so its commit need not wait for the disk.
        worker = await self._names.actor(request.worker) if request else 0
        values = settle_and_claim_values(
            successes,
            request,
            self._lane_cache,
            self._edges,
            worker,
            self.now(),
            relaxed=not successes,
            done=self._open_claims.take_done() if successes else (),
        )
        name, extra_values = claim_statement(self._lane_cache, successes, request)
        rows = await self._run_claim_query(name, values | extra_values if extra_values else values)
        result = await ClaimResult.of(rows, self._names, self._find_name)
        self._open_claims.add(result.claim, result.claimed)
        if extra_values:
            result.save_low_rank(self._lane_cache)
        slow = self._clock.monotonic() - started > _SLOW_CLAIM_SECONDS
        if slow and not self._lane_cache.floors:
            self._floors_since = started
        result.save_positions(self._lane_cache, with_floors=slow or bool(self._lane_cache.floors))
        return result

    async def _run_claim_query(self, name: str, values: Mapping[str, Any]) -> list[Any]:
        query = compiled(self._texts[name])
        return await CONFLICT.run(lambda: self._fetch_claims(query, values))

    async def _fetch_claims(self, query: Query, values: Mapping[str, Any]) -> list[Any]:
        connection: Connection | None = None
        try:
            connection = await self._claim_connection()
            rows = await fetch_rows(connection, query, values)
        except LOST as error:
            terminate(connection)
            if not isinstance(error, asyncio.CancelledError):
                self._connection_lost()
            raise translate(error) from error
        except Exception as error:
            self._keep_claim_connection(connection)
            raise translate(error) from error
        self._keep_claim_connection(connection)
        return rows

    def _keep_claim_connection(self, connection: Connection | None) -> None:
        if connection is not None and not connection.is_closed():
            self._claim_connections.append(connection)

    async def _refresh_lane_cache(self) -> None:
        await self.read(lambda tx: tx.queries.refresh_lane_cache())

    async def _claim_connection(self) -> Connection:
        while self._claim_connections:
            connection = self._claim_connections.pop()
            if not connection.is_closed():
                return connection
        connection = await self._connect(SETTINGS)
        await self._set_clock(connection)
        return connection

    async def _connect(self, settings: Mapping[str, str] | None = None) -> Connection:
        connection = await self._hosts.connect(
            server_settings=self._session_settings(settings or {}),
            timeout=CONNECT_SECONDS,
            command_timeout=self._command_seconds,
            **self._connect_options(),
        )
        await prepare(connection)
        return connection

    def _session_settings(self, settings: Mapping[str, str]) -> dict[str, str] | None:
        """lock_timeout: the server ends a wait for a lock before we give up on the connection."""
        if self.bouncer:
            return None
        return {**READ_COMMITTED, "lock_timeout": str(int(self._command_seconds * _LOCK_SHARE * 1_000)), **settings}

    def _connect_options(self, **options: Any) -> dict[str, Any]:
        return {"statement_cache_size": 0, **options} if self.bouncer else options

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Connection]:
        """A connection of the pool. After a timeout or a cancelled call it is closed at once: asyncpg would wait for
        the server to confirm the cancellation."""
        pool = self._open_pool()
        connection = await pool.acquire(timeout=_ACQUIRE_SECONDS)
        acquired_at = self._clock.monotonic()
        try:
            yield connection
        except LOST as error:
            self._give_up(connection, error, acquired_at)
            raise
        finally:
            await pool.release(connection)

    @asynccontextmanager
    async def _transaction(self, isolation: str, *, readonly: bool = False) -> AsyncIterator[Connection]:
        pool = self._open_pool()
        connection, transaction = await self._begin(pool, isolation, readonly)
        acquired_at = self._clock.monotonic()
        if readonly:
            self._reading[connection] = acquired_at
        try:
            try:
                yield connection
            except LOST:
                raise
            except BaseException:
                await transaction.rollback()
                raise
            await transaction.commit()
        except LOST as error:
            self._give_up(connection, error, acquired_at)
            raise
        finally:
            self._reading.pop(connection, None)
            await pool.release(connection)

    async def _begin(self, pool: "asyncpg.Pool[Any]", isolation: str, readonly: bool) -> tuple[Connection, Any]:
        """A connection and its transaction. A BEGIN changes nothing, so that one which is not answered soon is repeated
        on a new connection."""
        for seconds in (self._command_seconds * _BEGIN_SHARE, None):
            connection: Connection = await pool.acquire(timeout=_ACQUIRE_SECONDS)
            transaction = connection.transaction(isolation=isolation, readonly=readonly)
            began = self._clock.monotonic()
            try:
                async with asyncio.timeout(seconds):
                    await transaction.start()
                return connection, transaction
            except BaseException as error:
                self._give_up(connection, error, began)
                await pool.release(connection)
                if not isinstance(error, TimeoutError):
                    raise
                self._end_waiting_reads()
                if seconds is None:
                    raise
        raise AssertionError("the second attempt returns or raises")

    def _open_pool(self) -> "asyncpg.Pool[Any]":
        if self._pool is None:
            raise StoreUnavailable("the store is closed; open it first")
        return self._pool

    def _give_up(self, connection: Connection, error: BaseException, since: float) -> None:
        terminate(connection)
        cancelled = isinstance(error, asyncio.CancelledError)
        if not cancelled or self._clock.monotonic() - since > _SUSPICIOUS_SECONDS:
            self._connection_lost()

    def _end_waiting_reads(self) -> None:
        """A BEGIN was not answered, which waits for nothing: reads that have waited as long are lost as well."""
        waiting_since = self._clock.monotonic() - self._command_seconds * _BEGIN_SHARE
        for connection in [one for one, since in self._reading.items() if since < waiting_since]:
            terminate(connection)

    def _connection_lost(self) -> None:
        """One connection does not answer: the others may have been lost with it, so the idle ones are replaced."""
        if self._pool is not None:
            terminate_idle(self._pool)
        while self._claim_connections:
            terminate(self._claim_connections.pop())
        self._insert_batcher.terminate_idle()
        self._side_connection.terminate_idle()
        self._user_transactions.terminate_idle()
        if self._listener is not None:
            self._listener.reconnect()

    def _single_statement(self, connection: Connection) -> Any:
        """The context of one statement: behind PgBouncer a transaction, because its connections have no settings."""
        return read_committed(connection) if self.bouncer else nullcontext()

    def _tx(self, connection: Connection, *, writes: bool) -> PostgresTx:
        return PostgresTx(
            connection,
            self.now(),
            self._lane_cache,
            self._texts,
            self._namespace,
            self._names,
            self._intern_apart,
            writes=writes,
            interns_itself=self.bouncer,
            read_seconds=LONG_SECONDS,
            edges=self._edges,
        )

    def transaction_on(
        self, connection: CallerConnection, run: Callable[[Coroutine[Any, Any, int]], int] | None = None
    ) -> StoreTx:
        return StoreTx(self.queries_on(connection, run))

    def queries_on(
        self, connection: CallerConnection, run: Callable[[Coroutine[Any, Any, int]], int] | None = None
    ) -> PostgresTx:
        """A transaction on the caller's connection; the caller commits it.

        run: for blocking connections, runs a coroutine on this store's event loop and returns its result.
        """

        async def intern(table: str, values: dict[str, str]) -> int:
            return run(self._intern_apart(table, values)) if run else await self._intern_apart(table, values)

        names = replace(self._names, intern=intern)
        return PostgresTx(
            connection, self.now(), self._lane_cache, self._texts, self._namespace, names, intern, edges=self._edges
        )

    async def _intern_apart(self, table: str, values: dict[str, str]) -> int:
        """Intern on the side connection: the row stays even if the transaction that needed it rolls back."""

        async def act(connection: Connection) -> int:
            async with read_committed(connection):
                return await TxQueries.intern(self._tx(connection, writes=True), table, values)

        return await CONFLICT.run(lambda: self._translated(self._side_connection.run(act)))

    async def _find_name(self, query: str, number: int) -> Sequence[Any]:
        """The row of an interned name, in a snapshot of its own."""
        rows = await self.read(lambda tx: tx.queries.query(query, id=number))
        row: Sequence[Any] = rows[0]
        return row

    def watch(self) -> ServerWatch:
        if self._listener is None and not self.bouncer:
            self._listener = Listener(self._connect, self.schema, lambda: self.notify_commit(other_processes=False))
        return ServerWatch(self._waiters.wait_for_change)

    def notify_commit(self, *, other_processes: bool) -> None:
        """Wake the waiters of this process after a commit; other_processes: also send NOTIFY."""
        self._waiters.wake_all()
        if other_processes and not self.bouncer:
            self._notifier.notify()

    async def _translated(self, work: Awaitable[T]) -> T:
        """Await, with asyncpg errors translated."""
        try:
            return await work
        except Exception as error:
            raise translate(error) from error
