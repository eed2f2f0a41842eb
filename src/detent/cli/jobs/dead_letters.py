"""`detent dlq`: the dead letters of every contract. list, show, requeue, discard; one, or all that match."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from detent.cli.app_option import App, application
from detent.cli.option_groups import Asked, Page, Place, spread
from detent.cli.options import DryRun, InQueue, OfContract, OfType, Rate, Tenant, Text, Yes, option
from detent.cli.output import asked, counted, say, say_json, shortened, show_fields, show_table, when
from detent.core.job import DeadLetter, Micros
from detent.core.schedule import read_every
from detent.engine import Engine
from detent.engine.control.dead_letters import Discard
from detent.engine.control.dead_letters_bulk import (
    DeadLetterBulkResult,
    dead_letter_history,
    discard_many,
    requeue_many,
)
from detent.engine.reads.views import dead_letter_view
from detent.ports.listing import Filter

from .actions import Repair, requeue

group = typer.Typer(help="Look at dead letters, requeue or discard them.", no_args_is_help=True)

DeadLetterId = Annotated[str, typer.Argument(metavar="DLQ_ID", help="The dead letter's id.", show_default=False)]
MaybeId = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="The dead letter (or its job); without it: all that match.")
]
Everything = Annotated[bool, option("--all", "Every open dead letter there is.")]


@dataclass(frozen=True, slots=True)
class Where:
    """Where the job was."""

    queue: InQueue = None
    contract: OfContract = None


@dataclass(frozen=True, slots=True)
class Kind:
    """What it was and what became of it."""

    job_type: OfType = None
    error_code: Annotated[str | None, option("--error-code", "Only this error code.")] = None
    older_than: Annotated[
        str | None, option("--older-than", "Only those given up longer ago than this: 30s, 5m, 2h, 7d.")
    ] = None
    newer_than: Annotated[
        str | None,
        option("--newer-than", "Only those given up within this: 30s, 5m, 2h, 7d."),
    ] = None
    text: Text = None

    @property
    def of_any_age(self) -> bool:
        return self.older_than is None and self.newer_than is None

    def aged(self, chosen: Filter, now: Micros) -> Filter:
        until = None if self.older_than is None else now - read_every(self.older_than)
        since = None if self.newer_than is None else now - read_every(self.newer_than)
        return replace(chosen, until=until, since=since)


class Fate(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    REQUEUED = "requeued"
    DISCARDED = "discarded"


@group.command("list")
@spread
def list_dead_letters(
    status: Annotated[Fate | None, option("--status", "Only these.")] = None,
    *,
    where: Where,
    tenant: Tenant = None,
    kind: Kind,
    part: Page,
    place: Place,
) -> None:
    """List dead letters, newest first."""
    chosen = replace(_filter(where, tenant, kind), status=status and str(status), before=part.cursor, limit=part.limit)

    async def act(engine: Engine) -> tuple[Micros, list[DeadLetter]]:
        now = engine.store.now()
        return now, await engine.dead_letters(replace(kind.aged(chosen, now), limit=part.limit + 1))

    now, found = place.run(act)
    page, next_cursor = part.of(found, lambda one: one.id)
    if place.as_json:
        say_json({"items": [dead_letter_view(item) for item in page], "next_cursor": next_cursor})
        return
    if not page:
        everything = chosen == Filter(limit=part.limit) and kind.of_any_age
        say("no dead letters" if everything else "no dead letters match")
        return
    show_table(("dlq_id", "job_id", "type", "status", "error", "since", "proposed by"), [_row(now, i) for i in page])
    if next_cursor:
        say(f"more: --cursor {next_cursor}")


def _filter(where: Where, tenant: str | None, kind: Kind) -> Filter:
    return Filter(where.contract, None, None, where.queue, tenant, kind.job_type, kind.text, error_code=kind.error_code)


def _row(now: Micros, item: DeadLetter) -> list[str | None]:
    error = shortened(f"{item.error_code}: {item.error_message or ''}", 48)
    return [item.id, item.job_id, item.job_type, item.status, error, when(now, item.created_at), item.proposed_by]


@group.command("show")
@spread
def show(dlq_id: DeadLetterId, tenant: Tenant = None, *, place: Place) -> None:
    """Show one dead letter: payload, error, what happened to its job and what people did to it."""
    told = place.run(lambda engine: dead_letter_history(engine, dlq_id, tenant=tenant))
    if place.as_json:
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
@spread
def requeue_dead_letters(
    some_id: MaybeId = None,
    *,
    where: Where,
    kind: Kind,
    everything: Everything = False,
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    repair: Repair,
    by: Asked,
    app: App = None,
    place: Place,
) -> int:
    """Make new jobs of dead letters: of one, or of all open ones that match, after saying how many."""
    chosen = _filter(where, by.tenant, kind)
    _one_or_many(some_id, chosen, kind, everything)
    if some_id is not None:
        requeue(some_id, repair=repair, by=by, app=app, place=place)
        return 0
    if repair.payload is not None or repair.edit:
        raise typer.BadParameter("--payload and --edit repair one dead letter; name it")
    known = application(app)

    async def act(engine: Engine, dry: bool) -> DeadLetterBulkResult:
        matching = kind.aged(chosen, engine.store.now())
        options: dict[str, Any] = {"rate": rate, "take_steps": repair.take_steps, "dry_run": dry}
        if known is not None:
            options["check"] = known.dead_letters.check
        return await requeue_many(engine, matching, actor=by.who, reason=by.reason, **options)

    def run(dry: bool) -> DeadLetterBulkResult:
        return place.of(known).run(lambda engine: act(engine, dry))

    return _in_bulk(run, "requeued", dry_run, yes, place.as_json)


@group.command("discard")
@spread
def discard(
    dlq_id: MaybeId = None,
    *,
    where: Where,
    kind: Kind,
    everything: Everything = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    by: Asked,
    place: Place,
) -> int:
    """Throw dead letters away. Where the contract asks for two people, the first proposes, another confirms."""
    chosen = _filter(where, by.tenant, kind)
    _one_or_many(dlq_id, chosen, kind, everything)
    if dlq_id is not None:
        _discard_one(dlq_id, by, place)
        return 0

    async def act(engine: Engine, dry: bool) -> DeadLetterBulkResult:
        matching = kind.aged(chosen, engine.store.now())
        return await discard_many(engine, matching, person=by.who, reason=by.reason, dry_run=dry)

    return _in_bulk(lambda dry: place.run(lambda e: act(e, dry)), "discarded", dry_run, yes, place.as_json)


def _discard_one(dlq_id: str, by: Asked, place: Place) -> None:
    async def act(engine: Engine) -> Discard:
        return await engine.discard(dlq_id, person=by.who, reason=by.reason, tenant=by.tenant)

    done = place.run(act)
    said = "discarded" if done.confirmed else "proposed; another person confirms it with the same command"
    place.tell({"confirmed": done.confirmed, "item": dead_letter_view(done.item)}, f"{dlq_id} {said}")


def _one_or_many(some_id: str | None, chosen: Filter, kind: Kind, everything: bool) -> None:
    """All of them is said, not meant by saying nothing."""
    by_filter = everything or not kind.of_any_age or replace(chosen, tenant_id=None) != Filter()
    if some_id is None and not by_filter and chosen.tenant_id is None:
        raise typer.BadParameter("name a dead letter, say which with --type, --queue, --error-code …, or --all")
    if some_id is not None and by_filter:
        raise typer.BadParameter("name one dead letter, or choose many by a filter, not both")


def _in_bulk(run: Callable[[bool], DeadLetterBulkResult], done: str, dry_run: bool, yes: bool, as_json: bool) -> int:
    """How many, a question, and then what came of it."""
    seen = run(True)
    number = seen.matched - seen.for_two
    two = f"; {seen.for_two} more need two people, one by one" if seen.for_two else ""
    sentence = f"{counted(number, 'dead dead_letter')} would be {done}{two}"
    go = not dry_run and number > 0 and asked(sentence, yes, as_json)
    told = run(False) if go else seen
    if as_json:
        say_json(told.as_dict(dry_run=not go))
    elif go:
        say(f"{counted(told.done, 'dead dead_letter')} {done}{two}")
        for refusal in told.refusals:
            say(f"{refusal['dlq_id']} left: {refusal['code']}: {refusal['message']}")
    elif dry_run or not number:
        say(sentence)
    return 0 if (go and not told.refused) or dry_run or not number else 1
