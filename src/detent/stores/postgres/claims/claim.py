"""Settles, promotes and claims in one statement (claim_parts.sql); the contracts' statuses are parameters."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any
from uuid import UUID

from detent.core.contract.model import Contract, Move, Phase
from detent.ports.claims import Claimed, ClaimRequest, Success
from detent.stores.lanes import RANK_SHIFT, LaneCache, OnlyLane, rank_of

from ..connections import Connection
from ..dialect import Query, compiled
from ..names import Find, Names
from ..tx import PostgresTxQueries
from .claim_by_id import ClaimKey, claim_by_id_values, done_values, success_values, unsettled_successes
from .lost_claims import remaining_request

SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""Planner options that force index probes, on an empty table as on a full one: see ADR 0003."""

MAX_REPEATS = 3
"""How often a claim that returned too few jobs for a temporary reason is repeated at once."""
_LOCAL = "; ".join(f"SET LOCAL {name} = {value}" for name, value in SETTINGS.items())


class Edges:
    """The claim and succeed edges of every contract, as arrays for the claim statements."""

    def __init__(self, contracts: Mapping[str, Contract], names: Names) -> None:
        self.contracts = frozenset(contracts)
        self.stream_contracts = frozenset(name for name, contract in contracts.items() if contract.uses_stream)
        self._rows = {
            (prefix, c.name): [
                tuple(
                    str(number)
                    for number in (
                        state,
                        names.edge_ids[edge.event, status, edge.target],
                        names.state_ids[c.name, edge.target],
                    )
                )
                for status in c.in_phase(phase)
                if (edge := c.edge(status, move))
                for state in names.states_of(c.name, status, phase)
            ]
            for prefix, move, phase in (("end", Move.SUCCEED, Phase.LEASED), ("claim", Move.CLAIM, Phase.CLAIMABLE))
            for c in contracts.values()
        }
        self._values: dict[tuple[str, frozenset[str]], dict[str, list[str]]] = {}

    def values(self, prefix: str, contracts: Iterable[str]) -> dict[str, list[str]]:
        """Only the edges of these contracts, because the statement compares every row with each edge."""
        key = (prefix, frozenset(contracts))
        values = self._values.get(key)
        if values is None:
            edges = [row for contract in sorted(key[1]) for row in self._rows.get((prefix, contract), ())]
            columns = ("sources", "edges", "targets")
            values = {f"{prefix}_{name}": [edge[position] for edge in edges] for position, name in enumerate(columns)}
            self._values[key] = values
        return values


def settle_and_claim_values(
    successes: Sequence[Success],
    request: ClaimRequest | None,
    lane_cache: LaneCache,
    edges: Edges,
    worker: int,
    now: int,
    relaxed: bool = False,
    done: Sequence[ClaimKey] = (),
) -> dict[str, Any]:
    """The parameters of the claim statements.

    successes: all of child jobs or none of them; sorted by id here, because rows locked in one order cannot deadlock.
    relaxed: commit with synchronous_commit = off. done: claims whose jobs are all settled.
    """
    allowed = lane_cache.allowed_groups(request, edges.contracts) if request else {}
    ordered = sorted(successes, key=itemgetter(0))
    floors = lane_cache.floors
    return {
        "now": now,
        "relaxed": relaxed,
        "family": bool(ordered) and ordered[0].parent_id is not None,
        **success_values(ordered),
        "version": lane_cache.version,
        "wanted": request.limit if request and allowed else 0,
        "groups": [str(group) for group in allowed],
        "paused_parties": [str(party) for party in lane_cache.paused_parties],
        "cursors": [str(lane) for lane in lane_cache.cursors.values()],
        "floor_lanes": [str(lane) for lane in floors],
        "floor_dues": [str(due) for due, _ in floors.values()],
        "floor_ids": [job_id for _, job_id in floors.values()],
        "token": request.token if request else "",
        "worker": worker,
        **done_values(done),
        "lease": request.lease if request else 0,
        **edges.values("end", {s[2] for s in ordered}),
        **edges.values("claim", set(allowed.values())),
    }


class ClaimResult:
    """The rows of a claim statement: a head row (settled ids, counts, lane version), then one row per claimed job."""

    __slots__ = ("_settled", "claim", "claimed", "last", "now", "partial", "promoted", "version", "wrote")

    def __init__(self, head: Any, jobs: Sequence[Any], names: Names) -> None:
        self.now: int = head[1]
        self._settled: str | None = head[2]
        self.promoted: int = head[4]
        self.version: int = head[6]
        self.wrote = bool(jobs) or head[3] > 0
        self.claim: ClaimKey | None = (head[11], head[17]) if jobs else None
        """The row of table claims that names the claimed jobs."""
        self.partial = False
        """True: the claim did not look at all lanes, so a repeat that does may find more."""
        ordered = sorted(jobs, key=_claim_order)
        self.claimed = [names.claimed(row) for row in ordered]
        self.last = {row[1]: (row[11], row[0]) for row in ordered}
        """lane -> (due_at, id) of the last job claimed from it"""

    @staticmethod
    async def of(rows: Sequence[Any], names: Names, find: Find) -> "ClaimResult":
        head, *jobs = rows
        await names.load_lanes((row[1] for row in jobs), find)
        return ClaimResult(head, jobs, names)

    def unsettled(self, successes: Sequence[Success]) -> list[Success]:
        """Successes that were not settled: the token did not match, or another transaction had locked the row."""
        return unsettled_successes(self._settled, successes)

    def remaining(self, request: ClaimRequest, lane_cache: LaneCache) -> ClaimRequest | None:
        """The request to repeat at once, if the lane cache was out of date, jobs were promoted, or `partial`."""
        temporary = self.promoted > 0 or self.version != lane_cache.version or self.partial
        return remaining_request(request, len(self.claimed)) if temporary else None

    def only_lane(self, request: ClaimRequest, values: Mapping[str, Any], until: float) -> OnlyLane | None:
        """The lane that filled the whole claim: a claim of several jobs takes some from each lane that has any."""
        if self.partial or len(self.last) != 1 or not 1 < len(self.claimed) == request.limit:
            return None
        return OnlyLane(next(iter(self.last)), values["version"], values["groups"], until)

    def save_low_rank(self, lane_cache: LaneCache) -> None:
        """Note which lower priority this claim served first; the next such claim starts after it."""
        self.partial = True
        lane_cache.last_low_rank = min(map(rank_of, self.last), default=-1)

    def save_positions(self, lane_cache: LaneCache, *, with_floors: bool) -> None:
        for lane in self.last:
            lane_cache.cursors[rank_of(lane)] = lane
        if with_floors:
            lane_cache.floors.update(self.last)


