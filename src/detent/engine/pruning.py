"""Pruning: deletes old finished jobs with all their rows, old fires of schedules and idle limit counters."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from detent.core.contract.model import Phase
from detent.core.errors import InvalidInput
from detent.core.job import Job, Micros
from detent.core.schedule import Schedule
from detent.core.times import SECOND, first_id
from detent.engine.reads.views import dead_letter_view, read_history
from detent.engine.runtime import Runtime
from detent.engine.submit.prepare import keys_of
from detent.engine.submit.submission import json_text
from detent.ports.listing import Filter
from detent.ports.pruning import EventPartition, EventPartitions, Prunable, PruneCursor, PruneRule
from detent.ports.tx import Tx

from .metrics import event_counts

_PAGE = 200
_METER_IDLE_TIME: Micros = 86_400 * SECOND
Export = Callable[[list[dict[str, Any]]], Awaitable[object] | object]
"""Called with the histories of a batch before it is deleted. If it raises, the batch is kept. A crash between export
and delete makes it see a history twice."""
DAY = 86_400.0
MAX_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long finished jobs that match these fields are kept, in seconds since they finished; None: forever."""

    keep_seconds: float | None
    contract: str | None = None
    queue: str | None = None
    job_type: str | None = None
    status: str | None = None

    def rule(self, now: Micros) -> PruneRule:
        cutoff = None if self.keep_seconds is None else now - int(self.keep_seconds * SECOND)
        return PruneRule(self.contract, self.queue, self.job_type, self.status, cutoff)


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """Which finished jobs are deleted, and in batches of what size."""

    older_than: float = 0.0
    """Seconds since the job finished."""
    contract: str | None = None
    queue: str | None = None
    status: str | None = None
    job_type: str | None = None
    rules: tuple[Retention, ...] = ()
    """Replaces the fields above: the first rule that matches a job decides; a job that matches none is kept."""
    keep_keys_for: float = 0.0
    """Seconds for which the idempotency keys of a deleted job stay taken."""
    keep_fires_for: float = 400 * DAY
    """Seconds for which a fire of a schedule is kept after its job was deleted."""
    batch: int = 500
    """Rows scanned, and at most deleted, in one transaction."""
    lap_seconds: float = DAY
    """A new scan from the first id begins after this time, to reach jobs that were skipped."""

    def check(self) -> None:
        kept = [rule.keep_seconds for rule in self.rules if rule.keep_seconds is not None]
        spans = (self.older_than, self.keep_keys_for, self.keep_fires_for, self.lap_seconds, *kept)
        if min(spans) < 0 or not 1 <= self.batch <= MAX_BATCH:
            raise InvalidInput(
                f"prune: all times must be at least 0 seconds, and batch between 1 and {MAX_BATCH}",
                code="PRUNE_INVALID",
            )

    @property
    def retention(self) -> tuple[Retention, ...]:
        return self.rules or (Retention(self.older_than, self.contract, self.queue, self.job_type, self.status),)

    @property
    def longest(self) -> Micros:
        """The longest time after which a rule deletes jobs, in microseconds."""
        return int(max((rule.keep_seconds or 0.0 for rule in self.retention), default=0.0) * SECOND)

    @property
    def scope(self) -> str:
        """The name under which the scan's cursor is stored. Other rules use another cursor; other ages do not."""
        matches = [[rule.contract, rule.queue, rule.job_type, rule.status] for rule in self.retention]
        return json_text(matches, "PRUNE_INVALID", "the choice of jobs")


@dataclass(slots=True)
class Pruned:
    """Numbers of scanned jobs and deleted rows. more: it stopped at the batch limit before the end of the scan."""

    looked_at: int = 0
    jobs: int = 0
    events: int = 0
    notes: int = 0
    steps: int = 0
    signals: int = 0
    dead_letters: int = 0
    keys: int = 0
    partitions: int = 0
    """Partitions of table events that were dropped; their events are not among `events`."""
    more: bool = False

    def add(self, counts: Mapping[str, int]) -> None:
        for name, number in counts.items():
            setattr(self, name, getattr(self, name) + number)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


async def prune(runtime: Runtime, options: PruneOptions, batches: int | None, export: Export | None) -> Pruned:
    """Delete batch after batch until the scan reaches its end, or `batches` are done."""
    options.check()
    total = Pruned(more=True)
    done = 0
    while total.more and (batches is None or done < batches):
        scan = await runtime.store.read(partial(_scan, options))
        if export is not None and scan.prunable_ids:
            exported = export(await runtime.store.read(partial(_histories, runtime, scan.prunable_ids)))
            if inspect.isawaitable(exported):
                await exported
        total.add(await runtime.store.write(partial(_delete, runtime, options, scan)))
        total.looked_at += len(scan.jobs)
        total.more = scan.more
        done += 1
    if not total.more:
        await drop_partitions(runtime, options, total)
        await delete_old_fires(runtime, options.keep_fires_for, options.batch)
        await delete_idle_meters(runtime)
    return total


