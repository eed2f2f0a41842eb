"""Follows the log in commit order and adds up what it finds; any process may do it.

The sums are stored with the log position up to which they are complete, so they are exact after any restart. A range of
the log is read in one transaction. Adding its sums is a compare-and-set of the position in another one, so if several
processes read the same range, one of them adds it.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from detent.engine.runtime import Runtime
from detent.ports.metrics import LogPosition
from detent.ports.tx import Tx

T = TypeVar("T")
_FIRST_RANGE = 4_096
_MAX_RANGE = 1 << 40


class LogFollower(Generic[T]):
    """Reads ranges from the stored position on; adapts their size to a number of entries.

    name: under which the position is stored. log: events or notes. read(tx, position, until): the number of entries in
    this range, and their sums. add(tx, sums): stores the sums.
    """

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        log: str,
        read: Callable[[Tx, int, int], Awaitable[tuple[int, T]]],
        add: Callable[[Tx, T], Awaitable[None]],
        *,
        target_entries: int,
    ) -> None:
        self._runtime = runtime
        self._name = name
        self._log = log
        self._read = read
        self._add = add
        self._target = target_entries
        self._range_size = _FIRST_RANGE

    async def catch_up(self, steps: int = 16) -> bool:
        """Add new log entries, at most `steps` ranges; True if the end was reached."""
        for _ in range(steps):
            since, until, summed, at_end = await self._runtime.store.read(self._read_range)
            if summed is None:
                return True
            entries, sums = summed
            await self._runtime.store.write(partial(self._add_range, since, until, sums))
            if entries < self._target // 2:
                self._range_size = min(self._range_size * 4, _MAX_RANGE)
            elif entries > self._target * 2:
                self._range_size = max(self._range_size // 2, 1)
            if at_end:
                return True
        return False

    async def _read_range(self, tx: Tx) -> tuple[LogPosition, int, tuple[int, T] | None, bool]:
        """(start and end of the next range, what was read or None if it is empty, whether the log ends there)"""
        since, end = await tx.log_positions.log_position(self._name), await tx.log_positions.log_end(self._log)
        until = min(end, since.position + self._range_size)
        summed = await self._read(tx, since.position, until) if until > since.position else None
        return since, until, summed, until >= end

    async def _add_range(self, since: LogPosition, until: int, sums: T, tx: Tx) -> None:
        if await tx.log_positions.advance_log(self._name, since, until):
            await self._add(tx, sums)
