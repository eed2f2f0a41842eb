"""`detent schedules`: list, show, add, edit, pause, resume, remove, preview, backfill."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from detent.cli.app_option import App, application
from detent.cli.option_groups import Asked, Page, Place, Signed, spread
from detent.cli.options import DryRun, InQueue, Limit, OfContract, OfType, Rate, Tenant, Text, Yes, json_value, option
from detent.cli.output import asked, counted, say, say_json, shortened, show_fields, show_table, when
from detent.core.job import Micros
from detent.core.schedule import Fire, Misfire, Overlap, Schedule
from detent.core.times import iso
from detent.engine import Engine
from detent.engine.schedules import schedules as acts
from detent.engine.schedules.backfill import Backfill, backfill
from detent.engine.schedules.request import ScheduleRequest
from detent.engine.schedules.schedules import Preview, schedule_view
from detent.ports.listing import Filter

group = typer.Typer(help="Make jobs at their time, again and again.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name or id.", show_default=False)]


@dataclass(frozen=True, slots=True)
class When:
    """When it fires."""

    cron: Annotated[str | None, option("--cron", "Five fields (or six, seconds first), or @daily and the like.")] = None
    every: Annotated[str | None, option("--every", "A span: 30s, 5m, 1h30m, 2d.")] = None
    at: Annotated[str | None, option("--at", "Once, at this moment: 2030-01-31T12:00:00Z.")] = None
    tz: Annotated[str | None, option("--tz", "The zone of cron times, like Europe/Berlin; default UTC.")] = None


@dataclass(frozen=True, slots=True)
class Work:
    """What it makes."""

    payload: Annotated[
        str | None, option("--payload", "The arguments as a JSON object; - reads stdin, @FILE a file.")
    ] = None
    contract: Annotated[str | None, option("--contract", "The contract its jobs live under; default standard.")] = None
    queue: Annotated[str | None, option("--queue", "The queue of its jobs.")] = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How its jobs run, and what is done about fires that are missed or too early."""

    priority: Annotated[int | None, option("--priority", "The priority of its jobs, -100 to 100.")] = None
    max_retries: Annotated[int | None, option("--max-retries", "Tries after the first.", min=0)] = None
    timeout_ms: Annotated[int | None, option("--timeout-ms", "How long one try may take.", min=1)] = None
    limit_key: Annotated[str | None, option("--limit-key", "What limits per key count its jobs under.")] = None
    deadline: Annotated[
        float | None,
        option("--deadline", "Seconds after it is due a job that nobody began ends."),
    ] = None
    starts_at: Annotated[str | None, option("--starts-at", "No fire before this moment.")] = None
    ends_at: Annotated[str | None, option("--ends-at", "No fire after this moment.")] = None
    jitter: Annotated[float | None, option("--jitter", "Each job is due up to so many seconds later.", min=0)] = None
    misfire: Annotated[
        Misfire | None, option("--misfire", "Fires missed: none, one or all of them are made up for.")
    ] = None
    misfire_limit: Annotated[int | None, option("--misfire-limit", "How many `all` makes up for.", min=1)] = None
    misfire_grace: Annotated[float | None, option("--misfire-grace", "So many seconds late is on time.", min=0)] = None
    overlap: Annotated[Overlap | None, option("--overlap", "While a job of an earlier fire has not ended.")] = None


def said(*bundles: When | Work | Rules) -> dict[str, Any]:
    """The fields of a request among the options, as far as they were given; a payload is read first."""
    given = {one.name: getattr(bundle, one.name) for bundle in bundles for one in fields(bundle)}
    return {name: value for name, value in given.items() if value is not None and name != "payload"}


