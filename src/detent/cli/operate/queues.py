"""`detent queues`: lists, pauses and limits queues, job types and tenants; sets weights and quotas of tenants."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from detent.cli.option_groups import ActorOptions, AuditOptions, CommandGroup, ConnectionOptions
from detent.cli.options import option
from detent.cli.output import list_view, print_line, relative_time
from detent.core.job import Micros
from detent.core.limits import Limit
from detent.engine.reads import operations
from detent.engine.reads.queue_state import state_text
from detent.engine.reads.why import span
from detent.ports.limits import Pause, TenantQuota

group = CommandGroup(help="List, pause, resume and limit queues; set tenant quotas.", no_args_is_help=True)
limit_group = CommandGroup(help="Limit how many jobs run concurrently or start within a period.", no_args_is_help=True)
tenant_group = CommandGroup(help="Set weights and quotas of tenants.", no_args_is_help=True)
group.add_typer(limit_group, name="limit")
group.add_typer(tenant_group, name="tenant")

Name = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.")]


@dataclass(frozen=True, slots=True)
class PauseTarget:
    """A queue, a job type or a tenant."""

    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="The queue's name.")] = None
    job_type: Annotated[str | None, option("This job type, in every queue.", name="--type")] = None
    tenant: Annotated[str | None, option("This tenant, in every queue.")] = None

    def kind_and_name(self) -> tuple[str, str]:
        targets = [(kind, name) for kind, name in asdict(self).items() if name]
        if len(targets) != 1:
            raise typer.BadParameter("give exactly one of QUEUE, --type TYPE and --tenant TENANT")
        return targets[0]


@group.command("list")
def list_queues(connection: ConnectionOptions) -> None:
    """List queues with their ready, scheduled and running jobs, and all pauses and limits."""
    overview = connection.run(lambda engine: engine.stats.queues())
    view, now = overview.queues_view(), overview.now
    columns = ("queue", "state", ">ready", ">scheduled", ">running", ">workers", "types", "paused")
    rows = (_row(now, queue, overview.paused.get(queue["queue"])) for queue in view["items"])
    empty = "No queues yet. `detent enqueue TYPE` creates the first job and its queue."
    connection.print_list(view, columns, rows, empty)
    if connection.as_json:
        return
    for pause in (pause for pause in overview.pauses if pause.kind != "queue"):
        print_line(f"paused: {pause.kind.replace('_', ' ')} {pause.name} {_paused_by(now, pause)}")
    for limit in overview.limits:
        print_line(f"limit: {limit.describe()}: {_format_limit(limit)}")


def _row(now: Micros, queue: operations.Queue, pause: Pause | None) -> list[str | int]:
    counts = [queue["due"], queue["later"], queue["held"], queue["workers"]]
    state = state_text(queue["state"], queue["unserved_types"])
    return [queue["queue"], state, *counts, ", ".join(queue["job_types"]), _paused_by(now, pause) if pause else ""]


def _paused_by(now: Micros, pause: Pause) -> str:
    return f"by {pause.actor} {relative_time(now, pause.at)}{f' ({pause.reason})' if pause.reason else ''}"


@group.command("pause")
def pause(target: PauseTarget, audit: AuditOptions, connection: ConnectionOptions) -> None:
    """Stop claiming jobs of a queue, a job type or a tenant; running jobs continue."""
    kind, name = target.kind_and_name()
    scope = audit.scope()
    connection.run(lambda engine: engine.limits.pause(kind, name, scope))
    message = f"{kind.replace('_', ' ')} {name} paused; running jobs continue"
    view = {"kind": kind, "name": name, "paused": True, "actor": scope.actor, "reason": scope.reason}
    connection.print_result(view, message)


@group.command("resume")
def resume(target: PauseTarget, actor: ActorOptions, connection: ConnectionOptions) -> int:
    """Resume a paused queue, job type or tenant."""
    kind, name = target.kind_and_name()
    was_paused = connection.run(lambda engine: engine.limits.resume(kind, name, actor.scope()))
    message = f"{kind.replace('_', ' ')} {name} {'resumed' if was_paused else 'was not paused'}"
    connection.print_result({"kind": kind, "name": name, "paused": False, "was_paused": was_paused}, message)
    return 0 if was_paused else 1


@dataclass(frozen=True, slots=True)
class LimitScope:
    """The jobs that a limit applies to."""

    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Jobs of this queue.")] = None
    job_type: Annotated[str | None, option("Jobs of this type.", name="--type")] = None
    tenant: Annotated[str | None, option("Jobs of this tenant.")] = None
    key: Annotated[str | None, option("Jobs with this limit key.")] = None
    per: Annotated[str | None, option("A separate limit for each: queue, type, tenant or key.")] = None


def _format_limit(limit: Limit) -> str:
    """For example: max 5 concurrent, max 100 starts per 60 s."""
    parts = [f"max {limit.concurrency} concurrent"] if limit.concurrency is not None else []
    if rate := _format_rate(limit):
        parts.append(f"max {rate.replace(' ', ' starts ', 1)}")
    return ", ".join(parts)


def _format_rate(limit: Limit) -> str:
    return "" if limit.rate is None or limit.period is None else f"{limit.rate} per {span(limit.period)}"


def _parse_rate(text: str | None) -> tuple[int, float] | None:
    if text is None:
        return None
    number, slash, seconds = text.partition("/")
    try:
        return int(number), float(seconds) if slash else 1.0
    except ValueError:
        advice = "write it like 100/60: 100 starts per 60 seconds"
        raise typer.BadParameter(f"--rate {text!r} is invalid; {advice}") from None


@limit_group.command("add")
def add(
    scope: LimitScope,
    concurrency: Annotated[int | None, option("Maximum number of jobs that run concurrently.")] = None,
    rate: Annotated[str | None, option("Maximum number of starts in a period: 100/60 is 100 per 60 seconds.")] = None,
    *,
    audit: AuditOptions,
    connection: ConnectionOptions,
) -> None:
    """Add a limit, or change the numbers of an existing one; it applies from the next claim of every worker."""
    values = {**asdict(scope), "concurrency": concurrency, "rate": _parse_rate(rate)}
    limit = connection.run(lambda engine: engine.limits.set(audit.scope(), **values))
    connection.print_result(limit.as_dict(), f"{limit.describe()}: {_format_limit(limit)}")


@limit_group.command("list")
def list_limits(connection: ConnectionOptions) -> None:
    """List all limits."""
    limits = connection.run(lambda engine: engine.limits.list())
    view = list_view(limit.as_dict() for limit in limits)
    rows = ([limit.describe(), limit.concurrency, _format_rate(limit)] for limit in limits)
    empty = "No limits. Add one with `detent queues limit add QUEUE --concurrency N`."
    connection.print_list(view, ("applies to", ">max concurrent", "max starts"), rows, empty)


@limit_group.command("remove")
def remove(scope: LimitScope, audit: AuditOptions, connection: ConnectionOptions) -> None:
    """Remove the limit with exactly this scope."""
    limit = connection.run(lambda engine: engine.limits.remove(audit.scope(), **asdict(scope)))
    connection.print_result({**limit.as_dict(), "removed": True}, f"{limit.describe()}: limit removed")


@tenant_group.command("set")
def set_tenant(
    tenant: Name,
    weight: Annotated[int | None, option("Share of claims relative to other tenants; default 1.")] = None,
    max_backlog: Annotated[int | None, option("Maximum number of its jobs that may wait.")] = None,
    max_payload: Annotated[int | None, option("Maximum size of a payload in bytes.")] = None,
    *,
    audit: AuditOptions,
    connection: ConnectionOptions,
) -> None:
    """Set a tenant's weight and quotas; options that are left out keep their value."""
    values: dict[str, Any] = {"weight": weight, "max_backlog": max_backlog, "max_payload": max_payload}
    quota = connection.run(lambda engine: engine.limits.set_quota(tenant, audit.scope(), **values))
    connection.print_result(quota._asdict(), f"tenant {tenant}: {_format_quota(quota)}")


