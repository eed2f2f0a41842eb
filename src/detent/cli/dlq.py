"""`detent dlq`: the dead letters of every contract. list, show, requeue, discard; one, or all that match."""

import json
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from ..core.job import DeadLetter, Micros
from ..core.schedule import read_every
from ..engine import Engine
from ..engine.bulk import Bulk, discard_many, letter_history, requeue_many
from ..engine.letters import Discard
from ..engine.views import letter_view
from ..ports import Filter
from .connection import on_engine
from .job_acts import Edit, Payload, TakeSteps, requeue
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
    option,
)
from .output import asked, counted, say, say_json, shortened, show_fields, show_table, tell, when

group = typer.Typer(help="Look at dead letters, requeue or discard them.", no_args_is_help=True)

LetterId = Annotated[str, typer.Argument(metavar="DLQ_ID", help="The dead letter's id.", show_default=False)]
MaybeId = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="The dead letter (or its job); without it: all that match.")
]
ErrorCode = Annotated[str | None, option("--error-code", "Only this error code.")]
OlderThan = Annotated[str | None, option("--older-than", "Only those given up longer ago than this: 30s, 5m, 2h, 7d.")]
NewerThan = Annotated[str | None, option("--newer-than", "Only those given up within this: 30s, 5m, 2h, 7d.")]
Everything = Annotated[bool, option("--all", "Every open dead letter there is.")]


