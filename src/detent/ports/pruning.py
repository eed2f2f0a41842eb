"""Pruning: its cursor along the primary key, and the deletions."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from detent.core.job import Micros


class PruneCursor(NamedTuple):
    """Where pruning continues: after `position`, and after `beyond` among ids that are not time-ordered."""

    position: str
    beyond: str
    passed: str
    """No deleted job has a higher id than this."""
    lap_at: Micros
    """When pruning last started from the first id."""


class Prunable(NamedTuple):
    """A job that pruning has visited. first_run: the lowest attempt number of its task, if attempts are numbered."""

    id: str
    version: int
    may_prune: bool
    first_run: int | None


class PruneRule(NamedTuple):
    """Which ended jobs may be pruned; None: any. before: the time before which they ended; None: keep them."""

    contract: str | None
    queue: str | None
    job_type: str | None
    status: str | None
    before: Micros | None


class EventPartition(NamedTuple):
    """A part of table events that can be dropped: those of jobs with first_id <= id < end_id."""

    name: str
    first_id: str
    end_id: str


class EventPartitions(Protocol):
    """How table events is partitioned, on stores that can drop a part of it. Locked until the transaction ends."""

    width: Micros
    cleaned: str
    """Up to this id, events are deleted with their jobs. Above it, they may stay until their partition is dropped."""
    partitions: Sequence[EventPartition]

    async def add(self) -> int:
        """Add the partitions for the present and the near future; returns their number."""
        ...

    async def drop(self, name: str) -> bool:
        """False: it has jobs, or events that are not counted, or its locks cannot be had at once."""
        ...

    async def jobs_of_events(self, after: str, end: str, limit: int) -> list[tuple[str, bool]]:
        """The ids between these that the next `limit` events belong to, and whether the job exists."""
        ...

    async def delete_events(self, ids: Sequence[str], cleaned: str) -> int:
        """Delete the events of jobs that are gone, and store up to which id this was done."""
        ...


class PruneTable(Protocol):
    async def prune_cursor(self, scope: str) -> PruneCursor | None: ...
    async def put_prune_cursor(self, scope: str, cursor: PruneCursor) -> None: ...

    async def prunable(self, after: str, until: str | None, limit: int, rules: Sequence[PruneRule]) -> list[Prunable]:
        """The next jobs by id between these, and whether the first rule that matches lets them be pruned."""
        ...

    async def drop_jobs(self, ids: Sequence[str], with_events: Sequence[str]) -> dict[str, int]:
        """Delete jobs and their rows in other tables, except keys; returns the number of rows by table.

        with_events: those of the jobs whose events are deleted; the others go with their partition.
        """
        ...

    async def event_partitions(self) -> EventPartitions | None:
        """None: the store has none, or its user may not add and drop them."""
        ...

    async def drop_keys(self, owned: Sequence[tuple[str, str, str]], kept_until: Micros | None) -> int:
        """Delete the keys (space, key, job_id) now, or at `kept_until` by `drop_kept_keys`."""
        ...

    async def drop_kept_keys(self, limit: int) -> int: ...
