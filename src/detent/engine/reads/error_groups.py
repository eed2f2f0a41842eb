"""Dead letters grouped by error: how many of each, since when, and how often over time.

Reads a bounded number of dead letters, the newest ones that match, and says how far back they reach.
"""

from dataclasses import dataclass, field, replace

from detent.core.job import DeadLetter, Micros, error_pattern
from detent.core.times import DAY, SECOND
from detent.engine.runtime import Runtime
from detent.ports.listing import ErrorGroupSlot, Filter
from detent.ports.tx import Tx

from .listing import id_range

SLOTS = 24
MAX_GROUPS = 200
_SCAN = 20_000


@dataclass(slots=True)
class FoundError:
    """Dead letters of one job type with the same class, code and pattern of their messages."""

    group: str | None
    job_type: str
    error_class: str | None
    error_code: str
    first_at: Micros
    last_at: Micros
    last_id: str
    pattern: str | None = None
    count: int = 0
    proposed: int = 0
    proposed_by: list[str] = field(default_factory=list)
    slots: list[int] = field(default_factory=lambda: [0] * SLOTS)


@dataclass(frozen=True, slots=True)
class FoundErrors:
    """The groups, and up to where dead letters were read."""

    groups: list[FoundError]
    more_groups: int
    """How many groups were left out, because there are too many."""
    since: Micros
    """Where the first slot begins."""
    slot_width: Micros
    searched_to: str | None
    """The last id read; None: all were read."""


async def read_error_groups(runtime: Runtime, filter: Filter, since: Micros | None = None) -> FoundErrors:
    """The errors of the newest dead letters that match.

    since: where the slots begin, 24 hours ago by default. Callers that may not see payloads get no groups by message.
    """
    chosen = runtime.visible(filter)
    chosen = replace(chosen, before=id_range(chosen)[1])

    async def read(tx: Tx) -> FoundErrors:
        start = min(tx.now - SECOND, tx.now - DAY if since is None else since)
        width = (tx.now - start) // SLOTS + 1
        rows, last = await tx.dead_letters.error_groups(chosen, _SCAN, start, width)
        merged = _merge(rows, with_patterns=runtime.payloads)
        groups = sorted(merged, key=lambda group: (-group.count, group.last_id))[:MAX_GROUPS]
        first_seen = await tx.dead_letters.error_first_seen([group.group or "" for group in groups], chosen.tenant_id)
        newest = {item.id: item for item in await tx.dead_letters.dead_letters_by_id([one.last_id for one in groups])}
        for group in groups:
            _describe(group, first_seen, newest.get(group.last_id))
        remaining = None if last is None else await _follows(tx, chosen, last)
        return FoundErrors(groups, len(merged) - len(groups), start, width, remaining)

    return await runtime.store.read(read)


async def _follows(tx: Tx, chosen: Filter, last: str) -> str | None:
    """The last id read, if older dead letters follow it."""
    _, following = await tx.dead_letters.dead_letter_window(replace(chosen, before=last, limit=1), 1, None)
    return None if following is None else last


def _merge(rows: list[ErrorGroupSlot], *, with_patterns: bool) -> list[FoundError]:
    groups: dict[tuple[str | None, ...], FoundError] = {}
    for row in rows:
        name = row.error_group if with_patterns else None
        key = (row.job_type, row.error_class, row.error_code, name)
        group = groups.get(key)
        if group is None:
            ends = row.first_at, row.last_at, row.last_id
            groups[key] = group = FoundError(name, row.job_type, row.error_class, row.error_code, *ends)
        group.count += row.number
        group.proposed += row.proposed
        people = {*group.proposed_by, row.first_proposer, row.last_proposer}
        group.proposed_by = sorted(person for person in people if person is not None)
        group.first_at, group.last_at = min(group.first_at, row.first_at), max(group.last_at, row.last_at)
        group.last_id = max(group.last_id, row.last_id)
        if 0 <= row.slot < SLOTS:
            group.slots[row.slot] += row.number
    return list(groups.values())


def _describe(group: FoundError, first_seen: dict[str, Micros], newest: DeadLetter | None) -> None:
    if group.group is None:
        return
    group.first_at = min(group.first_at, first_seen.get(group.group, group.first_at))
    group.pattern = error_pattern(newest.error_message) if newest is not None else None
