"""Claims within limits and weights on Postgres: one statement reads lanes and meters, `make_plan` divides the free
places, a second statement claims. The whole is repeated at once if other workers claimed in between."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from detent.core.errors import StoreUnavailable
from detent.core.limits import Meter, parse_spent
from detent.ports.claims import Claimed, ClaimRequest, Success
from detent.stores.claim_plan import (
    ClaimableLane,
    ClaimPlan,
    ClaimSnapshot,
    MeterKey,
    compacted_history,
    make_plan,
    meter_keys,
)
from detent.stores.lanes import LOCKED_MICROS, RANK_SHIFT, LaneCache, LimitedLane, party_of, rank_of

from ..dialect import ORDINARY_LANES, SUSPECT_LANES, compiled
from ..errors import rows_are_locked
from ..names import Find, Names
from .claim import MAX_REPEATS, ClaimResult, Edges, PlainClaimTx, fetch_rows, lane_values, settle_and_claim_values
from .claim_by_id import ClaimKey, unsettled_successes
from .lost_claims import remaining_request

Run = Callable[[str, Mapping[str, Any]], Awaitable[list[Any]]]
"""Runs a named statement with its parameters."""
_LANES_FACTOR = 4
_MAX_LANES = 4_096
_MAX_FULL_CELLS = 4_096
_FULL_MICROS = 200_000
LIMITED_LANE_MICROS = 50_000
"""How long claims go on with the only lane that had jobs before they look at all lanes and meters again."""


@dataclass(slots=True)
class Inspection:
    """The result of the statement settle_and_inspect: settled ids, number of promoted jobs, the input of a plan."""

    snapshot: ClaimSnapshot
    version: int
    promoted: int
    settled: str | None

    @staticmethod
    def of(rows: Sequence[Any], lane_cache: LaneCache, *, counted: bool) -> "Inspection":
        _, now, version, promoted, settled, _ = rows[0]
        inspection = Inspection(ClaimSnapshot(now), version, promoted, settled)
        limits = {limit.id: limit for limit in lane_cache.limits}
        snapshot, steps = inspection.snapshot, {}
        held: dict[int, int] = {}
        for kind, row_id, second, number, text, more_text in rows[1:]:
            if kind == 1:  # a lane: lane, step of the walk, claimable jobs, tenant, limit key
                steps[row_id] = second
                snapshot.lanes.append(ClaimableLane(row_id, number))
                lane_cache.parties[party_of(row_id)] = text, more_text
            elif kind == 2:  # leased jobs of a lane: lane, NULL, count, tenant, limit key
                held[row_id] = number
                lane_cache.parties[party_of(row_id)] = text, more_text
            elif number in limits:  # a meter: id, taken, limit id, subject, spent
                snapshot.meters[number, text] = Meter(row_id, limits[number], second, parse_spent(more_text))
        snapshot.lanes.sort(key=lambda claimable: steps[claimable.lane])
        snapshot.held = held if counted else None
        return inspection


@dataclass(slots=True)
class LimitedClaim:
    """Claimed jobs, and the successes that were not settled."""

    claimed: list[Claimed]
    refused: list[Success]
    wrote: bool = False
    claims: list[ClaimResult] = field(default_factory=list)

    def settle(self, inspection: Inspection, successes: Sequence[Success]) -> None:
        self.refused = unsettled_successes(inspection.settled, successes)
        self.wrote = len(self.refused) < len(successes)

    def add(self, claims: ClaimResult | None, request: ClaimRequest) -> ClaimRequest | None:
        """Returns what is left of the request."""
        if claims is None:
            return remaining_request(request, 0)
        self.claims.append(claims)
        self.claimed += claims.claimed
        self.wrote |= claims.wrote
        return remaining_request(request, len(claims.claimed))


@dataclass(frozen=True, slots=True)
class LimitedClaims:
    """Settles and claims within limits, for a store or in a transaction."""

    run: Run
    refresh: Callable[[], Awaitable[None]]
    """Reads the lane cache again."""
    lane_cache: LaneCache
    edges: Edges
    names: Names
    find: Find

    async def settle_and_claim(
        self, successes: Sequence[Success], request: ClaimRequest, now: int, done: Sequence[ClaimKey] = ()
    ) -> LimitedClaim:
        """In one statement if possible, else in two, which are repeated while more can be claimed."""
        at_once = await self._claim_from_lane(successes, request, now, done)
        if at_once is None:
            return await self.plan_and_claim(successes, request, now, done)
        result = LimitedClaim([], at_once.unsettled(successes))
        remaining = result.add(at_once, request)
        if remaining is not None:
            rest = await self.plan_and_claim([], remaining, now)
            result.claimed += rest.claimed
            result.claims += rest.claims
            result.wrote |= rest.wrote
        return result

    async def plan_and_claim(
        self,
        successes: Sequence[Success],
        request: ClaimRequest,
        now: int,
        done: Sequence[ClaimKey] = (),
        *,
        once: bool = False,
    ) -> LimitedClaim:
        """In two statements; repeated while the first attempts show that more jobs can be claimed.

        once: stop after the first statement that locks meters.
        """
        lane_cache, result = self.lane_cache, LimitedClaim([], [])
        remaining: ClaimRequest | None = request
        first = None if request.only_suspects else lane_cache.next_start_rank()
        lanes_at_most, count_held = request.limit, False
        _forget_full_cells(lane_cache, now)
        for attempt in range(1 + MAX_REPEATS):
            assert remaining is not None
            values = await self._values(successes, replace(remaining, limit=lanes_at_most), now, done)
            inspected = values | _inspect_values(lane_cache, remaining, first, count_held)
            rows = await self.run("settle_and_inspect", inspected)
            inspection = Inspection.of(rows, lane_cache, counted=count_held)
            if attempt == 0:
                result.settle(inspection, successes)
                successes = []
            if inspection.version != lane_cache.version:
                await self.refresh()
                if not lane_cache.needs_plan:
                    break
                continue
            plan = make_plan(lane_cache, inspection.snapshot, remaining.limit)
            if plan.missing:
                await self.run("add_meters", _missing_values(plan, now))
                continue
            if plan.uncertain and attempt < MAX_REPEATS:
                count_held = True
                continue
            from_low_rank, first, count_held = first is not None, None, False
            if from_low_rank:
                lane_cache.last_low_rank = min((rank_of(lane.lane) for lane in inspection.snapshot.lanes), default=-1)
            claims, more = await self._claim_planned(remaining, inspection.snapshot, plan, now)
            if claims and len(claims.claimed) == remaining.limit:
                _save_limited_lane(lane_cache, values["groups"], inspection.snapshot, claims, now)
            remaining = result.add(claims, remaining)
            if remaining is None or (once and plan.quotas):
                break
            more_lanes = len(inspection.snapshot.lanes) >= lanes_at_most
            if more_lanes:
                lanes_at_most = min(lanes_at_most * _LANES_FACTOR, _MAX_LANES)
                _skip_full_cells(lane_cache, plan, inspection.snapshot.now)
            if not (inspection.promoted or more_lanes or more or from_low_rank):
                break
        return result

    async def _claim_planned(
        self, request: ClaimRequest, snapshot: ClaimSnapshot, plan: ClaimPlan, now: int
    ) -> tuple[ClaimResult | None, bool]:
        """Claim what was planned. The flag is true if a repeat may claim more: another worker had used up a meter, or
        one lane had fewer jobs than planned while another filled its quota."""
        if not plan.quotas:
            return None, False
        values = await self._values([], request, now) | _plan_values(snapshot, plan)
        rows = await self.run("claim_limited", values | {"dated": self.lane_cache.has_deadlines})
        result = await self._result(rows)
        claimed_per_lane = Counter(row[1] for row in rows[1:])
        lane_filled = any(claimed_per_lane[lane] == quota for lane, quota in plan.quotas.items())
        meters_used_up = result.promoted  # this statement counts them in that column
        missing = len(result.claimed) < sum(plan.quotas.values())
        return result, meters_used_up > 0 or (lane_filled and missing)

    async def _claim_from_lane(
        self, successes: Sequence[Success], request: ClaimRequest, now: int, done: Sequence[ClaimKey]
    ) -> ClaimResult | None:
        """Settle and claim in one statement, if one lane is the only one with jobs and its limits have room for all.

        The plan uses the meters as this store left them. The statement compares them with their rows: what other
        workers have started since is subtracted from the room.
        """
        lane_cache = self.lane_cache
        known = lane_cache.limited_lane
        if known is None or not successes or request.only_suspects or not lane_cache.locked_until <= now < known.until:
            return None
        if lane_cache.many_ranks or lane_cache.has_deadlines:
            return None
        values = await self._values(successes, request, now, done)
        if (known.version, known.groups) != (lane_cache.version, values["groups"]):
            return None
        snapshot = ClaimSnapshot(now, [ClaimableLane(known.lane, request.limit)], None, dict(known.meters))
        plan = make_plan(lane_cache, snapshot, request.limit)
        if plan.uncertain or plan.missing or plan.quotas.get(known.lane) != request.limit:
            return None
        values |= _plan_values(snapshot, plan) | lane_values(lane_cache, known.lane)
        try:
            result = await self._result(await self.run("settle_and_claim_limited", values))
        except StoreUnavailable as error:
            if not rows_are_locked(error):
                raise
            lane_cache.locked_until = now + LOCKED_MICROS
            return None
        now_known = lane_cache.limited_lane  # another claim of this store may have changed it meanwhile
        if now_known is not None:
            filled = len(result.claimed) == request.limit and result.version == lane_cache.version
            meters = _with_starts(now_known.meters, result)
            lane_cache.limited_lane = now_known._replace(meters=meters) if filled else None
        return result

    async def _values(
        self, successes: Sequence[Success], request: ClaimRequest, now: int, done: Sequence[ClaimKey] = ()
    ) -> dict[str, Any]:
        worker = await self.names.actor(request.worker)
        return settle_and_claim_values(
            successes, request, self.lane_cache, self.edges, worker, now, relaxed=not successes, done=done
        )

    async def _result(self, rows: list[Any]) -> ClaimResult:
        result = await ClaimResult.of(rows, self.names, self.find)
        result.save_positions(self.lane_cache, with_floors=False)
        return result


def _forget_full_cells(lane_cache: LaneCache, now: int) -> None:
    if lane_cache.full_cells and now >= lane_cache.full_until:
        lane_cache.full_cells.clear()


def _skip_full_cells(lane_cache: LaneCache, plan: ClaimPlan, now: int) -> None:
    """If there are more lanes than one statement reads, leave out those whose limit is reached, for at most 200 ms."""
    lane_cache.full_until = min(now + _FULL_MICROS, lane_cache.opens_at or now + _FULL_MICROS)
    if len(lane_cache.full_cells) < _MAX_FULL_CELLS:
        lane_cache.full_cells |= plan.full


def _missing_values(plan: ClaimPlan, now: int) -> dict[str, Any]:
    numbers, subjects = zip(*sorted(plan.missing), strict=True)
    return {"limit_ids": [str(number) for number in numbers], "subjects": list(subjects), "now": now}


def _inspect_values(
    lane_cache: LaneCache, request: ClaimRequest, first: int | None, count_held: bool
) -> dict[str, Any]:
    lanes = SUSPECT_LANES if request.only_suspects else ORDINARY_LANES
    return {
        "first": lanes[0] if first is None else (first << RANK_SHIFT) - 1,
        "last": lanes[1],
        "closed": [str(cell) for cell in lane_cache.full_cells],
        "dated": lane_cache.has_deadlines,
        "counting": count_held,
        "at_most": request.limit,
    }


def _plan_values(snapshot: ClaimSnapshot, plan: ClaimPlan) -> dict[str, Any]:
    """The parameters of part_meters and part_pick_limited."""
    meters = sorted((meter for meter in snapshot.meters.values() if meter.id in plan.takes), key=lambda meter: meter.id)
    pairs = [(lane, number) for lane in plan.quotas for number in plan.meters[lane]]
    return {
        "lanes": [str(lane) for lane in plan.quotas],
        "quotas": [str(quota) for quota in plan.quotas.values()],
        "pair_lanes": [str(lane) for lane, _ in pairs],
        "pair_meters": [str(number) for _, number in pairs],
        "meters": [str(meter.id) for meter in meters],
        "seen": [str(meter.taken) for meter in meters],
        "rooms": [str(plan.rooms[meter.id]) for meter in meters],
        "takes": [str(plan.takes[meter.id]) for meter in meters],
        "spent": [compacted_history(meter, snapshot.now) for meter in meters],
        "rated": [str(meter.limit.rate is not None) for meter in meters],
    }


def _save_limited_lane(
    lane_cache: LaneCache, groups: Sequence[str], snapshot: ClaimSnapshot, claims: ClaimResult, now: int
) -> None:
    """Note the lane that filled the whole claim, if it is the only one with jobs, and its meters."""
    if len(snapshot.lanes) == 1 and len(claims.claimed) > 1:
        lane = snapshot.lanes[0].lane
        meters = _with_starts({key: snapshot.meters[key] for key in meter_keys(lane_cache, lane)}, claims)
        lane_cache.limited_lane = LimitedLane(lane, lane_cache.version, groups, now + LIMITED_LANE_MICROS, meters)


def _with_starts(meters: Mapping[MeterKey, Meter], claims: ClaimResult) -> Mapping[MeterKey, Meter]:
    """The meters after these claims."""
    number = len(claims.claimed)
    return {
        key: replace(
            meter,
            taken=meter.taken + number,
            spent=meter.spent if meter.limit.rate is None else (*meter.spent, (claims.now, number)),
        )
        for key, meter in meters.items()
    }


class PostgresTx(PlainClaimTx):
    """The transaction that the store passes to the engine: all queries, settling, claims with and without limits."""

    async def _claim_limited(self, request: ClaimRequest) -> list[Claimed]:
        """Meters are locked once, in the order of their ids: locked in two steps, two transactions could deadlock."""
        await self._set_plan_options()
        claims = LimitedClaims(
            self._run, self.refresh_lane_cache, self.lane_cache, self._edges, self.names, self.find_name
        )
        result = await claims.plan_and_claim([], request, self.now, once=True)
        self.wrote |= result.wrote
        return result.claimed

    async def _run(self, name: str, values: Mapping[str, Any]) -> list[Any]:
        return await fetch_rows(self.connection, compiled(self._texts[name]), {**values, "relaxed": False})
