"""Statistics: jobs by status, the backlog, dead letters, workers and pauses, read in one transaction."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.core.contract.model import Phase
from detent.core.job import Micros
from detent.core.times import iso
from detent.ports.limits import Pause
from detent.ports.listing import Backlog, WorkerRow
from detent.ports.tx import StatusCount, Tx

from .queues import pause_view
from .why import is_live

if TYPE_CHECKING:
    from detent.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Stats:
    """The numbers of one transaction."""

    now: Micros
    counts: list[StatusCount]
    backlog: list[Backlog]
    dead_letters: dict[str, int]
    workers: list[WorkerRow]
    pauses: list[Pause]


async def read_stats(engine: "Engine") -> Stats:
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


def stats_view(stats: Stats) -> dict[str, Any]:
    statuses: dict[str, dict[str, int]] = {}
    phases = {str(phase): 0 for phase in Phase}
    for contract, status, phase, number in sorted(stats.counts):
        statuses.setdefault(contract, {})[status] = number
        phases[phase] += number
    live = [worker for worker in stats.workers if is_live(worker, stats.now)]
    return {
        "statuses": statuses,
        "phases": phases,
        "jobs": sum(phases.values()),
        "due": sum(row.due for row in stats.backlog),
        "later": sum(row.later for row in stats.backlog),
        "held": sum(row.held for row in stats.backlog),
        "oldest_due_at": iso(oldest_due(stats)),
        "dead_letters": stats.dead_letters,
        "workers": {
            "live": len(live),
            "busy": sum(worker.busy for worker in live),
            "slots": sum(worker.slots for worker in live),
        },
        "paused": [pause_view(pause) for pause in stats.pauses],
        "at": iso(stats.now),
    }


async def stats_of_tenant(engine: "Engine", tenant: str) -> dict[str, Any]:
    """The statistics a tenant may see: its jobs and dead letters, without workers, queues and pauses."""

    async def read(tx: Tx) -> Stats:
        counts, dead_letters = await tx.stats.counts(tenant), await tx.dead_letters.dead_letter_counts(tenant)
        return Stats(tx.now, counts, [], dead_letters, [], [])

    view = stats_view(await engine.store.read(read))
    return {name: view[name] for name in ("statuses", "phases", "jobs", "dead_letters", "at")}
