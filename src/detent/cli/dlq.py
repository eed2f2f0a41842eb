"""`detent dlq`: the dead letters. list, show, requeue, discard."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from ..core.job import DeadLetter, Micros
from ..engine import Engine
from ..engine.letters import Discard
from ..engine.views import letter_view
from ..ports import Filter
from .connection import on_engine
from .job_acts import requeue
from .options import (
    Actor,
    AsJson,
    Cursor,
    InQueue,
    Limit,
    OfContract,
    OfType,
    Reason,
    Tenant,
    Text,
    Url,
    actor_or_user,
    option,
)
from .output import say, say_json, shortened, show_fields, show_table, tell, when

group = typer.Typer(help="Look at dead letters, requeue or discard them.", no_args_is_help=True)
group.command("requeue")(requeue)

LetterId = Annotated[str, typer.Argument(metavar="DLQ_ID", help="The dead letter's id.", show_default=False)]


class Fate(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    REQUEUED = "requeued"
    DISCARDED = "discarded"


@group.command("list")
def list_letters(
    status: Annotated[Fate | None, option("--status", "Only these.")] = None,
    queue: InQueue = None,
    contract: OfContract = None,
    tenant: Tenant = None,
    job_type: OfType = None,
    text: Text = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first."""
    chosen = Filter(contract, status and str(status), None, queue, tenant, job_type, text, cursor, limit)

    async def act(engine: Engine) -> tuple[Micros, list[DeadLetter]]:
        return engine.store.now(), await engine.dead_letters(replace(chosen, limit=limit + 1))

    now, found = on_engine(url, act)
    page = found[:limit]
    next_cursor = page[-1].id if len(found) > limit else None
    if as_json:
        say_json({"items": [letter_view(item) for item in page], "next_cursor": next_cursor})
        return
    if not page:
        say("no dead letters" if chosen == Filter(limit=limit) else "no dead letters match")
        return
    show_table(("dlq_id", "job_id", "type", "status", "error", "since", "proposed by"), [_row(now, i) for i in page])
    if next_cursor:
        say(f"more: --cursor {next_cursor}")


def _row(now: Micros, item: DeadLetter) -> list[str | None]:
    error = shortened(f"{item.error_code}: {item.error_message or ''}", 48)
    return [item.id, item.job_id, item.job_type, item.status, error, when(now, item.created_at), item.proposed_by]


@group.command("show")
def show(dlq_id: LetterId, tenant: Tenant = None, url: Url = None, as_json: AsJson = False) -> None:
    """Show one dead letter."""

    async def act(engine: Engine) -> DeadLetter:
        return await engine.dead_letter(dlq_id, tenant=tenant)

    item = on_engine(url, act)
    if as_json:
        say_json(letter_view(item))
        return
    shown: dict[str, Any] = {**letter_view(item), "payload_json": item.payload, "context_json": item.context}
    show_fields(shown)


@group.command("discard")
def discard(
    dlq_id: LetterId,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Throw a dead letter away. Where the contract asks for two people, the first proposes, another confirms."""

    async def act(engine: Engine) -> Discard:
        return await engine.discard(dlq_id, person=actor_or_user(actor), reason=reason, tenant=tenant)

    done = on_engine(url, act)
    said = "discarded" if done.confirmed else "proposed; another person confirms it with the same command"
    tell(as_json, {"confirmed": done.confirmed, "item": letter_view(done.item)}, f"{dlq_id} {said}")
