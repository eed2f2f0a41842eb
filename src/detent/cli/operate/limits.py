"""`detent queues limit` and `detent queues tenant`: limits, shares and quotas, changed while everything runs."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from detent.cli.option_groups import Place, Signed, spread
from detent.cli.options import option
from detent.cli.output import say, say_json, show_table
from detent.core.limits import Limit
from detent.engine.reads.why import span
from detent.ports.limits import TenantQuota

limit_group = typer.Typer(help="Bound what runs at once or begins within a period.", no_args_is_help=True)
tenant_group = typer.Typer(help="Weigh tenants, and give them quotas.", no_args_is_help=True)

Concurrency = Annotated[int | None, option("--concurrency", "How many run at once at the most.")]
Rate = Annotated[str | None, option("--rate", "How many begin within how many seconds: 100/60.")]
Name = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.")]


@dataclass(frozen=True, slots=True)
class Bounded:
    """What a limit bounds."""

    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Jobs of this queue.")] = None
    job_type: Annotated[str | None, option("--type", "Jobs of this type.")] = None
    tenant: Annotated[str | None, option("--tenant", "Jobs of this tenant.")] = None
    key: Annotated[str | None, option("--key", "Jobs with this limit key.")] = None
    per: Annotated[str | None, option("--per", "One limit for each queue, type, tenant or key.")] = None


def numbers(limit: Limit) -> str:
    """A limit's bounds as people say them."""
    parts = [f"{limit.concurrency} at once"] if limit.concurrency is not None else []
    if limit.rate is not None and limit.period is not None:
        parts.append(f"{limit.rate} in {span(limit.period)}")
    return ", ".join(parts)


def rate_of(text: str | None) -> tuple[int, float] | None:
    if text is None:
        return None
    number, slash, seconds = text.partition("/")
    try:
        return int(number), float(seconds) if slash else 1.0
    except ValueError:
        raise typer.BadParameter(f"--rate {text!r} is none; write it like 100/60: 100 in 60 seconds") from None


@limit_group.command("add")
@spread
def add(bounded: Bounded, concurrency: Concurrency = None, rate: Rate = None, *, by: Signed, place: Place) -> None:
    """Set a limit, or give one that is there other numbers; holds from the next claim of every worker on."""
    said = {**asdict(bounded), "concurrency": concurrency, "rate": rate_of(rate)}
    limit = place.run(lambda engine: engine.limit(**said, **by.told()))
    place.tell(limit.as_dict(), f"{limit.describe()}: at most {numbers(limit)}")


@limit_group.command("list")
@spread
def list_limits(place: Place) -> None:
    """List every limit."""
    limits = place.run(lambda engine: engine.limits())
    if place.as_json:
        say_json({"limits": [limit.as_dict() for limit in limits]})
    elif not limits:
        say("no limits; `detent queues limit add QUEUE --concurrency N` sets one")
    else:
        show_table(("limit on", "at most"), [[limit.describe(), numbers(limit)] for limit in limits])


@limit_group.command("remove")
@spread
def remove(bounded: Bounded, by: Signed, place: Place) -> None:
    """Take a limit away, named by what it bounds."""
    limit = place.run(lambda engine: engine.remove_limit(**asdict(bounded), **by.told()))
    place.tell({**limit.as_dict(), "removed": True}, f"{limit.describe()}: no limit any more")


@tenant_group.command("set")
@spread
def set_tenant(
    tenant: Name,
    weight: Annotated[int | None, option("--weight", "Its share beside other tenants; 1 unless set.")] = None,
    max_backlog: Annotated[int | None, option("--max-backlog", "How many of its jobs may wait.")] = None,
    max_payload: Annotated[int | None, option("--max-payload", "How many bytes a payload of its may have.")] = None,
    *,
    by: Signed,
    place: Place,
) -> None:
    """Set a tenant's weight and quotas; what is not named stays as it is."""
    said: dict[str, Any] = {"weight": weight, "max_backlog": max_backlog, "max_payload": max_payload}
    quota = place.run(lambda engine: engine.set_quota(tenant, **said, **by.told()))
    place.tell(quota._asdict(), f"tenant {tenant}: {_terms(quota)}")


@tenant_group.command("list")
@spread
def list_tenants(place: Place) -> None:
    """List the tenants that have a weight or a quota of their own."""
    known = place.run(lambda engine: engine.tenant_quotas())
    if place.as_json:
        say_json({"tenants": [quota._asdict() for quota in known]})
    elif not known:
        say("every tenant weighs 1 and has no quota; `detent queues tenant set TENANT --weight N` changes that")
    else:
        show_table(("tenant", "terms"), [[quota.tenant_id, _terms(quota)] for quota in known])


@tenant_group.command("remove")
@spread
def remove_tenant(tenant: Name, by: Signed, place: Place) -> int:
    """Forget a tenant's weight and quotas; its jobs stay."""
    known = place.run(lambda engine: engine.remove_quota(tenant, **by.told()))
    said = "weighs 1 and has no quota" if known else "had no weight and no quota of its own"
    place.tell({"tenant_id": tenant, "removed": known}, f"tenant {tenant} {said}")
    return 0 if known else 1


def _terms(quota: TenantQuota) -> str:
    parts = [f"weight {quota.weight}"]
    if quota.max_backlog is not None:
        parts.append(f"at most {quota.max_backlog} jobs waiting")
    if quota.max_payload is not None:
        parts.append(f"payloads of at most {quota.max_payload} bytes")
    return ", ".join(parts)
