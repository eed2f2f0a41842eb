"""Lanes: the claim order packed into one integer, and which lanes a worker may claim from.

A lane is `rank | group | party`: 8 bits of priority, 24 bits for (contract, queue, job type), 31 bits for (tenant,
limit key). Lower numbers are claimed first. "Cell": a lane without its rank.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from detent.core.job import Micros
from detent.core.limits import JobKind, Limit, Meter
from detent.ports.claims import ClaimRequest

GROUP_BITS, PARTY_BITS = 24, 31
RANK_SHIFT = GROUP_BITS + PARTY_BITS
GROUP_MASK = (1 << GROUP_BITS) - 1
PARTY_MASK = (1 << PARTY_BITS) - 1
CELL_MASK = (1 << RANK_SHIFT) - 1
LANE_PLACEHOLDERS = {
    "{rank_shift}": str(RANK_SHIFT),
    "{party_bits}": str(PARTY_BITS),
    "{group_mask}": str(GROUP_MASK),
    "{party_mask}": str(PARTY_MASK),
    "{cell_mask}": str(CELL_MASK),
}
"""Placeholder in query texts -> its value."""
HIGHEST_PRIORITY = 100
"""Rank 0."""
SUSPECT_RANK = 255
"""The rank of suspects, whatever their priority. Only claims for suspects look at it."""
FIRST_SUSPECT_LANE = SUSPECT_RANK << RANK_SHIFT
LOW_PRIORITY_INTERVAL = 8
"""Every 8th claim starts at a lower priority instead of the highest, so that low priorities do not starve."""


def lane(priority: int, group: int, party: int, *, suspect: bool = False) -> int:
    """rank | group | party: ordered by priority, then by kind of job, then by tenant and limit key."""
    rank = SUSPECT_RANK if suspect else HIGHEST_PRIORITY - priority
    return rank << RANK_SHIFT | group << PARTY_BITS | party


def rank_of(value: int) -> int:
    return value >> RANK_SHIFT


def group_of(value: int) -> int:
    return value >> PARTY_BITS & GROUP_MASK


def party_of(value: int) -> int:
    return value & PARTY_MASK


def first_lane_in(groups: Sequence[int], value: int) -> int:
    """The first lane number from this one on that belongs to one of these groups. They are sorted, and not empty."""
    position = bisect_left(groups, group_of(value))
    if position == len(groups):
        return rank_of(value) + 1 << RANK_SHIFT | groups[0] << PARTY_BITS
    return max(value, rank_of(value) << RANK_SHIFT | groups[position] << PARTY_BITS)


_MAX_INTERNED = 50_000
LOCKED_MICROS = 1_000_000
"""How long claims use the general statement, which skips locked jobs, after a shorter one has waited for such a job."""


class OnlyLane(NamedTuple):
    """A lane that was the only one with jobs when a claim looked at all lanes."""

    lane: int
    version: int
    groups: Sequence[str]
    until: float
    """On the monotonic clock: from then on a claim looks at all lanes again."""


class LimitedLane(NamedTuple):
    """The same for a claim within limits, with the meters of the lane as the claims of this store left them."""

    lane: int
    version: int
    groups: Sequence[str]
    until: Micros
    meters: Mapping[tuple[int, str], Meter]


@dataclass(slots=True)
class LaneCache:
    """What a store has cached of lane groups, parties, pauses and limits, and its positions in the claim rotation.

    `version` is the value of the table lane_version at the last read; groups, pauses and limits are read again when it
    differs.
    """

    version: int = 0
    groups: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """group id -> (contract, queue, job_type)"""
    paused: dict[str, set[str]] = field(default_factory=dict)
    """pause kind -> paused names"""
    paused_parties: set[int] = field(default_factory=set)
    cursors: dict[int, int] = field(default_factory=dict)
    """rank -> the lane claimed from last; the rotation continues after it"""
    floors: dict[int, tuple[int, str]] = field(default_factory=dict)
    """lane -> (due_at, id) of the last claimed job. Claims start there, so that they do not scan dead index entries."""
    interned: dict[tuple[str, ...], int] = field(default_factory=dict)
    """(table, names…) -> row id, for lane_group, lane_party and lane_mark"""
    limits: tuple[Limit, ...] = ()
    weights: dict[str, int] = field(default_factory=dict)
    """tenant -> weight, where it is not 1"""
    parties: dict[int, tuple[str, str]] = field(default_factory=dict)
    """party id -> (tenant, limit key), for the parties looked up so far"""
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """meter id -> (held jobs, value of `taken`) at the last exact count"""
    full_cells: set[int] = field(default_factory=set)
    """Cells skipped until `full_until`, because a limit was reached and there were too many lanes to read all"""
    full_until: Micros = 0
    has_deadlines: bool = False
    """True: some job of this database has, or had, a deadline."""
    many_ranks: bool = False
    """True: jobs of more than one priority were ever submitted."""
    claims: int = 0
    """Claims so far, counted while `many_ranks`."""
    last_low_rank: int = -1
    """The first rank served by the last claim that started below the highest priority."""
    only_lane: OnlyLane | None = None
    """Set by a claim that was filled from one lane of the groups it could claim from."""
    limited_lane: LimitedLane | None = None
    locked_until: Micros = 0
    """Until then only_lane and limited_lane are not used, see LOCKED_MICROS."""
    held_back: bool = False
    """True: the last claim left jobs unclaimed because of a limit."""
    opens_at: Micros | None = None
    """When a rate limit that held jobs back allows the next start."""

    @property
    def needs_plan(self) -> bool:
        """True if a claim must be planned; otherwise the plain statement, which ignores limits, is used."""
        return bool(self.limits or self.weights or self.has_deadlines)

    def next_start_rank(self) -> int | None:
        """The rank this claim starts at; None for the highest, which is the case in all but every 8th claim."""
        if not self.many_ranks:
            return None
        self.claims += 1
        return self.last_low_rank + 1 if self.claims % LOW_PRIORITY_INTERVAL == 0 else None

    def find_only_lane(self, groups: Sequence[str], now: float) -> int | None:
        """The lane that a claim from these groups may use without looking at others; None: look at all lanes.

        Not with several priorities: a claim serves the highest first.
        """
        known = self.only_lane
        if known is None or self.many_ranks or now >= known.until:
            return None
        return known.lane if (known.version, known.groups) == (self.version, groups) else None

    def kind(self, value: int) -> JobKind:
        _, queue, job_type = self.groups[group_of(value)]
        return JobKind(queue, job_type, *self.parties[party_of(value)])

    def intern(self, names: tuple[str, ...], number: int) -> None:
        if len(self.interned) >= _MAX_INTERNED:
            self.interned.clear()
        self.interned[names] = number

    def allowed_groups(self, request: ClaimRequest, contracts: Container[str]) -> dict[int, str]:
        """Group id -> contract, for the groups of these contracts that this worker may claim from."""
        paused_queues, paused_types = self.paused.get("queue", ()), self.paused.get("job_type", ())
        return {
            number: contract
            for number, (contract, queue, job_type) in self.groups.items()
            if (request.job_types is None or job_type in request.job_types)
            and (request.queues is None or queue in request.queues)
            and contract in contracts
            and contract not in request.exclude_contracts
            and queue not in paused_queues
            and job_type not in paused_types
        }


def quotas(lanes: list[int], limit: int) -> Iterable[tuple[int, int]]:
    """Divide the limit evenly over these lanes; the first lanes get the remainder."""
    share, rest = divmod(limit, len(lanes))
    for position, value in enumerate(lanes):
        quota = share + (position < rest)
        if quota:
            yield value, quota


Walk = Callable[[int], list[int]]
"""Returns the next few lanes that have claimable jobs, from this lane number on; empty at the end."""


def lanes_by_rank(
    walk: Walk, allowed: Iterable[int], lane_cache: LaneCache, at_most: int, from_rank: int = 0
) -> Iterator[list[int]]:
    """Lanes with claimable jobs, one list per rank from `from_rank` on; each list starts after the rank's cursor.

    The lanes of suspects are only among them if `from_rank` is their rank.
    """
    groups = sorted(allowed)
    start = from_rank << RANK_SHIFT
    stop = FIRST_SUSPECT_LANE if from_rank < SUSPECT_RANK else 1 << 63
    while (first := next(open_lanes(walk, groups, lane_cache, start, stop), None)) is not None:
        low = rank_of(first) << RANK_SHIFT
        high = low + (1 << RANK_SHIFT)
        cursor = lane_cache.cursors.get(rank_of(first), low - 1)
        rotation = chain(
            open_lanes(walk, groups, lane_cache, cursor + 1, high),
            open_lanes(walk, groups, lane_cache, low, cursor + 1),
        )
        yield list(islice(rotation, at_most))
        start = high


def open_lanes(walk: Walk, groups: Sequence[int], lane_cache: LaneCache, start: int, stop: int) -> Iterator[int]:
    """Lanes in [start, stop) of these groups, which are sorted, that have claimable jobs and are not paused.

    Jumps over the lanes of other groups: a worker of one queue does not walk the lanes of hundreds of others.
    """
    while start < stop:
        lanes = walk(start)
        if not lanes:
            return
        for value in lanes:
            if value >= stop:
                return
            if value >= start and (start := first_lane_in(groups, value)) == value:
                start = value + 1
                if party_of(value) not in lane_cache.paused_parties:
                    yield value
