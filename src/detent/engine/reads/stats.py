"""Statistics: jobs by status, queues and their backlog, dead letters, workers, pauses and limits."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from detent.core.contract.model import Phase
from detent.core.errors import NotFound
from detent.core.job import Micros
from detent.core.limits import Limit, Meter
from detent.core.times import iso
from detent.engine.runtime import Service, operators_only
from detent.ports.claims import HeldJob
from detent.ports.limits import Pause
from detent.ports.listing import Backlog, WorkerRow
from detent.ports.tx import StatusCount, Tx

from . import operations
from .queue_state import FullLimit, QueueState, full_limits, state_of
from .responses import show
from .views import progress_view
from .why import LiveWorker, is_live, live_workers

_MAX_RUNNING = 100
_MAX_HELD = 10_000
_OTHERS = {"queue": ("job_type", "job_types", "unserved_types"), "job_type": ("queue", "queues", "unserved_queues")}
"""For a queue and for a job type: the field that tells its rows apart, and the lists of its values."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The state of the queues, and numbers of jobs and dead letters if they were read.

    For a tenant there are only the numbers: tenants share queues, workers, pauses and limits.
    """

    now: Micros
    backlog: list[Backlog] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    workers: list[WorkerRow] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    meters: list[tuple[str, Meter]] = field(default_factory=list)
    """Of rate limits that apply to whole queues and types, with their subjects."""
    counts: list[StatusCount] = field(default_factory=list)
    dead_letters: dict[str, int] = field(default_factory=dict)

    @property
    def paused(self) -> dict[str, Pause]:
        return {pause.name: pause for pause in self.pauses if pause.kind == "queue"}

    def queues_view(self) -> operations.QueueList:
        return {
            "items": [cast(operations.Queue, view) for view in self.groups("queue")],
            "next_cursor": None,
            "pauses": [show(operations.Pause, pause) for pause in self.pauses],
            "limits": [limit_view(limit) for limit in self.limits],
        }

    def groups(self, by: str) -> list[dict[str, Any]]:
        """All queues or all job types: those of jobs, of pauses and of live workers."""
        live, full = live_workers(self.workers, self.now), full_limits(self.limits, self.backlog, self.meters, self.now)
        rows: dict[str, list[Backlog]] = {}
        for row in self.backlog:
            rows.setdefault(getattr(row, by), []).append(row)
        paused = {pause.name: pause for pause in self.pauses if pause.kind == by}
        served = Counter(name for worker in live for name in worker.named(by))
        serves_all = sum(worker.serves(by, "") for worker in live)
        distinct = list({worker.abilities: worker for worker in live}.values())
        return [
            self._group(by, name, rows.get(name, []), paused.get(name), distinct, full)
            | {"workers": served[name] + serves_all}
            for name in sorted(rows.keys() | paused.keys() | served.keys())
        ]

    def _group(
        self,
        by: str,
        name: str,
        rows: list[Backlog],
        pause: Pause | None,
        live: list[LiveWorker],
        full: list[FullLimit],
    ) -> dict[str, Any]:
        state = QueueState("paused") if pause else state_of(rows, live, self.pauses, full)
        other, listed, unserved = _OTHERS[by]
        return {
            by: name,
            "state": state.name,
            **backlog_view(rows),
            listed: sorted({getattr(row, other) for row in rows}),
            unserved: sorted({getattr(row, other) for row in state.unserved}),
            "limited_by": [limit_view(limit) for limit in state.limited_by],
            "paused": show(operations.Pause, pause) if pause else None,
            "paused_by": [
                show(operations.Pause, one)
                for one in self.pauses
                if state.name == "paused" and one.kind == other and one.name in {getattr(row, other) for row in rows}
            ],
        }


class Statistics(Service):
    """`engine.stats`: numbers of jobs, the queues and their workers."""

    @operators_only
    async def read(self) -> Stats:
        return await self._runtime.store.read(_read_stats)

    async def view(self) -> dict[str, Any]:
        """The statistics as the API shows them; for a tenant its jobs and dead letters only."""
        if self.tenant is None:
            return stats_view(await self.read())
        view = stats_view(await self._runtime.store.read(partial(_read_stats, tenant=self.tenant)))
        return {name: view[name] for name in ("statuses", "phases", "jobs", "dead_letters", "at")}

    @operators_only
    async def backlog(self) -> list[Backlog]:
        """Numbers of unfinished jobs; the slow part of `queues` if there are many jobs."""
        return await self._runtime.store.read(lambda tx: tx.stats.backlog())

    @operators_only
    async def queues(self, backlog: list[Backlog] | None = None) -> Stats:
        """The queues with their workers, pauses and limits. backlog: if it was read before."""
        return await self._runtime.store.read(partial(_read_queues, backlog=backlog))

    @operators_only
    async def queue(self, name: str, backlog: list[Backlog] | None = None) -> operations.QueueDetail:
        """One queue, what runs now and which workers serve it. Raises NotFound (QUEUE_NOT_FOUND)."""
        return cast(operations.QueueDetail, await self._detail("queue", name, backlog))

    @operators_only
    async def job_type(self, name: str, backlog: list[Backlog] | None = None) -> operations.JobTypeDetail:
        """One job type, what runs now and which workers run it. Raises NotFound (JOB_TYPE_NOT_FOUND)."""
        return cast(operations.JobTypeDetail, await self._detail("job_type", name, backlog))

    async def _detail(self, by: str, name: str, backlog: list[Backlog] | None) -> dict[str, Any]:
        payloads = self._runtime.payloads

        async def read(tx: Tx) -> tuple[Stats, list[operations.RunningJob]]:
            running = await read_running(tx, await tx.claims.held_jobs(_MAX_HELD, **{by: name}), payloads=payloads)
            return await _read_queues(tx, backlog), running

        stats, running = await self._runtime.store.read(read)
        group = next((view for view in stats.groups(by) if view[by] == name), None)
        if group is None:
            message = f"{by.replace('_', ' ')} {name!r} does not exist: it has no jobs, no worker and no pause"
            raise NotFound(message, code="QUEUE_NOT_FOUND" if by == "queue" else "JOB_TYPE_NOT_FOUND")
        kinds = [row for row in stats.backlog if getattr(row, by) == name]
        serving = [worker.row for worker in live_workers(stats.workers, stats.now) if worker.serves(by, name)]
        return {
            **group,
            "kinds": [show(operations.JobKind, row, **backlog_view([row])) for row in kinds],
            "running_jobs": running,
            "serving": [show(operations.ServingWorker, row) for row in serving],
            "limits": [limit_view(limit) for limit in stats.limits if getattr(limit, by) in (None, name)],
            "at": iso(stats.now),
        }


async def read_running(tx: Tx, held: Iterable[HeldJob], *, payloads: bool) -> list[operations.RunningJob]:
    """Those of these jobs that run longest, with what their present execution has reported last."""
    longest = {job.id: job for job in sorted(held, key=lambda job: job.since)[:_MAX_RUNNING]}
    reports = (await tx.output.progress_of(list(longest))).values()
    current = {one.job_id: one for one in reports if one.execution_no == longest[one.job_id].execution_no}
    return [
        show(operations.RunningJob, job, progress=progress_view(current.get(job.id), payloads=payloads))
        for job in longest.values()
    ]


async def _read_queues(tx: Tx, backlog: list[Backlog] | None = None) -> Stats:
    workers, pauses = await tx.workers.list_workers(), await tx.pauses.list_pauses()
    limits = [row.limit for row in await tx.limits.list_limits()]
    meters = await tx.limits.shared_rate_meters()
    rows = await tx.stats.backlog() if backlog is None else backlog
    return Stats(tx.now, rows, pauses, workers, limits, meters)


async def _read_stats(tx: Tx, tenant: str | None = None) -> Stats:
    counts, dead_letters = await tx.stats.counts(tenant), await tx.dead_letters.dead_letter_counts(tenant)
    queues = await _read_queues(tx) if tenant is None else Stats(tx.now)
    return replace(queues, counts=counts, dead_letters=dead_letters)


def limit_view(limit: Limit) -> operations.LimitResponse:
    return cast(operations.LimitResponse, limit.as_dict())


def oldest_due(backlog: Iterable[Backlog]) -> Micros | None:
    return min((row.oldest_due for row in backlog if row.oldest_due is not None), default=None)


def backlog_view(rows: list[Backlog]) -> dict[str, Any]:
    numbers = {name: sum(getattr(row, name) for row in rows) for name in ("due", "due_paused", "later", "held")}
    return {**numbers, "oldest_due_at": iso(oldest_due(rows))}


def counts_view(counts: Iterable[tuple[str, str, str, int]]) -> dict[str, Any]:
    """Number of jobs by contract and status, by phase, and of all."""
    statuses: dict[str, dict[str, int]] = {}
    phases = {str(phase): 0 for phase in Phase}
    for contract, status, phase, number in sorted(counts):
        statuses.setdefault(contract, {})[status] = number
        phases[phase] += number
    return {"statuses": statuses, "phases": phases, "jobs": sum(phases.values())}


def live_workers_view(workers: Iterable[WorkerRow], now: Micros) -> dict[str, int]:
    live = [worker for worker in workers if is_live(worker, now)]
    busy, slots = sum(worker.busy for worker in live), sum(worker.slots for worker in live)
    return {"live": len(live), "busy": busy, "slots": slots}


def stats_view(stats: Stats) -> dict[str, Any]:
    return {
        **counts_view(stats.counts),
        **backlog_view(stats.backlog),
        "dead_letters": stats.dead_letters,
        "workers": live_workers_view(stats.workers, stats.now),
        "paused": [show(operations.Pause, pause) for pause in stats.pauses],
        "at": iso(stats.now),
    }
