"""`verify`: compares every row of a database with its log and its contract.

It reads in chunks, each in one short read transaction, so a database in use can be verified.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.core.errors import NotFound
from detent.core.job import Job
from detent.core.schedule import Schedule
from detent.ports.listing import Filter
from detent.ports.store import Store
from detent.ports.tx import Tx
from detent.ports.verification import (
    EVERYTHING,
    ApprovalRow,
    AttemptRow,
    DeadLetterLink,
    DeadLetterRow,
    EventRow,
    FiredRow,
    FireRow,
    JobRange,
    JobRow,
    KeyRow,
    MisplacedJob,
    RequeuedRow,
    Scope,
    StrayNote,
    StrayOutboxItem,
    StraySignal,
    StrayStep,
    UnnamedTakeover,
)

from .children_and_approvals import FAULTS, check_approvals
from .dead_letters import DISCARDED, by_job, check_dead_letter_rows, check_dead_letters, check_discards, check_requeued
from .fold import ContractTable
from .keys import AttemptSequence, Pair, check_expected_keys, check_key_rows, expected_keys
from .places import check_misplaced, check_stray_places
from .rows import FINAL, JobCase, Log, agrees, differences, fold_log
from .rules import Report
from .schedules import check_fires, check_schedule, check_scheduled_jobs, scheduled_jobs

__all__ = ["CHUNK", "EVERYTHING", "Scope", "verify"]

T = TypeVar("T")
CHUNK = 4_000
_JOBS_AT_ONCE = 200
"""After so many jobs the next chunk may go on."""
EVENTS_AT_ONCE = 50_000
"""A chunk ends before its jobs have more events than this in total, unless it is a single job."""

Progress = Callable[[int, int], None]
"""Called after every chunk with (jobs checked so far, jobs to check in total)."""


async def verify(
    store: Store,
    contracts: Mapping[str, Contract] = CONTRACTS,
    scope: Scope = EVERYTHING,
    *,
    chunk: int = CHUNK,
    progress: Progress = lambda done, total: None,
    read_ahead: bool = True,
) -> Report:
    """Check all jobs in scope. Where database and program declare a contract differently, the database's is used.

    read_ahead: read the next chunk while one is checked; needs an event loop.
    Raises NotFound if scope.job_id names no job.
    """
    run = _Run(store, scope, chunk, progress, read_ahead)
    await run.load_contracts(contracts)
    await run.jobs()
    await run.dead_letters()
    if scope == EVERYTHING:
        await run.keys()
        await run.tasks()
        await run.fires()
        await run.schedules()
        await run.children_and_approvals()
        await check_stray_places(store, run.report, chunk)
    return run.report


@dataclass(slots=True)
class _Chunk:
    """A range of jobs and everything they are compared with, read in one snapshot."""

    jobs: JobRange
    more: bool
    """True: more jobs follow."""
    rows: list[JobRow]
    events: list[EventRow]
    dead_letters: Mapping[str, Sequence[DeadLetterRow]] = field(default_factory=dict)
    misplaced: Sequence[MisplacedJob] = ()
    requeued: Sequence[RequeuedRow] = ()
    origins: Mapping[str, Job] = field(default_factory=dict)
    scheduled: Mapping[str, str] = field(default_factory=dict)
    fired: Sequence[FiredRow] = ()
    expected_keys: Sequence[tuple[Pair, str]] = ()
    key_owners: Mapping[Pair, str] = field(default_factory=dict)
    strays: Mapping[type, Sequence[Any]] = field(default_factory=dict)
    takeovers: Sequence[UnnamedTakeover] = ()


_STRAYS: tuple[type, ...] = (StrayNote, StraySignal, StrayOutboxItem, StrayStep)


class _Run:
    """One verification in progress."""

    def __init__(self, store: Store, scope: Scope, chunk: int, progress: Progress, read_ahead: bool) -> None:
        self.store = store
        self.read_ahead = read_ahead
        self.scope = scope
        self.chunk = chunk
        self.progress = progress
        self.report = Report()
        self.tables: dict[str, ContractTable] = {}
        self.pruned = ""
        """The highest id that was pruned: a link to an id up to this one may lead nowhere."""

    async def load_contracts(self, contracts: Mapping[str, Contract]) -> None:
        declared = await self.store.read(lambda tx: tx.stats.contracts())
        self.pruned = await self.store.read(lambda tx: tx.verification.last_pruned_id())
        self.tables = {name: ContractTable(contract) for name, contract in {**contracts, **declared}.items()}
        for name, contract in declared.items():
            ours = contracts.get(name)
            if ours and (set(ours.edges), dict(ours.statuses)) != (set(contract.edges), dict(contract.statuses)):
                detail = (
                    f"database and program declare different statuses or edges for {name}; the database's were used"
                )
                self.report.add(None, None, "contract-changed", detail)

    async def jobs(self) -> None:
        total = await self.store.read(lambda tx: tx.verification.count_job_rows(self.scope))
        reading: asyncio.Task[_Chunk] | None = None
        after: str | None = None
        more = True
        try:
            while more:
                chunk = await (reading or self.store.read(partial(self._read_chunk, after)))
                after, more = chunk.jobs.upto, chunk.more
                if more and self.read_ahead:
                    reading = asyncio.create_task(self.store.read(partial(self._read_chunk, after)))
                for number, (row, log) in enumerate(self._with_logs(chunk.rows, chunk.events)):
                    if reading is not None and number % _JOBS_AT_ONCE == 0:
                        await asyncio.sleep(0)  # the statements of the next chunk are sent
                    self._check_job(row, log, chunk.dead_letters.get(row.id, ()))
                self._check_links(chunk)
                self.progress(self.report.jobs, max(total, self.report.jobs))
        finally:
            if reading is not None:
                reading.cancel()
        if self.scope.job_id is not None and not self.report.jobs and self.report.ok:
            raise NotFound(f"job {self.scope.job_id!r} does not exist; check the id", job_id=self.scope.job_id)

    async def _read_chunk(self, after: str | None, tx: Tx) -> "_Chunk":
        """Jobs, their logs and what they are linked with, all of one snapshot."""
        table = tx.verification
        rows = await table.job_rows(JobRange(self.scope, after), self.chunk)
        cut = _cut(rows)
        more = len(rows) == self.chunk or len(cut) < len(rows)
        jobs = JobRange(self.scope, after, cut[-1].id if more else None)
        chunk = _Chunk(jobs, more, cut, await table.rows_of(EventRow, jobs))
        chunk.dead_letters = by_job(await table.rows_of(DeadLetterRow, jobs))
        unfinished = [row for row in cut if row.phase != FINAL]
        chunk.misplaced = await table.misplaced_jobs(unfinished) if unfinished else []
        if any(row.requeued_from is not None for row in cut):
            chunk.requeued = await table.rows_of(RequeuedRow, jobs)
            chunk.origins = await tx.jobs.lock([row.origin for row in chunk.requeued if row.dlq_id is None])
        chunk.scheduled = scheduled_jobs(cut)
        chunk.fired = await table.rows_of(FiredRow, jobs) if chunk.scheduled else []
        chunk.expected_keys = expected_keys(cut, self.tables)
        if chunk.expected_keys:
            chunk.key_owners = await tx.keys.key_owners([pair for pair, _ in chunk.expected_keys])
        if self.scope == EVERYTHING or self.scope.job_id is not None:
            chunk.strays = {kind: await table.rows_of(kind, jobs) for kind in _STRAYS}
            takeovers = {event for row in cut if (known := self.tables.get(row.contract)) for event in known.takeovers}
            chunk.takeovers = await table.unnamed_takeovers(jobs, sorted(takeovers)) if takeovers else []
        return chunk

    def _check_links(self, chunk: "_Chunk") -> None:
        self.report.jobs += len(chunk.rows)
        self.report.events += len(chunk.events)
        check_misplaced(chunk.misplaced, self.report)
        check_requeued(chunk.requeued, chunk.origins, self.pruned, self.report)
        if chunk.scheduled:
            check_scheduled_jobs(chunk.scheduled, chunk.fired, self.report)
        check_expected_keys(chunk.expected_keys, chunk.key_owners, self.report)
        self._check_orphans(chunk)

    def _check_job(self, row: JobRow, log: Log, dead_letters: Sequence[DeadLetterRow]) -> None:
        report = self.report
        table = self.tables.get(row.contract)
        if table is None:
            detail = f"contract {row.contract!r} is neither known to the program nor declared in the database"
            report.add(row.id, None, "contract-unknown", detail)
            return
        folded = fold_log(table, log)
        if not agrees(row, log, folded, table):
            for index, rule, detail in differences(JobCase(row, log, folded, table)):
                report.add(row.id, None if index is None else log[index].seq, rule, detail)
        if folded.dead_letter_counts or dead_letters or row.dlq_id is not None:
            check_dead_letters(row, folded, dead_letters, report)
        if (row.task_attempt is not None) != table.contract.task_attempts:
            rule = (
                f"{row.contract} {'numbers' if table.contract.task_attempts else 'does not number'} a task's attempts"
            )
            report.add(row.id, None, "attempt-missing", f"{rule}, the job's task_attempt is {row.task_attempt}")

    def _with_logs(self, rows: list[JobRow], events: list[EventRow]) -> Iterator[tuple[JobRow, Log]]:
        """Each row with its log. Both are ordered by job, so a complete log is the next `version` events."""
        position, total = 0, len(events)
        for number, row in enumerate(rows):
            end = position + row.version
            log = events[position:end]
            complete = len(log) == row.version and log[0].job_id == row.id == log[-1].job_id
            if not complete or (end < total and events[end].job_id == row.id):
                yield from self._with_grouped_logs(rows[number:], events[position:])
                return
            position = end
            yield row, log
        self._report_orphans(events[position:])

    def _with_grouped_logs(self, rows: list[JobRow], events: list[EventRow]) -> Iterator[tuple[JobRow, Log]]:
        """The slower way, for a chunk in which events are missing or belong to no job."""
        logs: dict[str, list[EventRow]] = {row.id: [] for row in rows}
        orphans: list[EventRow] = []
        for event in events:
            logs.get(event.job_id, orphans).append(event)
        for row in rows:
            yield row, logs[row.id]
        self._report_orphans(orphans)

    def _report_orphans(self, events: list[EventRow]) -> None:
        for row in events:
            self.report.add(row.job_id, row.seq, "event-orphan", f"event {row.event} of a job that does not exist")

    def _check_orphans(self, chunk: "_Chunk") -> None:
        """Notes, signals, outbox items and steps without a job or without an event; takeovers without names."""
        for job_id, seq, name, version in chunk.strays.get(StrayNote, ()):
            if version is None:
                self.report.add(job_id, seq, "note-orphan", f"note {name} of a job that does not exist")
            else:
                detail = f"note {name} follows event {seq}, the job has events 1 to {version}"
                self.report.add(job_id, seq, "note-adrift", detail)
        for job_id, name, status in chunk.strays.get(StraySignal, ()):
            if status is None:
                self.report.add(job_id, None, "signal-orphan", f"signal {name!r} of a job that does not exist")
            else:
                self.report.add(job_id, None, "signal-missed", f"signal {name!r} is on record, the job is {status}")
        for job_id, kind in chunk.strays.get(StrayOutboxItem, ()):
            self.report.add(job_id, None, "parcel-orphan", f"an outbox item ({kind}) of a job that does not exist")
        for job_id, seq, event in chunk.takeovers:
            detail = f"{event} does not name the old consumer, the new consumer and the message"
            self.report.add(job_id, seq, "takeover-unnamed", detail)
        for step in chunk.strays.get(StrayStep, ()):
            self._report_step(step)

    def _report_step(self, step: StrayStep) -> None:
        job_id, name, execution, executions = step
        if executions is None:
            self.report.add(job_id, None, "step-orphan", f"step {name!r} of a job that does not exist")
        elif not 1 <= execution <= executions:
            detail = f"step {name!r} was recorded in execution {execution}, the job had {executions}"
            self.report.add(job_id, None, "step-unearned", detail)
        else:
            self.report.add(job_id, None, "step-empty", f"step {name!r} is finished and has no result")

    async def dead_letters(self) -> None:
        """All dead letters in scope, ordered by their id."""

        async def check_page(after: DeadLetterLink | None, tx: Tx) -> list[DeadLetterLink]:
            after_id = after.id if after else None
            rows = await tx.verification.dead_letter_links(self.scope, after_id, self.chunk)
            new_ids = [row.requeued_as for row in rows if row.requeued_as is not None]
            new_jobs = await tx.jobs.lock(new_ids) if new_ids else {}
            check_dead_letter_rows(rows, new_jobs, self.tables, self.pruned, self.report)
            if any(row.status == DISCARDED for row in rows):
                entries = await tx.verification.discard_entries(self.scope, after_id, rows[-1].id)
                check_discards(rows, entries, self.tables, self.report)
            return rows

        await self._pages(check_page)

    async def keys(self) -> None:
        await self._table(KeyRow, lambda rows: check_key_rows(rows, self.tables, self.report))

    async def tasks(self) -> None:
        await self._table(AttemptRow, AttemptSequence(self.report, pruned=bool(self.pruned)).check)

    async def fires(self) -> None:
        await self._table(FireRow, lambda rows: check_fires(rows, self.pruned, self.report))

    async def children_and_approvals(self) -> None:
        for rule, (kind, detail) in FAULTS.items():
            for job_id, *subjects in await self.store.read(partial(self._faults, kind)):
                self.report.add(job_id, None, rule, detail.format(*subjects))
        await self._table(ApprovalRow, lambda rows: check_approvals(rows, self.report))

    async def _faults(self, kind: type[T], tx: Tx) -> list[T]:
        return await tx.verification.faults(kind, self.chunk)

    async def schedules(self) -> None:
        async def check_page(last: Schedule | None, tx: Tx) -> list[Schedule]:
            schedules = await tx.schedules.list_schedules(Filter(before=last.id if last else None, limit=self.chunk))
            for schedule in schedules:
                moment = schedule.last_fire_at
                fires = await tx.fires.list_fires(schedule.id, moment, moment, 1) if moment is not None else []
                times = [fire.fire_at for fire in fires if fire.job_id == schedule.last_job_id]
                check_schedule(schedule, times[0] if times else None, self.report)
            return schedules

        await self._pages(check_page)

    async def _table(self, kind: type[T], check: Callable[[list[T]], None]) -> None:
        async def check_page(last: T | None, tx: Tx) -> list[T]:
            rows = await tx.verification.page(kind, last, self.chunk)
            check(rows)
            return rows

        await self._pages(check_page)

    async def _pages(self, check_page: Callable[[T | None, Tx], Awaitable[list[T]]]) -> None:
        """Keyset pagination: call check_page with the last row until a page is not full."""
        last: T | None = None
        while True:
            rows = await self.store.read(partial(check_page, last))
            if len(rows) < self.chunk:
                return
            last = rows[-1]


def _cut(rows: list[JobRow]) -> list[JobRow]:
    """The first jobs with at most EVENTS_AT_ONCE events in total, at least one job: bounds the memory of a chunk."""
    totals = accumulate(row.version for row in rows)
    count = sum(1 for total in totals if total <= EVENTS_AT_ONCE)
    return rows[: max(count, 1)]
