"""One SQLite transaction; its coroutines never suspend. Settling and claiming are in claim.py."""

import json
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import apsw

from detent.core.contract.model import Contract
from detent.core.job import Change, Event, Micros
from detent.core.uniform_batch import UniformBatch
from detent.stores.lanes import LaneCache
from detent.stores.named_queries import Row
from detent.stores.rows import CREATED, as_text, created_values
from detent.stores.sql_files import in_namespace, load_queries
from detent.stores.tx_queries import TxQueries, fill_placeholders

NAMESPACE = "detent_"
"""Before the name of every table, index and trigger, so that the file can have tables of the application, too."""
_CREATED_PLACEHOLDERS = {"{created}": ", ".join(CREATED), "{created_places}": ", ".join("?" * len(CREATED))}


def _fill(text: str) -> str:
    for placeholder, value in _CREATED_PLACEHOLDERS.items():
        text = text.replace(placeholder, value)
    return in_namespace(fill_placeholders(text), NAMESPACE)


SQL = {name: _fill(text) for name, text in {**load_queries(), **load_queries(__package__)}.items()}


def _before_deadline(pick: str) -> str:
    """pick_lane without jobs past their deadline, and with updated_at as the last column."""
    columns, rest = pick.split("\nFROM detent_jobs WHERE ready = 1 AND lane = ?")
    in_time = "(deadline_at IS NULL OR deadline_at > ?)"
    return f"{columns}, updated_at\nFROM detent_jobs WHERE ready = 1 AND lane = ? AND {in_time}{rest}"


SQL["pick_before_deadline"] = _before_deadline(SQL["pick_lane"])


class SqliteTxQueries(TxQueries):
    """Named queries on one connection."""

    def __init__(
        self, connection: apsw.Connection, now: Micros, lane_cache: LaneCache, contracts: Mapping[str, Contract]
    ) -> None:
        super().__init__(now, lane_cache)
        self.connection = connection
        self.registered_contracts = contracts

    def rows(self, name: str, *values: Any) -> list[Row]:
        return self.connection.execute(SQL[name], values).fetchall()

    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[Row]:
        text = SQL[name] if where is None else SQL[name].replace("{where}", in_namespace(where, NAMESPACE))
        return self.connection.execute(text, values).fetchall()

    async def change(self, name: str, /, **values: Any) -> int:
        self.connection.execute(SQL[name], values)
        return self.connection.changes()

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        if isinstance(changes, UniformBatch) and changes.first.outbox_item is None:
            return self._insert(*await self._uniform_rows(changes))
        rows = [(*created_values(change.after), await self.lane_of(change.after)) for change in changes]
        lanes = {row[0]: row[-1] for row in rows}
        events = [(*_event_row(event), lanes[event.job_id]) for change in changes for event in change.events]
        present = self._insert(rows, events)
        fresh = [change for change in changes if change.after.id not in present] if present else changes
        for change in fresh:
            if change.notes:
                await self.add_notes(change.notes)
            if change.outbox_item:
                await self.write_outbox([change])
        return present

    async def _uniform_rows(self, changes: UniformBatch) -> tuple[list[Row], list[Row]]:
        """The rows of the jobs and of their events, without building Job and Event objects."""
        first, (event,) = changes.first.after, changes.first.events
        lane, own = await self.lane_of(first), changes.columns
        columns = [own.get(name, repeat(value)) for name, value in zip(CREATED, created_values(first), strict=True)]
        _, *common = _event_row(event)
        return list(zip(*columns, repeat(lane), strict=False)), [(job_id, *common, lane) for job_id in changes.ids]

    def _insert(self, rows: Sequence[Row], events: Sequence[Row]) -> set[str]:
        before = self.connection.total_changes()
        self.connection.executemany(SQL["insert_job"], rows)
        present: set[str] = set()
        if self.connection.total_changes() - before != len(rows):
            # Jobs that have events existed before this insert.
            ids = json.dumps([row[0] for row in rows])
            present = {row[0] for row in self.connection.execute(SQL["ids_with_events"], {"ids": ids})}
        self.connection.executemany(SQL["insert_first_event"], [row for row in events if row[0] not in present])
        return present


def _event_row(event: Event) -> Row:
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
