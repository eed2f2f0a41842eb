"""`detent workers`: who works here and on what, drain or stop one from afar, and what became of lost ones' jobs."""

from typing import Annotated

import typer

from detent.cli.connection import on_engine
from detent.cli.options import Actor, AsJson, Reason, Url, actor_or_user, option
from detent.cli.output import say, say_json, show_table, tell, when
from detent.core.job import Micros
from detent.engine import Engine
from detent.engine.reads import workers as worker_acts
from detent.engine.reads.why import is_live, queues_of, span, types_of
from detent.ports.listing import WorkerRow

group = typer.Typer(help="See who works here, drain or stop one.", invoke_without_command=True)
WorkerId = Annotated[str, typer.Argument(metavar="WORKER", help="The worker's id, as `detent workers` lists it.")]


@group.callback()
def workers(
    context: typer.Context,
    held: Annotated[bool, option("--held", "Also list the jobs each of them holds.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List who works here; a worker not seen for three leases is gone."""
    if context.invoked_subcommand is not None:
        return
    found = on_engine(url, worker_acts.read_workers)
    if as_json:
        say_json({"workers": found.views()})
        return
    if not found.workers:
        say("no workers; start one with `detent worker APP`")
        return
    columns = ("worker", "host", ">pid", "version", "state", ">busy", ">slots", "seen", "queues", "types")
    show_table(columns, [_row(row, found) for row in found.workers])
    if held:
        _show_held(found)


def _row(row: WorkerRow, found: worker_acts.WorkerOverview) -> list[str | int]:
    return [
        row.id,
        row.host,
        row.pid,
        row.version,
        row.state if is_live(row, found.now) else "gone",
        row.busy,
        row.slots,
        when(found.now, row.seen_at),
        ", ".join(queues_of(row) or ["every"]),
        ", ".join(types_of(row)),
    ]


def _show_held(found: worker_acts.WorkerOverview) -> None:
    jobs = [job for held in found.held.values() for job in held]
    if not jobs:
        say("nobody holds a job")
        return
    rows: list[list[str | int]] = [
        [job.id, job.job_type, job.queue, job.execution_no, when(found.now, job.since), job.worker] for job in jobs
    ]
    show_table(("job", "type", "queue", ">execution", "since", "worker"), rows)


@group.command("drain")
def drain(
    worker: WorkerId, reason: Reason = None, actor: Actor = None, url: Url = None, as_json: AsJson = False
) -> None:
    """Tell a worker to claim nothing more, finish what it runs, and end."""
    _order(worker, worker_acts.DRAIN, reason, actor, url, as_json)


@group.command("stop")
def stop(
    worker: WorkerId, reason: Reason = None, actor: Actor = None, url: Url = None, as_json: AsJson = False
) -> None:
    """Tell a worker to stop as SIGTERM would: what is not done within its grace is handed back."""
    _order(worker, worker_acts.STOP, reason, actor, url, as_json)


def _order(worker: str, act: str, reason: str | None, actor: str | None, url: str | None, as_json: bool) -> None:
    async def tell_it(engine: Engine) -> worker_acts.WorkerCommand:
        return await worker_acts.order(engine, worker, act, actor=actor_or_user(actor), reason=reason)

    made = on_engine(url, tell_it)
    told = {"worker": worker, "act": act, "actor": made.actor, "reason": reason}
    tell(as_json, told, f"{worker} is told to {act}; it sees that within a second or so")


@group.command("recoveries")
def recoveries(url: Url = None, as_json: AsJson = False) -> None:
    """List what was taken back from lost workers: how many jobs, how many charged, how long it took."""

    async def act(engine: Engine) -> tuple[Micros, list[worker_acts.Recovery]]:
        return engine.store.now(), await worker_acts.recoveries(engine)

    now, found = on_engine(url, act)
    if as_json:
        say_json({"recoveries": [recovery.view() for recovery in found]})
        return
    if not found:
        say("no worker was lost within the last week")
        return
    rows: list[list[str | int]] = []
    for one in found:
        numbers = one.view()
        last = max(loss.at for loss in one.losses)
        rows.append(
            [one.worker, numbers["reclaimed"], numbers["charged"], numbers["given_up"], span(one.took), when(now, last)]
        )
    show_table(("worker", ">reclaimed", ">charged", ">given up", "took", "ended"), rows)
