"""`detent queues`: what is left to do per queue, and pausing queues, job types and tenants."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from detent.cli.option_groups import Place, Signed, spread
from detent.cli.options import Actor, actor_or_user, option
from detent.cli.output import say, say_json, show_table, when
from detent.core.job import Micros
from detent.engine import Engine
from detent.engine.reads.queues import look_at_queues
from detent.engine.reads.why import Pause

from .limits import limit_group, numbers, tenant_group

group = typer.Typer(help="See what is left to do, pause and resume, limit and weigh.", no_args_is_help=True)
group.add_typer(limit_group, name="limit")
group.add_typer(tenant_group, name="tenant")


@dataclass(frozen=True, slots=True)
class Named:
    """One thing that can be paused."""

    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="The queue.")] = None
    job_type: Annotated[str | None, option("--type", "This job type, in every queue.")] = None
    tenant: Annotated[str | None, option("--tenant", "This tenant, in every queue.")] = None

    def one(self) -> tuple[str, str]:
        """Its kind and its name."""
        named = [(kind, name) for kind, name in asdict(self).items() if name]
        if len(named) != 1:
            raise typer.BadParameter("name one thing: a QUEUE, --type TYPE or --tenant TENANT")
        return named[0]


@group.command("list")
@spread
def list_queues(place: Place) -> None:
    """List the queues with what is due, comes later and is held, and everything that is paused."""
    look = place.run(look_at_queues)
    view = look.as_dict()
    if place.as_json:
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
@spread
def pause(named: Named, by: Signed, place: Place) -> None:
    """Let nobody claim from a queue, a job type or a tenant; what is under way goes on."""
    kind, name = named.one()
    told = by.told()
    place.run(lambda engine: engine.pause(kind, name, **told))
    said = f"{kind.replace('_', ' ')} {name} is paused; what is under way goes on"
    place.tell({"kind": kind, "name": name, "paused": True, **told}, said)


@group.command("resume")
@spread
def resume(named: Named, actor: Actor = None, *, place: Place) -> int:
    """End a pause."""
    kind, name = named.one()

    async def act(engine: Engine) -> bool:
        pauses = await engine.store.read(lambda tx: tx.pauses())
        was = any((kind, name) == (pause[0], pause[1]) for pause in pauses)
        if was:
            await engine.resume(kind, name, actor=actor_or_user(actor))
        return was

    was = place.run(act)
    said = f"{kind.replace('_', ' ')} {name} {'goes on' if was else 'was not paused'}"
    place.tell({"kind": kind, "name": name, "paused": False, "was_paused": was}, said)
    return 0 if was else 1
