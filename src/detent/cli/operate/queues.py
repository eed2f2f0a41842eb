"""`detent queues`: lists queues with their backlog; pauses and resumes queues, job types and tenants."""

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from detent.cli.option_groups import AuditOptions, ConnectionOptions, expand_option_groups
from detent.cli.options import Actor, actor_or_user, option
from detent.cli.output import print_json, print_line, print_table, relative_time
from detent.core.access import Scope
from detent.core.job import Micros
from detent.engine import Engine
from detent.engine.reads import operations
from detent.ports.limits import Pause

from .limits import format_limit, limit_group, tenant_group

group = typer.Typer(help="List, pause, resume and limit queues; set tenant quotas.", no_args_is_help=True)
group.add_typer(limit_group, name="limit")
group.add_typer(tenant_group, name="tenant")


@dataclass(frozen=True, slots=True)
class PauseTarget:
    """A queue, a job type or a tenant."""

    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="The queue's name.")] = None
    job_type: Annotated[str | None, option("--type", "This job type, in every queue.")] = None
    tenant: Annotated[str | None, option("--tenant", "This tenant, in every queue.")] = None

    def kind_and_name(self) -> tuple[str, str]:
        targets = [(kind, name) for kind, name in asdict(self).items() if name]
        if len(targets) != 1:
            raise typer.BadParameter("give exactly one of QUEUE, --type TYPE and --tenant TENANT")
        return targets[0]


@group.command("list")
@expand_option_groups
def list_queues(connection: ConnectionOptions) -> None:
    """List queues with their ready, scheduled and running jobs, and all pauses and limits."""
    overview = connection.run(lambda engine: engine.stats.queues())
    view = overview.queues_view()
    if connection.as_json:
        print_json(view)
        return
    now, queues = overview.now, view["queues"]
    if not queues:
        print_line("No queues yet. `detent enqueue TYPE` creates the first job and its queue.")
    else:
        _print_queues(now, queues, overview.paused)
    for pause in (pause for pause in overview.pauses if pause.kind != "queue"):
        print_line(f"paused: {pause.kind.replace('_', ' ')} {pause.name} {_paused_by(now, pause)}")
    for limit in overview.limits:
        print_line(f"limit: {limit.describe()}: {format_limit(limit)}")


def _print_queues(now: Micros, queues: list[operations.Queue], paused: dict[str, Pause]) -> None:
    columns = ("queue", ">ready", ">scheduled", ">running", ">workers", "types", "paused")
    rows: list[list[str | int]] = []
    for row in queues:
        pause = paused.get(row["queue"])
        counts = [row["due"], row["later"], row["held"], row["workers"]]
        rows.append([row["queue"], *counts, ", ".join(row["job_types"]), _paused_by(now, pause) if pause else ""])
    print_table(columns, rows)


def _paused_by(now: Micros, pause: Pause) -> str:
    return f"by {pause.actor} {relative_time(now, pause.at)}{f' ({pause.reason})' if pause.reason else ''}"


@group.command("pause")
@expand_option_groups
def pause(target: PauseTarget, audit: AuditOptions, connection: ConnectionOptions) -> None:
    """Stop claiming jobs of a queue, a job type or a tenant; running jobs continue."""
    kind, name = target.kind_and_name()
    scope = audit.scope()
    connection.run(lambda engine: engine.limits.pause(kind, name, scope))
    message = f"{kind.replace('_', ' ')} {name} paused; running jobs continue"
    view = {"kind": kind, "name": name, "paused": True, "actor": scope.actor, "reason": scope.reason}
    connection.print_result(view, message)


@group.command("resume")
@expand_option_groups
def resume(target: PauseTarget, actor: Actor = None, *, connection: ConnectionOptions) -> int:
    """Resume a paused queue, job type or tenant."""
    kind, name = target.kind_and_name()

    async def act(engine: Engine) -> bool:
        pauses = await engine.store.read(lambda tx: tx.pauses.list_pauses())
        was_paused = any((kind, name) == (pause[0], pause[1]) for pause in pauses)
        if was_paused:
            await engine.limits.resume(kind, name, Scope(actor_or_user(actor)))
        return was_paused

    was_paused = connection.run(act)
    message = f"{kind.replace('_', ' ')} {name} {'resumed' if was_paused else 'was not paused'}"
    connection.print_result({"kind": kind, "name": name, "paused": False, "was_paused": was_paused}, message)
    return 0 if was_paused else 1
