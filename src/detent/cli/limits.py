"""`detent queues limit` and `detent queues tenant`: limits, shares and quotas, changed while everything runs."""

from typing import Annotated, Any

import typer

from ..core.limits import Limit
from ..engine import Engine
from ..engine.why import span
from ..limit_port import Terms
from .connection import on_engine
from .options import Actor, AsJson, Reason, Url, actor_or_user, option
from .output import say, say_json, show_table, tell

limit_group = typer.Typer(help="Bound what runs at once or begins within a period.", no_args_is_help=True)
tenant_group = typer.Typer(help="Weigh tenants, and give them quotas.", no_args_is_help=True)

Queue = Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Jobs of this queue.")]
OfType = Annotated[str | None, option("--type", "Jobs of this type.")]
OfTenant = Annotated[str | None, option("--tenant", "Jobs of this tenant.")]
OfKey = Annotated[str | None, option("--key", "Jobs with this limit key.")]
Per = Annotated[str | None, option("--per", "One limit for each queue, type, tenant or key.")]
Concurrency = Annotated[int | None, option("--concurrency", "How many run at once at the most.")]
Rate = Annotated[str | None, option("--rate", "How many begin within how many seconds: 100/60.")]
Name = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.")]


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
def add(
    queue: Queue = None,
    job_type: OfType = None,
    tenant: OfTenant = None,
    key: OfKey = None,
    per: Per = None,
    concurrency: Concurrency = None,
    rate: Rate = None,
    reason: Reason = None,
    actor: Actor = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Set a limit, or give one that is there other numbers; holds from the next claim of every worker on."""
    said: dict[str, Any] = {"queue": queue, "job_type": job_type, "tenant": tenant, "key": key, "per": per}
    bounds = {"concurrency": concurrency, "rate": rate_of(rate)}

    async def act(engine: Engine) -> Limit:
        return await engine.limit(**said, **bounds, actor=actor_or_user(actor), reason=reason)

    limit = on_engine(url, act)
    tell(as_json, limit.as_dict(), f"{limit.describe()}: at most {numbers(limit)}")


@limit_group.command("list")
def list_limits(url: Url = None, as_json: AsJson = False) -> None:
    """List every limit."""
    limits = on_engine(url, lambda engine: engine.limits())
    if as_json:
        say_json({"limits": [limit.as_dict() for limit in limits]})
    elif not limits:
        say("no limits; `detent queues limit add QUEUE --concurrency N` sets one")
    else:
        show_table(("limit on", "at most"), [[limit.describe(), numbers(limit)] for limit in limits])


@limit_group.command("remove")
def remove(
    queue: Queue = None,
    job_type: OfType = None,
    tenant: OfTenant = None,
    key: OfKey = None,
    per: Per = None,
    reason: Reason = None,
    actor: Actor = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Take a limit away, named by what it bounds."""
    said: dict[str, Any] = {"queue": queue, "job_type": job_type, "tenant": tenant, "key": key, "per": per}

    async def act(engine: Engine) -> Limit:
        return await engine.unlimit(**said, actor=actor_or_user(actor), reason=reason)

    limit = on_engine(url, act)
    tell(as_json, {**limit.as_dict(), "removed": True}, f"{limit.describe()}: no limit any more")


@tenant_group.command("set")
def set_tenant(
    tenant: Name,
    weight: Annotated[int | None, option("--weight", "Its share beside other tenants; 1 unless set.")] = None,
    max_backlog: Annotated[int | None, option("--max-backlog", "How many of its jobs may wait.")] = None,
    max_payload: Annotated[int | None, option("--max-payload", "How many bytes a payload of its may have.")] = None,
    reason: Reason = None,
    actor: Actor = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Set a tenant's weight and quotas; what is not named stays as it is."""
    said = {"weight": weight, "max_backlog": max_backlog, "max_payload": max_payload}

    async def act(engine: Engine) -> Terms:
        return await engine.agree(tenant, **said, actor=actor_or_user(actor), reason=reason)

    terms = on_engine(url, act)
    tell(as_json, terms._asdict(), f"tenant {tenant}: {_terms(terms)}")


@tenant_group.command("list")
def list_tenants(url: Url = None, as_json: AsJson = False) -> None:
    """List the tenants that have a weight or a quota of their own."""
    known = on_engine(url, lambda engine: engine.terms())
    if as_json:
        say_json({"tenants": [terms._asdict() for terms in known]})
    elif not known:
        say("every tenant weighs 1 and has no quota; `detent queues tenant set TENANT --weight N` changes that")
    else:
        show_table(("tenant", "terms"), [[terms.tenant_id, _terms(terms)] for terms in known])


@tenant_group.command("remove")
def remove_tenant(
    tenant: Name, reason: Reason = None, actor: Actor = None, url: Url = None, as_json: AsJson = False
) -> int:
    """Forget a tenant's weight and quotas; its jobs stay."""

    async def act(engine: Engine) -> bool:
        return await engine.unagree(tenant, actor=actor_or_user(actor), reason=reason)

    known = on_engine(url, act)
    said = "weighs 1 and has no quota" if known else "had no weight and no quota of its own"
    tell(as_json, {"tenant_id": tenant, "removed": known}, f"tenant {tenant} {said}")
    return 0 if known else 1


def _terms(terms: Terms) -> str:
    parts = [f"weight {terms.weight}"]
    if terms.max_backlog is not None:
        parts.append(f"at most {terms.max_backlog} jobs waiting")
    if terms.max_payload is not None:
        parts.append(f"payloads of at most {terms.max_payload} bytes")
    return ", ".join(parts)
