"""Follows the log in commit order and adds up what it finds; any process may do it.

The sums are stored with the log position up to which they are complete, so they are exact after any restart. A range of
the log is read in one transaction. Adding its sums is a compare-and-set of the position in another one, so if several
processes read the same range, one of them adds it.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar

from detent.engine.runtime import Runtime
from detent.ports.tx import Tx

T = TypeVar("T")
_FIRST_RANGE = 4_096
_MAX_RANGE = 1 << 40


class LogFollower(Generic[T]):
    """Reads ranges from the stored position on; adapts their size to a number of entries.

    name: under which the position is stored. log: events or notes. read(tx, values): the number of entries in the range
    from `position` to `until`, two of the values for queries, and their sums. add(tx, sums): stores the sums.
    """

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        log: str,
        read: Callable[[Tx, dict[str, Any]], Awaitable[tuple[int, T]]],
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

    async def catch_up(self, steps: int) -> bool:
        """Add new log entries, at most `steps` ranges; True if the end was reached."""
        for _ in range(steps):
            values, summed, at_end = await self._runtime.store.read(self._read_range)
            if summed is None:
                return True
            entries, sums = summed
            await self._runtime.store.write(partial(self._add_range, values, sums))
            if entries < self._target // 2:
                self._range_size = min(self._range_size * 4, _MAX_RANGE)
            elif entries > self._target * 2:
                self._range_size = max(self._range_size // 2, 1)
            if at_end:
                return True
        return False

    async def _read_range(self, tx: Tx) -> tuple[dict[str, int], tuple[int, T] | None, bool]:
        """(position, version and end of the next range, what was read or None if it is empty, if the log ends there)"""
        position, version = {row[0]: row[1:3] for row in await tx.query("tails")}.get(self._name, (0, 0))
        await tx.query("tail_mode")
        end = (await tx.query(f"tail_end_{self._log}"))[0][0]
        until = min(end, position + self._range_size)
        summed = await self._read(tx, {"position": position, "until": until}) if until > position else None
        return {"position": position, "version": version, "until": until}, summed, until >= end

    async def _add_range(self, values: dict[str, int], sums: T, tx: Tx) -> None:
        await tx.change("first_tail", log=self._name)
        if await tx.change("advance_tail", log=self._name, **values):
            await self._add(tx, sums)
