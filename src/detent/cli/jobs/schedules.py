"""`detent schedules`: list, show, add, edit, pause, resume, remove, preview, backfill, run."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

import typer

from detent.cli.loader import load_app
from detent.cli.option_groups import (
    AuditOptions,
    BulkOptions,
    CommandGroup,
    ConnectionOptions,
    PageOptions,
    TableOptions,
    TenantAuditOptions,
)
from detent.cli.options import App, ContractFilter, Limit, QueueFilter, Rate, Tenant, TextFilter, TypeFilter, option
from detent.cli.output import (
    list_view,
    pluralize,
    print_fields,
    print_json,
    print_line,
    print_table,
    relative_time,
    shorten,
)
from detent.core.cron import zone_of
from detent.core.job import Micros
from detent.core.options.option import COMMAND, options_of
from detent.core.options.schedule_options import ScheduleTiming
from detent.core.schedule import Fire, Schedule
from detent.core.times import iso
from detent.engine import Engine
from detent.engine.reads import responses
from detent.engine.schedules.backfill import Backfill
from detent.engine.schedules.request import ScheduleRequest
from detent.engine.schedules.schedules import Preview, schedule_view
from detent.ports.listing import Filter

group = CommandGroup(
    help="Manage schedules: jobs that are created at a time, at an interval or by cron.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name or id.", show_default=False)]


_TIMING = frozenset(options_of(ScheduleTiming, COMMAND))
TimingOptions = Annotated[dict[str, Any], TableOptions(ScheduleTiming)]
NewJobOptions = Annotated[dict[str, Any], TableOptions(ScheduleRequest, without=_TIMING)]
JobOptions = Annotated[dict[str, Any], TableOptions(ScheduleRequest, without=_TIMING | {"tenant_id"})]


@group.command("list")
def list_schedules(
    tenant: Tenant = None,
    queue: QueueFilter = None,
    contract: ContractFilter = None,
    job_type: TypeFilter = None,
    text: TextFilter = None,
    *,
    page_options: PageOptions,
    connection: ConnectionOptions,
) -> None:
    """List schedules, newest first."""
    limit = page_options.limit + 1
    filter = Filter(contract, None, None, queue, tenant, job_type, text, page_options.cursor, limit)
    now, schedules = connection.run_with_time(lambda engine: engine.schedules.list(filter))
    page, next_cursor = page_options.paginate(schedules, lambda schedule: schedule.id)
    view = list_view(map(schedule_view, page), next_cursor)
    columns = ("name", "when", "type", "next run", "last run", ">runs", ">missed", "state")
    empty = "No schedules." if filter == Filter(limit=limit) else "No schedules match."
    connection.print_list(view, columns, (_row(now, schedule) for schedule in page), empty)


def _row(now: Micros, schedule: Schedule) -> list[str | int | None]:
    next_run = relative_time(now, schedule.retry_at or schedule.next_fire_at)
    last_run = relative_time(now, schedule.last_fire_at)
    counts = (schedule.fires, schedule.misfires)
    zone = f" {schedule.timezone}" if schedule.kind == "cron" and schedule.timezone != "UTC" else ""
    timing = f"{schedule.kind} {schedule.expression}{zone}"
    return [schedule.name, timing, schedule.job_type, next_run, last_run, *counts, _state(schedule)]


def _state(schedule: Schedule) -> str:
    if schedule.paused_at is not None:
        return "paused"
    if schedule.last_error:
        return f"{'held back: ' if schedule.retry_at else ''}{shorten(schedule.last_error, 48)}"
    return "finished" if schedule.next_fire_at is None else ""


@group.command("show")
def show(name: Name, tenant: Tenant = None, limit: Limit = 10, *, connection: ConnectionOptions) -> None:
    """Show one schedule and its last runs."""

    async def act(engine: Engine) -> tuple[Schedule, list[Fire]]:
        schedule = await engine.scoped(tenant=tenant).schedules.get(name)
        return schedule, await engine.schedules.fires(schedule.id, limit=limit)

    schedule, fires = connection.run(act)
    runs = [responses.show(responses.ScheduleRun, fire) for fire in fires]
    view = schedule_view(schedule)
    if connection.as_json:
        print_json({**view, "last_fires": runs})
        return
    print_fields({**view, "payload": schedule.payload, "in_words": view["in_words"].get("en")})
    if runs:
        print_line()
        print_table(("run at", "job"), [[run["fire_at"], run["job_id"]] for run in runs])


@group.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the new schedule.", show_default=False)],
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="The job type, as in @app.job(TYPE).")],
    *,
    timing: TimingOptions,
    job: NewJobOptions,
    paused: Annotated[bool, option("Create it paused; `schedules resume` starts it.")] = False,
    audit: AuditOptions,
    app: App = None,
    connection: ConnectionOptions,
) -> None:
    """Add a schedule; --cron, --every or --at sets when it runs."""
    application = load_app(app) if app else None
    payload = job.pop("payload", None)
    given = {"payload", *job} if application is None else None
    if application is not None:
        request = replace(application.schedules.request(name, job_type, payload), **timing, **job)
    else:
        request = ScheduleRequest(name, job_type, payload, **timing, **job)
    _change_schedule(
        connection.with_app(application),
        lambda engine: engine.schedules.add(request, audit.scope(), paused=paused, given=given),
        "added",
    )


@group.command("edit")
def edit(
    name: Name,
    *,
    timing: TimingOptions,
    job: JobOptions,
    unset: Annotated[
        list[str] | None, option("Reset this option to its default: --unset ends-at.", metavar="NAME")
    ] = None,
    version: Annotated[int | None, option("Change it only if it still has this version.")] = None,
    audit: TenantAuditOptions,
    app: App = None,
    connection: ConnectionOptions,
) -> None:
    """Change a schedule; options that are left out keep their value."""
    application = load_app(app) if app else None
    changes = {**dict.fromkeys(name.replace("-", "_") for name in unset or ()), **timing, **job}

    async def act(engine: Engine) -> Schedule:
        if "payload" in job and application is not None:
            schedule = await engine.scoped(tenant=audit.tenant).schedules.get(name)
            changes["payload"] = application.jobs.checked_payload(schedule.job_type, job["payload"])
        return await engine.schedules.edit(name, changes, audit.scope(), version=version)

    _change_schedule(connection.with_app(application), act, "changed")


@group.command("pause")
def pause(name: Name, audit: TenantAuditOptions, connection: ConnectionOptions) -> None:
    """Pause a schedule; jobs it has already created continue."""
    _change_schedule(connection, lambda engine: engine.schedules.pause(name, audit.scope()), "paused")


@group.command("run")
def run_now(name: Name, audit: TenantAuditOptions, connection: ConnectionOptions) -> None:
    """Create the job of a run now, also if the schedule is paused; its later runs stay as they are."""
    job = connection.run(lambda engine: engine.schedules.run_now(name, audit.scope()))
    connection.print_result({"job_id": job.id, "status": job.status}, f"{name}: job {job.id} created")


@group.command("resume")
def resume(name: Name, audit: TenantAuditOptions, connection: ConnectionOptions) -> None:
    """Resume a paused schedule; runs that passed meanwhile are not made up for."""
    _change_schedule(connection, lambda engine: engine.schedules.resume(name, audit.scope()), "resumed")


@group.command("remove")
def remove(name: Name, audit: TenantAuditOptions, connection: ConnectionOptions) -> None:
    """Remove a schedule; jobs it has already created stay."""
    removed = connection.run(lambda engine: engine.schedules.remove(name, audit.scope()))
    note = "; it is declared in code, so the next worker that starts adds it again" if removed.declared else ""
    connection.print_result(schedule_view(removed), f"{removed.name} removed{note}")


def _change_schedule(connection: ConnectionOptions, act: Callable[[Engine], Awaitable[Schedule]], done: str) -> None:
    schedule = connection.run(act)
    next_run = "" if schedule.next_fire_at is None else f"; next run {iso(schedule.next_fire_at)}"
    connection.print_result(schedule_view(schedule), f"{schedule.name} {done}{next_run}")


@group.command("preview")
def preview(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The schedule's name or id.")] = None,
    *,
    timing: TimingOptions,
    after: Annotated[str | None, option("Runs after this time instead of now.")] = None,
    count: Annotated[int, option("How many runs.", min=1, max=1_000)] = 5,
    tenant: Tenant = None,
    connection: ConnectionOptions,
) -> None:
    """Show the next runs of a schedule, or of the timing given by --cron, --every or --at."""
    if (name is None) == (not timing.keys() & {"cron", "every", "at"}):
        raise typer.BadParameter("give the NAME of a schedule, or one of --cron, --every and --at")

    async def act(engine: Engine) -> tuple[str, list[Preview]]:
        if name is None:
            request = ScheduleRequest("preview", "preview", **timing)
            return request.tz or "UTC", await engine.schedules.preview(request, count, after=after)
        schedule = await engine.scoped(tenant=tenant).schedules.get(name)
        return schedule.timezone, await engine.schedules.preview(schedule.id, count, after=after)

    zone, runs = connection.run(act)
    view = {"timezone": zone, "fires": [responses.show(responses.PlannedRun, run) for run in runs]}
    rows = ([iso(run.fire_at), _local(run.fire_at, zone), iso(run.due_at)] for run in runs)
    connection.print_list(view, ("run at", f"in {zone}", "due"), rows, "No more runs.")


def _local(at: Micros, zone: str) -> str:
    return f"{datetime.fromtimestamp(at // 1_000_000, zone_of(zone)):%a %Y-%m-%d %H:%M:%S %z}"


@group.command("backfill")
def backfill_command(
    name: Name,
    first: Annotated[str, option("Start of the range: 2026-01-01T00:00:00Z.", name="--from")],
    last: Annotated[str, option("End of the range.", name="--to")],
    rate: Rate = None,
    *,
    bulk: BulkOptions,
    audit: TenantAuditOptions,
    connection: ConnectionOptions,
) -> int:
    """Create the missing jobs of past runs, after a confirmation."""

    async def act(engine: Engine, dry: bool) -> Backfill:
        return await engine.schedules.backfill(name, first, last, audit.scope(), rate=rate, dry_run=dry)

    def preview(result: Backfill) -> tuple[int, str]:
        existing = f"; {result.known} of {pluralize(result.fires, 'run')} already have a job" if result.known else ""
        return result.made, f"{pluralize(result.made, 'job')} would be created{existing}"

    def report(result: Backfill) -> tuple[bool, list[str]]:
        return True, [f"{pluralize(result.made, 'job')} created"]

    return bulk.run(connection, act, preview, report)
