"""Statistics: jobs by status, the backlog, dead letters, workers and pauses, read in one transaction."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from detent.core.contract.model import Phase
from detent.core.job import Micros
from detent.core.times import iso
from detent.engine.runtime import Runtime, Service, operators_only
from detent.ports.limits import Pause
from detent.ports.listing import Backlog, WorkerRow
from detent.ports.tx import StatusCount, Tx

from .queues import Queues, pause_view, read_queues
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
        return await read_stats(self._runtime)

    async def view(self) -> dict[str, Any]:
        """The statistics as the API shows them; for a tenant its jobs and dead letters only."""
        return (
            stats_view(await self.read()) if self.tenant is None else await stats_of_tenant(self._runtime, self.tenant)
        )

    @operators_only
    async def queues(self) -> Queues:
        return await read_queues(self._runtime)


async def read_stats(engine: Runtime) -> Stats:
    async def read(tx: Tx) -> Stats:
        counts, backlog, dead_letters = (
            await tx.stats.counts(),
            await tx.stats.backlog(),
            await tx.dead_letters.dead_letter_counts(),
        )
        return Stats(
            tx.now, counts, backlog, dead_letters, await tx.workers.list_workers(), await tx.pauses.list_pauses()
        )

    return await engine.store.read(read)


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
        "paused": [pause_view(pause) for pause in stats.pauses],
        "at": iso(stats.now),
    }


async def stats_of_tenant(engine: Runtime, tenant: str) -> dict[str, Any]:
    """The statistics a tenant may see: its jobs and dead letters, without workers, queues and pauses."""

    async def read(tx: Tx) -> Stats:
        counts, dead_letters = await tx.stats.counts(tenant), await tx.dead_letters.dead_letter_counts(tenant)
        return Stats(tx.now, counts, [], dead_letters, [], [])

    view = stats_view(await engine.store.read(read))
    return {name: view[name] for name in ("statuses", "phases", "jobs", "dead_letters", "at")}