@tenant_group.command("list")
def list_tenants(connection: ConnectionOptions) -> None:
    """List tenants that have a weight or a quota."""
    quotas = connection.run(lambda engine: engine.limits.quotas())
    view = list_view(quota._asdict() for quota in quotas)
    rows = ([quota.tenant_id, quota.weight, quota.max_backlog, quota.max_payload] for quota in quotas)
    empty = "No tenant has a weight or a quota. Set one with `detent queues tenant set TENANT --weight N`."
    connection.print_list(view, ("tenant", ">weight", ">max waiting jobs", ">max payload bytes"), rows, empty)


@tenant_group.command("remove")
def remove_tenant(tenant: Name, audit: AuditOptions, connection: ConnectionOptions) -> int:
    """Remove a tenant's weight and quotas; its jobs stay."""
    removed = connection.run(lambda engine: engine.limits.remove_quota(tenant, audit.scope()))
    outcome = "weight and quotas removed" if removed else "has no weight and no quota"
    connection.print_result({"tenant_id": tenant, "removed": removed}, f"tenant {tenant}: {outcome}")
    return 0 if removed else 1


def _format_quota(quota: TenantQuota) -> str:
    parts = [f"weight {quota.weight}"]
    if quota.max_backlog is not None:
        parts.append(f"max {quota.max_backlog} waiting jobs")
    if quota.max_payload is not None:
        parts.append(f"max payload {quota.max_payload} bytes")
    return ", ".join(parts)
