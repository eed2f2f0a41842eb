"""Lanes: how the order of claiming is packed into one integer, and which lanes a claimer may take from."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

from detent.core.job import Micros
from detent.core.limits import Kind, Limit
from detent.ports.claims import ClaimRequest

GROUP_BITS, PARTY_BITS = 24, 31
RANK_SHIFT = GROUP_BITS + PARTY_BITS
GROUP_MASK = (1 << GROUP_BITS) - 1
PARTY_MASK = (1 << PARTY_BITS) - 1
CELL_MASK = (1 << RANK_SHIFT) - 1
LOWEST, HIGHEST = -100, 100
"""Priorities; a higher one is claimed first."""
RELIEF = 8
"""One claim in so many begins at the next priority in turn instead of the highest, so that none waits for ever."""


def lane(priority: int, group: int, party: int) -> int:
    """rank | group | party: ordered by priority first, then what the job is, then whose it is."""
    return (HIGHEST - priority) << RANK_SHIFT | group << PARTY_BITS | party


def rank_of(value: int) -> int:
    return value >> RANK_SHIFT


def group_of(value: int) -> int:
    return value >> PARTY_BITS & GROUP_MASK


def party_of(value: int) -> int:
    return value & PARTY_MASK


def after_area(value: int) -> int:
    """The first lane behind the area (rank and group) this lane lies in."""
    return (value >> PARTY_BITS) + 1 << PARTY_BITS


_INTERNED_AT_MOST = 50_000


@dataclass(slots=True)
class LaneBook:
    """What a store remembers of groups, parties and pauses; rebuilt when the lane version moves."""

    version: int = 0
    groups: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """group id -> (contract, queue, job_type)"""
    paused: dict[str, set[str]] = field(default_factory=dict)
    """kind -> names that are paused now"""
    paused_parties: set[int] = field(default_factory=set)
    cursors: dict[int, int] = field(default_factory=dict)
    """rank -> the lane served last, where the rotation goes on"""
    floors: dict[int, tuple[int, str]] = field(default_factory=dict)
    """lane -> (due_at, id) below which there was nothing left a moment ago; spares walking over dead index entries"""
    interned: dict[tuple[str, ...], int] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    weights: dict[str, int] = field(default_factory=dict)
    """tenant -> its share beside others, where it is not 1"""
    parties: dict[int, tuple[str, str]] = field(default_factory=dict)
    """party id -> (tenant, limit key), as far as they were looked up"""
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """meter -> (what it counted as held, what it had taken), when that was last counted"""
    closed: set[int] = field(default_factory=set)
    """Cells (lanes without their rank) that were full a moment ago, when there were too many lanes to look at all"""
    closed_until: Micros = 0
    dated: bool = False
    """Some job of this database has a deadline."""
    many_ranks: bool = False
    """Jobs of more than one priority were ever submitted."""
    turns: int = 0
    relieved: int = -1
    """The rank that was served first in the last claim that did not begin at the highest."""
    held_back: bool = False
    """The last claim left jobs alone because of a limit."""
    opens_at: Micros | None = None
    """When a rate that held jobs back lets the next one begin."""

    @property
    def ruled(self) -> bool:
        """Must a claim be planned? Otherwise the plain one is used, which knows nothing of all this."""
        return bool(self.limits or self.weights or self.dated)

    def relief(self) -> int | None:
        """The rank this claim begins at, if it is one of those that give lower priorities their turn."""
        if not self.many_ranks:
            return None
        self.turns += 1
        return self.relieved + 1 if self.turns % RELIEF == 0 else None

    def kind(self, value: int) -> Kind:
        _, queue, job_type = self.groups[group_of(value)]
        return Kind(queue, job_type, *self.parties[party_of(value)])

    def remember(self, names: tuple[str, ...], number: int) -> None:
        if len(self.interned) >= _INTERNED_AT_MOST:
            self.interned.clear()
        self.interned[names] = number

    def allowed_groups(self, request: ClaimRequest, known: Container[str]) -> dict[int, str]:
        """Groups of known contracts that this claimer may take from, with their contract."""
        queues, types = self.paused.get("queue", ()), self.paused.get("job_type", ())
        return {
            number: contract
            for number, (contract, queue, job_type) in self.groups.items()
            if (request.job_types is None or job_type in request.job_types)
            and (request.queues is None or queue in request.queues)
            and contract in known
            and contract not in request.exclude_contracts
            and queue not in queues
            and job_type not in types
        }


def quotas(lanes: list[int], limit: int) -> Iterable[tuple[int, int]]:
    """Share what is wanted evenly over the lanes found; the first ones take what does not divide."""
    share, rest = divmod(limit, len(lanes))
    for position, value in enumerate(lanes):
        quota = share + (position < rest)
        if quota:
            yield value, quota


Walk = Callable[[int], list[int]]
"""The next few lanes that hold something claimable, from this one on; empty at the end."""


def ranks(
    walk: Walk, allowed: Mapping[int, str], book: LaneBook, at_most: int, from_rank: int = 0
) -> Iterator[list[int]]:
    """Lanes with work, rank by rank from the first on, each list starting behind the lane served last."""
    start = from_rank << RANK_SHIFT
    while (first := next(open_lanes(walk, allowed, book, start, 1 << 63), None)) is not None:
        low = rank_of(first) << RANK_SHIFT
        high = low + (1 << RANK_SHIFT)
        cursor = book.cursors.get(rank_of(first), low - 1)
        ring = chain(
            open_lanes(walk, allowed, book, cursor + 1, high), open_lanes(walk, allowed, book, low, cursor + 1)
        )
        yield list(islice(ring, at_most))
        start = high


def open_lanes(walk: Walk, allowed: Mapping[int, str], book: LaneBook, start: int, stop: int) -> Iterator[int]:
    """Hop along the lanes that hold something, over whole areas that are not ours."""
    while start < stop:
        found = walk(start)
        if not found:
            return
        for value in found:
            if value >= stop:
                return
            if group_of(value) not in allowed:
                start = after_area(value)
                break
            start = value + 1
            if party_of(value) not in book.paused_parties:
                yield value
