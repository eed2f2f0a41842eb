"""What the engine needs from a store to keep schedules; part of every transaction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from detent.core.job import Micros
from detent.core.schedule import Fire, Plan, Schedule

if TYPE_CHECKING:
    from .listing import Filter


class ScheduleTx(Protocol):
    """The acts of a transaction on schedules and their fires."""

    now: Micros

    async def schedules(self, filter: "Filter") -> list[Schedule]:
        """Newest first; phase and status mean nothing here."""
        ...

    async def schedules_called(self, reference: str) -> list[Schedule]:
        """Those with this id or name, of any tenant; locked in a transaction that may write."""
        ...

    async def next_fire(self, contracts: Sequence[str]) -> Micros | None:
        """The first moment at which anything fires."""
        ...

    async def soonest_schedules(self, limit: int, contracts: Sequence[str]) -> list[Schedule]:
        """The next to fire, due or not."""
        ...

    async def put_schedule(self, schedule: Schedule) -> bool:
        """Store a new one; False if the tenant has one of that name."""
        ...

    async def change_schedule(self, before: Schedule, after: Schedule) -> bool:
        """What people and code decide; False if somebody else changed it since."""
        ...

    async def advance_schedule(self, before: Schedule, plan: Plan) -> bool:
        """On to the next fire; False if somebody else handled this one, or changed the schedule."""
        ...

    async def put_off_fire(self, before: Schedule, retry_at: Micros, error: str) -> None:
        """The fire stays due and is tried again at this moment; nothing if somebody else handled it meanwhile."""
        ...

    async def told_fires(
        self, schedule_id: str, fires: int, overlapped: int, last: tuple[Micros, str] | None, error: str | None
    ) -> None:
        """Count what became of the fires; last: the newest with its job."""
        ...

    async def drop_schedule(self, schedule_id: str) -> None: ...

    async def add_fire(self, fire: Fire) -> bool:
        """False: this fire made its job already."""
        ...

    async def fires(self, schedule_id: str, first: Micros | None, last: Micros | None, limit: int) -> list[Fire]:
        """Newest first, both ends included; fires outlive their jobs."""
        ...

    async def unfinished_fires(self, schedule_id: str, limit: int) -> list[str]:
        """Among the last fires, the jobs that have not ended."""
        ...

    async def old_fires(self, schedule_id: str, before: Micros, limit: int) -> list[tuple[Micros, bool]]:
        """The oldest fires before a moment, and whether their jobs are still there."""
        ...

    async def drop_fires(self, schedule_id: str, upto: Micros) -> None: ...
