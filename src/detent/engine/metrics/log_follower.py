"""Follows the log in commit order and adds up what it finds; any process may do it.

The sums are stored with the log position up to which they are complete, so they are exact after any restart. A range of
the log is read in one transaction. Adding its sums is a compare-and-set of the position in another one, so if several
processes read the same range, one of them adds it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Generic, TypeVar

from detent.engine.runtime import Runtime
from detent.ports.metrics import LogPosition
from detent.ports.tx import Tx

T = TypeVar("T")
_FIRST_RANGE = 4_096
_MAX_RANGE = 1 << 40


@dataclass(eq=False)
class LogFollower(Generic[T]):
    """Reads ranges from the stored position on; adapts their size to a number of entries.

    name: under which the position is stored. log: events or notes. read(tx, position, until): the number of entries in
    this range, and their sums. add(tx, sums): stores the sums.
    """

    runtime: Runtime
    name: str
    log: str
    read: Callable[[Tx, int, int], Awaitable[tuple[int, T]]]
    add: Callable[[Tx, T], Awaitable[None]]
    _: KW_ONLY
    target_entries: int
    _range_size: int = field(default=_FIRST_RANGE, init=False)

    async def catch_up(self, steps: int = 16) -> bool:
        """Add new log entries, at most `steps` ranges; True if the end was reached."""
        for _ in range(steps):
            since, until, summed, at_end = await self.runtime.store.read(self._read_range)
            if summed is None:
                return True
            entries, sums = summed
            await self.runtime.store.write(partial(self._add_range, since, until, sums))
            if entries < self.target_entries // 2:
                self._range_size = min(self._range_size * 4, _MAX_RANGE)
            elif entries > self.target_entries * 2:
                self._range_size = max(self._range_size // 2, 1)
            if at_end:
                return True
        return False

    async def _read_range(self, tx: Tx) -> tuple[LogPosition, int, tuple[int, T] | None, bool]:
        """(start and end of the next range, what was read or None if it is empty, whether the log ends there)"""
        since, end = await tx.log_positions.log_position(self.name), await tx.log_positions.log_end(self.log)
        until = min(end, since.position + self._range_size)
        summed = await self.read(tx, since.position, until) if until > since.position else None
        return since, until, summed, until >= end

    async def _add_range(self, since: LogPosition, until: int, sums: T, tx: Tx) -> None:
        if await tx.log_positions.advance_log(self.name, since, until):
            await self.add(tx, sums)
