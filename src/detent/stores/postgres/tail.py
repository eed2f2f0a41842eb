"""The tail on Postgres: only what lies below the oldest transaction under way, in windows of transactions."""

from typing import Any

from ...core.tail import Position, Told, through
from ..rows import EVENT_COLUMNS, event_from, job_from
from ..tail import Tail

_EVENT = len(EVENT_COLUMNS)
_WINDOW = 2_000
_NOTHING = "00000000-0000-0000-0000-000000000000"
_PLAN = "SET LOCAL enable_bitmapscan = on; SET LOCAL plan_cache_mode = force_custom_plan"
"""A block summary can be read by a bitmap only, which other statements of the pool must not use."""


class PostgresTail(Tail):
    """Its position is (transaction, job, number): a transaction writes many events at once."""

    connection: Any

    async def tail(self, after: Position, limit: int) -> tuple[list[Told], Position]:
        line: int = (await self.query("tail_line"))[0][0]
        await self.connection.execute(_PLAN)
        position, window = after, _WINDOW
        while position.commit < line:
            below = min(line, position.commit + window)
            told = await self._window(position, below, limit)
            if len(told) == limit:
                return told, told[-1].position
            reached = through(below - 1)
            if told or below == line:
                return told, max(reached, position)
            position, window = reached, window * 4
        return [], position

    async def _window(self, after: Position, below: int, limit: int) -> list[Told]:
        place = {"commit": after.commit, "job_id": after.job_id or _NOTHING, "seq": after.seq}
        rows = await self.query("tail", **place, below=below, limit=limit)
        found = []
        for row in rows:
            event = event_from(row[1 : 1 + _EVENT])
            found.append(Told(Position(row[0], event.job_id, event.seq), event, job_from(row[1 + _EVENT :])))
        return found

    async def tail_end(self) -> Position:
        line: int = (await self.query("tail_line"))[0][0]
        return through(line - 1)
