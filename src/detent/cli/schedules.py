"""`detent schedules`: list, show, add, edit, pause, resume, remove, preview, backfill."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from ..core.job import Micros
from ..core.schedule import Fire, Misfire, Overlap, Schedule
from ..core.times import iso
from ..engine import Engine
from ..engine import schedules as acts
from ..engine.backfill import Backfill, backfill
from ..engine.schedule_request import ScheduleRequest
from ..engine.schedules import Preview, schedule_view
from ..ports import Filter
from .connection import on_engine
from .known_app import App, application, url_of
from .options import (
    Actor,
    AsJson,
    Cursor,
    DryRun,
    InQueue,
    Limit,
    OfContract,
    OfType,
    Rate,
    Reason,
    Tenant,
    Text,
    Url,
    Yes,
    actor_or_user,
    json_value,
    option,
)
from .output import asked, counted, say, say_json, shortened, show_fields, show_table, tell, when

group = typer.Typer(help="Make jobs at their time, again and again.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name or id.", show_default=False)]
Cron = Annotated[str | None, option("--cron", "Five fields (or six, seconds first), or @daily and the like.")]
Every = Annotated[str | None, option("--every", "A span: 30s, 5m, 1h30m, 2d.")]
At = Annotated[str | None, option("--at", "Once, at this moment: 2030-01-31T12:00:00Z.")]
Tz = Annotated[str | None, option("--tz", "The zone of cron times, like Europe/Berlin; default UTC.")]
Payload = Annotated[str | None, option("--payload", "The arguments as a JSON object; - reads stdin, @FILE a file.")]
Contract = Annotated[str | None, option("--contract", "The contract its jobs live under; default standard.")]
Queue = Annotated[str | None, option("--queue", "The queue of its jobs.")]
Priority = Annotated[int | None, option("--priority", "The priority of its jobs, -100 to 100.")]
MaxRetries = Annotated[int | None, option("--max-retries", "Tries after the first.", min=0)]
TimeoutMs = Annotated[int | None, option("--timeout-ms", "How long one try may take.", min=1)]
LimitKey = Annotated[str | None, option("--limit-key", "What limits per key count its jobs under.")]
Deadline = Annotated[float | None, option("--deadline", "Seconds after it is due a job that nobody began ends.")]
StartsAt = Annotated[str | None, option("--starts-at", "No fire before this moment.")]
EndsAt = Annotated[str | None, option("--ends-at", "No fire after this moment.")]
Jitter = Annotated[float | None, option("--jitter", "Each job is due up to so many seconds later.", min=0)]
OnMisfire = Annotated[Misfire | None, option("--misfire", "Fires missed: none, one or all of them are made up for.")]
MisfireLimit = Annotated[int | None, option("--misfire-limit", "How many `all` makes up for.", min=1)]
MisfireGrace = Annotated[float | None, option("--misfire-grace", "So many seconds late is on time.", min=0)]
OnOverlap = Annotated[Overlap | None, option("--overlap", "While a job of an earlier fire has not ended.")]


@group.command("list")
def list_schedules(
    tenant: Tenant = None,
    queue: InQueue = None,
    contract: OfContract = None,
    job_type: OfType = None,
    text: Text = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List schedules, newest first."""
    chosen = Filter(contract, None, None, queue, tenant, job_type, text, cursor, limit)

    async def act(engine: Engine) -> tuple[Micros, list[Schedule]]:
        return engine.store.now(), await acts.listed(engine, replace(chosen, limit=limit + 1))

    now, found = on_engine(url, act)
    page = found[:limit]
    next_cursor = page[-1].id if len(found) > limit else None
    if as_json:
        say_json({"schedules": [schedule_view(one) for one in page], "next_cursor": next_cursor})
        return
    if not page:
        say("no schedules" if chosen == Filter(limit=limit) else "no schedules match")
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
def show(name: Name, tenant: Tenant = None, limit: Limit = 10, url: Url = None, as_json: AsJson = False) -> None:
    """Show one schedule and its last fires."""

    async def act(engine: Engine) -> tuple[Schedule, list[Fire]]:
        one = await acts.get(engine, name, tenant=tenant)
        return one, await acts.fires(engine, one.id, limit=limit)

    one, fires = on_engine(url, act)
    told = [{"fire_at": iso(fire.fire_at), "job_id": fire.job_id, "made_at": iso(fire.made_at)} for fire in fires]
    if as_json:
        say_json({**schedule_view(one), "last_fires": told})
        return
    show_fields({**schedule_view(one), "payload": one.payload})
    if told:
        say()
        show_table(("fire", "job"), [[fire["fire_at"], fire["job_id"]] for fire in told])