@group.command("list")
@spread
def list_schedules(
    tenant: Tenant = None,
    queue: InQueue = None,
    contract: OfContract = None,
    job_type: OfType = None,
    text: Text = None,
    *,
    part: Page,
    place: Place,
) -> None:
    """List schedules, newest first."""
    chosen = Filter(contract, None, None, queue, tenant, job_type, text, part.cursor, part.limit)

    async def act(engine: Engine) -> tuple[Micros, list[Schedule]]:
        return engine.store.now(), await acts.listed(engine, replace(chosen, limit=part.limit + 1))

    now, found = place.run(act)
    page, next_cursor = part.of(found, lambda one: one.id)
    if place.as_json:
        say_json({"schedules": [schedule_view(one) for one in page], "next_cursor": next_cursor})
        return
    if not page:
        say("no schedules" if chosen == Filter(limit=part.limit) else "no schedules match")
        return
    columns = ("name", "when", "type", "next", "last", ">fires", ">missed", "state")
    show_table(columns, [_row(now, one) for one in page])
    if next_cursor:
        say(f"more: --cursor {next_cursor}")


def _row(now: Micros, one: Schedule) -> list[str | int | None]:
    coming = when(now, one.next_fire_at) if one.next_fire_at is not None else None
    last = when(now, one.last_fire_at) if one.last_fire_at is not None else None
    return [one.name, _when(one), one.job_type, coming, last, one.fires, one.misfires, _state(one)]


def _when(one: Schedule) -> str:
    zone = f" {one.timezone}" if one.kind == "cron" and one.timezone != "UTC" else ""
    return f"{one.kind} {one.expression}{zone}"


def _state(one: Schedule) -> str:
    if one.paused_at is not None:
        return "paused"
    if one.last_error:
        return shortened(one.last_error, 48)
    return "ended" if one.next_fire_at is None else ""


@group.command("show")
@spread
def show(name: Name, tenant: Tenant = None, limit: Limit = 10, *, place: Place) -> None:
    """Show one schedule and its last fires."""

    async def act(engine: Engine) -> tuple[Schedule, list[Fire]]:
        one = await acts.get(engine, name, tenant=tenant)
        return one, await acts.fires(engine, one.id, limit=limit)

    one, fires = place.run(act)
    told = [{"fire_at": iso(fire.fire_at), "job_id": fire.job_id, "made_at": iso(fire.made_at)} for fire in fires]
    if place.as_json:
        say_json({**schedule_view(one), "last_fires": told})
        return
    show_fields({**schedule_view(one), "payload": one.payload})
    if told:
        say()
        show_table(("fire", "job"), [[fire["fire_at"], fire["job_id"]] for fire in told])


@group.command("add")
@spread
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called.", show_default=False)],
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="The job type, as in @app.job(TYPE).")],
    *,
    when: When,
    work: Work,
    tenant: Annotated[str | None, option("--tenant", "Whose jobs they are; default: default.")] = None,
    rules: Rules,
    paused: Annotated[bool, option("--paused", "Do not fire until it is resumed.")] = False,
    by: Signed,
    app: App = None,
    place: Place,
) -> None:
    """Add a schedule: --cron, --every or --at says when it fires."""
    known = application(app)
    asked_for = said(when, work, rules)
    given = json_value(work.payload, "--payload")
    if tenant is not None:
        asked_for["tenant_id"] = tenant
    if known is not None:
        ask = replace(known.schedules.request(name, job_type, given), **asked_for)
    else:
        ask = ScheduleRequest(name, job_type, payload=given, **asked_for)
    _told(place.of(known), lambda engine: acts.add(engine, ask, **by.told(), paused=paused), "added")


@group.command("edit")
@spread
def edit(
    name: Name,
    *,
    when: When,
    work: Work,
    rules: Rules,
    unset: Annotated[
        list[str] | None, option("--unset", "Take back what was said: --unset ends-at.", metavar="NAME")
    ] = None,
    version: Annotated[int | None, option("--version", "Only if it is still at this version.")] = None,
    by: Asked,
    app: App = None,
    place: Place,
) -> None:
    """Change a schedule while it runs; what is not said stays as it is."""
    known = application(app)
    changes = dict.fromkeys(name.replace("-", "_") for name in unset or ()) | said(when, work, rules)
    given = json_value(work.payload, "--payload")

    async def act(engine: Engine) -> Schedule:
        if given is not None:
            there = await acts.get(engine, name, tenant=by.tenant)
            handler = known.jobs.get(there.job_type) if known else None
            changes["payload"] = handler.handler.payload((), given) if handler else given
        return await acts.edit(engine, name, changes, **by.told(), version=version)

    _told(place.of(known), act, "changed")


