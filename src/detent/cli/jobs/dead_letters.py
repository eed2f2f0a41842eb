"""`detent dlq`: list, show, requeue and discard dead letters of all contracts, one at a time or by filter."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Any

import typer

from detent.cli.loader import load_app
from detent.cli.option_groups import (
    BulkOptions,
    CommandGroup,
    ConnectionOptions,
    PageOptions,
    TenantAuditOptions,
    TokenOptions,
)
from detent.cli.options import App, ContractFilter, QueueFilter, Rate, Tenant, TextFilter, TypeFilter, option
from detent.cli.output import (
    list_view,
    pluralize,
    print_fields,
    print_json,
    print_line,
    print_table,
    print_traceback,
    relative_time,
    shorten,
)
from detent.core.access import Power, Scope
from detent.core.job import DeadLetter, DeadLetterStatus, Micros
from detent.core.schedule import parse_interval
from detent.engine import Engine
from detent.engine.dead_letters import DeadLetterBulkResult, Discard
from detent.engine.reads.error_groups import FoundError
from detent.engine.reads.responses import ErrorGroup, Event
from detent.engine.reads.responses import show as show_response
from detent.engine.reads.views import dead_letter_view
from detent.ports.listing import Filter

from .actions import RepairOptions, requeue

group = CommandGroup(help="Inspect, requeue and discard dead letters.", no_args_is_help=True)

DeadLetterId = Annotated[str, typer.Argument(metavar="DLQ_ID", help="The dead letter's id.", show_default=False)]
OptionalId = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="The dead letter (or its job); without it: all open ones that match."),
]
AllOpen = Annotated[bool, option("All open dead letters.", name="--all")]


@dataclass(frozen=True, slots=True)
class DeadLetterFilterOptions:
    """Selects dead letters by their job, their error and their age."""

    queue: QueueFilter = None
    contract: ContractFilter = None
    job_type: TypeFilter = None
    error_code: Annotated[str | None, option("Only this error code.")] = None
    error_group: Annotated[str | None, option("Only this group of `detent dlq groups`.")] = None
    older_than: Annotated[str | None, option("Only dead letters older than this: 30s, 5m, 2h, 7d.")] = None
    newer_than: Annotated[str | None, option("Only dead letters newer than this: 30s, 5m, 2h, 7d.")] = None
    text: TextFilter = None

    def filter(self, engine: Engine, tenant: str | None) -> Filter:
        now = engine.store.now()
        return Filter(
            contract=self.contract,
            queue=self.queue,
            tenant_id=tenant,
            job_type=self.job_type,
            text=self.text,
            error_code=self.error_code,
            error_group=self.error_group,
            until=None if self.older_than is None else now - parse_interval(self.older_than),
            since=None if self.newer_than is None else now - parse_interval(self.newer_than),
        )


@group.command("list")
def list_dead_letters(
    status: Annotated[DeadLetterStatus | None, option("Only this status.")] = None,
    *,
    which: DeadLetterFilterOptions,
    tenant: Tenant = None,
    page_options: PageOptions,
    connection: ConnectionOptions,
) -> None:
    """List dead letters, newest first."""
    chosen: dict[str, Any] = {"status": status and str(status), "before": page_options.cursor}
    is_unfiltered = which == DeadLetterFilterOptions() and {tenant, *chosen.values()} == {None}
    now, (page, next_cursor) = connection.run_with_time(
        lambda engine: engine.dead_letters.page(
            replace(which.filter(engine, tenant), **chosen, limit=page_options.limit), seconds=inf
        )
    )
    view = list_view(map(dead_letter_view, page), next_cursor)
    columns = ("dlq_id", "job_id", "type", "status", "error", "created", "proposed by")
    empty = "No dead letters." if is_unfiltered else "No dead letters match."
    connection.print_list(view, columns, (_row(now, item) for item in page), empty)


def _row(now: Micros, item: DeadLetter) -> list[str | None]:
    error = shorten(f"{item.error_code}: {item.error_message or ''}", 48)
    created = relative_time(now, item.created_at)
    return [item.id, item.job_id, item.job_type, item.status, error, created, item.proposed_by]


@group.command("groups")
def list_groups(*, which: DeadLetterFilterOptions, tenant: Tenant = None, connection: ConnectionOptions) -> None:
    """Group the open dead letters by error: job type, class, code and message without its numbers and ids."""
    now, found = connection.run_with_time(
        lambda engine: engine.dead_letters.groups(
            replace(which.filter(engine, tenant), status=str(DeadLetterStatus.OPEN))
        )
    )
    columns = (">count", "type", "error", "first", "last", "group")
    view = list_view(show_response(ErrorGroup, group) for group in found.groups)
    connection.print_list(view, columns, (_group_row(now, group) for group in found.groups), "No dead letters match.")


def _group_row(now: Micros, group: FoundError) -> list[str | int | None]:
    error = shorten(f"{group.error_code}: {group.pattern or ''}", 60)
    seen = (relative_time(now, group.first_at), relative_time(now, group.last_at))
    return [group.count, group.job_type, error, *seen, group.group]


@group.command("show")
def show(dlq_id: DeadLetterId, tenant: Tenant = None, *, connection: ConnectionOptions) -> None:
    """Show one dead letter: payload, error, the events of its job, and what operators did with it."""
    view = connection.run(lambda engine: engine.scoped(tenant=tenant).dead_letters.history(dlq_id))
    if connection.as_json:
        print_json(view)
        return
    texts = {name: json.dumps(view[name], ensure_ascii=False) for name in ("payload_json", "context_json")}
    print_fields({**view, **texts, "history": None, "acts": None})
    print_line()
    print_table(("at", "event", "change", "actor"), [_event_row(event) for event in view["history"]])
    failures = [event["data"] for event in view["history"] if "error_code" in event["data"]]
    print_traceback(failures[-1].get("traceback") if failures else None)
    for entry in view["acts"]:
        reason = f": {entry['reason']}" if entry["reason"] else ""
        print_line(f"{entry['at']} {entry['act']} by {entry['actor']}{reason}")


def _event_row(event: Event) -> list[str | None]:
    change = "note" if event["note"] else f"{event['source'] or '·'} -> {event['target']}"
    return [event["at"], event["event"], change, event["actor"]]


@group.command("requeue")
@group.command("replay")  # the word of the streams document
def requeue_dead_letters(
    some_id: OptionalId = None,
    *,
    which: DeadLetterFilterOptions,
    all_open: AllOpen = False,
    rate: Rate = None,
    bulk: BulkOptions,
    repair: RepairOptions,
    audit: TenantAuditOptions,
    app: App = None,
    connection: ConnectionOptions,
) -> int:
    """Requeue dead letters as new jobs: one by its id, or all open ones that match, after a confirmation."""
    _check_selection(some_id, which, audit.tenant, all_open)
    if some_id is not None:
        requeue(some_id, repair=repair, audit=audit, app=app, connection=connection)
        return 0
    if repair.payload is not None or repair.edit:
        raise typer.BadParameter("--payload and --edit need the ID of one dead letter")
    application = load_app(app) if app else None

    options: dict[str, Any] = {"rate": rate, "take_steps": repair.take_steps}
    if application is not None:
        options["check"] = application.dead_letters.check

    async def act(engine: Engine, dry: bool) -> DeadLetterBulkResult:
        matching = which.filter(engine, audit.tenant)
        return await engine.dead_letters.requeue_many(matching, audit.scope(), **options, dry_run=dry)

    return _run_in_bulk(act, "requeued", bulk, connection.with_app(application))


@group.command("discard")
def discard(
    dlq_id: OptionalId = None,
    *,
    which: DeadLetterFilterOptions,
    all_open: AllOpen = False,
    bulk: BulkOptions,
    audit: TenantAuditOptions,
    token: TokenOptions,
    connection: ConnectionOptions,
) -> int:
    """Discard dead letters. If the contract requires two people, the first proposes and another confirms."""
    _check_selection(dlq_id, which, audit.tenant, all_open)
    if dlq_id is not None:
        discarded, payloads = connection.run(lambda engine: _discard(engine, dlq_id, audit.scope(), token))
        proposed = "discard proposed; another person confirms it with the same command and their own token"
        view = {"confirmed": discarded.confirmed, "item": dead_letter_view(discarded.item, payloads=payloads)}
        connection.print_result(view, f"{dlq_id} {'discarded' if discarded.confirmed else proposed}")
        return 0

    async def act(engine: Engine, dry: bool) -> DeadLetterBulkResult:
        matching = which.filter(engine, audit.tenant)
        scoped, scope, _ = await token.sign_in(engine, audit.scope(), Power.DISCARD)
        return await scoped.dead_letters.discard_many(matching, scope, dry_run=dry)

    return _run_in_bulk(act, "discarded", bulk, connection)


async def _discard(engine: Engine, dlq_id: str, scope: Scope, token: TokenOptions) -> tuple[Discard, bool]:
    """Discard as the person of the token; without one the actor is only a name, which cannot confirm.

    Also returns whether this person may see payloads.
    """
    scoped, scope, _ = await token.sign_in(engine, scope, Power.DISCARD)
    return await scoped.dead_letters.discard(dlq_id, scope), scoped.payloads


def _check_selection(some_id: str | None, which: DeadLetterFilterOptions, tenant: str | None, all_open: bool) -> None:
    """An id, or a filter, or --all: without any of them a bulk command must not mean all dead letters."""
    by_filter = all_open or which != DeadLetterFilterOptions()
    if some_id is None and not by_filter and tenant is None:
        raise typer.BadParameter("give the ID of a dead letter, a filter like --type, --queue, --error-code, or --all")
    if some_id is not None and by_filter:
        raise typer.BadParameter("give the ID of one dead letter or a filter, not both")


def _run_in_bulk(
    act: Callable[[Engine, bool], Awaitable[DeadLetterBulkResult]],
    done: str,
    bulk: BulkOptions,
    connection: ConnectionOptions,
) -> int:
    discards = done == "discarded"

    def describe(number: int, verb: str) -> str:
        return f"{pluralize(number, 'dead letter')} {verb}"

    def preview(result: DeadLetterBulkResult) -> tuple[int, str]:
        text = describe(result.matched, f"would be {done}")
        if discards and result.for_two:
            text += f"; {result.for_two} of them need two people: those that nobody else has proposed are only proposed"
        return result.matched, text

    def report(result: DeadLetterBulkResult) -> tuple[bool, list[str]]:
        skipped = [f"{row['dlq_id']} skipped: {row['code']}: {row['message']}" for row in result.refusals]
        text = describe(result.done, done)
        if result.proposed:
            text += f"; {result.proposed} proposed: another person confirms with the same command and their own token"
        return not result.refused, [text, *skipped]

    return bulk.run(connection, act, preview, report)