def claim_statement(
    lane_cache: LaneCache, successes: Sequence[Success], request: ClaimRequest | None
) -> tuple[str, dict[str, Any]]:
    """The statement for a plain claim and its extra parameters; every 8th claim starts at a lower priority."""
    if request and request.only_suspects:
        return "claim_suspect", {}
    first = lane_cache.next_start_rank() if request else None
    if first is None:
        return "settle_and_claim" if successes else "claim", {}
    return "settle_and_claim_from_rank", {"first": (first << RANK_SHIFT) - 1}


def lane_values(lane_cache: LaneCache, lane: int) -> dict[str, Any]:
    """The extra parameters of a claim from one lane."""
    floor_due, floor_id = lane_cache.floors.get(lane, (-1, str(UUID(int=0))))
    return {"lane": lane, "floor_due": floor_due, "floor_id": floor_id}


def _claim_order(row: Any) -> tuple[int, int, str]:
    """(step of the walk, due_at, id)."""
    return row[12], row[11], row[0]


class PlainClaimTx(PostgresTxQueries):
    """A transaction that settles and claims without limits; `PostgresTx` adds claims within limits."""

    def __init__(self, *args: Any, edges: Edges, **options: Any) -> None:
        super().__init__(*args, **options)
        self._edges = edges
        self._plan_options_set = False
        self.claims: list[ClaimRequest] = []
        """Claims of this transaction. If the result of its commit is lost, their tokens are searched for later."""

    async def succeed(self, successes: Sequence[Success]) -> list[Success]:
        refused: list[Success] = []
        for with_parent in (False, True):
            batch = [s for s in successes if (s.parent_id is not None) is with_parent]
            if batch:
                refused += (await self._settle_and_claim(batch, None)).unsettled(batch)
        await self.record_child_successes(successes, refused)
        return refused

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        if request.named is not None:
            return await self._claim_by_id(request)
        self.claims.append(request)
        claimed: list[Claimed] = []
        for _ in range(1 + MAX_REPEATS):
            await self.refresh_lane_cache()
            if self.lane_cache.needs_plan:
                within_limits = await self._claim_limited(request)
                claimed += within_limits
                rest = remaining_request(request, len(within_limits))
                if self.lane_cache.needs_plan or rest is None:
                    break
                request = rest  # the last limit has just been removed
            result = await self._settle_and_claim([], request)
            result.save_positions(self.lane_cache, with_floors=False)
            claimed += result.claimed
            remaining = result.remaining(request, self.lane_cache)
            if remaining is None:
                break
            request = remaining
        return claimed

    async def _claim_by_id(self, request: ClaimRequest) -> list[Claimed]:
        await self._set_plan_options()
        worker = await self.names.actor(request.worker)
        values = claim_by_id_values([], request, self._edges, worker, self.now)
        rows = await fetch_rows(self.connection, compiled(self._texts["claim_by_id"]), values)
        result = await ClaimResult.of(rows, self.names, self.find_name)
        self.wrote |= result.wrote
        return result.claimed

    @abstractmethod
    async def _claim_limited(self, request: ClaimRequest) -> list[Claimed]:
        """A claim within limits; see limited_claim.py."""

    async def _set_plan_options(self) -> None:
        if not self._plan_options_set:
            await self.connection.execute(_LOCAL)
            self._plan_options_set = True

    async def _settle_and_claim(self, successes: Sequence[Success], request: ClaimRequest | None) -> ClaimResult:
        await self._set_plan_options()
        name, extra_values = claim_statement(self.lane_cache, successes, request)
        worker = await self.names.actor(request.worker) if request else 0
        values = (
            settle_and_claim_values(successes, request, self.lane_cache, self._edges, worker, self.now) | extra_values
        )
        query = compiled(self._texts[name])
        result = await ClaimResult.of(await fetch_rows(self.connection, query, values), self.names, self.find_name)
        if extra_values:
            result.save_low_rank(self.lane_cache)
        self.wrote |= result.wrote
        self.ended |= bool(successes)
        return result


async def fetch_rows(connection: Connection, query: Query, values: Mapping[str, Any]) -> list[Any]:
    rows: list[Any] = await connection.fetch(query.text, *(values[name] for name in query.names))
    return rows
