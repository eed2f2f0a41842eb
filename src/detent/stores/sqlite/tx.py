"""One SQLite transaction; its coroutines never suspend. Settling and claiming are in claim.py."""

import json
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

import apsw

from detent.core.contract.model import Contract
from detent.core.job import TIMEOUT_GRACE, Change, Event, Micros
from detent.core.uniform_batch import UniformBatch
from detent.stores.lanes import LaneCache
from detent.stores.listing_queries import needs_trace_row
from detent.stores.named_queries import Row
from detent.stores.rows import CREATED, MUTABLE, TRACE_PREFIX, as_text, event_values
from detent.stores.sql_files import in_namespace, load_queries
from detent.stores.tx_queries import TxQueries, fill_placeholders

NAMESPACE = "detent_"
"""Before the name of every table, index and trigger, so that the file can have tables of the application, too."""
_NAMED = frozenset({"contract", "job_type", "queue", "tenant_id", "limit_key", "status", "phase", "worker"})
"""Columns of a job that its row holds as numbers: in state, lane and worker."""
PLAIN_CREATED = tuple(name for name in CREATED if name not in _NAMED)
plain_created_values = attrgetter(*PLAIN_CREATED)
_PLAIN_MUTABLE = tuple(name for name in MUTABLE if name not in _NAMED)
_plain_mutable_values = attrgetter(*_PLAIN_MUTABLE)
_INSERTED = (*PLAIN_CREATED, "state", "lane")
_PLACES = [f"?{n}" for n in range(1, len(_INSERTED) + 1)]
_ID, _TRACE, _ROOT = (f"?{_INSERTED.index(name) + 1}" for name in ("id", "trace_id", "effect_root"))
_PLACES[_INSERTED.index("trace_id")] = f"nullif({_TRACE}, '{TRACE_PREFIX}' || {_ID})"
_PLACES[_INSERTED.index("effect_root")] = f"nullif({_ROOT}, {_ID})"
_PICKED = (
    *("n", "id", "payload", "execution_no", "retries", "version", "timeout_ms", "trace_id", "effect_root"),
    *("idempotency_key", "cancel_requested", "due_at", "traceparent", "parent_id", "state"),
)
_PLACEHOLDERS = {
    "{created}": ", ".join(_INSERTED),
    "{created_places}": ", ".join(_PLACES),
    "{plain_assignments}": ", ".join(f"{name} = :{name}" for name in _PLAIN_MUTABLE),
    "{source_states}": "SELECT id FROM detent.states WHERE contract = :contract AND status = :source",
    "{longest_lease}": f"timeout_ms * 1000 + {TIMEOUT_GRACE}",
    "{picked}": ", ".join(_PICKED),
    "{picked_of_r}": ", ".join(f"r.{name}" for name in _PICKED),
    "{for_update}": "",
    "{for_update_skip_locked}": "",
    "{probe}": "CROSS JOIN",
}
_FORMS = {
    **dict.fromkeys(("texts", "rows"), "json_each(:{0})"),
    **dict.fromkeys(("uuid", "uuid_or_null"), "{0}"),
    "any": "IN ({0})",
    "join_job": "CROSS JOIN detent.job_list j ON j.id = {0}",
    "after": "{0}.n >",
    "until": "{0}.n <=",
    "due_in": """CASE WHEN {0} LIKE '{"due_at":%' THEN CAST(substr({0}, 11, 19) AS bigint) END""",
}
"""Form -> its text, see fill_placeholders."""
SQL = {
    name: in_namespace(fill_placeholders(text, _PLACEHOLDERS, _FORMS), NAMESPACE)
    for name, text in {**load_queries(), **load_queries(__package__)}.items()
}


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
        uniform = changes if isinstance(changes, UniformBatch) and changes.first.outbox_item is None else None
        rows: list[Row] = []
        events: list[Row] = []
        for change in changes if uniform is None else [uniform.first]:
            job, lane = change.after, await self.lane_of(change.after)
            rows.append((*plain_created_values(job), await self.number_of("state", job.contract, job.status), lane))
            for event in change.events:
                edge = await self.number_of("edge", event.event, event.source or "", event.target)
                actor = None if event.actor is None else await self.number_of("actor", event.actor)
                data = None if event.data is None else as_text(event.data)
                events.append((event.job_id, event.seq, edge, event.at, actor, data, lane))
        if uniform is not None:
            if needs_trace_row(uniform.first.after):
                self.connection.executemany(
                    SQL["put_job_trace"], [(uniform.first.after.trace_id, i) for i in uniform.ids]
                )
            return self._insert(*_repeated(uniform, rows[0], events[0]))
        present = self._insert(rows, events)
        fresh = [change for change in changes if change.after.id not in present] if present else changes
        for change in fresh:
            job = change.after
            if job.trace_id is not None and job.id not in job.trace_id:  # needs_trace_row, without a call per job
                self.connection.execute(SQL["put_job_trace"], (job.trace_id, job.id))
            if change.notes:
                await self.add_notes(change.notes)
            if change.outbox_item:
                await self.write_outbox([change])
        return present

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

    async def update_job(self, change: Change) -> bool:
        before, after = change.before, change.after
        assert before is not None
        values = dict(zip(_PLAIN_MUTABLE, _plain_mutable_values(after), strict=True))
        values["worker"] = None if after.worker is None else await self.number_of("actor", after.worker)
        values["state"] = await self.number_of("state", after.contract, after.status)
        return await self.change("update_job", **values, id=after.id, before_version=before.version) == 1

    async def add_events(self, events: Sequence[Event]) -> None:
        for event in events:
            values = event_values(event)
            values["edge"] = await self.number_of("edge", event.event, event.source or "", event.target)
            values["actor"] = None if event.actor is None else await self.number_of("actor", event.actor)
            await self.change("insert_event", **values)

    async def intern(self, table: str, values: dict[str, str]) -> int:
        """States are written when a contract is declared, and so are most edges."""
        rows = await self.query(f"find_{table}", **values)
        return rows[0][0] if rows else await super().intern(table, values)


def _repeated(changes: UniformBatch, row: Row, event: Row) -> tuple[list[Row], list[Row]]:
    """The rows of all jobs of a uniform batch and of their events, made from those of the first one."""
    own = changes.columns
    columns = [own.get(name, repeat(value)) for name, value in zip(_INSERTED, row, strict=True)]
    return list(zip(*columns, strict=False)), [(job_id, *event[1:]) for job_id in changes.ids]
