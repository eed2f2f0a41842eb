"""Limits of a simulation, and a monitor that counts from the log what they bound."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apsw

from detent.core.contract.model import Contract
from detent.core.limits import JobKind
from detent.proof.job_checker import EventRow
from detent.proof.verify.limits import LimitCheck, Step

LIMITS: tuple[dict[str, Any], ...] = (
    {"per": "tenant", "concurrency": 2},
    {"queue": "other", "rate": (6, 3.0)},
    {"queue": "default", "tenant": "north", "concurrency": 1, "rate": (9, 4.0)},
)
"""A simulation sets the first Config.limits of these."""
_KIND = "SELECT contract, queue, job_type, tenant_id, limit_key FROM detent_jobs WHERE id = ?"


class LimitMonitor:
    """Feeds every event to a LimitCheck, in commit order."""

    def __init__(self, connection: apsw.Connection, contracts: Mapping[str, Contract], check: LimitCheck) -> None:
        self._connection = connection
        self._contracts = contracts
        self._check = check

    def check_commit(self, new_events: Iterable[EventRow]) -> Iterator[tuple[str, str, str]]:
        """Yields (job id, rule, detail)."""
        for event in new_events:
            rows: Any = self._connection.execute(_KIND, (event.job_id,)).fetchall()
            if not rows:
                continue
            contract, *kind = rows[0]
            step = Step(event.job_id, event.at, contract, event.source, event.target, JobKind(*kind))
            for excess in self._check.feed(step, self._contracts):
                yield event.job_id, "limit.exceeded", str(excess)
