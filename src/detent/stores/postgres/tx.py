"""One Postgres transaction: the shared cold acts in this dialect, and inserting in one statement."""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from typing import Any, get_args

from ...core.job import Change, Job, Micros
from ..cold import ColdTx
from ..lanes import LaneBook
from ..rows import FIXED, JOB_COLUMNS, READY, job_from
from .dialect import compiled

Connection = Any
"""An asyncpg connection, pooled or not; its stubs give the two no common name."""
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

CREATED = tuple(
    name
    for name in JOB_COLUMNS
    if name in FIXED or name in ("status", "phase", "version", "updated_at", "due_at") or name == READY
)
"""The columns a new job brings; the others start empty or at zero."""
_BIG = {"created_at", "updated_at", "due_at", "timeout_ms", "scheduled_at"}
_TYPES = {bool: "boolean[]", int: "integer[]"}


def _array_type(column: str) -> str:
    if column == "id":
        return "uuid[]"
    kinds = [kind for kind in _TYPES if kind in (_ANNOTATIONS[column], *get_args(_ANNOTATIONS[column]))]
    return "bigint[]" if column in _BIG else (_TYPES[kinds[0]] if kinds else "text[]")


_ANNOTATIONS = {field.name: field.type for field in fields(Job)}


_ARRAYS = ", ".join(f"${n}::{_array_type(name)}" for n, name in enumerate(CREATED, 1))
_N = len(CREATED)
INSERT = f"""
WITH made AS (
  INSERT INTO jobs ({", ".join(CREATED)}, lane, execution_no, failures, retries, interruptions, wait_parked)
  SELECT u.*, 0, 0, 0, 0, false FROM unnest({_ARRAYS}, ${_N + 1}::bigint[]) u
  ON CONFLICT (id) DO NOTHING RETURNING id
), logged AS (
  INSERT INTO events (job_id, seq, event, source, target, at, actor, execution_no, retries, data)
  SELECT e.job_id, e.seq, e.event, e.source, e.target, e.at, e.actor, 0, 0, e.data
  FROM unnest(${_N + 2}::uuid[], ${_N + 3}::integer[], ${_N + 4}::text[], ${_N + 5}::text[], ${_N + 6}::text[],
    ${_N + 7}::bigint[], ${_N + 8}::text[], ${_N + 9}::text[]) e (job_id, seq, event, source, target, at, actor, data)
  WHERE e.job_id IN (SELECT id FROM made)
)
SELECT id FROM made"""


def is_uuid(text: str) -> bool:
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


async def insert(connection: Connection, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
    """New jobs and their first events in one round trip; returns the ids that were there already."""
    jobs = [change.after for change in changes]
    events = [event for change in changes for event in change.events]
    columns = [[getattr(job, name) for job in jobs] for name in CREATED]
    logged = [[getattr(event, name) for event in events] for name in ("job_id", "seq", "event", "source", "target")]
    logged += [[event.at for event in events], [event.actor for event in events]]
    data = [None if event.data is None else json.dumps(event.data, ensure_ascii=False) for event in events]
    made = {row[0] for row in await connection.fetch(INSERT, *columns, list(lanes), *logged, data)}
    return {job.id for job in jobs if job.id not in made} if len(made) < len(jobs) else set()


class PostgresCold(ColdTx):
    """Named queries on one connection, inside one transaction."""

    contains = "strpos"

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
        self.made_ready = False
        self._texts = texts
        self._intern_apart = intern
        self._writes = writes

    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[Any]:
        text = self._texts[name] if where is None else self._texts[name].replace("{where}", where)
        query = compiled(text)
        values.setdefault("now", self.now)
        rows: list[Any] = await self.connection.fetch(query.text, *(values[n] for n in query.names))
        return rows

    async def change(self, name: str, /, **values: Any) -> int:
        query = compiled(self._texts[name])
        values.setdefault("now", self.now)
        tag = await self.connection.execute(query.text, *(values[n] for n in query.names))
        number = tag.rpartition(" ")[2]
        return int(number) if number.isdigit() else 0

    async def lock(self, ids: Sequence[str], *, wait: bool = True) -> dict[str, Job]:
        name = "look" if not self._writes else ("lock" if wait else "lock_free")
        rows = await self.query(name, ids=json.dumps([one for one in ids if is_uuid(one)]))
        return {row[0]: job_from(row) for row in rows}

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        lanes = [await self.lane_of(change.after) for change in changes]
        present = await insert(self.connection, changes, lanes)
        self.made_ready |= any(change.after.ready for change in changes)
        for change in changes:
            if change.after.id not in present:
                await self.add_notes(change.notes)
        return present

    async def apply(self, changes: Sequence[Change]) -> None:
        await super().apply(changes)
        self.made_ready |= any(change.after.ready for change in changes)

    async def intern(self, table: str, values: dict[str, str]) -> int:
        """In a transaction of its own: a lane part outlives the act that first named it."""
        return await self._intern_apart(table, values)
