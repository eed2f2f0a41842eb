"""Forgetting what grows: old fires of schedules (how far back is on record), counts of limits that nobody asks for."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from detent.core.contract.model import Phase
from detent.core.errors import InvalidInput
from detent.core.job import Job, Micros
from detent.core.schedule import Schedule
from detent.core.times import SECOND
from detent.engine.reads.views import dead_letter_view, history_view, job_view
from detent.engine.submit.prepare import keys_of
from detent.engine.submit.submission import json_text
from detent.ports.listing import Filter
from detent.ports.pruning import Mark, Prunable
from detent.ports.tx import Tx

from .metrics import event_counts

if TYPE_CHECKING:
    from .engine import Engine

_PAGE = 200
_IDLE: Micros = 86_400 * SECOND


async def forget_fires(engine: "Engine", keep_seconds: float, batch: int) -> int:
    """Of every schedule the oldest fires whose jobs are gone; never the last one. How many rows went."""
    cutoff = engine.store.now() - int(keep_seconds * SECOND)
    gone, page = 0, Filter(limit=_PAGE)
    while found := await engine.store.read(partial(_schedules, page)):
        for schedule in found:
            number = batch
            while number == batch:
                number = await engine.store.write(partial(_forget, schedule, cutoff, batch))
                gone += number
        page = replace(page, before=found[-1].id)
    return gone


async def forget_meters(engine: "Engine") -> int:
    """Counts by key that were not asked for longer than any limit looks back; the next job begins at nothing."""

    async def act(tx: Tx) -> int:
        limits = [limit for limit, _ in await tx.limits()]
        longest = max((limit.period or 0 for limit in limits), default=0)
        return await tx.forget_meters(tx.now - longest - _IDLE) if limits else 0

    return await engine.store.write(act)


async def _schedules(page: Filter, tx: Tx) -> list[Schedule]:
    return await tx.schedules(page)


async def _forget(schedule: Schedule, cutoff: Micros, batch: int, tx: Tx) -> int:
    before = min(cutoff, schedule.last_fire_at or cutoff)
    upto, number = None, 0
    for fire_at, has_job in await tx.old_fires(schedule.id, before, batch):
        if has_job:
            break
        upto, number = fire_at, number + 1
    if upto is not None:
        await tx.put_mark(_scope(schedule.id), Mark(str(upto), "", "", tx.now))
        await tx.drop_fires(schedule.id, upto)
    return number


async def forgotten(schedule_id: str, tx: Tx) -> Micros | None:
    """Up to this moment nobody knows any more which fires made jobs."""
    mark = await tx.mark(_scope(schedule_id))
    return None if mark is None else int(mark.position)


def _scope(schedule_id: str) -> str:
    return f"fires {schedule_id}"


if TYPE_CHECKING:
    from .engine import Engine

Export = Callable[[list[dict[str, Any]]], Awaitable[object] | object]
"""Told the histories of a batch before they are deleted; if it raises, nothing of the batch is. May hear one twice."""
DAY = 86_400.0
MAX_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended jobs of one kind are kept, in seconds since they ended; None: for ever."""

    keep_seconds: float | None
    contract: str | None = None
    queue: str | None = None
    job_type: str | None = None
    status: str | None = None

    def row(self, now: Micros) -> list[Any]:
        """As the query compares it: what must agree, and the moment before which the job must have ended."""
        cutoff = None if self.keep_seconds is None else now - int(self.keep_seconds * SECOND)
        return [self.contract, self.queue, self.job_type, self.status, cutoff]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs go, how old they must be, and how they go."""

    older_than: float = 0.0
    """Seconds since the job ended."""
    contract: str | None = None
    queue: str | None = None
    status: str | None = None
    job_type: str | None = None
    rules: tuple[Retention, ...] = ()
    """Instead of the above: of several rules the first that fits a job decides; what none fits stays."""
    keep_keys_for: float = 0.0
    """Seconds for which the keys of a deleted job are still refused to others."""
    keep_fires_for: float = 400 * DAY
    """Seconds for which a schedule remembers which of its fires made jobs that are gone."""
    batch: int = 500
    """Jobs looked at, and at most deleted, in one transaction."""
    lap_seconds: float = DAY
    """How long until what was passed over is looked at again."""

    def check(self) -> None:
        kept = [rule.keep_seconds for rule in self.rules if rule.keep_seconds is not None]
        spans = (self.older_than, self.keep_keys_for, self.keep_fires_for, self.lap_seconds, *kept)
        if min(spans) < 0 or not 1 <= self.batch <= MAX_BATCH:
            raise InvalidInput(
                f"pruning needs spans of at least 0 seconds and a batch of 1 to {MAX_BATCH}", code="PRUNE_INVALID"
            )

    @property
    def retention(self) -> tuple[Retention, ...]:
        return self.rules or (Retention(self.older_than, self.contract, self.queue, self.job_type, self.status),)

    @property
    def scope(self) -> str:
        """Names the walk: with other rules it begins anew, with another age alone it goes on."""
        told = [[rule.contract, rule.queue, rule.job_type, rule.status] for rule in self.retention]
        return json_text(told, "PRUNE_INVALID", "the choice of jobs")


@dataclass(slots=True)
class Pruned:
    """What was looked at and what is gone. more: the bound was reached before the end."""

    looked_at: int = 0
    jobs: int = 0
    events: int = 0
    notes: int = 0
    steps: int = 0
    signals: int = 0
    dead_letters: int = 0
    keys: int = 0
    more: bool = False

    def add(self, counts: Mapping[str, int]) -> None:
        for name, number in counts.items():
            setattr(self, name, getattr(self, name) + number)

    def as_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


async def prune(engine: "Engine", choice: Choice, batches: int | None, export: Export | None) -> Pruned:
    """Batch after batch until the end is reached, or so many."""
    choice.check()
    total = Pruned(more=True)
    done = 0
    while total.more and (batches is None or done < batches):
        seen = await engine.store.read(partial(_look, choice))
        if export is not None and seen.going:
            answer = export(await engine.store.read(partial(_histories, engine, seen.going)))
            if inspect.isawaitable(answer):
                await answer
        total.add(await engine.store.write(partial(_drop, engine, choice, seen)))
        total.looked_at += len(seen.jobs)
        total.more = seen.more
        done += 1
    if not total.more:
        await forget_fires(engine, choice.keep_fires_for, choice.batch)
        await forget_meters(engine)
    return total


@dataclass(frozen=True, slots=True)
class _Seen:
    """One stretch of the primary key."""

    jobs: list[Prunable]
    mark: Mark
    more: bool

    @property
    def going(self) -> list[str]:
        return [job.id for job in self.jobs if job.may_go]


async def _look(choice: Choice, tx: Tx) -> _Seen:
    """Ids below the cutoff's; then those that are no times of ours: made by others, or by a clock that was wrong."""
    mark = await tx.mark(choice.scope) or Mark("", "", "", tx.now)
    rules = [rule.row(tx.now) for rule in choice.retention]
    latest = max((row[-1] for row in rules if row[-1] is not None), default=0)
    young, future = first_id(latest + 1_000), first_id(tx.now + int(DAY * SECOND))
    jobs = await tx.prunable(mark.position, young, choice.batch, rules)
    position = jobs[-1].id if jobs else mark.position
    beyond, room = mark.beyond, choice.batch - len(jobs)
    if room:
        foreign = await tx.prunable(max(beyond, future), None, room, rules)
        beyond, room = foreign[-1].id if foreign else beyond, room - len(foreign)
        jobs += foreign
    passed = max(mark.passed, young, beyond) if any(job.may_go for job in jobs) else mark.passed
    if room and tx.now - mark.lap_at >= int(choice.lap_seconds * SECOND):
        return _Seen(jobs, Mark("", "", passed, tx.now), more=False)
    return _Seen(jobs, Mark(position, beyond, passed, mark.lap_at), more=not room)


