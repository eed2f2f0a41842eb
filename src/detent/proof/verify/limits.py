"""Limits checked from the log alone: who held what when, and how much began within any period."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from detent.core.contract.model import Contract, Phase
from detent.core.job import Micros
from detent.core.limits import Kind, Limit

Count = tuple[int, str]
"""(position of the limit, subject)"""


class Step(NamedTuple):
    """One event of the log with what limits look at of its job."""

    job_id: str
    at: Micros
    contract: str
    source: str | None
    target: str
    kind: Kind


class Excess(NamedTuple):
    limit: Limit
    subject: str
    at: Micros
    number: int

    def __str__(self) -> str:
        what = "at once" if self.limit.concurrency is not None else "within the period"
        return f"{self.limit.describe()} ({self.subject!r}): {self.number} {what} at {self.at}"


class LimitCheck:
    """Counts what limits bound, event by event, in the order of commits."""

    def __init__(self, limits: Sequence[Limit]) -> None:
        self._limits = limits
        self._held: dict[Count, int] = {}
        self._begun: dict[Count, deque[Micros]] = {}

    def feed(self, step: Step, contracts: Mapping[str, Contract]) -> Iterator[Excess]:
        """Take one event; yields the limits that were exceeded by it."""
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
            self._held[count] = self._held.get(count, 0) + (1 if after else -1)
            if after:
                yield from self._judge(limit, count, step.at)

    def _judge(self, limit: Limit, count: Count, at: Micros) -> Iterator[Excess]:
        if limit.concurrency is not None and self._held[count] > limit.concurrency:
            yield Excess(limit, count[1], at, self._held[count])
        if limit.rate is not None and limit.period is not None:
            window = self._begun.setdefault(count, deque())
            window.append(at)
            latest = max(window)
            while window[0] <= latest - limit.period:
                window.popleft()
            if len(window) > limit.rate:
                yield Excess(limit, count[1], at, len(window))


def check_limits(limits: Sequence[Limit], steps: Iterable[Step], contracts: Mapping[str, Contract]) -> Iterator[Excess]:
    """Every event at which a limit was exceeded. The steps come in the order in which they were committed."""
    check = LimitCheck(limits)
    for step in steps:
        yield from check.feed(step, contracts)
