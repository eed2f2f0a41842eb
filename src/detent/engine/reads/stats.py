"""Statistics: jobs by status, the backlog, dead letters, workers and pauses, read in one transaction."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from detent.core.contract.model import Phase
from detent.core.job import Micros
from detent.core.times import iso
from detent.engine.runtime import Service, operators_only
from detent.ports.limits import Pause
from detent.ports.listing import Backlog, WorkerRow
from detent.ports.tx import StatusCount, Tx

from . import operations
from .queues import Queues, read_queues
from .responses import show
from .why import is_live


@dataclass(frozen=True, slots=True)
class Stats:
    """The numbers of one transaction."""

    now: Micros
    counts: list[StatusCount]
    backlog: list[Backlog]
    dead_letters: dict[str, int]
    workers: list[WorkerRow]
    pauses: list[Pause]


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
    async def queues(self) -> Queues:
        return await read_queues(self._runtime)


async def _read_stats(tx: Tx, tenant: str | None = None) -> Stats:
    """For a tenant without backlog, workers and pauses: tenants share them."""
    counts, dead_letters = await tx.stats.counts(tenant), await tx.dead_letters.dead_letter_counts(tenant)
    if tenant is not None:
        return Stats(tx.now, counts, [], dead_letters, [], [])
    workers, pauses = await tx.workers.list_workers(), await tx.pauses.list_pauses()
    return Stats(tx.now, counts, await tx.stats.backlog(), dead_letters, workers, pauses)


def oldest_due(stats: Stats) -> Micros | None:
    return min((row.oldest_due for row in stats.backlog if row.oldest_due is not None), default=None)


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
        "due": sum(row.due for row in stats.backlog),
        "later": sum(row.later for row in stats.backlog),
        "held": sum(row.held for row in stats.backlog),
        "oldest_due_at": iso(oldest_due(stats)),
        "dead_letters": stats.dead_letters,
        "workers": live_workers_view(stats.workers, stats.now),
        "paused": [show(operations.Pause, pause) for pause in stats.pauses],
        "at": iso(stats.now),
    }