@group.command("pause")
@spread
def pause(name: Name, by: Asked, place: Place) -> None:
    """Let a schedule rest; jobs it has made go on."""
    _told(place, lambda engine: acts.pause(engine, name, **by.told()), "paused")


@group.command("resume")
@spread
def resume(name: Name, by: Asked, place: Place) -> None:
    """Let a paused schedule fire again, from now on."""
    _told(place, lambda engine: acts.resume(engine, name, **by.told()), "goes on")


@group.command("remove")
@spread
def remove(name: Name, by: Asked, place: Place) -> None:
    """Remove a schedule; jobs it has made stay."""
    gone = place.run(lambda engine: acts.remove(engine, name, **by.told()))
    back = "; the code declares it, so the next worker that starts brings it back" if gone.declared else ""
    place.tell(schedule_view(gone), f"{gone.name} removed{back}")


def _told(place: Place, act: Callable[[Engine], Awaitable[Schedule]], done: str) -> None:
    one = place.run(act)
    coming = "" if one.next_fire_at is None else f"; next fire {iso(one.next_fire_at)}"
    place.tell(schedule_view(one), f"{one.name} {done}{coming}")


@group.command("preview")
@spread
def preview(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The schedule's name or id.")] = None,
    *,
    when: When,
    after: Annotated[str | None, option("--after", "Those behind this moment instead of now.")] = None,
    count: Annotated[int, option("--count", "How many fires.", min=1, max=1_000)] = 5,
    tenant: Tenant = None,
    place: Place,
) -> None:
    """Show the next fires of a schedule, or of one that is only thought of."""
    thought_of: dict[str, Any] = {"cron": when.cron, "every": when.every, "at": when.at}
    if (name is None) == (not any(thought_of.values())):
        raise typer.BadParameter("name a schedule, or say --cron, --every or --at")

    async def act(engine: Engine) -> tuple[str, list[Preview]]:
        if name is None:
            ask = ScheduleRequest("preview", "preview", tz=when.tz, **thought_of)
            return when.tz or "UTC", await acts.preview(engine, ask, count, after=after)
        one = await acts.get(engine, name, tenant=tenant)
        return one.timezone, await acts.preview(engine, one.id, count, after=after)

    zone, fires = place.run(act)
    if place.as_json:
        told = [{"fire_at": iso(fire.fire_at), "due_at": iso(fire.due_at)} for fire in fires]
        say_json({"timezone": zone, "fires": told})
        return
    if not fires:
        say("no fire is to come")
        return
    show_table(("fire", f"in {zone}", "due"), [[iso(f.fire_at), _local(f.fire_at, zone), iso(f.due_at)] for f in fires])


def _local(moment: Micros, zone: str) -> str:
    return f"{datetime.fromtimestamp(moment // 1_000_000, ZoneInfo(zone)):%a %Y-%m-%d %H:%M:%S %z}"


@group.command("backfill")
@spread
def backfill_command(
    name: Name,
    first: Annotated[str, option("--from", "The first moment: 2026-01-01T00:00:00Z.")],
    last: Annotated[str, option("--to", "The last moment.")],
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    by: Asked,
    place: Place,
) -> int:
    """Make the jobs of fires that have passed and have none; says how many, and asks."""

    def run(dry: bool) -> Backfill:
        return place.run(lambda engine: backfill(engine, name, first, last, **by.told(), rate=rate, dry_run=dry))

    seen = run(True)
    had = f"; {seen.known} of {counted(seen.fires, 'fire')} have theirs" if seen.known else ""
    sentence = f"{counted(seen.made, 'job')} would be made{had}"
    go = not dry_run and seen.made > 0 and asked(sentence, yes, place.as_json)
    done = run(False) if go else seen
    if place.as_json:
        say_json({"dry_run": not go, **done.as_dict()})
    elif go:
        say(f"{counted(done.made, 'job')} made")
    elif dry_run or not seen.made:
        say(sentence)
    return 0 if go or dry_run or not seen.made else 1
