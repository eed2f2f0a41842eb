"""Limits: how much may run at once or begin within a period, and how a claim is shared out under them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .errors import InvalidInput
from .job import Micros

SCOPES = ("queue", "job_type", "tenant_id", "limit_key")
PER = ("queue", "job_type", "tenant_id", "limit_key")
MAX_NUMBER = 1_000_000_000
MAX_PERIOD = 366 * 86_400.0
_ENTRIES = 64
_GRANULES = 32
SEPARATOR = "\x1f"


class Kind(NamedTuple):
    """What limits look at: all that is the same for the jobs of one lane."""

    queue: str
    job_type: str
    tenant_id: str
    limit_key: str


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on the jobs it matches (None matches any), over all processes; per: one bound for each of these."""

    queue: str | None = None
    job_type: str | None = None
    tenant_id: str | None = None
    limit_key: str | None = None
    per: str | None = None
    concurrency: int | None = None
    rate: int | None = None
    period: Micros | None = None
    id: int = 0

    @property
    def scope(self) -> tuple[str, str, str, str, str]:
        """What tells two limits apart: the same scope again is the same limit with other numbers."""
        return (self.queue or "", self.job_type or "", self.tenant_id or "", self.limit_key or "", self.per or "")

    def subject(self, kind: Kind) -> str | None:
        """Whose count a job of this kind falls under; None: the limit does not concern it.

        Keys are a tenant's own. A job without a key is no concern of a limit per key.
        """
        for name in SCOPES:
            wanted = getattr(self, name)
            if wanted is not None and wanted != getattr(kind, name):
                return None
        if self.per is None:
            return ""
        if self.per == "limit_key":
            return f"{kind.tenant_id}{SEPARATOR}{kind.limit_key}" if kind.limit_key else None
        value: str = getattr(kind, self.per)
        return value

    def describe(self) -> str:
        """Which jobs it bounds, as people say it: queue mail, tenant a, each key."""
        parts = [f"{_WORDS[name]} {getattr(self, name)}" for name in SCOPES if getattr(self, name) is not None]
        if self.per:
            parts.append(f"each {_WORDS[self.per]}")
        return ", ".join(parts) or "everything"

    def as_dict(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "job_type": self.job_type,
            "tenant": self.tenant_id,
            "key": self.limit_key,
            "per": self.per and _WORDS[self.per],
            "concurrency": self.concurrency,
            "rate": self.rate,
            "period_seconds": None if self.period is None else self.period / 1_000_000,
        }


_WORDS = {"queue": "queue", "job_type": "type", "tenant_id": "tenant", "limit_key": "key"}
_PER_WORDS = {"queue": "queue", "type": "job_type", "job_type": "job_type", "tenant": "tenant_id", "key": "limit_key"}


def limit_of(
    *,
    queue: str | None = None,
    job_type: str | None = None,
    tenant: str | None = None,
    key: str | None = None,
    per: str | None = None,
    concurrency: int | None = None,
    rate: tuple[int, float] | None = None,
) -> Limit:
    """A limit from what people write; refuses what is none."""
    if concurrency is None and rate is None:
        raise _bad("a limit needs concurrency=N, rate=(N, seconds), or both", "concurrency")
    if per is not None and per not in _PER_WORDS:
        raise _bad(f"per {per!r} is unknown; use queue, type, tenant or key", "per")
    for name, value in (("queue", queue), ("job_type", job_type), ("tenant", tenant), ("key", key)):
        if value is not None and (not isinstance(value, str) or not value.strip() or not value.isprintable()):
            raise _bad(f"{name} must be a name, got {value!r}", name)
    if concurrency is not None:
        _check_number(concurrency, "concurrency")
    number: int | None = None
    period: Micros | None = None
    if rate is not None:
        try:
            number, seconds = rate
            period = int(float(seconds) * 1_000_000)
        except (TypeError, ValueError, OverflowError):
            raise _bad(f"rate must be (number, seconds), got {rate!r}", "rate") from None
        _check_number(number, "rate")
        if not 1_000 <= period <= MAX_PERIOD * 1_000_000:
            raise _bad(f"the period of a rate must be from 0.001 to {MAX_PERIOD:.0f} seconds", "rate")
    return Limit(queue, job_type, tenant, key, _PER_WORDS[per] if per else None, concurrency, number, period)


