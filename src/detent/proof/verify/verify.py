"""`verify`: holds every row of a database against its log and its contract, in chunks, each one short snapshot."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.core.errors import NotFound
from detent.core.job import Micros
from detent.core.schedule import Schedule
from detent.ports.listing import Filter
from detent.ports.store import Store
from detent.ports.tx import Tx

from .dead_letters import DISCARDED, by_job, check_burial, check_discards, check_fates, check_requeued
from .fold import ContractTable
from .keys import KeyRing, TaskCount, check_attempt, check_bearers, check_owners
from .relations import check_relations
from .rows import (
    ATTEMPT,
    CONTRACT,
    DLQ_ID,
    ID,
    KEY,
    REQUEUED_FROM,
    SEQ,
    VERSION,
    Case,
    Log,
    Row,
    agrees,
    differences,
    walk_of,
)
from .rules import Report
from .schedules import check_fired, check_fires, check_schedule, fired

CHUNK = 1_000
EVENTS_AT_ONCE = 50_000
"""A chunk is cut short where its jobs have more events than this together."""

Progress = Callable[[int, int], None]
"""Told after every chunk: jobs looked at so far, jobs to look at in all."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which jobs are looked at; without any choice also what belongs to no job."""

    job_id: str | None = None
    contract: str | None = None
    since: Micros | None = None
    """Only jobs that changed at this moment or later."""

    def where(self, prefix: str = "") -> list[str]:
        tests = ((self.contract, f"{prefix}contract = :contract"), (self.since, f"{prefix}updated_at >= :since"))
        return [test for value, test in tests if value is not None]

    def values(self) -> dict[str, Any]:
        told = {"contract": self.contract, "since": self.since, "job": self.job_id}
        return {name: value for name, value in told.items() if value is not None}


EVERYTHING = Scope()


async def verify(
    store: Store,
    contracts: Mapping[str, Contract] = CONTRACTS,
    scope: Scope = EVERYTHING,
    *,
    chunk: int = CHUNK,
    progress: Progress = lambda done, total: None,
) -> Report:
    """Everything that is wrong with the jobs in scope. The database's own declarations win over the program's."""
    run = _Run(store, scope, chunk, progress)
    await run.learn(contracts)
    await run.jobs()
    await run.dead_letters()
    if scope == EVERYTHING:
        await run.keys()
        await run.tasks()
        await run.fires()
        await run.schedules()
        await check_relations(store, run.report, chunk)
    return run.report