def first_id(moment: Micros) -> str:
    """No id made at this moment or later is below it."""
    text = f"{max(0, moment) // 1_000:012x}"
    return f"{text[:8]}-{text[8:12]}-0000-0000-000000000000"


async def _drop(engine: "Engine", choice: Choice, seen: _Seen, tx: Tx) -> dict[str, int]:
    """Delete what is still as it was seen; rows that somebody holds are left for the next lap."""
    rows = await tx.lock(seen.going, wait=False) if seen.going else {}
    going = _unchanged(seen.jobs, rows)
    counts: dict[str, int] = {}
    if going:
        ids = [job.id for job in going]
        await event_counts.count_going(engine, tx, ids)
        counts = await tx.drop_jobs(ids)
        await event_counts.clamp(tx)
    owned = [(*pair, job.id) for job in going if (c := engine.contracts.get(job.contract)) for pair in keys_of(c, job)]
    kept_until = tx.now + int(choice.keep_keys_for * SECOND) if choice.keep_keys_for else None
    counts["keys"] = await tx.drop_keys(owned, kept_until) if owned else 0
    counts["keys"] += await tx.drop_kept_keys(choice.batch)
    await tx.put_mark(choice.scope, seen.mark)
    return counts


def _unchanged(seen: Sequence[Prunable], rows: Mapping[str, Job]) -> list[Job]:
    """Of a task whose runs are numbered the first that is left goes first, so that no number is missing between two."""
    going: list[Job] = []
    next_run: dict[str | None, int] = {}
    for told in seen:
        job = rows.get(told.id)
        if not told.may_go or job is None or job.version != told.version or job.phase is not Phase.FINAL:
            continue
        if told.first_run is not None:
            if job.task_attempt != next_run.setdefault(job.task_id, told.first_run):
                continue
            next_run[job.task_id] += 1
        going.append(job)
    return going


async def _histories(engine: "Engine", ids: Sequence[str], tx: Tx) -> list[dict[str, Any]]:
    told = []
    for job_id, job in (await tx.lock(ids)).items():
        contract = engine.contract(job.contract)
        dead_letter = await tx.dead_letter(job.dlq_id) if job.dlq_id else None
        told.append(
            {
                "job": job_view(contract, job),
                "events": history_view(contract, job, await tx.events(job_id), await tx.notes(job_id)),
                "dead_letter": dead_letter_view(dead_letter) if dead_letter else None,
            }
        )
    return told
