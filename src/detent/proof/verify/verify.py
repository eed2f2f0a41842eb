"""`verify`: compares every row of a database with its log and its contract.

It reads in chunks, each in one short read transaction, so a database in use can be verified.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.core.errors import NotFound
from detent.core.job import DeadLetterStatus, Micros
from detent.core.schedule import Schedule
from detent.ports.listing import Filter
from detent.ports.store import Store
from detent.ports.tx import Tx

from .children_and_approvals import check_children_and_approvals
from .dead_letters import by_job, check_dead_letter_rows, check_dead_letters, check_discards, check_requeued
from .fold import ContractTable
from .keys import AttemptSequence, ExpectedKeys, check_attempt, check_expected_keys, check_key_rows
from .rows import (
    ATTEMPT,
    CONTRACT,
    DLQ_ID,
    ID,
    KEY,
    REQUEUED_FROM,
    SEQ,
    VERSION,
    JobCase,
    Log,
    Row,
    agrees,
    differences,
    fold_log,
)
from .rules import Report
from .schedules import check_fires, check_schedule, check_scheduled_jobs, scheduled_jobs

CHUNK = 1_000
EVENTS_AT_ONCE = 50_000
"""A chunk ends before its jobs have more events than this in total, unless it is a single job."""

Progress = Callable[[int, int], None]
"""Called after every chunk with (jobs checked so far, jobs to check in total)."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which jobs to check. Without any restriction, rows that belong to no job are checked too."""

    job_id: str | None = None
    contract: str | None = None
    since: Micros | None = None
    """Only jobs whose updated_at is at this time or later."""

    def where(self, prefix: str = "") -> list[str]:
        """SQL conditions for contract and since."""
        conditions = ((self.contract, f"{prefix}contract = :contract"), (self.since, f"{prefix}updated_at >= :since"))
        return [condition for value, condition in conditions if value is not None]

    def values(self) -> dict[str, Any]:
        """The SQL parameters of the conditions."""
        parameters = {"contract": self.contract, "since": self.since, "job": self.job_id}
        return {name: value for name, value in parameters.items() if value is not None}


EVERYTHING = Scope()


async def verify(
    store: Store,
    contracts: Mapping[str, Contract] = CONTRACTS,
    scope: Scope = EVERYTHING,
    *,
    chunk: int = CHUNK,
    progress: Progress = lambda done, total: None,
) -> Report:
    """Check all jobs in scope. Where database and program declare a contract differently, the database's is used.

    Raises NotFound if scope.job_id names no job.
    """
    run = _Run(store, scope, chunk, progress)
    await run.load_contracts(contracts)
    await run.jobs()
    await run.dead_letters()
    if scope == EVERYTHING:
        await run.keys()
        await run.tasks()
        await run.fires()
        await run.schedules()
        await check_children_and_approvals(store, run.report, chunk)
    return run.report


