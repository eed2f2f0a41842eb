"""Limits on concurrency and start rate, and the allocation of a claim among lanes under them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .errors import InvalidInput, check_number
from .job import Micros
from .options.option import is_name

SCOPES = ("queue", "job_type", "tenant_id", "limit_key")
MAX_NUMBER = 1_000_000_000
MAX_PERIOD = 366 * 86_400.0
_ENTRIES = 64
_GRANULES = 32
SEPARATOR = "\x1f"


class JobKind(NamedTuple):
    """The fields of a job that limits match; jobs of one lane share them."""

    queue: str
    job_type: str
    tenant_id: str
    limit_key: str


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on the matching jobs over all processes. A field that is None matches any value.

    per: the bound applies to each value of this field separately.
    """

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
        """The identity of a limit: setting a limit with the same scope replaces its numbers."""
        return (self.queue or "", self.job_type or "", self.tenant_id or "", self.limit_key or "", self.per or "")

    def subject(self, kind: JobKind) -> str | None:
        """The subject whose meter counts a job of this kind; None if the limit does not apply.

        Limit keys are separate per tenant. A limit per key does not apply to a job without a key.
        """
        for name in SCOPES:
            value = getattr(self, name)
            if value is not None and value != getattr(kind, name):
                return None
        if self.per is None:
            return ""
        if self.per == "limit_key":
            return f"{kind.tenant_id}{SEPARATOR}{kind.limit_key}" if kind.limit_key else None
        subject: str = getattr(kind, self.per)
        return subject

    def describe(self) -> str:
        """The jobs it applies to, for messages: queue mail, tenant a, each key."""
        parts = [f"{_LABELS[name]} {getattr(self, name)}" for name in SCOPES if getattr(self, name) is not None]
        if self.per:
            parts.append(f"each {_LABELS[self.per]}")
        return ", ".join(parts) or "everything"

    def as_dict(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "job_type": self.job_type,
            "tenant_id": self.tenant_id,
            "key": self.limit_key,
            "per": self.per and _LABELS[self.per],
            "concurrency": self.concurrency,
            "rate": self.rate,
            "period_seconds": None if self.period is None else self.period / 1_000_000,
        }


_LABELS = {"queue": "queue", "job_type": "type", "tenant_id": "tenant", "limit_key": "key"}
_FIELD_OF_LABEL = {label: field for field, label in _LABELS.items()} | {"job_type": "job_type"}


def make_limit(
    *,
    queue: str | None = None,
    job_type: str | None = None,
    tenant: str | None = None,
    key: str | None = None,
    per: str | None = None,
    concurrency: int | None = None,
    rate: tuple[int, float] | None = None,
) -> Limit:
    """A limit from user input; raises InvalidInput with the field at fault."""
    if concurrency is None and rate is None:
        raise _invalid("a limit needs concurrency=N, rate=(N, seconds), or both", "concurrency")
    if per is not None and per not in _FIELD_OF_LABEL:
        raise _invalid(f"per {per!r} is unknown; use queue, type, tenant or key", "per")
    for name, value in (("queue", queue), ("job_type", job_type), ("tenant", tenant), ("key", key)):
        if value is not None and not is_name(value):
            raise _invalid(f"{name} must be a non-blank printable name, got {value!r}", name)
    if concurrency is not None:
        _check_number(concurrency, "concurrency")
    number: int | None = None
    period: Micros | None = None
    if rate is not None:
        try:
            number, seconds = rate
            period = int(float(seconds) * 1_000_000)
        except (TypeError, ValueError, OverflowError):
            raise _invalid(f"rate must be (number, seconds), got {rate!r}", "rate") from None
        _check_number(number, "rate")
        if not 1_000 <= period <= MAX_PERIOD * 1_000_000:
            raise _invalid(f"the period of a rate must be from 0.001 to {MAX_PERIOD:.0f} seconds", "rate")
    return Limit(queue, job_type, tenant, key, _FIELD_OF_LABEL[per] if per else None, concurrency, number, period)


def _check_number(value: Any, field: str) -> None:
    if value == 0:
        raise _invalid(f"{field} cannot be {value!r}; to stop a queue, pause it", field)
    check_number(value, field, 1, MAX_NUMBER, "LIMIT_INVALID")


def _invalid(message: str, field: str) -> InvalidInput:
    return InvalidInput(message, code="LIMIT_INVALID", field=field)


Spent = tuple[tuple[Micros, int], ...]
"""Recent starts under a rate limit: (time, number of jobs started), oldest first."""


def parse_spent(text: str) -> Spent:
    pairs = (entry.partition(":") for entry in text.split())
    return tuple((int(at), int(number)) for at, _, number in pairs)


