"""`detent queues limit` and `detent queues tenant`: limits, tenant weights and quotas; no restart is needed."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from detent.cli.option_groups import AuditOptions, CommandGroup, ConnectionOptions
from detent.cli.options import option
from detent.core.limits import Limit
from detent.engine.reads.why import span
from detent.ports.limits import TenantQuota

limit_group = CommandGroup(help="Limit how many jobs run concurrently or start within a period.", no_args_is_help=True)
tenant_group = CommandGroup(help="Set weights and quotas of tenants.", no_args_is_help=True)

Concurrency = Annotated[int | None, option("Maximum number of jobs that run concurrently.")]
Rate = Annotated[str | None, option("Maximum number of starts in a period: 100/60 is 100 per 60 seconds.")]
Name = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.")]


@dataclass(frozen=True, slots=True)
class LimitScope:
    """The jobs that a limit applies to."""

    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Jobs of this queue.")] = None
    job_type: Annotated[str | None, option("Jobs of this type.", name="--type")] = None
    tenant: Annotated[str | None, option("Jobs of this tenant.")] = None
    key: Annotated[str | None, option("Jobs with this limit key.")] = None
    per: Annotated[str | None, option("A separate limit for each: queue, type, tenant or key.")] = None


def format_limit(limit: Limit) -> str:
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
        raise typer.BadParameter(
            f"--rate {text!r} is invalid; write it like 100/60: 100 starts per 60 seconds"
        ) from None


@limit_group.command("add")
def add(
    scope: LimitScope,
    concurrency: Concurrency = None,
    rate: Rate = None,
    *,
    audit: AuditOptions,
    connection: ConnectionOptions,
) -> None:
    """Add a limit, or change the numbers of an existing one; it applies from the next claim of every worker."""
    values = {**asdict(scope), "concurrency": concurrency, "rate": _parse_rate(rate)}
    limit = connection.run(lambda engine: engine.limits.set(audit.scope(), **values))
    connection.print_result(limit.as_dict(), f"{limit.describe()}: {format_limit(limit)}")


@limit_group.command("list")
def list_limits(connection: ConnectionOptions) -> None:
    """List all limits."""
    limits = connection.run(lambda engine: engine.limits.list())
    view = {"limits": [limit.as_dict() for limit in limits]}
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
    view = {"tenants": [quota._asdict() for quota in quotas]}
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