def _check_number(value: Any, field: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_NUMBER:
        hint = "pause the queue to stop it" if value == 0 else f"use a whole number from 1 to {MAX_NUMBER}"
        raise _bad(f"{field} cannot be {value!r}; {hint}", field)


def _bad(sentence: str, field: str) -> InvalidInput:
    return InvalidInput(sentence, code="LIMIT_INVALID", field=field)


Spent = tuple[tuple[Micros, int], ...]
"""What was begun lately: (moment, how many), oldest first."""


def spent_from(text: str) -> Spent:
    pairs = (entry.partition(":") for entry in text.split())
    return tuple((int(at), int(number)) for at, _, number in pairs)


def spent_text(spent: Iterable[tuple[Micros, int]]) -> str:
    """Each entry ends in a space, so that one more can be written behind it."""
    return "".join(f"{at}:{number} " for at, number in spent)


def within(spent: Spent, now: Micros, period: Micros) -> Spent:
    """Entries that a window which ends now still holds."""
    return tuple(entry for entry in spent if entry[0] > now - period)


def compacted(spent: Spent, now: Micros, period: Micros) -> Spent:
    """What must be remembered, in a bounded number of entries: neighbours become one at the later moment."""
    kept = within(spent, now, period)
    if len(kept) <= _ENTRIES:
        return kept
    granule = max(1, period // _GRANULES)
    merged: dict[int, tuple[Micros, int]] = {}
    for at, number in kept:
        last, sum_ = merged.get(at // granule, (at, 0))
        merged[at // granule] = max(at, last), sum_ + number
    return tuple(sorted(merged.values()))


@dataclass(frozen=True, slots=True)
class Meter:
    """The count of one limit for one subject. taken: all that was ever begun under it."""

    id: int
    limit: Limit
    taken: int = 0
    spent: Spent = ()

    def room(self, held: int, now: Micros) -> int:
        """How many more may begin now."""
        limit = self.limit
        room = MAX_NUMBER if limit.concurrency is None else limit.concurrency - held
        if limit.rate is not None and limit.period is not None:
            room = min(room, limit.rate - sum(number for _, number in within(self.spent, now, limit.period)))
            if now < self._latest:
                return 0
        return max(0, room)

    @property
    def _latest(self) -> Micros:
        """The clock may have been set back. What is older than a period is forgotten, so time must not run back here:
        nothing begins before the clock has caught up."""
        return max((at for at, _ in self.spent), default=0)

    def opens_at(self, now: Micros) -> Micros | None:
        """When the rate lets one more begin; None: it does so now, or has no say."""
        limit = self.limit
        if limit.rate is None or limit.period is None:
            return None
        if now < self._latest:
            return self.opens_at(self._latest) or self._latest
        kept = within(self.spent, now, limit.period)
        over = sum(number for _, number in kept) - limit.rate + 1
        for at, number in kept:
            if over <= 0:
                break
            over -= number
            opens = at + limit.period
            if over <= 0:
                return opens
        return None


class Choice(NamedTuple):
    """A lane a claim may take from: whose it is, how many wait there, which meters count it."""

    lane: int
    tenant_id: str
    available: int
    meters: tuple[int, ...]


def share_out(
    choices: Sequence[Choice], wanted: int, room: dict[int, int], weights: Mapping[str, int]
) -> dict[int, int]:
    """How many to take from each lane: tenants by their weight, a tenant's lanes evenly, no meter beyond its room.

    Every tenant with something to take gets at least one before anyone gets a second helping, while wanted lasts.
    `room` is used up by what is given.
    """
    given: dict[int, int] = {}
    left = wanted
    while left > 0:
        tenants: dict[str, list[Choice]] = {}
        for choice in choices:
            if choice.available > given.get(choice.lane, 0) and all(room[meter] > 0 for meter in choice.meters):
                tenants.setdefault(choice.tenant_id, []).append(choice)
        if not tenants:
            break
        total = sum(weights.get(tenant, 1) for tenant in tenants)
        fair = _fair(tenants.values(), room)
        helping = left
        for tenant, lanes in tenants.items():
            share = max(1, helping * weights.get(tenant, 1) // total)
            each = max(1, share // len(lanes))
            for choice in lanes:
                allowed = min((min(room[meter], fair[meter]) for meter in choice.meters), default=left)
                number = min(each, share, left, choice.available - given.get(choice.lane, 0), allowed)
                if number > 0:
                    given[choice.lane] = given.get(choice.lane, 0) + number
                    share -= number
                    left -= number
                    for meter in choice.meters:
                        room[meter] -= number
    return given


def _fair(tenants: Iterable[list[Choice]], room: Mapping[int, int]) -> dict[int, int]:
    """What one lane may take of each meter in one helping, so that the others it counts get some of it too."""
    users: dict[int, int] = {}
    for lanes in tenants:
        for choice in lanes:
            for meter in choice.meters:
                users[meter] = users.get(meter, 0) + 1
    return {meter: max(1, room[meter] // number) for meter, number in users.items()}