def format_spent(spent: Iterable[tuple[Micros, int]]) -> str:
    """Each entry ends in a space, so that SQL can append the next one."""
    return "".join(f"{at}:{number} " for at, number in spent)


def entries_within(spent: Spent, now: Micros, period: Micros) -> Spent:
    """The entries inside the window of length `period` that ends now."""
    return tuple(entry for entry in spent if entry[0] > now - period)


def compact_spent(spent: Spent, now: Micros, period: Micros) -> Spent:
    """The entries within the period, in a bounded number: neighbours are merged at the later time."""
    kept = entries_within(spent, now, period)
    if len(kept) <= _ENTRIES:
        return kept
    granule = max(1, period // _GRANULES)
    merged: dict[int, tuple[Micros, int]] = {}
    for at, number in kept:
        last, total = merged.get(at // granule, (at, 0))
        merged[at // granule] = max(at, last), total + number
    return tuple(sorted(merged.values()))


@dataclass(frozen=True, slots=True)
class Meter:
    """The counters of one limit for one subject. taken: jobs started under it since it exists."""

    id: int
    limit: Limit
    taken: int = 0
    spent: Spent = ()

    def room(self, held: int, now: Micros) -> int:
        """How many more jobs may start now. held: jobs that run under this meter."""
        limit = self.limit
        room = MAX_NUMBER if limit.concurrency is None else limit.concurrency - held
        if limit.rate is not None and limit.period is not None:
            room = min(room, limit.rate - sum(number for _, number in entries_within(self.spent, now, limit.period)))
            if now < self._latest:
                return 0
        return max(0, room)

    @property
    def _latest(self) -> Micros:
        """The time of the last start. If the clock was set back, nothing starts until it has caught up with this time:
        entries older than a period are dropped, so the rate could otherwise be exceeded."""
        return max((at for at, _ in self.spent), default=0)

    def opens_at(self, now: Micros) -> Micros | None:
        """When the rate allows one more start; None: now, or the limit has no rate."""
        limit = self.limit
        if limit.rate is None or limit.period is None:
            return None
        if now < self._latest:
            return self.opens_at(self._latest) or self._latest
        kept = entries_within(self.spent, now, limit.period)
        excess = sum(number for _, number in kept) - limit.rate + 1
        for at, number in kept:
            if excess <= 0:
                break
            excess -= number
            if excess <= 0:
                return at + limit.period
        return None


class LaneChoice(NamedTuple):
    """A lane a claim may take jobs from: its tenant, how many jobs are available, which meters count them."""

    lane: int
    tenant_id: str
    available: int
    meters: tuple[int, ...]


def allocate(
    choices: Sequence[LaneChoice], limit: int, room: dict[int, int], weights: Mapping[str, int]
) -> dict[int, int]:
    """How many jobs to claim from each lane: tenants by weight, the lanes of a tenant evenly, no meter beyond its room.

    Every tenant with available jobs gets at least one before the next round, as long as the limit allows. `room` is
    reduced by the allocated jobs.
    """
    allocated: dict[int, int] = {}
    left = limit
    while left > 0:
        tenants: dict[str, list[LaneChoice]] = {}
        for choice in choices:
            if choice.available > allocated.get(choice.lane, 0) and all(room[meter] > 0 for meter in choice.meters):
                tenants.setdefault(choice.tenant_id, []).append(choice)
        if not tenants:
            break
        total = sum(weights.get(tenant, 1) for tenant in tenants)
        fair_share = _fair_shares(tenants.values(), room)
        round_total = left
        for tenant, lanes in tenants.items():
            share = max(1, round_total * weights.get(tenant, 1) // total)
            per_lane = max(1, share // len(lanes))
            for choice in lanes:
                allowed = min((min(room[meter], fair_share[meter]) for meter in choice.meters), default=left)
                number = min(per_lane, share, left, choice.available - allocated.get(choice.lane, 0), allowed)
                if number > 0:
                    allocated[choice.lane] = allocated.get(choice.lane, 0) + number
                    share -= number
                    left -= number
                    for meter in choice.meters:
                        room[meter] -= number
    return allocated


def _fair_shares(tenants: Iterable[list[LaneChoice]], room: Mapping[int, int]) -> dict[int, int]:
    """What one lane may take of each meter's room in one round, so that the other lanes it counts get a share."""
    users: dict[int, int] = {}
    for lanes in tenants:
        for choice in lanes:
            for meter in choice.meters:
                users[meter] = users.get(meter, 0) + 1
    return {meter: max(1, room[meter] // number) for meter, number in users.items()}
