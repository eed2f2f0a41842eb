"""Commands that take the pulse: `stats` and `workers`."""

from dataclasses import dataclass
from typing import Any

from ..core.contract import Phase
from ..core.job import Micros
from ..core.times import iso
from ..engine import Engine
from ..engine.why import Pause, is_live, queues_of, span, types_of
from ..ports import Backlog, Tx, WorkerRow
from .connection import on_engine
from .options import AsJson, Url
from .output import counted, say, say_json, show_fields, show_table, when


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


def workers(url: Url = None, as_json: AsJson = False) -> None:
    """List who works here; a worker not seen for three leases is gone."""

    async def act(engine: Engine) -> tuple[Micros, list[WorkerRow]]:
        return engine.store.now(), await engine.store.read(lambda tx: tx.workers())

    now, rows = on_engine(url, act)
    if as_json:
        say_json({"workers": [worker_view(row, now) for row in rows]})
        return
    if not rows:
        say("no workers; start one with `detent worker APP`")
        return
    show_table(
        ("worker", "host", ">pid", "state", ">busy", ">slots", "seen", "queues", "types"),
        [
            [
                row.id,
                row.host,
                row.pid,
                row.state if is_live(row, now) else "gone",
                row.busy,
                row.slots,
                when(now, row.seen_at),
                ", ".join(queues_of(row) or ["every"]),
                ", ".join(types_of(row)),
            ]
            for row in rows
        ],
    )


def worker_view(row: WorkerRow, now: Micros) -> dict[str, Any]:
    return {
        "id": row.id,
        "live": is_live(row, now),
        "state": row.state,
        "host": row.host,
        "pid": row.pid,
        "version": row.version,
        "queues": queues_of(row),
        "job_types": types_of(row),
        "slots": row.slots,
        "busy": row.busy,
        "lease_seconds": row.lease / 1_000_000,
        "started_at": iso(row.started_at),
        "seen_at": iso(row.seen_at),
    }
