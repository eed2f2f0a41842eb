"""The Postgres store: a pool for transactions, a connection that listens; claiming.py has those for claims."""

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
from detent.ports.claims import ClaimLimits, ClaimRequest
from detent.ports.clock import Clock
from detent.stores.tx_queries import StoreTx
from detent.system.clock import SystemClock
from detent.system.retry import CONFLICT

from .batcher import InsertBatcher, StepBatcher
from .caller_connection import CallerConnection
from .claims.claim import Edges
from .claims.claiming import MAX_BATCHES_IN_FLIGHT, ClaimingStore
from .claims.limited_claim import PostgresTx
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
from .dialect import DATABASE_CLOCK, DEFAULT_SCHEMA, compiled, namespace_of, queries
from .errors import translate
from .migrate import ensure_schema, register
from .notifications import AWAITED, ENDED, LISTENING, Ends, Listener, Notifier, ServerWatch, SideConnection, Waiters
from .user_transaction import UserTransaction, UserTransactions

log = logging.getLogger("detent.postgres")
T = TypeVar("T")
Act = Callable[[StoreTx], Awaitable[T]]
_ACQUIRE_SECONDS = 10.0
"""How long a call waits for a free connection of the pool."""
_LOCK_SHARE, _BEGIN_SHARE = 0.75, 0.25
"""Parts of the time limit of a statement: for waiting for a lock, and for a BEGIN."""
_SUSPICIOUS_SECONDS = 0.3
"""A call that was cancelled after so long may have waited for a connection that no longer answers."""
POOL_SETTINGS = {"enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}
"""Planner options: a plan cached while the tables were empty must not scan them when they are full."""


class PostgresStore(ClaimingStore):
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
        super().__init__(clock or SystemClock(), queries(clock is not None, schema), self._intern_apart)
        self.url = url
        self.schema = schema
        """The schema of Detent's tables; also the channel of NOTIFY."""
        self.contracts: dict[str, Contract] = {}
        self.skips_locked_rows = True
        self.max_batches_in_flight = MAX_BATCHES_IN_FLIGHT
        self.bouncer = bouncer
        """True: behind PgBouncer in transaction mode; no session state, no LISTEN, no prepared statements."""
        self._own_clock = clock
        self._may_migrate = may_migrate
        self._pool_size = pool_size
        self._command_seconds = command_seconds
        self._namespace = namespace_of(schema)
        self._pool: asyncpg.Pool[Any] | None = None
        self.claim_limits: ClaimLimits = self._lane_cache
        self._hosts = Hosts(url)
        self._offset: Micros = 0
        self._waiters = Waiters()
        self._reading: dict[Connection, float] = {}
        """Connections in read-only transactions, and since when."""
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
        self._ends = Ends(self._side_connection, schema, listens=not bouncer)
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
            for row in await connection.fetch(self._texts["edges"]):
                self._names.edge_ids[row[1], row[2], row[3]] = row[0]
            return contracts

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        self._user_transactions.close()
        await self._notifier.close()
        await self._ends.close()
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
            self.notify_commit(other_processes=tx.made_ready, ended=tx.ended)
        return value

    async def read(self, act: Act[T]) -> T:
        try:
            async with self._transaction("repeatable_read", readonly=True) as connection:
                return await act(StoreTx(self._tx(connection, writes=False)))
        except Exception as error:
            raise translate(error) from error

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        samples, repeats = ([changes.first], len(changes)) if isinstance(changes, UniformBatch) else (changes, 1)
        if any(change.notes for change in samples):
            return await self.write(lambda tx: tx.jobs.insert(changes))
        if self._pool is None:
            raise StoreUnavailable("the store is closed; open it first")
        lanes = [await self._lanes.lane_of(change.after) for change in samples]
        present = await self._insert_batcher.insert(changes, lanes * repeats)
        if not all(change.outbox_hold for change in samples):  # what is held is not to be claimed from the database
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
        self, connection: CallerConnection, run: Callable[[Coroutine[Any, Any, Any]], Any] | None = None
    ) -> StoreTx:
        return StoreTx(self.queries_on(connection, run))

    def queries_on(
        self, connection: CallerConnection, run: Callable[[Coroutine[Any, Any, Any]], Any] | None = None
    ) -> PostgresTx:
        """A transaction on the caller's connection; the caller commits it.

        run: for blocking connections, runs a coroutine on this store's event loop and returns its result.
        """

        async def intern(table: str, values: dict[str, str]) -> Any:
            return run(self._intern_apart(table, values)) if run else await self._intern_apart(table, values)

        names = replace(self._names, intern=intern)
        return PostgresTx(
            connection, self.now(), self._lane_cache, self._texts, self._namespace, names, intern, edges=self._edges
        )

    async def _intern_apart(self, table: str, values: dict[str, str]) -> Any:
        """Intern on the side connection: the row stays even if the transaction that needed it rolls back."""

        async def act(connection: Connection) -> Any:
            async with read_committed(connection):
                return await self._tx(connection, writes=True).intern_here(table, values)

        return await CONFLICT.run(lambda: self._translated(self._side_connection.run(act)))

    def watch(self, *, ends: bool = False) -> ServerWatch:
        if self._listener is None and not self.bouncer:
            self._listener = Listener(self._connect, self.schema, self._on_notification)
        return ServerWatch(self._ends.wait_for_change if ends else self._waiters.wait_for_change)

    def _on_notification(self, payload: str) -> None:
        if payload == AWAITED:
            self._ends.set_awaited()
        elif payload == LISTENING:
            self._ends.announce()
        else:
            (self._ends.waiters if payload == ENDED else self._waiters).wake_all()

    def notify_commit(self, *, other_processes: bool, ended: bool = False) -> None:
        """Wake the waiters of this process after a commit. other_processes: also send NOTIFY. ended: jobs ended."""
        self._waiters.wake_all()
        self._ends.waiters.wake_all()
        if other_processes and not self.bouncer:
            self._notifier.notify()
        if ended:
            self._ends.notify(unless_known=self._listener is None)

    async def _translated(self, work: Awaitable[T]) -> T:
        """Await, with asyncpg errors translated."""
        try:
            return await work
        except Exception as error:
            raise translate(error) from error