class _Run:
    """One verification in progress."""

    def __init__(self, store: Store, scope: Scope, chunk: int, progress: Progress) -> None:
        self.store = store
        self.scope = scope
        self.chunk = chunk
        self.progress = progress
        self.report = Report()
        self.tables: dict[str, ContractTable] = {}
        self.expected_keys = ExpectedKeys()
        self.pruned = ""
        """The highest id that was pruned: a link to an id up to this one may lead nowhere."""

    async def load_contracts(self, contracts: Mapping[str, Contract]) -> None:
        declared = await self.store.read(lambda tx: tx.contracts())
        self.pruned = (await self.store.read(lambda tx: tx.query("verify_pruned")))[0][0] or ""
        self.tables = {name: ContractTable(contract) for name, contract in {**contracts, **declared}.items()}
        for name, contract in declared.items():
            ours = contracts.get(name)
            if ours and (set(ours.edges), dict(ours.statuses)) != (set(contract.edges), dict(contract.statuses)):
                detail = (
                    f"database and program declare different statuses or edges for {name}; the database's were used"
                )
                self.report.add(None, None, "contract-changed", detail)

    async def jobs(self) -> None:
        conditions = self.scope.where()
        if self.scope.job_id is not None:
            conditions.append("id = :job")
        total = await self.store.read(lambda tx: _number(tx, "verify_size", _all(conditions), self.scope.values()))
        after: str | None = None
        more = True
        while more:
            after, more = await self.store.read(partial(self._check_chunk, conditions, after))
            self.progress(self.report.jobs, max(total, self.report.jobs))
        if self.scope.job_id is not None and not self.report.jobs and self.report.ok:
            raise NotFound(f"job {self.scope.job_id!r} does not exist; check the id", job_id=self.scope.job_id)

    async def _check_chunk(self, conditions: list[str], after: str | None, tx: Tx) -> tuple[str | None, bool]:
        """Check jobs, their logs and links in one snapshot; returns (id to continue after, whether to continue)."""
        values = {**self.scope.values(), "after": after}
        where = _all([*conditions, "id > :after"] if after else conditions)
        rows = await tx.query("verify_jobs", where, **values, limit=self.chunk)
        chunk = _cut(rows)
        more = len(rows) == self.chunk or len(chunk) < len(rows)
        ids = _IdRange(after, chunk[-1][ID] if more else None, self.scope)
        events = await tx.query("verify_events", ids.where("job_id", nested=True), **ids.values)
        dead_letter_rows = await tx.query("verify_dead_letters", ids.where("job_id"), **ids.values)
        dead_letters = by_job(dead_letter_rows) if dead_letter_rows else {}
        self.report.jobs += len(chunk)
        self.report.events += len(events)
        for row, log in self._with_logs(chunk, events):
            self._check_job(row, log, dead_letters.get(row[ID], ()))
        if any(row[REQUEUED_FROM] is not None for row in chunk):
            requeued = await tx.query("verify_requeued", ids.where("j.id"), **ids.values)
            origins = await tx.lock([origin for _, origin, dlq_id, _ in requeued if dlq_id is None])
            check_requeued(requeued, origins, self.pruned, self.report)
        scheduled = scheduled_jobs(chunk)
        if scheduled:
            fires = await tx.query("verify_fired", ids.where("job_id"), **ids.values)
            check_scheduled_jobs(scheduled, fires, self.report)
        await self._check_expected_keys(tx)
        if self.scope == EVERYTHING or self.scope.job_id is not None:
            await self._check_orphans(tx, ids)
        return ids.upto, more

    def _check_job(self, row: Row, log: Log, dead_letters: Sequence[Row]) -> None:
        report = self.report
        table = self.tables.get(row[CONTRACT])
        if table is None:
            detail = f"contract {row[CONTRACT]!r} is neither known to the program nor declared in the database"
            report.add(row[ID], None, "contract-unknown", detail)
            return
        folded = fold_log(table, log)
        if not agrees(row, log, folded, table):
            for index, rule, detail in differences(JobCase(row, log, folded, table)):
                report.add(row[ID], None if index is None else log[index][SEQ], rule, detail)
        if folded.dead_letter_counts or dead_letters or row[DLQ_ID] is not None:
            check_dead_letters(row, folded, dead_letters, report)
        if (row[ATTEMPT] is not None) != table.contract.task_attempts:
            check_attempt(row, table, report)
        if row[KEY] is not None or table.contract.keys.task_id_is_key:
            self.expected_keys.add(row, table.contract)

    def _with_logs(self, rows: list[Row], events: list[Row]) -> Iterator[tuple[Row, Log]]:
        """Each row with its log. Both are ordered by job, so a complete log is the next `version` events."""
        position, total = 0, len(events)
        for number, row in enumerate(rows):
            end = position + row[VERSION]
            log = events[position:end]
            complete = len(log) == row[VERSION] and log[0][0] == row[ID] == log[-1][0]
            if not complete or (end < total and events[end][0] == row[ID]):
                yield from self._with_grouped_logs(rows[number:], events[position:])
                return
            position = end
            yield row, log
        self._report_orphans(events[position:])

    def _with_grouped_logs(self, rows: list[Row], events: list[Row]) -> Iterator[tuple[Row, Log]]:
        """The slower way, for a chunk in which events are missing or belong to no job."""
        logs: dict[str, list[Row]] = {row[ID]: [] for row in rows}
        orphans: list[Row] = []
        for event in events:
            logs.get(event[0], orphans).append(event)
        for row in rows:
            yield row, logs[row[ID]]
        self._report_orphans(orphans)

    def _report_orphans(self, events: list[Row]) -> None:
        for job_id, seq, _, _, event, *_ in events:
            self.report.add(job_id, seq, "event-orphan", f"event {event} of a job that does not exist")

    async def _check_expected_keys(self, tx: Tx) -> None:
        expected = self.expected_keys.take()
        if expected:
            rows = await tx.query("key_owners", pairs=json.dumps([pair for pair, _ in expected]))
            check_expected_keys(expected, {(space, key): owner for space, key, owner in rows}, self.report)

    async def _check_orphans(self, tx: Tx, ids: "_IdRange") -> None:
        """Notes, signals, outbox items and steps without a job or without an event; takeovers without names."""
        for job_id, seq, name, version in await tx.query("verify_notes", ids.where("n.job_id"), **ids.values):
            if version is None:
                self.report.add(job_id, seq, "note-orphan", f"note {name} of a job that does not exist")
            else:
                detail = f"note {name} follows event {seq}, the job has events 1 to {version}"
                self.report.add(job_id, seq, "note-adrift", detail)
        for job_id, name, status in await tx.query("verify_signals", ids.where("s.job_id"), **ids.values):
            if status is None:
                self.report.add(job_id, None, "signal-orphan", f"signal {name!r} of a job that does not exist")
            else:
                self.report.add(job_id, None, "signal-missed", f"signal {name!r} is on record, the job is {status}")
        for job_id, kind in await tx.query("verify_outbox_items", ids.where("o.job_id"), **ids.values):
            self.report.add(job_id, None, "parcel-orphan", f"an outbox item ({kind}) of a job that does not exist")
        takeovers = json.dumps(sorted({event for table in self.tables.values() for event in table.takeovers}))
        unnamed = await tx.query("verify_takeovers", ids.where("e.job_id"), **ids.values, events=takeovers)
        for job_id, seq, event in unnamed:
            detail = f"{event} does not name the old consumer, the new consumer and the message"
            self.report.add(job_id, seq, "takeover-unnamed", detail)
        for row in await tx.query("verify_steps", ids.where("s.job_id"), **ids.values):
            self._report_step(*row)

    def _report_step(self, job_id: str, name: str, execution: int, executions: int | None) -> None:
        if executions is None:
            self.report.add(job_id, None, "step-orphan", f"step {name!r} of a job that does not exist")
        elif not 1 <= execution <= executions:
            detail = f"step {name!r} was recorded in execution {execution}, the job had {executions}"
            self.report.add(job_id, None, "step-unearned", detail)
        else:
            self.report.add(job_id, None, "step-empty", f"step {name!r} is finished and has no result")

    async def dead_letters(self) -> None:
        """All dead letters in scope, ordered by their id."""
        conditions = self.scope.where("l.")
        if self.scope.job_id is not None:
            conditions.append("l.job_id = :job")

        async def check_page(after: str | None, tx: Tx) -> list[Any]:
            values = {**self.scope.values(), "after": after}
            where = [*conditions, "l.id > :after"] if after else conditions
            rows = await tx.query("verify_fates", _all(where), **values, limit=self.chunk)
            new_ids = [row[4] for row in rows if row[4] is not None]
            new_jobs = await tx.lock(new_ids) if new_ids else {}
            check_dead_letter_rows(rows, new_jobs, self.tables, self.pruned, self.report)
            if any(row[3] == DeadLetterStatus.DISCARDED for row in rows):
                page = _all([*where, "l.id <= :upto"])
                audit = await tx.query("verify_discards", page, **values, upto=rows[-1][0])
                check_discards(rows, audit, self.tables, self.report)
            return rows

        await self._pages(check_page, lambda row: row[0])

    async def keys(self) -> None:
        async def check_page(after: tuple[str, str] | None, tx: Tx) -> list[Any]:
            space, key = after or ("", "")
            rows = await tx.query(
                "verify_keys", "(k.space, k.key) > (:space, :key)", space=space, key=key, limit=self.chunk
            )
            check_key_rows(rows, self.tables, self.expected_keys, self.report)
            return rows

        await self._pages(check_page, lambda row: (row[0], row[1]))

    async def tasks(self) -> None:
        attempts = AttemptSequence(self.report, pruned=bool(self.pruned))

        async def check_page(after: tuple[str, int, str] | None, tx: Tx) -> list[Any]:
            where, values = "true", {}
            if after:
                where = "(task_id, task_attempt, id) > (:task, :attempt, :id)"
                values = dict(zip(("task", "attempt", "id"), after, strict=True))
            rows = await tx.query("verify_tasks", where, **values, limit=self.chunk)
            attempts.check(rows)
            return rows

        await self._pages(check_page, lambda row: (row[0], row[1], row[2]))

    async def fires(self) -> None:
        async def check_page(after: tuple[str, int] | None, tx: Tx) -> list[Any]:
            schedule, moment = after or ("", 0)
            where = "(f.schedule_id, f.fire_at) > (:schedule, :moment)"
            rows = await tx.query("verify_fires", where, schedule=schedule, moment=moment, limit=self.chunk)
            check_fires(rows, self.pruned, self.report)
            return rows

        await self._pages(check_page, lambda row: (row[0], row[1]))

    async def schedules(self) -> None:
        async def check_page(before: str | None, tx: Tx) -> list[Schedule]:
            schedules = await tx.schedules(Filter(before=before, limit=self.chunk))
            for schedule in schedules:
                moment = schedule.last_fire_at
                fires = await tx.fires(schedule.id, moment, moment, 1) if moment is not None else []
                times = [fire.fire_at for fire in fires if fire.job_id == schedule.last_job_id]
                check_schedule(schedule, times[0] if times else None, self.report)
            return schedules

        await self._pages(check_page, lambda schedule: schedule.id)

    async def _pages(self, check_page: Callable[[Any, Tx], Awaitable[list[Any]]], key: Callable[[Any], Any]) -> None:
        """Keyset pagination: call check_page with the key of the last row until a page is not full."""
        after: Any = None
        while True:
            rows = await self.store.read(partial(check_page, after))
            if len(rows) < self.chunk:
                return
            after = key(rows[-1])


