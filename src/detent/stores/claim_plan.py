"""Plans a claim under limits and weights: how many jobs to claim from each lane. No database access."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from detent.core.job import Micros
from detent.core.limits import MAX_NUMBER, LaneChoice, Meter, allocate, compact_spent, format_spent

from .lanes import CELL_MASK, LaneCache, rank_of

MeterKey = tuple[int, str]
"""(limit id, subject): the unique key of a meter."""


class ClaimableLane(NamedTuple):
    """A lane with claimable jobs; `available` is counted up to the limit of the claim."""

    lane: int
    available: int


@dataclass(slots=True)
class ClaimSnapshot:
    """The input of a plan, read in one database snapshot."""

    now: Micros
    lanes: list[ClaimableLane] = field(default_factory=list)
    held: dict[int, int] | None = None
    """lane -> leased jobs; None: not counted, so that the plan uses the upper bound from `LaneCache.counts`"""
    meters: dict[MeterKey, Meter] = field(default_factory=dict)


@dataclass(slots=True)
class ClaimPlan:
    """How many jobs to claim from each lane. rooms, takes: meter id -> starts it allows, starts the plan uses."""

    quotas: dict[int, int] = field(default_factory=dict)
    meters: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """lane -> ids of the meters that count its jobs"""
    rooms: dict[int, int] = field(default_factory=dict)
    takes: dict[int, int] = field(default_factory=dict)
    missing: set[MeterKey] = field(default_factory=set)
    """Meters that have no row yet; the plan leaves out the lanes they would count."""
    full: set[int] = field(default_factory=set)
    """Cells from which no job may start now, because a limit is reached."""
    uncertain: bool = False
    """True: a concurrency limit looks full by an upper bound. Count the leased jobs and plan again."""


def meter_keys(lane_cache: LaneCache, lane: int) -> tuple[MeterKey, ...]:
    kind = lane_cache.kind(lane)
    subjects = ((limit.id, limit.subject(kind)) for limit in lane_cache.limits)
    return tuple((limit_id, subject) for limit_id, subject in subjects if subject is not None)


def held_by_meter(lane_cache: LaneCache, held: Mapping[int, int]) -> dict[MeterKey, int]:
    counts: dict[MeterKey, int] = {}
    for lane, number in held.items():
        for key in meter_keys(lane_cache, lane):
            counts[key] = counts.get(key, 0) + number
    return counts


def make_plan(lane_cache: LaneCache, snapshot: ClaimSnapshot, limit: int) -> ClaimPlan:
    """Plan rank by rank, lanes in their given order. Also sets `held_back` and `opens_at` of the lane cache."""
    plan = ClaimPlan()
    held = _held(lane_cache, snapshot)
    meters_by_id = {meter.id: meter for meter in snapshot.meters.values()}
    room = {number: meter.room(held[number], snapshot.now) for number, meter in meters_by_id.items()}
    plan.rooms = dict(room)
    left = limit
    for _, lanes in groupby(snapshot.lanes, key=lambda claimable: rank_of(claimable.lane)):
        choices = list(_choices(lane_cache, snapshot, lanes, plan))
        shares = allocate(choices, left, room, lane_cache.weights)
        plan.quotas |= shares
        left -= sum(shares.values())
    plan.takes = {number: plan.rooms[number] - after for number, after in room.items() if plan.rooms[number] > after}
    _note_held_back(lane_cache, snapshot, plan, meters_by_id, room)
    full = [meter for meter in meters_by_id.values() if meter.limit.concurrency is not None and room[meter.id] == 0]
    plan.uncertain = snapshot.held is None and bool(full)
    return plan


def _held(lane_cache: LaneCache, snapshot: ClaimSnapshot) -> dict[int, int]:
    """Meter id -> an upper bound of the leased jobs it counts: the last exact count plus the claims since then.

    `taken` grows with every claim; jobs that ended since the exact count are not subtracted.
    """
    if snapshot.held is not None:
        exact = held_by_meter(lane_cache, snapshot.held)
        for key, meter in snapshot.meters.items():
            lane_cache.counts[meter.id] = exact.get(key, 0), meter.taken
    held = {}
    for meter in snapshot.meters.values():
        count, taken = lane_cache.counts.get(meter.id, (MAX_NUMBER, meter.taken))
        held[meter.id] = count + meter.taken - taken if meter.limit.concurrency is not None else 0
    return held


def _choices(
    lane_cache: LaneCache, snapshot: ClaimSnapshot, lanes: Iterable[ClaimableLane], plan: ClaimPlan
) -> Iterator[LaneChoice]:
    for claimable in lanes:
        keys = meter_keys(lane_cache, claimable.lane)
        missing = [key for key in keys if key not in snapshot.meters]
        if missing:
            plan.missing.update(missing)
            continue
        plan.meters[claimable.lane] = tuple(snapshot.meters[key].id for key in keys)
        yield LaneChoice(
            claimable.lane, lane_cache.kind(claimable.lane).tenant_id, claimable.available, plan.meters[claimable.lane]
        )


def _note_held_back(
    lane_cache: LaneCache,
    snapshot: ClaimSnapshot,
    plan: ClaimPlan,
    meters: Mapping[int, Meter],
    room: Mapping[int, int],
) -> None:
    """Find the lanes that keep jobs because of a limit, and the first time at which a rate limit allows more."""
    openings = []
    lane_cache.held_back = False
    for claimable in snapshot.lanes:
        full = [number for number in plan.meters.get(claimable.lane, ()) if room[number] == 0]
        if not full:
            continue
        if claimable.lane not in plan.quotas:
            plan.full.add(claimable.lane & CELL_MASK)
        if claimable.available > plan.quotas.get(claimable.lane, 0):
            lane_cache.held_back = True
            openings += [_opening_time(meters[number], plan.takes.get(number, 0), snapshot.now) for number in full]
    lane_cache.opens_at = min((moment for moment in openings if moment is not None), default=None)


def _opening_time(meter: Meter, taken: int, now: Micros) -> Micros | None:
    spent = (*meter.spent, (now, taken)) if taken else meter.spent
    return Meter(meter.id, meter.limit, meter.taken, spent).opens_at(now)


def compacted_history(meter: Meter, now: Micros) -> str:
    """The starts a rate limit still has to count, as text to which new starts are appended; empty without a rate."""
    period = meter.limit.period
    return "" if period is None else format_spent(compact_spent(meter.spent, now, period))