@group.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called.", show_default=False)],
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="The job type, as in @app.job(TYPE).")],
    cron: Cron = None,
    every: Every = None,
    at: At = None,
    tz: Tz = None,
    payload: Payload = None,
    contract: Contract = None,
    queue: Queue = None,
    tenant: Annotated[str | None, option("--tenant", "Whose jobs they are; default: default.")] = None,
    priority: Priority = None,
    max_retries: MaxRetries = None,
    timeout_ms: TimeoutMs = None,
    limit_key: LimitKey = None,
    deadline: Deadline = None,
    starts_at: StartsAt = None,
    ends_at: EndsAt = None,
    jitter: Jitter = None,
    misfire: OnMisfire = None,
    misfire_limit: MisfireLimit = None,
    misfire_grace: MisfireGrace = None,
    overlap: OnOverlap = None,
    paused: Annotated[bool, option("--paused", "Do not fire until it is resumed.")] = False,
    reason: Reason = None,
    actor: Actor = None,
    app: App = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Add a schedule: --cron, --every or --at says when it fires."""
    known = application(app)
    fields = _fields(locals())
    given = json_value(payload, "--payload")
    if tenant is not None:
        fields["tenant_id"] = tenant
    if known is not None:
        ask = replace(known.schedules.request(name, job_type, given), **fields)
    else:
        ask = ScheduleRequest(name, job_type, payload=given, **fields)

    async def act(engine: Engine) -> Schedule:
        return await acts.add(engine, ask, actor=actor_or_user(actor), reason=reason, paused=paused)

    _told(on_engine(url_of(url, known), act), as_json, "added")


@group.command("edit")
def edit(
    name: Name,
    cron: Cron = None,
    every: Every = None,
    at: At = None,
    tz: Tz = None,
    payload: Payload = None,
    contract: Contract = None,
    queue: Queue = None,
    priority: Priority = None,
    max_retries: MaxRetries = None,
    timeout_ms: TimeoutMs = None,
    limit_key: LimitKey = None,
    deadline: Deadline = None,
    starts_at: StartsAt = None,
    ends_at: EndsAt = None,
    jitter: Jitter = None,
    misfire: OnMisfire = None,
    misfire_limit: MisfireLimit = None,
    misfire_grace: MisfireGrace = None,
    overlap: OnOverlap = None,
    version: Annotated[int | None, option("--version", "Only if it is still at this version.")] = None,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    app: App = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change a schedule while it runs; what is not said stays as it is."""
    known = application(app)
    changes = _fields(locals())
    given = json_value(payload, "--payload")

    async def act(engine: Engine) -> Schedule:
        if given is not None:
            there = await acts.get(engine, name, tenant=tenant)
            handler = known.jobs.get(there.job_type) if known else None
            changes["payload"] = handler.handler.payload((), given) if handler else given
        who = actor_or_user(actor)
        return await acts.edit(engine, name, changes, actor=who, reason=reason, tenant=tenant, version=version)

    _told(on_engine(url_of(url, known), act), as_json, "changed")


