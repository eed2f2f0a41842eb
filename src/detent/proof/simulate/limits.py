"""Limits in a simulation: which ones there are, and a watch that counts from the log what they bound."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apsw

from detent.core.contract.model import Contract
from detent.core.limits import Kind
from detent.proof.job_checker import Entry
from detent.proof.verify.limits import LimitCheck, Step

LIMITS: tuple[dict[str, Any], ...] = (
    {"per": "tenant", "concurrency": 2},
    {"queue": "other", "rate": (6, 3.0)},
    {"queue": "default", "tenant": "north", "concurrency": 1, "rate": (9, 4.0)},
)
"""A config says how many of these hold, from the first on."""
_KIND = "SELECT contract, queue, job_type, tenant_id, limit_key FROM jobs WHERE id = ?"


class LimitWatch:
    """Feeds a check with every event, in the order of commits."""

    def __init__(self, connection: apsw.Connection, contracts: Mapping[str, Contract], check: LimitCheck) -> None:
        self._connection = connection
        self._contracts = contracts
        self._check = check

    def committed(self, fresh: Iterable[Entry]) -> Iterator[tuple[str, str, str]]:
        for entry in fresh:
            found: Any = self._connection.execute(_KIND, (entry.job_id,)).fetchall()
            if not found:
                continue
            contract, *kind = found[0]
            step = Step(entry.job_id, entry.at, contract, entry.source, entry.target, Kind(*kind))
            for excess in self._check.feed(step, self._contracts):
                yield entry.job_id, "limit.exceeded", str(excess)
