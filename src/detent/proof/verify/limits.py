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


class LimitCheck:
    """Counts leased and started jobs per limit, event by event, in commit order."""

    def __init__(self, limits: Sequence[Limit]) -> None:
        self._limits = limits
        self._leased: dict[Count, int] = {}
        self._starts: dict[Count, deque[Micros]] = {}

    def feed(self, step: Step, contracts: Mapping[str, Contract]) -> Iterator[str]:
        """Add one event; yields a description of each limit that it exceeds."""
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

    def _check(self, limit: Limit, count: Count, at: Micros) -> Iterator[str]:
        scope = f"{limit.describe()} ({count[1]!r})"
        if limit.concurrency is not None and self._leased[count] > limit.concurrency:
            yield f"{scope}: {self._leased[count]} at once at {at}"
        if limit.rate is not None and limit.period is not None:
            window = self._starts.setdefault(count, deque())
            window.append(at)
            latest = max(window)
            while window[0] <= latest - limit.period:
                window.popleft()
            if len(window) > limit.rate:
                yield f"{scope}: {len(window)} within the period at {at}"