@dataclass(frozen=True, slots=True)
class _Scan:
    """One batch of a scan along the primary key, and the cursor after it."""

    jobs: list[Prunable]
    cursor: PruneCursor
    more: bool

    @property
    def prunable_ids(self) -> list[str]:
        return [job.id for job in self.jobs if job.may_prune]


async def _scan(options: PruneOptions, tx: Tx) -> _Scan:
    """Scan ids below the cutoff's id; then ids that do not encode a past time (foreign ids, or a wrong clock)."""
    cursor = await tx.pruning.prune_cursor(options.scope) or PruneCursor("", "", "", tx.now)
    rules = [retention.rule(tx.now) for retention in options.retention]
    latest = max((rule.before for rule in rules if rule.before is not None), default=0)
    young, future = first_id(latest + 1_000), first_id(tx.now + int(DAY * SECOND))
    jobs = await tx.pruning.prunable(cursor.position, young, options.batch, rules)
    position = jobs[-1].id if jobs else cursor.position
    beyond, room = cursor.beyond, options.batch - len(jobs)
    if room:
        foreign = await tx.pruning.prunable(max(beyond, future), None, room, rules)
        beyond, room = foreign[-1].id if foreign else beyond, room - len(foreign)
        jobs += foreign
    passed = max(cursor.passed, young, beyond) if any(job.may_prune for job in jobs) else cursor.passed
    if room and tx.now - cursor.lap_at >= int(options.lap_seconds * SECOND):
        return _Scan(jobs, PruneCursor("", "", passed, tx.now), more=False)
    return _Scan(jobs, PruneCursor(position, beyond, passed, cursor.lap_at), more=not room)


async def _delete(runtime: Runtime, options: PruneOptions, scan: _Scan, tx: Tx) -> dict[str, int]:
    """Delete the jobs that have not changed since the scan; locked rows are left for the next scan."""
    rows = await tx.jobs.lock(scan.prunable_ids, wait=False) if scan.prunable_ids else {}
    jobs = _still_prunable(scan.jobs, rows)
    counts: dict[str, int] = {}
    if jobs:
        ids = [job.id for job in jobs]
        partitions = await tx.pruning.event_partitions()
        with_events = ids if partitions is None else [i for i in ids if not _leaves_events(i, partitions, options, tx)]
        await event_counts.count_before_delete(runtime, tx, with_events, ids)
        counts = await tx.pruning.drop_jobs(ids, with_events)
        for log in (event_counts.EVENTS, event_counts.NOTES):
            await tx.log_positions.clamp_log(log)  # a stored position may be beyond the end of its log now
    owned = [(*pair, job.id) for job in jobs if (c := runtime.contracts.get(job.contract)) for pair in keys_of(c, job)]
    kept_until = tx.now + int(options.keep_keys_for * SECOND) if options.keep_keys_for else None
    counts["keys"] = await tx.pruning.drop_keys(owned, kept_until) if owned else 0
    counts["keys"] += await tx.pruning.drop_kept_keys(options.batch)
    await tx.pruning.put_prune_cursor(options.scope, scan.cursor)
    return counts


def _still_prunable(scanned: Sequence[Prunable], rows: Mapping[str, Job]) -> list[Job]:
    """The scanned jobs that may still be deleted. Numbered runs of a task are deleted lowest first, without gaps."""
    jobs: list[Job] = []
    next_run: dict[str | None, int] = {}
    for prunable in scanned:
        job = rows.get(prunable.id)
        if not prunable.may_prune or job is None or job.version != prunable.version or job.phase is not Phase.FINAL:
            continue
        if prunable.first_run is not None:
            if job.task_attempt != next_run.setdefault(job.task_id, prunable.first_run):
                continue
            next_run[job.task_id] += 1
        jobs.append(job)
    return jobs


def _leaves_events(job_id: str, partitions: EventPartitions, options: PruneOptions, tx: Tx) -> bool:
    """True if the job's events go with their partition: the longest rule has reached it, so all its jobs may go soon.

    If that rule is shorter than a partition, events would outlive their job for too long.
    """
    if job_id <= partitions.cleaned or options.longest < partitions.width:
        return False
    reached = first_id(tx.now - options.longest)
    return any(part.first_id <= job_id < part.end_id and part.first_id < reached for part in partitions.partitions)


