"""A claim under limits and weights, planned: what was seen of lanes and meters in, how many to take of each out."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from detent.core.job import Micros
from detent.core.limits import MAX_NUMBER, Choice, Meter, compacted, share_out, spent_text

from .lanes import CELL_MASK, LaneBook, rank_of

Reading = tuple[int, str]
"""Which meter: (limit, subject)."""


class Found(NamedTuple):
    """A lane with something to claim, and how much of it, counted up to what is wanted."""

    lane: int
    available: int


@dataclass(slots=True)
class Seen:
    """What a plan rests on, read in one snapshot."""

    now: Micros
    lanes: list[Found] = field(default_factory=list)
    held: dict[int, int] | None = None
    """lane -> jobs that workers hold; None: not counted, what was known before is good enough to begin with"""
    meters: dict[Reading, Meter] = field(default_factory=dict)


@dataclass(slots=True)
class Plan:
    """How many to take from each lane. rooms and takes: what each meter allowed, and what of it is used."""

    quotas: dict[int, int] = field(default_factory=dict)
    meters: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """lane -> ids of the meters that count it"""
    rooms: dict[int, int] = field(default_factory=dict)
    takes: dict[int, int] = field(default_factory=dict)
    missing: set[Reading] = field(default_factory=set)
    """Meters that do not exist yet; nothing is taken that they would count."""
    full: set[int] = field(default_factory=set)
    """Cells in which nothing may begin now."""
    uncertain: bool = False
    """More may have room than is known: count what is held, and plan again."""


def readings(book: LaneBook, lane: int) -> tuple[Reading, ...]:
    kind = book.kind(lane)
    found = ((limit.id, limit.subject(kind)) for limit in book.limits)
    return tuple((number, subject) for number, subject in found if subject is not None)


def held_by_reading(book: LaneBook, held: Mapping[int, int]) -> dict[Reading, int]:
    counts: dict[Reading, int] = {}
    for lane, number in held.items():
        for reading in readings(book, lane):
            counts[reading] = counts.get(reading, 0) + number
    return counts


def make_plan(book: LaneBook, seen: Seen, wanted: int) -> Plan:
    """Rank by rank, in the order the lanes come in; also tells the book what was held back and until when."""
    plan = Plan()
    held = _held(book, seen)
    by_id = {meter.id: meter for meter in seen.meters.values()}
    room = {number: meter.room(held[number], seen.now) for number, meter in by_id.items()}
    plan.rooms = dict(room)
    left = wanted
    for _, lanes in groupby(seen.lanes, key=lambda found: rank_of(found.lane)):
        choices = list(_choices(book, seen, lanes, plan))
        given = share_out(choices, left, room, book.weights)
        plan.quotas |= given
        left -= sum(given.values())
    plan.takes = {number: plan.rooms[number] - after for number, after in room.items() if plan.rooms[number] > after}
    _hold_back(book, seen, plan, by_id, room)
    full = [meter for meter in by_id.values() if meter.limit.concurrency is not None and room[meter.id] == 0]
    plan.uncertain = seen.held is None and bool(full)
    return plan


def _held(book: LaneBook, seen: Seen) -> dict[int, int]:
    """How many each meter counts as held, at the most: only claims add to that, and `taken` tells how many."""
    if seen.held is not None:
        exact = held_by_reading(book, seen.held)
        for reading, meter in seen.meters.items():
            book.counts[meter.id] = exact.get(reading, 0), meter.taken
    held = {}
    for meter in seen.meters.values():
        then, taken = book.counts.get(meter.id, (MAX_NUMBER, meter.taken))
        held[meter.id] = then + meter.taken - taken if meter.limit.concurrency is not None else 0
    return held


def _choices(book: LaneBook, seen: Seen, lanes: Iterable[Found], plan: Plan) -> Iterator[Choice]:
    for found in lanes:
        asked = readings(book, found.lane)
        missing = [reading for reading in asked if reading not in seen.meters]
        if missing:
            plan.missing.update(missing)
            continue
        plan.meters[found.lane] = tuple(seen.meters[reading].id for reading in asked)
        yield Choice(found.lane, book.kind(found.lane).tenant_id, found.available, plan.meters[found.lane])


def _hold_back(book: LaneBook, seen: Seen, plan: Plan, meters: Mapping[int, Meter], room: Mapping[int, int]) -> None:
    """Lanes that keep something because of a meter, and the first moment at which a rate lets more begin."""
    moments = []
    book.held_back = False
    for found in seen.lanes:
        full = [number for number in plan.meters.get(found.lane, ()) if room[number] == 0]
        if not full:
            continue
        if found.lane not in plan.quotas:
            plan.full.add(found.lane & CELL_MASK)
        if found.available > plan.quotas.get(found.lane, 0):
            book.held_back = True
            moments += [_opens(meters[number], plan.takes.get(number, 0), seen.now) for number in full]
    book.opens_at = min((moment for moment in moments if moment is not None), default=None)


def _opens(meter: Meter, taken: int, now: Micros) -> Micros | None:
    spent = (*meter.spent, (now, taken)) if taken else meter.spent
    return Meter(meter.id, meter.limit, meter.taken, spent).opens_at(now)


def remembered(meter: Meter, now: Micros) -> str:
    """What a meter must keep of its past, as text that goes on; empty where no rate needs it."""
    period = meter.limit.period
    return "" if period is None else spent_text(compacted(meter.spent, now, period))
