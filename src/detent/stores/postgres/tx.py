"""One Postgres transaction: the shared cold acts in this dialect."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from detent.core.errors import InvalidInput
from detent.core.job import Change, Job, Micros
from detent.ports.claims import Extended
from detent.ports.listing import Filter
from detent.ports.tail import Position, TailEvent, through
from detent.stores.lanes import LaneBook
from detent.stores.rows import EVENT_COLUMNS, event_from, job_from
from detent.stores.tail_queries import TailQueries
from detent.stores.tx_queries import TxQueries

from .dialect import compiled, is_uuid, reading
from .insert import insert

Connection = Any
"""An asyncpg connection, pooled or not; its stubs give the two no common name."""


_EVENT_WIDTH = len(EVENT_COLUMNS)
_TAIL_WINDOW = 2_000
_LOWEST_ID = "00000000-0000-0000-0000-000000000000"
_TAIL_PLAN = "SET LOCAL enable_bitmapscan = on; SET LOCAL plan_cache_mode = force_custom_plan"
"""A block summary can be read by a bitmap only, which other statements of the pool must not use."""


class PostgresTail(TailQueries):
    """Its position is (transaction, job, number): a transaction writes many events at once."""

    connection: Any

    async def tail(self, after: Position, limit: int) -> tuple[list[TailEvent], Position]:
        line: int = (await self.query("tail_line"))[0][0]
        await self.connection.execute(_TAIL_PLAN)
        position, window = after, _TAIL_WINDOW
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

    async def _window(self, after: Position, below: int, limit: int) -> list[TailEvent]:
        place = {"commit": after.commit, "job_id": after.job_id or _LOWEST_ID, "seq": after.seq}
        rows = await self.query("tail", **place, below=below, limit=limit)
        found = []
        for row in rows:
            event = event_from(row[1 : 1 + _EVENT_WIDTH])
            found.append(TailEvent(Position(row[0], event.job_id, event.seq), event, job_from(row[1 + _EVENT_WIDTH :])))
        return found

    async def tail_end(self) -> Position:
        line: int = (await self.query("tail_line"))[0][0]
        return through(line - 1)


class PostgresTxQueries(PostgresTail, TxQueries):
    """Named queries on one connection, inside one transaction."""

    contains = "strpos"
    beyond = "ffffffff-ffff-ffff-ffff-ffffffffffff"

    def __init__(
        self,
        connection: Connection,
        now: Micros,
        book: LaneBook,
        texts: dict[str, str],
        intern: Callable[[str, dict[str, str]], Awaitable[int]],
        writes: bool = True,
    ) -> None:
        super().__init__(now, book)
        self.connection = connection
        self.wrote = False
        """Something was changed, so that those who wait in this process look again."""
        self.made_ready = False
        """Something may be claimable now, so that other processes are rung."""
        self._texts = texts
        self._intern_apart = intern
        self._writes = writes
        self.dead_letter_query = "lock_dead_letter" if writes else "dead_letter"

    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[Any]:
        text = self._texts[name] if where is None else self._texts[name].replace("{where}", where)
        query = compiled(text if self._writes else reading(text))
        values.setdefault("now", self.now)
        rows: list[Any] = await self.connection.fetch(query.text, *(values[n] for n in query.names))
        return rows

    async def change(self, name: str, /, **values: Any) -> int:
        query = compiled(self._texts[name])
        values.setdefault("now", self.now)
        tag = await self.connection.execute(query.text, *(values[n] for n in query.names))
        number = int(tag.rpartition(" ")[2])
        self.wrote |= number > 0
        return number

    async def lock(self, ids: Sequence[str], *, wait: bool = True) -> dict[str, Job]:
        known = sorted({one for one in ids if is_uuid(one)})
        rows = await self.query("lock" if wait else "lock_free", ids=json.dumps(known)) if known else []
        return {row[0]: job_from(row) for row in rows}

    async def extend(self, held: Mapping[str, str], lease: Micros) -> Extended:
        """In the order of the ids. What is no UUID is no job of this database, so nobody holds it."""
        known = {job_id: held[job_id] for job_id in sorted(held) if is_uuid(job_id)}
        answer = await super().extend(known, lease)
        return Extended(answer.lost | (held.keys() - known.keys()), answer.cancels)

    async def standing(self, held: Mapping[str, str]) -> Extended:
        known = {job_id: token for job_id, token in held.items() if is_uuid(job_id)}
        rows = await self.query("standing", held=json.dumps(known))
        lost = frozenset(row[0] for row in rows if row[1])
        return Extended(lost | (held.keys() - known.keys()), {row[0]: row[2] for row in rows if not row[1]})

    async def jobs(self, filter: Filter) -> list[Job]:
        if filter.before is not None and not is_uuid(filter.before):
            raise InvalidInput(
                f"{filter.before!r} is no cursor; pass on the one a page gave you", code="CURSOR_INVALID"
            )
        return await super().jobs(filter)

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        lanes = [await self.lane_of(change.after) for change in changes]
        present = await insert(self.connection, changes, lanes)
        self.wrote = True
        self.made_ready |= any(change.after.ready for change in changes)
        fresh = [change for change in changes if change.after.id not in present]
        for change in fresh:
            await self.add_notes(change.notes)
        await self.post(fresh)
        return present

    async def apply(self, changes: Sequence[Change]) -> None:
        await super().apply(changes)
        self.made_ready |= any(change.after.ready for change in changes)

    async def resume(self, kind: str, name: str) -> None:
        await super().resume(kind, name)
        self.made_ready = True

    async def intern(self, table: str, values: dict[str, str]) -> int:
        """In a transaction of its own: a lane part outlives the act that first named it."""
        return await self._intern_apart(table, values)