async def drop_partitions(runtime: Runtime, options: PruneOptions, total: Pruned) -> None:
    """Drop the partitions of past events that have no jobs left.

    One that still has jobs a whole width after the longest rule has passed it is kept. The events that deleted jobs
    have left in it are deleted by row.
    """
    partitions = await runtime.store.read(lambda tx: tx.pruning.event_partitions())
    now = runtime.store.now()
    past = [part for part in partitions.partitions if part.end_id <= first_id(now)] if partitions else []
    if partitions is None or not past:
        return
    await event_counts.EventCounter(runtime).catch_up()
    overdue = first_id(now - options.longest - partitions.width)
    for part in past:
        if await runtime.store.write(partial(_drop_partition, part)):
            total.partitions += 1
        elif partitions.cleaned < part.end_id <= overdue:
            while (
                number := await runtime.store.write(partial(_delete_left_events, runtime, part, options.batch))
            ) >= 0:
                total.events += number


async def _drop_partition(part: EventPartition, tx: Tx) -> bool:
    partitions = await tx.pruning.event_partitions()
    return partitions is not None and await partitions.drop(part.name)


async def _delete_left_events(runtime: Runtime, part: EventPartition, batch: int, tx: Tx) -> int:
    """Delete a batch of events in this partition that belong to no job; returns their number, -1 at the end."""
    partitions = await tx.pruning.event_partitions()
    if partitions is None or partitions.cleaned >= part.end_id:
        return -1
    jobs = await partitions.jobs_of_events(max(partitions.cleaned, part.first_id), part.end_id, batch)
    ids = [job_id for job_id, exists in jobs if not exists]
    if ids:
        await event_counts.count_before_delete(runtime, tx, ids, [])
    return await partitions.delete_events(ids, jobs[-1][0] if jobs else part.end_id)


async def add_partitions(runtime: Runtime) -> int:
    """Add the partitions of events that are needed soon, if the store has them; returns their number."""

    async def act(tx: Tx) -> int:
        partitions = await tx.pruning.event_partitions()
        return await partitions.add() if partitions is not None else 0

    return await runtime.store.write(act)


async def _histories(runtime: Runtime, ids: Sequence[str], tx: Tx) -> list[dict[str, Any]]:
    histories = []
    for job in (await tx.jobs.lock(ids)).values():
        history = await read_history(tx, runtime.contract(job.contract), job)
        dead_letter = await tx.dead_letters.dead_letter(job.dlq_id) if job.dlq_id else None
        histories.append({**history.as_dict(), "dead_letter": dead_letter and dead_letter_view(dead_letter)})
    return histories


async def delete_old_fires(runtime: Runtime, keep_seconds: float, batch: int) -> int:
    """Delete each schedule's oldest fires whose jobs were deleted, except its last fire; returns the number of rows."""
    cutoff = runtime.store.now() - int(keep_seconds * SECOND)
    deleted, page = 0, Filter(limit=_PAGE)
    while schedules := await runtime.store.read(lambda tx: tx.schedules.list_schedules(page)):  # noqa: B023
        for schedule in schedules:
            number = batch
            while number == batch:
                number = await runtime.store.write(partial(_delete_fires, schedule, cutoff, batch))
                deleted += number
        page = replace(page, before=schedules[-1].id)
    return deleted


async def delete_idle_meters(runtime: Runtime) -> int:
    """Delete per-key limit counters that were unused for longer than any limit's period; a new job starts at zero."""

    async def act(tx: Tx) -> int:
        limits = [limit for limit, _ in await tx.limits.list_limits()]
        longest = max((limit.period or 0 for limit in limits), default=0)
        return await tx.limits.drop_idle_meters(tx.now - longest - _METER_IDLE_TIME) if limits else 0

    return await runtime.store.write(act)


async def _delete_fires(schedule: Schedule, cutoff: Micros, batch: int, tx: Tx) -> int:
    before = min(cutoff, schedule.last_fire_at or cutoff)
    upto, number = None, 0
    for fire_at, has_job in await tx.fires.old_fires(schedule.id, before, batch):
        if has_job:
            break
        upto, number = fire_at, number + 1
    if upto is not None:
        await tx.pruning.put_prune_cursor(_fires_scope(schedule.id), PruneCursor(str(upto), "", "", tx.now))
        await tx.fires.drop_fires(schedule.id, upto)
    return number


async def fires_deleted_until(schedule_id: str, tx: Tx) -> Micros | None:
    """Fires up to this moment may be deleted, so it is not known which of them created jobs."""
    cursor = await tx.pruning.prune_cursor(_fires_scope(schedule_id))
    return None if cursor is None else int(cursor.position)


def _fires_scope(schedule_id: str) -> str:
    return f"fires {schedule_id}"