class _IdRange:
    """The job ids of a chunk: after `after`, up to and including `upto`; None means no bound."""

    def __init__(self, after: str | None, upto: str | None, scope: Scope) -> None:
        self.after = after
        self.upto = upto
        self.scope = scope
        ends = {"after": after, "upto": upto}
        self.values = {**scope.values(), **{name: value for name, value in ends.items() if value is not None}}

    def where(self, column: str, *, nested: bool = False) -> str:
        """An SQL condition on a column of job ids; nested: also restrict it to the jobs in scope, by a subquery."""
        ends = [f"{column} > :after"] if self.after is not None else []
        ends += [f"{column} <= :upto"] if self.upto is not None else []
        if self.scope.job_id is not None:
            return f"{column} = :job"
        if nested and self.scope.where():
            bounds = [end.replace(column, "id") for end in ends]
            return f"{column} IN (SELECT id FROM jobs WHERE {_all([*self.scope.where(), *bounds])})"
        return _all(ends)


def _all(conditions: Sequence[str]) -> str:
    return " AND ".join(conditions) or "true"


def _cut(rows: list[Row]) -> list[Row]:
    """The first jobs with at most EVENTS_AT_ONCE events in total, at least one job: bounds the memory of a chunk."""
    totals = accumulate(row[VERSION] for row in rows)
    count = sum(1 for total in totals if total <= EVENTS_AT_ONCE)
    return rows[: max(count, 1)]


async def _number(tx: Tx, name: str, where: str, values: Mapping[str, Any]) -> int:
    number: int = (await tx.query(name, where, **values))[0][0]
    return number
