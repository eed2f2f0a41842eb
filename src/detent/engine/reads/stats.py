"""One look at everything that is counted: jobs by status, the backlog, dead letters, workers, pauses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.core.contract.model import Phase
from detent.core.job import Micros
from detent.core.times import iso
from detent.ports.listing import Backlog, WorkerRow
from detent.ports.tx import Tx

from .queues import pause_view
from .why import Pause, is_live

if TYPE_CHECKING:
    from detent.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Stats:
    """One look at everything that is counted."""

    now: Micros
    counts: list[tuple[str, str, str, int]]
    backlog: list[Backlog]
    dead_letters: dict[str, int]
    workers: list[WorkerRow]
    pauses: list[Pause]


async def read_stats(engine: "Engine") -> Stats:
    async def look(tx: Tx) -> Stats:
        counts, backlog, dead_letters = await tx.counts(), await tx.backlog(), await tx.dead_letter_counts()
        return Stats(
            tx.now, counts, backlog, dead_letters, await tx.workers(), [Pause(*row) for row in await tx.pauses()]
        )

    return await engine.store.read(look)


def oldest_due(pulse: Stats) -> Micros | None:
    return min((row.oldest_due for row in pulse.backlog if row.oldest_due is not None), default=None)


def stats_view(pulse: Stats) -> dict[str, Any]:
    statuses: dict[str, dict[str, int]] = {}
    phases = {str(phase): 0 for phase in Phase}
    for contract, status, phase, number in sorted(pulse.counts):
        statuses.setdefault(contract, {})[status] = number
        phases[phase] += number
    live = [worker for worker in pulse.workers if is_live(worker, pulse.now)]
    return {
        "statuses": statuses,
        "phases": phases,
        "jobs": sum(phases.values()),
        "due": sum(row.due for row in pulse.backlog),
        "later": sum(row.later for row in pulse.backlog),
        "held": sum(row.held for row in pulse.backlog),
        "oldest_due_at": iso(oldest_due(pulse)),
        "dead_letters": pulse.dead_letters,
        "workers": {
            "live": len(live),
            "busy": sum(worker.busy for worker in live),
            "slots": sum(worker.slots for worker in live),
        },
        "paused": [pause_view(pause) for pause in pulse.pauses],
        "at": iso(pulse.now),
    }


async def stats_of_tenant(engine: "Engine", tenant: str) -> dict[str, Any]:
    """What one tenant may know: its own jobs and dead letters, nothing of what is shared."""

    async def look(tx: Tx) -> Stats:
        counts = [tuple(row) for row in await tx.query("counts_of_tenant", tenant=tenant)]
        dead_letters = {row[0]: row[1] for row in await tx.query("dead_letters_of_tenant", tenant=tenant)}
        return Stats(tx.now, counts, [], dead_letters, [], [])

    view = stats_view(await engine.store.read(look))
    return {name: view[name] for name in ("statuses", "phases", "jobs", "dead_letters", "at")}
