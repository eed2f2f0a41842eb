"""One SQLite write transaction, the cold acts. Its coroutines never suspend; the hot acts are in hot.py."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from ...core.contract import Contract
from ...core.declare import contract_from
from ...core.errors import VersionConflict
from ...core.job import Change, DeadLetter, Event, Job, Micros, Note, Signal, Step
from ...ports import Audit, Backlog, Extended, Filter, WorkerRow
from ..lanes import GROUP_BITS, PARTY_BITS, LaneBook, lane
from ..named_sql import load_queries
from ..rows import (
    DEAD_COLUMNS,
    JOB_COLUMNS,
    MUTABLE,
    WORKER_COLUMNS,
    as_text,
    event_from,
    event_values,
    job_from,
    job_values,
    note_from,
    note_values,
    signal_from,
    step_from,
    with_json,
)

_FILL = {
    "{columns}": ", ".join(JOB_COLUMNS),
    "{places}": ", ".join("?" * len(JOB_COLUMNS)),
    "{assignments}": ", ".join(f"{name} = ?" for name in MUTABLE),
    "{dead_columns}": ", ".join(DEAD_COLUMNS),
    "{worker_columns}": ", ".join(WORKER_COLUMNS),
    "{worker_places}": ", ".join("?" * len(WORKER_COLUMNS)),
    "{dead_places}": ", ".join("?" * len(DEAD_COLUMNS)),
}


GROUP_MASK = (1 << GROUP_BITS) - 1


def _filled(text: str) -> str:
    for mark, value in _FILL.items():
        text = text.replace(mark, value)
    return text


SQL = {name: _filled(text) for name, text in load_queries(__package__).items()}


class ColdTx:
    """Everything but claiming and plain success."""

    def __init__(self, connection: apsw.Connection, now: Micros, book: LaneBook) -> None:
        self.connection = connection
        self.now = now
        self.book = book

    def rows(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(SQL[name], values).fetchall()

    def named(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(SQL[name], values).fetchall()

    async def lock(self, ids: Sequence[str]) -> dict[str, Job]:
        return {row[0]: job_from(row) for row in self.rows("lock", json.dumps(list(ids)))}

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        present: set[str] = set()
        events, notes = [], []
        for change in changes:
            job = change.after
            where = self.lane_of(job)
            self.connection.execute(SQL["insert_job"], [*job_values(job, JOB_COLUMNS), where])
            if not self.connection.changes():
                present.add(job.id)
                continue
            events += [event_values(e) for e in change.events]
            notes += change.notes
        self.connection.executemany(SQL["insert_event"], events)
        await self.add_notes(notes)
        return present

    def lane_of(self, job: Job) -> int:
        group = self._intern("lane_group", job.contract, job.queue, job.job_type)
        party = self._intern("lane_party", job.tenant_id, job.limit_key)
        return lane(job.priority, group, party)

    def _intern(self, table: str, *names: str) -> int:
        known = self.book.interned.get((table, *names))
        if known is None:
            self.rows(f"add_{table}", *names)
            if self.connection.changes():
                self.rows("raise_lane_version")
            known = self.rows(f"find_{table}", *names)[0][0]
            self.book.remember((table, *names), known)
        return known

    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            before, after = change.before, change.after
            assert before is not None, "apply changes jobs that exist; insert creates them"
            values = [*job_values(after, MUTABLE), after.id, before.version]
            self.connection.execute(SQL["update_job"], values)
            if self.connection.changes() != 1:
                raise VersionConflict(f"job {after.id} changed meanwhile; look again and repeat", job_id=after.id)
            self.connection.executemany(SQL["insert_event"], [event_values(e) for e in change.events])
            if change.dead_letter:
                await self.put_dead_letter(change.dead_letter)
            if change.notes:
                await self.add_notes(change.notes)

    async def add_notes(self, notes: Sequence[Note]) -> None:
        self.connection.executemany(SQL["insert_note"], [note_values(n) for n in notes])

    async def key_owners(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        found = {key: self.rows("key_owner", *key) for key in keys}
        return {key: rows[0][0] for key, rows in found.items() if rows}

    async def take_keys(self, keys: Sequence[tuple[str, str]], job_id: str) -> bool:
        taken = 0
        for space, key in keys:
            self.rows("take_key", space, key, job_id, self.now)
            taken += self.connection.changes()
        return taken == len(keys)

    async def next_attempt(self, task_id: str) -> int:
        number: int = self.rows("next_attempt", task_id)[0][0]
        return number

    async def extend(self, held: Mapping[str, str], lease: Micros) -> Extended:
        text = json.dumps(dict(held))
        self.named("extend", held=text, until=self.now + lease)
        return await self.standing(held)

    async def standing(self, held: Mapping[str, str]) -> Extended:
        text = json.dumps(dict(held))
        lost = frozenset(row[0] for row in self.named("not_held", held=text))
        return Extended(lost, {row[0]: row[1] for row in self.named("cancels", held=text)})

    async def put_worker(self, worker: WorkerRow) -> None:
        self.rows("put_worker", *(getattr(worker, name) for name in WORKER_COLUMNS))

    async def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in self.rows("workers")]

    async def drop_worker(self, worker_id: str) -> None:
        self.rows("drop_worker", worker_id)

    async def next_due(self) -> Micros | None:
        moments = [self.rows("next_due", phase)[0][0] for phase in ("claimable", "blocked")]
        return min((m for m in moments if m is not None), default=None)

    async def next_wake(self) -> Micros | None:
        moment: Micros | None = self.rows("next_due", "blocked")[0][0]
        return moment

    async def anything_left(self, job_types: Sequence[str], horizon: Micros) -> bool:
        return bool(self.named("anything_left", types=json.dumps(list(job_types)), until=self.now + horizon)[0][0])

    async def promote(self, limit: int) -> int:
        self.named("promote", now=self.now, limit=limit)
        return self.connection.changes()

    async def expired(self, limit: int, contracts: Sequence[str]) -> list[Job]:
        names = json.dumps(list(contracts))
        return [job_from(row) for row in self.named("expired", now=self.now, limit=limit, contracts=names)]

    async def due_blocked(self, limit: int) -> list[Job]:
        return [job_from(row) for row in self.named("due_blocked", now=self.now, limit=limit)]

    async def events(self, job_id: str) -> list[Event]:
        return [event_from(row) for row in self.rows("events", job_id)]

    async def notes(self, job_id: str) -> list[Note]:
        return [note_from(row) for row in self.rows("notes", job_id)]

    async def signal(self, job_id: str, name: str) -> Signal | None:
        found = self.rows("signal", job_id, name)
        return signal_from(found[0]) if found else None

    async def add_signal(self, signal: Signal) -> None:
        self.rows("add_signal", signal.job_id, signal.name, signal.data, signal.actor, signal.at, signal.timed_out)

    async def count_signals(self, job_id: str) -> int:
        number: int = self.rows("count_signals", job_id)[0][0]
        return number

    async def step(self, job_id: str, name: str) -> Step | None:
        found = self.rows("step", job_id, name)
        return step_from(found[0]) if found else None

    async def steps(self, job_id: str) -> list[Step]:
        return [step_from(row) for row in self.rows("steps", job_id)]

    async def put_step(self, step: Step) -> None:
        self.rows(
            "put_step", step.job_id, step.name, step.digest, step.result, step.finished, step.execution_no, step.at
        )

    async def dead_letter(self, dlq_id: str) -> DeadLetter | None:
        found = self.rows("dead_letter", dlq_id)
        return DeadLetter(*found[0]) if found else None

    async def put_dead_letter(self, item: DeadLetter) -> None:
        self.rows("put_dead_letter", *(getattr(item, name) for name in DEAD_COLUMNS))

    async def dead_letters(self, filter: Filter) -> list[DeadLetter]:
        return [DeadLetter(*row) for row in self._filtered("dead_letters", filter, _DEAD_FILTERS)]

    async def jobs(self, filter: Filter) -> list[Job]:
        return [job_from(row) for row in self._filtered("jobs", filter, _JOB_FILTERS)]

    def _filtered(self, name: str, filter: Filter, tests: Mapping[str, str]) -> list[tuple[Any, ...]]:
        asked = {field: getattr(filter, field) for field in tests if getattr(filter, field) is not None}
        where = " AND ".join(tests[field] for field in asked) or "true"
        text = SQL[name].replace("{where}", where)
        return self.connection.execute(text, {**asked, "limit": filter.limit}).fetchall()

    async def counts(self) -> list[tuple[str, str, str, int]]:
        return [(row[0], row[1], row[2], row[3]) for row in self.rows("counts")]

    async def count_letters(self) -> dict[str, int]:
        return {row[0]: row[1] for row in self.rows("count_letters")}

    async def backlog(self) -> list[Backlog]:
        return [Backlog(*row) for row in self.named("backlog", now=self.now, shift=PARTY_BITS, mask=GROUP_MASK)]

    async def ahead(self, job_id: str, at_most: int) -> int:
        number: int = self.named("ahead", id=job_id, at_most=at_most)[0][0]
        return number

    async def contracts(self) -> dict[str, Contract]:
        return {name: contract_from(json.loads(text)) for name, text in self.rows("contracts")}

    async def pause(self, kind: str, name: str, actor: str, reason: str | None) -> None:
        self.rows("pause", kind, name, actor, reason, self.now)
        self.rows("raise_lane_version")

    async def resume(self, kind: str, name: str) -> None:
        self.rows("resume", kind, name)
        self.rows("raise_lane_version")

    async def pauses(self) -> list[tuple[str, str, str, str | None, Micros]]:
        return [(row[0], row[1], row[2], row[3], row[4]) for row in self.rows("pauses")]

    async def add_audit(self, entry: Audit) -> None:
        self.rows(
            "add_audit",
            self.now,
            entry.actor,
            entry.act,
            entry.subject,
            entry.tenant_id,
            entry.reason,
            as_text(entry.data),
        )

    async def audit(self, limit: int = 100) -> list[tuple[int, Micros, Audit]]:
        found = self.rows("audit", limit)
        return [(n, at, with_json(Audit, rest)) for n, at, *rest in found]


_EXACT = ("contract", "status", "queue", "tenant_id", "job_type")
_DEAD_FILTERS = {
    **{name: f"{name} = :{name}" for name in _EXACT},
    "before": "id < :before",
    "text": "instr(id || ' ' || job_id || ' ' || error_code || ' ' || coalesce(error_message, ''), :text) > 0",
}
_JOB_FILTERS = {
    **{name: f"{name} = :{name}" for name in _EXACT},
    "phase": "phase = :phase",
    "before": "id < :before",
    "text": "instr(id || ' ' || coalesce(idempotency_key, '') || ' ' || coalesce(task_id, '') || ' ' || "
    "coalesce(error_code, '') || ' ' || payload, :text) > 0",
}
