"""`detent workers`: lists workers, drains or stops one, and reports jobs reclaimed from lost workers."""

from typing import Annotated

import typer

from detent.cli.connection import on_engine
from detent.cli.options import Actor, AsJson, Reason, Url, actor_or_user, option
from detent.cli.output import print_json, print_line, print_result, print_table, relative_time
from detent.core.access import Scope
from detent.core.job import Micros
from detent.engine import Engine
from detent.engine.reads import workers as worker_acts
from detent.engine.reads.why import is_live, queues_of, span, types_of
from detent.ports.listing import WorkerCommand, WorkerRow

group = typer.Typer(help="List, drain and stop workers.", invoke_without_command=True)
WorkerId = Annotated[str, typer.Argument(metavar="WORKER", help="The worker's id, see `detent workers`.")]


@group.callback()
def workers(
    context: typer.Context,
    held: Annotated[bool, option("--held", "Also list the jobs that each worker is running.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List workers; one without a heartbeat for three leases is shown as lost."""
    if context.invoked_subcommand is not None:
        return
    overview = on_engine(url, lambda engine: engine.workers.overview())
    if as_json:
        print_json({"workers": overview.views()})
        return
    if not overview.workers:
        print_line("No workers. Start one with `detent worker APP`.")
        return
    columns = ("worker", "host", ">pid", "version", "state", ">busy", ">slots", "last seen", "queues", "types")
    print_table(columns, [_row(row, overview) for row in overview.workers])
    if held:
        _print_held_jobs(overview)


def _row(row: WorkerRow, overview: worker_acts.WorkerOverview) -> list[str | int]:
    return [
        row.id,
        row.host,
        row.pid,
        row.version,
        row.state if is_live(row, overview.now) else "lost",
        row.busy,
        row.slots,
        relative_time(overview.now, row.seen_at),
        ", ".join(queues_of(row) or ["all"]),
        ", ".join(types_of(row)),
    ]


def _print_held_jobs(overview: worker_acts.WorkerOverview) -> None:
    jobs = [job for held in overview.held.values() for job in held]
    if not jobs:
        print_line("No worker is running a job.")
        return
    rows: list[list[str | int]] = [
        [job.id, job.job_type, job.queue, job.execution_no, relative_time(overview.now, job.since), job.worker]
        for job in jobs
    ]
    print_table(("job", "type", "queue", ">attempt", "started", "worker"), rows)


@group.command("drain")
def drain(
    worker: WorkerId, reason: Reason = None, actor: Actor = None, url: Url = None, as_json: AsJson = False
) -> None:
    """Drain a worker: it claims no more jobs, finishes the running ones and exits."""
    _send_command(worker, worker_acts.DRAIN, reason, actor, url, as_json)


@group.command("stop")
def stop(
    worker: WorkerId, reason: Reason = None, actor: Actor = None, url: Url = None, as_json: AsJson = False
) -> None:
    """Stop a worker like SIGTERM: jobs that do not finish within its grace period are released."""
    _send_command(worker, worker_acts.STOP, reason, actor, url, as_json)


def _send_command(worker: str, act: str, reason: str | None, actor: str | None, url: str | None, as_json: bool) -> None:
    async def send(engine: Engine) -> WorkerCommand:
        return await engine.workers.send_command(worker, act, Scope(actor_or_user(actor), reason))

    command = on_engine(url, send)
    view = {"worker": worker, "act": act, "actor": command.actor, "reason": reason}
    print_result(as_json, view, f"{act} requested for {worker}; the worker checks about once per second")


@group.command("recoveries")
def recoveries(url: Url = None, as_json: AsJson = False) -> None:
    """List lost workers of the last week: jobs reclaimed, failures counted, and how long it took."""

    async def act(engine: Engine) -> tuple[Micros, list[worker_acts.Recovery]]:
        return engine.store.now(), await engine.workers.recoveries()

    now, reports = on_engine(url, act)
    if as_json:
        print_json({"recoveries": [recovery.view() for recovery in reports]})
        return
    if not reports:
        print_line("No worker was lost in the last week.")
        return
    rows: list[list[str | int]] = []
    for recovery in reports:
        view = recovery.view()
        completed = relative_time(now, max(loss.at for loss in recovery.losses))
        counts = [view["reclaimed"], view["charged"], view["given_up"]]
        rows.append([recovery.worker, *counts, span(recovery.duration), completed])
    print_table(("worker", ">reclaimed", ">charged", ">failed", "duration", "completed"), rows)
