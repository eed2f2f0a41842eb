"""`detent queues`: what is left to do per queue, and pausing queues, job types and tenants."""

from typing import Annotated, Any

import typer

from ..core.job import Micros
from ..engine import Engine
from ..engine.queues import look_at_queues
from ..engine.why import Pause
from .connection import on_engine
from .limits import limit_group, numbers, tenant_group
from .options import Actor, AsJson, Reason, Url, actor_or_user, option
from .output import say, say_json, show_table, tell, when

group = typer.Typer(help="See what is left to do, pause and resume, limit and weigh.", no_args_is_help=True)
group.add_typer(limit_group, name="limit")
group.add_typer(tenant_group, name="tenant")

Queue = Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="The queue.")]
JobType = Annotated[str | None, option("--type", "This job type, in every queue.")]
Tenant = Annotated[str | None, option("--tenant", "This tenant, in every queue.")]


@group.command("list")
def list_queues(url: Url = None, as_json: AsJson = False) -> None:
    """List the queues with what is due, comes later and is held, and everything that is paused."""

    look = on_engine(url, look_at_queues)
    view = look.as_dict()
    if as_json:
        say_json(view)
        return
    now, queues, others = look.now, view["queues"], [pause for pause in look.pauses if pause.kind != "queue"]
    if not queues:
        say("no queues yet; `detent enqueue TYPE` makes one")
    else:
        _show(now, queues, look.paused)
    for pause in others:
        say(f"paused: {pause.kind.replace('_', ' ')} {pause.name} {_by(now, pause)}")
    for limit in look.limits:
        say(f"limit: {limit.describe()}: {numbers(limit)}")


def _show(now: Micros, queues: list[dict[str, Any]], paused: dict[str, Pause]) -> None:
    columns = ("queue", ">due", ">later", ">held", ">workers", "types", "paused")
    rows = []
    for row in queues:
        pause = paused.get(row["queue"])
        numbers = [row["due"], row["later"], row["held"], row["workers"]]
        rows.append([row["queue"], *numbers, ", ".join(row["job_types"]), _by(now, pause) if pause else ""])
    show_table(columns, rows)


def _by(now: Micros, pause: Pause) -> str:
    return f"by {pause.actor} {when(now, pause.at)}{f' ({pause.reason})' if pause.reason else ''}"


@group.command("pause")
def pause(
    queue: Queue = None,
    job_type: JobType = None,
    tenant: Tenant = None,
    reason: Reason = None,
    actor: Actor = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let nobody claim from a queue, a job type or a tenant; what is under way goes on."""
    kind, name = _which(queue, job_type, tenant)
    who = actor_or_user(actor)

    async def act(engine: Engine) -> None:
        await engine.pause(kind, name, actor=who, reason=reason)

    on_engine(url, act)
    said = f"{kind.replace('_', ' ')} {name} is paused; what is under way goes on"
    tell(as_json, {"kind": kind, "name": name, "paused": True, "actor": who, "reason": reason}, said)


@group.command("resume")
def resume(
    queue: Queue = None,
    job_type: JobType = None,
    tenant: Tenant = None,
    actor: Actor = None,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """End a pause."""
    kind, name = _which(queue, job_type, tenant)

    async def act(engine: Engine) -> bool:
        pauses = await engine.store.read(lambda tx: tx.pauses())
        was = any((kind, name) == (pause[0], pause[1]) for pause in pauses)
        if was:
            await engine.resume(kind, name, actor=actor_or_user(actor))
        return was

    was = on_engine(url, act)
    said = f"{kind.replace('_', ' ')} {name} {'goes on' if was else 'was not paused'}"
    tell(as_json, {"kind": kind, "name": name, "paused": False, "was_paused": was}, said)
    return 0 if was else 1


def _which(queue: str | None, job_type: str | None, tenant: str | None) -> tuple[str, str]:
    named = [(kind, name) for kind, name in zip(_KINDS, (queue, job_type, tenant), strict=True) if name]
    if len(named) != 1:
        raise typer.BadParameter("name one thing: a QUEUE, --type TYPE or --tenant TENANT")
    return named[0]


_KINDS = ("queue", "job_type", "tenant")
