"""The part of the Postgres store that settles and claims: two connections of their own, a few statements."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from detent.core.errors import StoreUnavailable
from detent.ports.claims import Claimed, ClaimRequest, StoreBatchResult, Success
from detent.ports.clock import Clock
from detent.stores.lanes import LOCKED_MICROS, LaneCache
from detent.stores.tx_queries import StoreTx
from detent.system.retry import CONFLICT

from ..connections import LOST, Connection, terminate
from ..dialect import Query, compiled
from ..errors import rows_are_locked, translate
from ..names import Intern, Names
from .claim import (
    MAX_REPEATS,
    SETTINGS,
    ClaimResult,
    Edges,
    claim_statement,
    fetch_rows,
    lane_values,
    settle_and_claim_values,
)
from .claim_by_id import claim_by_id_values
from .limited_claim import LimitedClaims
from .lost_claims import LostClaims, OpenClaims, remaining_request

T = TypeVar("T")
_SLOW_CLAIM_SECONDS = 0.02
_FLOOR_SECONDS = 1.0
ONLY_LANE_SECONDS = 0.05
"""How long claims go on with the only lane that had jobs before they look for others, and promote jobs, again."""
MAX_BATCHES_IN_FLIGHT = 2
"""The server executes one batch while the other waits for the disk or the network; a third gains nothing."""


class ClaimingStore(ABC):
    """Settles and claims; `PostgresStore` adds everything else."""

    def __init__(self, clock: Clock, texts: dict[str, str], intern: Intern) -> None:
        self._clock = clock
        self._texts = texts
        self._lane_cache = LaneCache()
        self._names = Names(self._lane_cache, intern)
        self._edges = Edges({}, self._names)
        self._claim_connections: list[Connection] = []
        self._claim_slots = asyncio.Semaphore(MAX_BATCHES_IN_FLIGHT)
        self._lost_claims = LostClaims()
        self._open_claims = OpenClaims()
        self._floors_since = 0.0

    bouncer: bool

    @abstractmethod
    def now(self) -> int: ...

    @abstractmethod
    async def read(self, act: Callable[[StoreTx], Awaitable[T]]) -> T: ...

    @abstractmethod
    async def write(self, act: Callable[[StoreTx], Awaitable[T]]) -> T: ...

    @abstractmethod
    def notify_commit(self, *, other_processes: bool, ended: bool = False) -> None: ...

    @abstractmethod
    async def _connect(self, settings: Mapping[str, str] | None = None) -> Connection: ...

    @abstractmethod
    async def _set_clock(self, connection: Connection) -> None: ...

    @abstractmethod
    def _connection_lost(self) -> None: ...

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
            self.notify_commit(other_processes=False, ended=bool(successes))
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
            self.notify_commit(other_processes=False, ended=bool(successes))
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
        claims = LimitedClaims(
            self._run_claim_query, self._refresh_lane_cache, self._lane_cache, self._edges, self._names, self._find_name
        )
        done = self._open_claims.take_done()
        outcome = await claims.settle_and_claim(successes, request, self.now(), done)
        refused = {success.id for success in outcome.refused}
        self._open_claims.settle(success.id for success in successes if success.id not in refused)
        for result in outcome.claims:
            self._open_claims.add(result.claim, result.claimed)
        if outcome.wrote:
            self.notify_commit(other_processes=bool(successes), ended=bool(successes))
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
        only_lane = None
        if name == "settle_and_claim" and values["now"] >= self._lane_cache.locked_until:
            only_lane = self._lane_cache.find_only_lane(values["groups"], started)
        if only_lane is not None:
            name, extra_values = "settle_and_claim_from_lane", lane_values(self._lane_cache, only_lane)
        try:
            rows = await self._run_claim_query(name, values | extra_values if extra_values else values)
        except StoreUnavailable as error:
            if only_lane is None or not rows_are_locked(error):
                raise
            self._lane_cache.locked_until = values["now"] + LOCKED_MICROS
            only_lane, extra_values = None, {}
            rows = await self._run_claim_query("settle_and_claim", values)
        result = await ClaimResult.of(rows, self._names, self._find_name)
        self._open_claims.add(result.claim, result.claimed)
        if request and only_lane is not None:
            result.partial = len(result.claimed) < request.limit
        if request and (result.partial or only_lane is None):
            self._lane_cache.only_lane = result.only_lane(request, values, started + ONLY_LANE_SECONDS)
        if "first" in extra_values:
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

    async def _find_name(self, query: str, number: int) -> Sequence[Any]:
        """The row of an interned name, in a snapshot of its own."""
        rows = await self.read(lambda tx: tx.queries.query(query, id=number))
        row: Sequence[Any] = rows[0]
        return row
