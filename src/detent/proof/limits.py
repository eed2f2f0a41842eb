"""Limits checked from the log alone: who held what when, and how much began within any period."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..core.contract import Contract, Phase
from ..core.job import Micros
from ..core.limits import Kind, Limit

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


def check_limits(limits: Sequence[Limit], steps: Iterable[Step], contracts: Mapping[str, Contract]) -> Iterator[Excess]:
    """Every event at which a limit was exceeded. The steps come in the order in which they were committed."""
    held: dict[Count, int] = {}
    begun: dict[Count, deque[Micros]] = {}
    for step in steps:
        contract = contracts[step.contract]
        before = step.source is not None and contract.phase(step.source) is Phase.LEASED
        after = contract.phase(step.target) is Phase.LEASED
        if before == after:
            continue
        for position, limit in enumerate(limits):
            subject = limit.subject(step.kind)
            if subject is None:
                continue
            count = (position, subject)
            held[count] = held.get(count, 0) + (1 if after else -1)
            if not after:
                continue
            if limit.concurrency is not None and held[count] > limit.concurrency:
                yield Excess(limit, subject, step.at, held[count])
            if limit.rate is not None and limit.period is not None:
                window = begun.setdefault(count, deque())
                window.append(step.at)
                while window[0] <= step.at - limit.period:
                    window.popleft()
                if len(window) > limit.rate:
                    yield Excess(limit, subject, step.at, len(window))
