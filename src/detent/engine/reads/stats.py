"""Statistics: jobs by status, queues and their backlog, dead letters, workers, pauses and limits."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from detent.core.contract.model import Phase
from detent.core.job import Micros
from detent.core.limits import Limit
from detent.core.times import iso
from detent.engine.runtime import Service, operators_only
from detent.ports.limits import Pause
from detent.ports.listing import Backlog, WorkerRow
from detent.ports.tx import StatusCount, Tx

from . import operations
from .responses import show
from .why import is_live, serves


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
    counts: list[StatusCount] = field(default_factory=list)
    dead_letters: dict[str, int] = field(default_factory=dict)

    @property
    def paused(self) -> dict[str, Pause]:
        return {pause.name: pause for pause in self.pauses if pause.kind == "queue"}

    def queues_view(self) -> operations.QueueList:
        names = sorted({row.queue for row in self.backlog} | set(self.paused))
        return {
            "items": [self._queue(name) for name in names],
            "next_cursor": None,
            "pauses": [show(operations.Pause, pause) for pause in self.pauses],
            "limits": [limit_view(limit) for limit in self.limits],
        }

    def _queue(self, name: str) -> operations.Queue:
        rows = [row for row in self.backlog if row.queue == name]
        pause = self.paused.get(name)
        return show(
            operations.Queue,
            None,
            **backlog_view(rows),
            queue=name,
            job_types=sorted({row.job_type for row in rows}),
            workers=sum(serves(worker, name) for worker in self.workers if is_live(worker, self.now)),
            paused=show(operations.Pause, pause) if pause else None,
        )


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
    async def queues(self) -> Stats:
        return await self._runtime.store.read(_read_queues)


async def _read_queues(tx: Tx) -> Stats:
    workers, pauses = await tx.workers.list_workers(), await tx.pauses.list_pauses()
    limits = [row.limit for row in await tx.limits.list_limits()]
    return Stats(tx.now, await tx.stats.backlog(), pauses, workers, limits)


async def _read_stats(tx: Tx, tenant: str | None = None) -> Stats:
    counts, dead_letters = await tx.stats.counts(tenant), await tx.dead_letters.dead_letter_counts(tenant)
    queues = await _read_queues(tx) if tenant is None else Stats(tx.now)
    return replace(queues, counts=counts, dead_letters=dead_letters)


def limit_view(limit: Limit) -> operations.LimitResponse:
    return cast(operations.LimitResponse, limit.as_dict())


def oldest_due(backlog: Iterable[Backlog]) -> Micros | None:
    return min((row.oldest_due for row in backlog if row.oldest_due is not None), default=None)


def backlog_view(rows: list[Backlog]) -> dict[str, Any]:
    numbers = {name: sum(getattr(row, name) for row in rows) for name in ("due", "later", "held")}
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
