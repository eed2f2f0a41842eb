"""One SQLite transaction: coroutines that never suspend. The hot acts are in hot.py."""

import json
from collections.abc import Sequence
from typing import Any

import apsw

from ...core.job import Change, Event, Micros
from ..cold import ColdTx, filled
from ..lanes import LaneBook
from ..named_sql import load_queries
from ..rows import CREATED, as_text, created_values

_CREATED = {"{created}": ", ".join(CREATED), "{created_places}": ", ".join("?" * len(CREATED))}


def _own(text: str) -> str:
    for mark, value in _CREATED.items():
        text = text.replace(mark, value)
    return filled(text)


SQL = {name: _own(text) for name, text in {**load_queries(), **load_queries(__package__)}.items()}


def _planned(pick: str) -> str:
    """pick_lane without those that are too late, and with the moment each was last changed."""
    columns, rest = pick.split("\nFROM jobs WHERE ready = 1 AND lane = ?")
    in_time = "(deadline_at IS NULL OR deadline_at > ?)"
    return f"{columns}, updated_at\nFROM jobs WHERE ready = 1 AND lane = ? AND {in_time}{rest}"


SQL["pick_planned"] = _planned(SQL["pick_lane"])


class SqliteCold(ColdTx):
    """Named queries on one connection."""

    def __init__(self, connection: apsw.Connection, now: Micros, book: LaneBook) -> None:
        super().__init__(now, book)
        self.connection = connection

    def rows(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(SQL[name], values).fetchall()

    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[tuple[Any, ...]]:
        text = SQL[name] if where is None else SQL[name].replace("{where}", where)
        return self.connection.execute(text, values).fetchall()

    async def change(self, name: str, /, **values: Any) -> int:
        self.connection.execute(SQL[name], values)
        return self.connection.changes()

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        """Write new jobs; returns the ids that were already there (a repeated submit) and were left alone."""
        rows = [(*created_values(change.after), await self.lane_of(change.after)) for change in changes]
        present: set[str] = set()
        before = self.connection.total_changes()
        self.connection.executemany(SQL["insert_job"], rows)
        if self.connection.total_changes() - before != len(rows):
            present = self._there_before(changes)
        fresh = [change for change in changes if change.after.id not in present] if present else changes
        lanes = {row[0]: row[-1] for row in rows}
        events = [(*_logged(event), lanes[event.job_id]) for change in fresh for event in change.events]
        self.connection.executemany(SQL["insert_first_event"], events)
        for change in fresh:
            if change.notes:
                await self.add_notes(change.notes)
        await self.post(fresh)
        return present

    def _there_before(self, changes: Sequence[Change]) -> set[str]:
        """Jobs that have a log already were not made just now."""
        ids = json.dumps([change.after.id for change in changes])
        return {row[0] for row in self.connection.execute(SQL["logged"], {"ids": ids})}


def _logged(event: Event) -> tuple[Any, ...]:
    return (
        event.job_id,
        event.seq,
        event.event,
        event.source,
        event.target,
        event.at,
        event.actor,
        as_text(event.data),
    )
