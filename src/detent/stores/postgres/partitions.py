"""The partitions of table events: adds and drops them, and finds what deleted jobs have left in them; see ADR 0016."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from detent.core.job import Micros
from detent.ports.pruning import EventPartition
from detent.ports.verification import EventRow, JobRange, JobRow
from detent.stores.tx_queries import TxQueries
from detent.stores.verify_queries import in_range, values_of

T = TypeVar("T")
_MAX_DEFAULT_BYTES = 64 << 20
"""Workers add no partitions if events_default is larger: it would be locked while all of it is read."""

_ABOVE_ALL_IDS = "g"


class Partitions:
    """How table events is partitioned; see ports/pruning.py."""

    def __init__(self, tx: TxQueries, width: Micros, cleaned: str, partitions: Sequence[EventPartition]) -> None:
        self._tx = tx
        self.width = width
        self.cleaned = cleaned
        self.partitions = partitions

    async def add(self) -> int:
        return await self._tx.number("add_event_partitions", max_bytes=_MAX_DEFAULT_BYTES)

    async def drop(self, name: str) -> bool:
        return bool(await self._tx.number("drop_event_partition", name=name))

    async def jobs_of_events(self, after: str, end: str, limit: int) -> list[tuple[str, bool]]:
        rows = await self._tx.query("jobs_of_events", after=after, end=end, limit=limit)
        return [(row[0], row[1]) for row in rows]

    async def delete_events(self, ids: Sequence[str], cleaned: str) -> int:
        await self._tx.change("put_cleaned", cleaned=cleaned)
        return await self._tx.change("prune_events", ids=json.dumps(list(ids))) if ids else 0


class PartitionQueries(TxQueries):
    async def event_partitions(self) -> Partitions | None:
        rows = await self.query("event_partitioning")
        if not rows:
            return None
        ((width, cleaned),) = rows
        return Partitions(self, width, cleaned, await self.fetch(EventPartition, "event_partitions"))

    async def job_rows(self, jobs: JobRange, limit: int) -> list[JobRow]:
        """The lock keeps partitions from being dropped between the transaction's snapshot and its read of events."""
        await self.query("lock_events")
        return await super().job_rows(jobs, limit)

    async def rows_of(self, kind: type[T], jobs: JobRange) -> list[T]:
        """Without the events that deleted jobs have left: there may be millions of them between two jobs."""
        if kind is not EventRow or jobs.scope.contract is not None or jobs.scope.since is not None:
            return await super().rows_of(kind, jobs)
        ((cleaned, pruned),) = await self.query("left_events")
        if jobs.scope.job_id is not None:
            left = cleaned < jobs.scope.job_id <= pruned
            return await (self._of_existing_jobs(kind, jobs) if left else super().rows_of(kind, jobs))
        rows: list[T] = []
        bounds = ("", cleaned, max(cleaned, pruned), _ABOVE_ALL_IDS)
        for number, (low, high) in enumerate(pairwise(bounds)):
            after, upto = max(low, jobs.after or ""), min(high, jobs.upto or _ABOVE_ALL_IDS)
            if after < upto:
                part = jobs._replace(after=after or None, upto=None if upto == _ABOVE_ALL_IDS else upto)
                rows += await (self._of_existing_jobs(kind, part) if number == 1 else super().rows_of(kind, part))
        return rows

    async def _of_existing_jobs(self, kind: type[T], jobs: JobRange) -> list[T]:
        where = f"job_id IN (SELECT id FROM detent.jobs WHERE {in_range(jobs, 'id')})"
        return await self._tuples(kind, "verify_events", where, **values_of(*jobs))
