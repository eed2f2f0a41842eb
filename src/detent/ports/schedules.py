"""Schedules and their fires, as a transaction stores them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from detent.core.job import Micros
from detent.core.schedule import Advance, Fire, Schedule

from .listing import Filter


class MissedSchedule(NamedTuple):
    """A schedule whose next fire is overdue, or that missed one recently."""

    tenant_id: str
    name: str
    next_fire_at: Micros | None
    misfires: int
    last_misfire_at: Micros | None
    last_error: str | None

    @property
    def label(self) -> str:
        return self.name if self.tenant_id == "default" else f"{self.tenant_id}/{self.name}"

    def late(self, now: Micros) -> Micros:
        return max(0, now - self.next_fire_at) if self.next_fire_at is not None else 0


class OldFire(NamedTuple):
    """The time of a fire, and whether its job still exists."""

    at: Micros
    has_job: bool


class ScheduleTable(Protocol):
    async def list_schedules(self, filter: Filter) -> list[Schedule]:
        """Newest first; the filter's phase and status are ignored."""
        ...

    async def schedules_matching(self, reference: str) -> list[Schedule]:
        """Schedules with this id or name, of any tenant; locked in a write transaction."""
        ...

    async def next_fire(self, contracts: Sequence[str]) -> Micros | None:
        """The time of the next fire of any schedule."""
        ...

    async def due_schedules(self, limit: int, contracts: Sequence[str]) -> list[Schedule]:
        """Due schedules, the longest due first. Locked in a write transaction; those that others locked are skipped."""
        ...

    async def put_schedule(self, schedule: Schedule) -> bool:
        """Insert a schedule; False if the tenant has one of that name."""
        ...

    async def change_schedule(self, before: Schedule, after: Schedule) -> bool:
        """Update a schedule's definition; False if its version has changed since."""
        ...

    async def advance_schedules(self, advances: Sequence[Advance]) -> int:
        """Advance to the next fires and add to the counters; returns how many schedules were advanced.

        A schedule is left as it is if another process handled this fire or changed the schedule.
        """
        ...

    async def drop_schedule(self, schedule_id: str) -> None: ...

    async def missed_schedules(self, since: Micros) -> list[MissedSchedule]:
        """Schedules whose fire is overdue, or that missed a fire since this time."""
        ...


class FireTable(Protocol):
    async def add_fires(self, fires: Sequence[Fire]) -> int:
        """Insert the fires that do not exist yet; returns their number."""
        ...

    async def list_fires(self, schedule_id: str, first: Micros | None, last: Micros | None, limit: int) -> list[Fire]:
        """Newest first, both ends included; fires are kept longer than their jobs."""
        ...

    async def unfinished_fires(self, schedule_ids: Sequence[str], limit: int) -> dict[str, list[str]]:
        """Schedule id -> ids of unfinished jobs among those of its last `limit` fires."""
        ...

    async def old_fires(self, schedule_id: str, before: Micros, limit: int) -> list[OldFire]:
        """The oldest fires before a time."""
        ...

    async def drop_fires(self, schedule_id: str, upto: Micros) -> None: ...

    async def postpone_fires(self, errors: Sequence[tuple[Schedule, str]], retry_at: Micros) -> None:
        """Keep these fires due and retry them at `retry_at`, except those that another process handled."""
        ...

    async def record_fires(
        self, schedule_id: str, fires: int, overlapped: int, last: tuple[Micros, str] | None, error: str | None
    ) -> None:
        """Add to the counters of a schedule. last: the newest fire and its job id."""
        ...
