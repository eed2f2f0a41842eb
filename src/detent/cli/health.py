"""The command that takes the pulse: `stats`."""

from dataclasses import dataclass
from typing import Any

from ..core.contract import Phase
from ..core.job import Micros
from ..core.times import iso
from ..engine import Engine
from ..engine.why import Pause, is_live, span
from ..ports import Backlog, Tx, WorkerRow
from .connection import on_engine
from .options import AsJson, Url
from .output import counted, say, say_json, show_fields, show_table


@dataclass(frozen=True, slots=True)
class Pulse:
    """One look at everything that is counted."""

    now: Micros
    counts: list[tuple[str, str, str, int]]
    backlog: list[Backlog]
    letters: dict[str, int]
    workers: list[WorkerRow]
    pauses: list[Pause]


async def take_pulse(engine: Engine) -> Pulse:
    async def look(tx: Tx) -> Pulse:
        counts, backlog, letters = await tx.counts(), await tx.backlog(), await tx.count_letters()
        return Pulse(tx.now, counts, backlog, letters, await tx.workers(), [Pause(*row) for row in await tx.pauses()])

    return await engine.store.read(look)


def stats(url: Url = None, as_json: AsJson = False) -> None:
    """Count jobs by status and phase, the backlog, dead letters and workers."""
    pulse = on_engine(url, take_pulse)
    view = stats_view(pulse)
    if as_json:
        say_json(view)
        return
    if not view["jobs"]:
        say("no jobs yet; `detent enqueue TYPE` makes one")
        return
    show_table(
        ("contract", "status", "phase", ">jobs"),
        [[contract, status, phase, number] for contract, status, phase, number in sorted(pulse.counts)],
    )
    say()
    workers, oldest = view["workers"], _oldest(pulse)
    paused = ", ".join(f"{pause['kind'].replace('_', ' ')} {pause['name']}" for pause in view["paused"])
    show_fields(
        {
            "jobs": view["jobs"],
            "due now": view["due"] if oldest is None else f"{view['due']}, the oldest for {span(pulse.now - oldest)}",
            "due later": view["later"],
            "held": view["held"],
            "dead letters": ", ".join(f"{number} {fate}" for fate, number in sorted(pulse.letters.items())) or "none",
            "workers": f"{workers['live']} live, {workers['busy']} of {counted(workers['slots'], 'slot')} busy",
            "paused": paused or "nothing",
        }
    )


def _oldest(pulse: Pulse) -> Micros | None:
    return min((row.oldest_due for row in pulse.backlog if row.oldest_due is not None), default=None)


def stats_view(pulse: Pulse) -> dict[str, Any]:
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
        "oldest_due_at": iso(_oldest(pulse)),
        "dead_letters": pulse.letters,
        "workers": {
            "live": len(live),
            "busy": sum(worker.busy for worker in live),
            "slots": sum(worker.slots for worker in live),
        },
        "paused": [{**pause._asdict(), "at": iso(pause.at)} for pause in pulse.pauses],
        "at": iso(pulse.now),
    }