class _Run:
    """One verification under way."""

    def __init__(self, store: Store, scope: Scope, chunk: int, progress: Progress) -> None:
        self.store = store
        self.scope = scope
        self.chunk = chunk
        self.progress = progress
        self.report = Report()
        self.tables: dict[str, ContractTable] = {}
        self.ring = KeyRing()
        self.pruned = ""
        """Nothing that was pruned has an id above this one: what a link names may be gone up to here."""

    async def learn(self, contracts: Mapping[str, Contract]) -> None:
        declared = await self.store.read(lambda tx: tx.contracts())
        self.pruned = (await self.store.read(lambda tx: tx.query("verify_pruned")))[0][0] or ""
        self.tables = {name: ContractTable(contract) for name, contract in {**contracts, **declared}.items()}
        for name, contract in declared.items():
            ours = contracts.get(name)
            if ours and (set(ours.edges), dict(ours.statuses)) != (set(contract.edges), dict(contract.statuses)):
                told = f"the database declares other statuses or edges for {name} than the program; its own were used"
                self.report.add(None, None, "contract-changed", told)

    async def jobs(self) -> None:
        tests = self.scope.where()
        if self.scope.job_id is not None:
            tests.append("id = :job")
        total = await self.store.read(lambda tx: _number(tx, "verify_size", _all(tests), self.scope.values()))
        after: str | None = None
        more = True
        while more:
            after, more = await self.store.read(partial(self._chunk, tests, after))
            self.progress(self.report.jobs, max(total, self.report.jobs))
        if self.scope.job_id is not None and not self.report.jobs and self.report.ok:
            raise NotFound(f"there is no job {self.scope.job_id!r}; check the id", job_id=self.scope.job_id)

    async def _chunk(self, tests: list[str], after: str | None, tx: Tx) -> tuple[str | None, bool]:
        """One snapshot: rows, their logs, and all they refer to. Returns where to go on, and whether to."""
        values = {**self.scope.values(), "after": after}
        where = _all([*tests, "id > :after"] if after else tests)
        rows = await tx.query("verify_jobs", where, **values, limit=self.chunk)
        kept = _cut(rows)
        more = len(rows) == self.chunk or len(kept) < len(rows)
        span = _Span(after, kept[-1][ID] if more else None, self.scope)
        events = await tx.query("verify_events", span.where("job_id", nested=True), **span.values)
        found = await tx.query("verify_dead_letters", span.where("job_id"), **span.values)
        dead_letters = by_job(found) if found else {}
        self.report.jobs += len(kept)
        self.report.events += len(events)
        for row, log in self._paired(kept, events):
            self._check(row, log, dead_letters.get(row[ID], ()))
        if any(row[REQUEUED_FROM] is not None for row in kept):
            requeued = await tx.query("verify_requeued", span.where("j.id"), **span.values)
            origins = await tx.lock([origin for _, origin, dlq_id, _ in requeued if dlq_id is None])
            check_requeued(requeued, origins, self.pruned, self.report)
        made = fired(kept)
        if made:
            check_fired(made, await tx.query("verify_fired", span.where("job_id"), **span.values), self.report)
        await self._owners(tx)
        if self.scope == EVERYTHING or self.scope.job_id is not None:
            await self._orphans(tx, span)
        return span.upto, more

    def _check(self, row: Row, log: Log, dead_letters: Sequence[Row]) -> None:
        report = self.report
        table = self.tables.get(row[CONTRACT])
        if table is None:
            told = f"contract {row[CONTRACT]!r} is neither carried by the program nor declared in the database"
            report.add(row[ID], None, "contract-unknown", told)
            return
        walk = walk_of(table, log)
        if not agrees(row, log, walk, table):
            for index, rule, detail in differences(Case(row, log, walk, table)):
                report.add(row[ID], None if index is None else log[index][SEQ], rule, detail)
        if walk.burials or dead_letters or row[DLQ_ID] is not None:
            check_burial(row, walk, dead_letters, report)
        if (row[ATTEMPT] is not None) != table.contract.task_attempts:
            check_attempt(row, table, report)
        if row[KEY] is not None or table.contract.keys.task_id_is_key:
            self.ring.want(row, table.contract)

    def _paired(self, rows: list[Row], events: list[Row]) -> Iterator[tuple[Row, Log]]:
        """Rows with their logs; both come in the same order, so a sound log is the next `version` events."""
        position, total = 0, len(events)
        for number, row in enumerate(rows):
            end = position + row[VERSION]
            log = events[position:end]
            whole = len(log) == row[VERSION] and log[0][0] == row[ID] == log[-1][0]
            if not whole or (end < total and events[end][0] == row[ID]):
                yield from self._sorted_out(rows[number:], events[position:])
                return
            position = end
            yield row, log
        self._without_job(events[position:])

    def _sorted_out(self, rows: list[Row], events: list[Row]) -> Iterator[tuple[Row, Log]]:
        """The slow way, for a chunk in which something is missing or too much."""
        logs: dict[str, list[Row]] = {row[ID]: [] for row in rows}
        orphans: list[Row] = []
        for event in events:
            logs.get(event[0], orphans).append(event)
        for row in rows:
            yield row, logs[row[ID]]
        self._without_job(orphans)

    def _without_job(self, events: list[Row]) -> None:
        for job_id, seq, _, _, event, *_ in events:
            self.report.add(job_id, seq, "event-orphan", f"event {event} of a job that does not exist")

    async def _owners(self, tx: Tx) -> None:
        wanted = self.ring.take()
        if wanted:
            found = await tx.query("key_owners", pairs=json.dumps([pair for pair, _ in wanted]))
            check_owners(wanted, {(space, key): owner for space, key, owner in found}, self.report)

    async def _orphans(self, tx: Tx, span: "_Span") -> None:
        for job_id, seq, name, version in await tx.query("verify_notes", span.where("n.job_id"), **span.values):
            if version is None:
                self.report.add(job_id, seq, "note-orphan", f"note {name} of a job that does not exist")
            else:
                told = f"note {name} follows event {seq}, the job has events 1 to {version}"
                self.report.add(job_id, seq, "note-adrift", told)
        for job_id, name in await tx.query("verify_signals", span.where("s.job_id"), **span.values):
            self.report.add(job_id, None, "signal-orphan", f"signal {name!r} of a job that does not exist")
        for job_id, kind in await tx.query("verify_outbox_items", span.where("o.job_id"), **span.values):
            self.report.add(job_id, None, "parcel-orphan", f"a {kind} of a job that does not exist")
        takeovers = json.dumps(sorted({event for table in self.tables.values() for event in table.takeovers}))
        unnamed = await tx.query("verify_takeovers", span.where("e.job_id"), **span.values, events=takeovers)
        for job_id, seq, event in unnamed:
            self.report.add(job_id, seq, "takeover-unnamed", f"{event} does not say who took what from whom")
        for row in await tx.query("verify_steps", span.where("s.job_id"), **span.values):
            self._wrong_step(*row)

    def _wrong_step(self, job_id: str, name: str, execution: int, had: int | None) -> None:
        if had is None:
            self.report.add(job_id, None, "step-orphan", f"step {name!r} of a job that does not exist")
        elif not 1 <= execution <= had:
            told = f"step {name!r} was recorded in execution {execution}, the job had {had}"
            self.report.add(job_id, None, "step-unearned", told)
        else:
            self.report.add(job_id, None, "step-empty", f"step {name!r} is finished and has no result")

    async def dead_letters(self) -> None:
        """All dead letters in scope, by their own id."""
        tests = self.scope.where("l.")
        if self.scope.job_id is not None:
            tests.append("l.job_id = :job")

        async def look(after: str | None, tx: Tx) -> list[Any]:
            values = {**self.scope.values(), "after": after}
            where = [*tests, "l.id > :after"] if after else tests
            rows = await tx.query("verify_fates", _all(where), **values, limit=self.chunk)
            new = [row[4] for row in rows if row[4] is not None]
            check_fates(rows, await tx.lock(new) if new else {}, self.tables, self.pruned, self.report)
            if any(row[3] == DISCARDED for row in rows):
                span = _all([*where, "l.id <= :upto"])
                audit = await tx.query("verify_discards", span, **values, upto=rows[-1][0])
                check_discards(rows, audit, self.tables, self.report)
            return rows

        await self._pages(look, lambda row: row[0])

    async def keys(self) -> None:
        async def look(after: tuple[str, str] | None, tx: Tx) -> list[Any]:
            space, key = after or ("", "")
            rows = await tx.query(
                "verify_keys", "(k.space, k.key) > (:space, :key)", space=space, key=key, limit=self.chunk
            )
            check_bearers(rows, self.tables, self.ring, self.report)
            return rows

        await self._pages(look, lambda row: (row[0], row[1]))

    async def tasks(self) -> None:
        count = TaskCount(self.report, pruned=bool(self.pruned))

        async def look(after: tuple[str, int, str] | None, tx: Tx) -> list[Any]:
            where, values = "true", {}
            if after:
                where = "(task_id, task_attempt, id) > (:task, :attempt, :id)"
                values = dict(zip(("task", "attempt", "id"), after, strict=True))
            rows = await tx.query("verify_tasks", where, **values, limit=self.chunk)
            count.check(rows)
            return rows

        await self._pages(look, lambda row: (row[0], row[1], row[2]))

    async def fires(self) -> None:
        async def look(after: tuple[str, int] | None, tx: Tx) -> list[Any]:
            schedule, moment = after or ("", 0)
            where = "(f.schedule_id, f.fire_at) > (:schedule, :moment)"
            rows = await tx.query("verify_fires", where, schedule=schedule, moment=moment, limit=self.chunk)
            check_fires(rows, self.pruned, self.report)
            return rows

        await self._pages(look, lambda row: (row[0], row[1]))

    async def schedules(self) -> None:
        async def look(before: str | None, tx: Tx) -> list[Schedule]:
            found = await tx.schedules(Filter(before=before, limit=self.chunk))
            for schedule in found:
                moment = schedule.last_fire_at
                last = await tx.fires(schedule.id, moment, moment, 1) if moment is not None else []
                known = [fire.fire_at for fire in last if fire.job_id == schedule.last_job_id]
                check_schedule(schedule, known[0] if known else None, self.report)
            return found

        await self._pages(look, lambda schedule: schedule.id)

    async def _pages(self, look: Callable[[Any, Tx], Awaitable[list[Any]]], last: Callable[[Any], Any]) -> None:
        after: Any = None
        while True:
            rows = await self.store.read(partial(look, after))
            if len(rows) < self.chunk:
                return
            after = last(rows[-1])