def _fields(said: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request among a command's options, as far as they were given."""
    return {name: said[name] for name in _OPTIONS if said.get(name) is not None}


_OPTIONS = (
    "cron",
    "every",
    "at",
    "tz",
    "contract",
    "queue",
    "priority",
    "max_retries",
    "timeout_ms",
    "limit_key",
    "deadline",
    "starts_at",
    "ends_at",
    "jitter",
    "misfire",
    "misfire_limit",
    "misfire_grace",
    "overlap",
)


@group.command("pause")
def pause(
    name: Name,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let a schedule rest; jobs it has made go on."""

    async def act(engine: Engine) -> Schedule:
        return await acts.pause(engine, name, actor=actor_or_user(actor), reason=reason, tenant=tenant)

    _told(on_engine(url, act), as_json, "paused")


@group.command("resume")
def resume(
    name: Name,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let a paused schedule fire again, from now on."""

    async def act(engine: Engine) -> Schedule:
        return await acts.resume(engine, name, actor=actor_or_user(actor), reason=reason, tenant=tenant)

    _told(on_engine(url, act), as_json, "goes on")


@group.command("remove")
def remove(
    name: Name,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Remove a schedule; jobs it has made stay."""

    async def act(engine: Engine) -> Schedule:
        return await acts.remove(engine, name, actor=actor_or_user(actor), reason=reason, tenant=tenant)

    gone = on_engine(url, act)
    back = "; the code declares it, so the next worker that starts brings it back" if gone.declared else ""
    tell(as_json, schedule_view(gone), f"{gone.name} removed{back}")


def _told(one: Schedule, as_json: bool, done: str) -> None:
    coming = "" if one.next_fire_at is None else f"; next fire {iso(one.next_fire_at)}"
    tell(as_json, schedule_view(one), f"{one.name} {done}{coming}")


@group.command("preview")
def preview(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The schedule's name or id.")] = None,
    cron: Cron = None,
    every: Every = None,
    at: At = None,
    tz: Tz = None,
    after: Annotated[str | None, option("--after", "Those behind this moment instead of now.")] = None,
    count: Annotated[int, option("--count", "How many fires.", min=1, max=1_000)] = 5,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the next fires of a schedule, or of one that is only thought of."""
    thought_of: dict[str, Any] = {"cron": cron, "every": every, "at": at}
    if (name is None) == (not any(thought_of.values())):
        raise typer.BadParameter("name a schedule, or say --cron, --every or --at")

    async def act(engine: Engine) -> tuple[str, list[Preview]]:
        if name is None:
            ask = ScheduleRequest("preview", "preview", tz=tz, **thought_of)
            return tz or "UTC", await acts.preview(engine, ask, count, after=after)
        one = await acts.get(engine, name, tenant=tenant)
        return one.timezone, await acts.preview(engine, one.id, count, after=after)

    zone, fires = on_engine(url, act)
    if as_json:
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
def backfill_command(
    name: Name,
    first: Annotated[str, option("--from", "The first moment: 2026-01-01T00:00:00Z.")],
    last: Annotated[str, option("--to", "The last moment.")],
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """Make the jobs of fires that have passed and have none; says how many, and asks."""

    def run(dry: bool) -> Backfill:
        async def act(engine: Engine) -> Backfill:
            who = actor_or_user(actor)
            told: dict[str, Any] = {"actor": who, "reason": reason, "tenant": tenant, "rate": rate, "dry_run": dry}
            return await backfill(engine, name, first, last, **told)

        return on_engine(url, act)

    seen = run(True)
    had = f"; {seen.known} of {counted(seen.fires, 'fire')} have theirs" if seen.known else ""
    sentence = f"{counted(seen.made, 'job')} would be made{had}"
    go = not dry_run and seen.made > 0 and asked(sentence, yes, as_json)
    done = run(False) if go else seen
    if as_json:
        say_json({"dry_run": not go, **done.as_dict()})
    elif go:
        say(f"{counted(done.made, 'job')} made")
    elif dry_run or not seen.made:
        say(sentence)
    return 0 if go or dry_run or not seen.made else 1
