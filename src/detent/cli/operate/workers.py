"""`detent workers`: lists workers, drains or stops one, and reports jobs reclaimed from lost workers."""

from typing import Annotated

import typer

from detent.cli.option_groups import AuditOptions, CommandGroup, ConnectionOptions, expand_option_groups
from detent.cli.options import option
from detent.cli.output import Cell, list_view, print_list, relative_time
from detent.core.job import Micros
from detent.engine.reads import workers as worker_acts
from detent.engine.reads.why import is_live, queues_of, span, types_of
from detent.ports.listing import WorkerRow

group = CommandGroup(help="List, drain and stop workers.", invoke_without_command=True)
WorkerId = Annotated[str, typer.Argument(metavar="WORKER", help="The worker's id, see `detent workers`.")]


@group.callback()
@expand_option_groups
def workers(
    context: typer.Context,
    held: Annotated[bool, option("Also list the jobs that each worker is running.")] = False,
    *,
    connection: ConnectionOptions,
) -> None:
    """List workers; one without a heartbeat for three leases is shown as lost."""
    if context.invoked_subcommand is not None:
        return
    overview = connection.run(lambda engine: engine.workers.overview())
    columns = ("worker", "host", ">pid", "version", "state", ">busy", ">slots", "last seen", "queues", "types")
    rows = (_row(row, overview) for row in overview.workers)
    empty = "No workers. Start one with `detent worker APP`."
    connection.print_list(list_view(overview.views()), columns, rows, empty)
    if held and overview.workers and not connection.as_json:
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
    rows: list[list[Cell]] = [
        [job.id, job.job_type, job.queue, job.execution_no, relative_time(overview.now, job.since), job.worker]
        for held in overview.held.values()
        for job in held
    ]
    columns = ("job", "type", "queue", ">attempt", "started", "worker")
    print_list(False, {}, columns, rows, "No worker is running a job.")


@group.command("drain")
def drain(worker: WorkerId, audit: AuditOptions, connection: ConnectionOptions) -> None:
    """Drain a worker: it claims no more jobs, finishes the running ones and exits."""
    _send_command(worker, worker_acts.DRAIN, audit, connection)


@group.command("stop")
def stop(worker: WorkerId, audit: AuditOptions, connection: ConnectionOptions) -> None:
    """Stop a worker like SIGTERM: jobs that do not finish within its grace period are released."""
    _send_command(worker, worker_acts.STOP, audit, connection)


def _send_command(worker: str, act: str, audit: AuditOptions, connection: ConnectionOptions) -> None:
    command = connection.run(lambda engine: engine.workers.send_command(worker, act, audit.scope()))
    view = {"worker": worker, "act": act, "actor": command.actor, "reason": audit.reason}
    connection.print_result(view, f"{act} requested for {worker}; the worker checks about once per second")


@group.command("recoveries")
def list_recoveries(connection: ConnectionOptions) -> None:
    """List lost workers of the last week: jobs reclaimed, failures counted, and how long it took."""
    now, recoveries = connection.run_with_time(lambda engine: engine.workers.recoveries())
    view = list_view(recovery.view() for recovery in recoveries)
    columns = ("worker", ">reclaimed", ">charged", ">failed", "duration", "completed")
    rows = (_recovery_row(now, recovery) for recovery in recoveries)
    connection.print_list(view, columns, rows, "No worker was lost in the last week.")


def _recovery_row(now: Micros, recovery: worker_acts.Recovery) -> list[str | int]:
    view = recovery.view()
    completed = relative_time(now, max(loss.at for loss in recovery.losses))
    counts = [view["reclaimed"], view["charged"], view["given_up"]]
    return [recovery.worker, *counts, span(recovery.duration), completed]
