"""What pruning needs of a transaction: its place along the primary key, and the acts that delete."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from detent.core.job import Micros


class Mark(NamedTuple):
    """Where pruning goes on: behind this id, and behind that one among ids that are no times of ours."""

    position: str
    beyond: str
    passed: str
    """Nothing that was deleted has an id above this one."""
    lap_at: Micros
    """When it last began at the beginning."""


class Prunable(NamedTuple):
    """A job pruning came by. first_run: the lowest number among the runs of its task, if they are numbered."""

    id: str
    version: int
    may_go: bool
    first_run: int | None


class PruneTx(Protocol):
    """The part of a transaction that pruning uses."""

    async def mark(self, scope: str) -> Mark | None: ...

    async def put_mark(self, scope: str, mark: Mark) -> None: ...

    async def prunable(self, after: str, until: str | None, limit: int, rules: Sequence[Any]) -> list[Prunable]:
        """The next jobs by id in (after, until), and whether they may go by the first rule that fits.

        A rule: contract, queue, job_type, status (None: any), and the moment before which it ended (None: it stays)."""
        ...

    async def drop_jobs(self, ids: Sequence[str]) -> dict[str, int]:
        """Delete jobs with all that belongs to them but their keys; how many rows of each kind."""
        ...

    async def drop_keys(self, owned: Sequence[tuple[str, str, str]], kept_until: Micros | None) -> int:
        """Let go of (space, key, job_id): now, or leave them to `drop_kept_keys` at that moment."""
        ...

    async def drop_kept_keys(self, limit: int) -> int: ...
