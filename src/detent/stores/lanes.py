"""Lanes: how the order of claiming is packed into one integer, and which lanes a claimer may take from."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

from ..ports import ClaimRequest

GROUP_BITS, PARTY_BITS = 24, 31
RANK_SHIFT = GROUP_BITS + PARTY_BITS
GROUP_MASK = (1 << GROUP_BITS) - 1
PARTY_MASK = (1 << PARTY_BITS) - 1
LOWEST, HIGHEST = -100, 100
"""Priorities; a higher one is claimed first."""


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


def ranks(walk: Walk, allowed: Mapping[int, str], book: LaneBook, at_most: int) -> Iterator[list[int]]:
    """Lanes with work, rank by rank, each list starting behind the lane served last."""
    start = 0
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