class Fate(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    REQUEUED = "requeued"
    DISCARDED = "discarded"


def aged(chosen: Filter, now: Micros, older_than: str | None, newer_than: str | None) -> Filter:
    until = None if older_than is None else now - read_every(older_than)
    since = None if newer_than is None else now - read_every(newer_than)
    return replace(chosen, until=until, since=since)


@group.command("list")
def list_letters(
    status: Annotated[Fate | None, option("--status", "Only these.")] = None,
    queue: InQueue = None,
    contract: OfContract = None,
    tenant: Tenant = None,
    job_type: OfType = None,
    error_code: ErrorCode = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    text: Text = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first."""
    chosen = Filter(contract, status and str(status), None, queue, tenant, job_type, text, cursor, limit, error_code)

    async def act(engine: Engine) -> tuple[Micros, list[DeadLetter]]:
        now = engine.store.now()
        return now, await engine.dead_letters(replace(aged(chosen, now, older_than, newer_than), limit=limit + 1))

    now, found = on_engine(url, act)
    page = found[:limit]
    next_cursor = page[-1].id if len(found) > limit else None
    if as_json:
        say_json({"items": [letter_view(item) for item in page], "next_cursor": next_cursor})
        return
    if not page:
        everything = chosen == Filter(limit=limit) and older_than is None and newer_than is None
        say("no dead letters" if everything else "no dead letters match")
        return
    show_table(("dlq_id", "job_id", "type", "status", "error", "since", "proposed by"), [_row(now, i) for i in page])
    if next_cursor:
        say(f"more: --cursor {next_cursor}")


def _row(now: Micros, item: DeadLetter) -> list[str | None]:
    error = shortened(f"{item.error_code}: {item.error_message or ''}", 48)
    return [item.id, item.job_id, item.job_type, item.status, error, when(now, item.created_at), item.proposed_by]


@group.command("show")
def show(dlq_id: LetterId, tenant: Tenant = None, url: Url = None, as_json: AsJson = False) -> None:
    """Show one dead letter: payload, error, what happened to its job and what people did to it."""

    async def act(engine: Engine) -> dict[str, Any]:
        return await letter_history(engine, dlq_id, tenant=tenant)

    told = on_engine(url, act)
    if as_json:
        say_json(told)
        return
    history, acts = told.pop("history"), told.pop("acts")
    told |= {name: json.dumps(told[name], ensure_ascii=False) for name in ("payload_json", "context_json")}
    show_fields(told)
    say()
    show_table(("at", "event", "change", "actor"), [_event(event) for event in history])
    for one in acts:
        why = f": {one['reason']}" if one["reason"] else ""
        say(f"{one['at']} {one['act']} by {one['actor']}{why}")


def _event(event: dict[str, Any]) -> list[str | None]:
    change = "note" if event["note"] else f"{event['source'] or '·'} -> {event['target']}"
    return [event["at"], event["event"], change, event["actor"]]


@group.command("requeue")
def requeue_letters(
    some_id: MaybeId = None,
    queue: InQueue = None,
    contract: OfContract = None,
    job_type: OfType = None,
    error_code: ErrorCode = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    text: Text = None,
    everything: Everything = False,
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    payload: Payload = None,
    edit: Edit = False,
    take_steps: TakeSteps = False,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    app: App = None,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """Make new jobs of dead letters: of one, or of all open ones that match, after saying how many."""
    chosen = Filter(contract, None, None, queue, tenant, job_type, text, error_code=error_code)
    _one_or_many(some_id, chosen, older_than, newer_than, everything)
    if some_id is not None:
        requeue(some_id, payload, edit, take_steps, reason, actor, tenant, app, url, as_json)
        return 0
    if payload is not None or edit:
        raise typer.BadParameter("--payload and --edit repair one dead letter; name it")
    known = application(app)

    async def act(engine: Engine, dry: bool) -> Bulk:
        matching = aged(chosen, engine.store.now(), older_than, newer_than)
        who = actor_or_user(actor)
        options: dict[str, Any] = {"rate": rate, "take_steps": take_steps, "dry_run": dry}
        if known is not None:
            options["check"] = known.dead_letters.check
        return await requeue_many(engine, matching, actor=who, reason=reason, **options)

    def run(dry: bool) -> Bulk:
        return on_engine(url_of(url, known), lambda engine: act(engine, dry))

    return _in_bulk(run, "requeued", dry_run, yes, as_json)


@group.command("discard")
def discard(
    dlq_id: MaybeId = None,
    queue: InQueue = None,
    contract: OfContract = None,
    job_type: OfType = None,
    error_code: ErrorCode = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    text: Text = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = None,
    actor: Actor = None,
    tenant: Tenant = None,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """Throw dead letters away. Where the contract asks for two people, the first proposes, another confirms."""
    chosen = Filter(contract, None, None, queue, tenant, job_type, text, error_code=error_code)
    _one_or_many(dlq_id, chosen, older_than, newer_than, everything)
    who = actor_or_user(actor)
    if dlq_id is not None:
        _discard_one(dlq_id, who, reason, tenant, url, as_json)
        return 0

    async def act(engine: Engine, dry: bool) -> Bulk:
        matching = aged(chosen, engine.store.now(), older_than, newer_than)
        return await discard_many(engine, matching, person=who, reason=reason, dry_run=dry)

    return _in_bulk(lambda dry: on_engine(url, lambda e: act(e, dry)), "discarded", dry_run, yes, as_json)


def _discard_one(dlq_id: str, who: str, reason: str | None, tenant: str | None, url: str | None, as_json: bool) -> None:
    async def act(engine: Engine) -> Discard:
        return await engine.discard(dlq_id, person=who, reason=reason, tenant=tenant)

    done = on_engine(url, act)
    said = "discarded" if done.confirmed else "proposed; another person confirms it with the same command"
    tell(as_json, {"confirmed": done.confirmed, "item": letter_view(done.item)}, f"{dlq_id} {said}")


def _one_or_many(
    some_id: str | None, chosen: Filter, older_than: str | None, newer_than: str | None, everything: bool
) -> None:
    """All of them is said, not meant by saying nothing."""
    by_filter = everything or older_than or newer_than or replace(chosen, tenant_id=None) != Filter()
    if some_id is None and not by_filter and chosen.tenant_id is None:
        raise typer.BadParameter("name a dead letter, say which with --type, --queue, --error-code …, or --all")
    if some_id is not None and by_filter:
        raise typer.BadParameter("name one dead letter, or choose many by a filter, not both")


def _in_bulk(run: Callable[[bool], Bulk], done: str, dry_run: bool, yes: bool, as_json: bool) -> int:
    """How many, a question, and then what came of it."""
    seen = run(True)
    number = seen.matched - seen.for_two
    two = f"; {seen.for_two} more need two people, one by one" if seen.for_two else ""
    sentence = f"{counted(number, 'dead letter')} would be {done}{two}"
    go = not dry_run and number > 0 and asked(sentence, yes, as_json)
    told = run(False) if go else seen
    if as_json:
        say_json(told.as_dict(dry_run=not go))
    elif go:
        say(f"{counted(told.done, 'dead letter')} {done}{two}")
        for refusal in told.refusals:
            say(f"{refusal['dlq_id']} left: {refusal['code']}: {refusal['message']}")
    elif dry_run or not number:
        say(sentence)
    return 0 if (go and not told.refused) or dry_run or not number else 1
