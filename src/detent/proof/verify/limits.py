"""Checks limits from the log alone: how many jobs were leased at once, and how many started within any period."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from detent.core.contract.model import Contract, Phase
from detent.core.job import Micros
from detent.core.limits import JobKind, Limit

Count = tuple[int, str]
"""(position of the limit, subject)"""


class Step(NamedTuple):
    """One event of the log, with the columns of its job that limits apply to."""

    job_id: str
    at: Micros
    contract: str
    source: str | None
    target: str
    kind: JobKind


class Excess(NamedTuple):
    """A limit was exceeded: `number` jobs of `subject` at once or within the period, at the time `at`."""

    limit: Limit
    subject: str
    at: Micros
    number: int

    def __str__(self) -> str:
        unit = "at once" if self.limit.concurrency is not None else "within the period"
        return f"{self.limit.describe()} ({self.subject!r}): {self.number} {unit} at {self.at}"


class LimitCheck:
    """Counts leased and started jobs per limit, event by event, in commit order."""

    def __init__(self, limits: Sequence[Limit]) -> None:
        self._limits = limits
        self._leased: dict[Count, int] = {}
        self._starts: dict[Count, deque[Micros]] = {}

    def feed(self, step: Step, contracts: Mapping[str, Contract]) -> Iterator[Excess]:
        """Add one event; yields the limits it exceeds."""
        contract = contracts[step.contract]
        before = step.source is not None and contract.phase(step.source) is Phase.LEASED
        after = contract.phase(step.target) is Phase.LEASED
        if before == after:
            return
        for position, limit in enumerate(self._limits):
            subject = limit.subject(step.kind)
            if subject is None:
                continue
            count = (position, subject)
            self._leased[count] = self._leased.get(count, 0) + (1 if after else -1)
            if after:
                yield from self._check(limit, count, step.at)

    def _check(self, limit: Limit, count: Count, at: Micros) -> Iterator[Excess]:
        if limit.concurrency is not None and self._leased[count] > limit.concurrency:
            yield Excess(limit, count[1], at, self._leased[count])
        if limit.rate is not None and limit.period is not None:
            window = self._starts.setdefault(count, deque())
            window.append(at)
            latest = max(window)
            while window[0] <= latest - limit.period:
                window.popleft()
            if len(window) > limit.rate:
                yield Excess(limit, count[1], at, len(window))