class _Span:
    """The ids a chunk covers: behind one job, up to another or to the end."""

    def __init__(self, after: str | None, upto: str | None, scope: Scope) -> None:
        self.after = after
        self.upto = upto
        self.scope = scope
        ends = {"after": after, "upto": upto}
        self.values = {**scope.values(), **{name: value for name, value in ends.items() if value is not None}}

    def where(self, column: str, *, nested: bool = False) -> str:
        """The range as a test of a column that holds job ids; nested also applies the scope's choice of jobs."""
        ends = [f"{column} > :after"] if self.after is not None else []
        ends += [f"{column} <= :upto"] if self.upto is not None else []
        if self.scope.job_id is not None:
            return f"{column} = :job"
        if nested and self.scope.where():
            own = [end.replace(column, "id") for end in ends]
            return f"{column} IN (SELECT id FROM jobs WHERE {_all([*self.scope.where(), *own])})"
        return _all(ends)


def _all(tests: Sequence[str]) -> str:
    return " AND ".join(tests) or "true"


def _cut(rows: list[Row]) -> list[Row]:
    """As many jobs as fit, at least one, so that a chunk's events fit into memory."""
    sums = accumulate(row[VERSION] for row in rows)
    fit = sum(1 for total in sums if total <= EVENTS_AT_ONCE)
    return rows[: max(fit, 1)]


async def _number(tx: Tx, name: str, where: str, values: Mapping[str, Any]) -> int:
    number: int = (await tx.query(name, where, **values))[0][0]
    return number
