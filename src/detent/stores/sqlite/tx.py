"""One SQLite transaction: coroutines that never suspend. The hot acts are in hot.py."""

from collections.abc import Sequence
from typing import Any

import apsw

from ...core.job import Change, Micros
from ..cold import ColdTx, filled
from ..lanes import LaneBook
from ..named_sql import load_queries
from ..rows import JOB_COLUMNS, event_values

SQL = {name: filled(text) for name, text in {**load_queries(), **load_queries(__package__)}.items()}


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
        present: set[str] = set()
        fresh = []
        for change in changes:
            values = {name: getattr(change.after, name) for name in JOB_COLUMNS}
            if await self.change("insert_job", **values, lane=await self.lane_of(change.after)):
                fresh.append(change)
            else:
                present.add(change.after.id)
        events = [event_values(event) for change in fresh for event in change.events]
        self.connection.executemany(SQL["insert_event"], events)
        for change in fresh:
            await self.add_notes(change.notes)
        return present
