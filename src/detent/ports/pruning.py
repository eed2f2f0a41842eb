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


class PruneTable(Protocol):
    async def prune_cursor(self, scope: str) -> PruneCursor | None: ...
    async def put_prune_cursor(self, scope: str, cursor: PruneCursor) -> None: ...

    async def prunable(self, after: str, until: str | None, limit: int, rules: Sequence[PruneRule]) -> list[Prunable]:
        """The next jobs by id between these, and whether the first rule that matches lets them be pruned."""
        ...

    async def drop_jobs(self, ids: Sequence[str]) -> dict[str, int]:
        """Delete jobs and their rows in other tables, except keys; returns the number of rows by table."""
        ...

    async def drop_keys(self, owned: Sequence[tuple[str, str, str]], kept_until: Micros | None) -> int:
        """Delete the keys (space, key, job_id) now, or at `kept_until` by `drop_kept_keys`."""
        ...

    async def drop_kept_keys(self, limit: int) -> int: ...
