"""`detent dlq`: list, show, requeue and discard dead letters of all contracts, one at a time or by filter."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Annotated, Any

import typer

from detent.cli.app_option import App, load_optional_app
from detent.cli.option_groups import ConnectionOptions, PageOptions, TenantAuditOptions, expand_option_groups
from detent.cli.options import ContractFilter, DryRun, QueueFilter, Rate, Tenant, TextFilter, TypeFilter, Yes, option
from detent.cli.output import (
    confirm,
    pluralize,
    print_fields,
    print_json,
    print_line,
    print_table,
    relative_time,
    shorten,
)
from detent.core.job import DeadLetter, DeadLetterStatus, Micros
from detent.core.schedule import parse_interval
from detent.engine import Engine
from detent.engine.dead_letters import DeadLetterBulkResult, Discard
from detent.engine.reads.responses import Event
from detent.engine.reads.views import dead_letter_view
from detent.ports.listing import Filter

from .actions import RepairOptions, requeue

group = typer.Typer(help="Inspect, requeue and discard dead letters.", no_args_is_help=True)

DeadLetterId = Annotated[str, typer.Argument(metavar="DLQ_ID", help="The dead letter's id.", show_default=False)]
OptionalId = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="The dead letter (or its job); without it: all open ones that match."),
]
AllOpen = Annotated[bool, option("--all", "All open dead letters.")]


@dataclass(frozen=True, slots=True)
class DeadLetterFilterOptions:
    """Selects dead letters by their job, their error and their age."""

    queue: QueueFilter = None
    contract: ContractFilter = None
    job_type: TypeFilter = None
    error_code: Annotated[str | None, option("--error-code", "Only this error code.")] = None
    older_than: Annotated[str | None, option("--older-than", "Only dead letters older than this: 30s, 5m, 2h, 7d.")] = (
        None
    )
    newer_than: Annotated[str | None, option("--newer-than", "Only dead letters newer than this: 30s, 5m, 2h, 7d.")] = (
        None
    )
    text: TextFilter = None

    @property
    def is_any_age(self) -> bool:
        return self.older_than is None and self.newer_than is None

    def without_age(self, tenant: str | None) -> Filter:
        """The filter for the store, except for the age, which needs the store's clock."""
        return Filter(
            self.contract, None, None, self.queue, tenant, self.job_type, self.text, error_code=self.error_code
        )

    def add_age(self, filter: Filter, now: Micros) -> Filter:
        until = None if self.older_than is None else now - parse_interval(self.older_than)
        since = None if self.newer_than is None else now - parse_interval(self.newer_than)
        return replace(filter, until=until, since=since)


@group.command("list")
@expand_option_groups
def list_dead_letters(
    status: Annotated[DeadLetterStatus | None, option("--status", "Only this status.")] = None,
    *,
    which: DeadLetterFilterOptions,
    tenant: Tenant = None,
    page_options: PageOptions,
    connection: ConnectionOptions,
) -> None:
    """List dead letters, newest first."""
    limit = page_options.limit
    filter = replace(which.without_age(tenant), status=status and str(status), before=page_options.cursor, limit=limit)

    async def act(engine: Engine) -> tuple[Micros, list[DeadLetter], str | None]:
        now = engine.store.now()
        return now, *await engine.dead_letters.page(which.add_age(filter, now), seconds=inf)

    now, page, next_cursor = connection.run(act)
    if connection.as_json:
        print_json({"items": [dead_letter_view(item) for item in page], "next_cursor": next_cursor})
        return
    if not page:
        is_unfiltered = filter == Filter(limit=limit) and which.is_any_age
        print_line("No dead letters." if is_unfiltered else "No dead letters match.")
        return
    print_table(("dlq_id", "job_id", "type", "status", "error", "created", "proposed by"), [_row(now, i) for i in page])
    if next_cursor:
        print_line(f"next page: --cursor {next_cursor}")


def _row(now: Micros, item: DeadLetter) -> list[str | None]:
    error = shorten(f"{item.error_code}: {item.error_message or ''}", 48)
    created = relative_time(now, item.created_at)
    return [item.id, item.job_id, item.job_type, item.status, error, created, item.proposed_by]


@group.command("show")
@expand_option_groups
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
    for entry in view["acts"]:
        reason = f": {entry['reason']}" if entry["reason"] else ""
        print_line(f"{entry['at']} {entry['act']} by {entry['actor']}{reason}")


def _event_row(event: Event) -> list[str | None]:
    change = "note" if event["note"] else f"{event['source'] or '·'} -> {event['target']}"
    return [event["at"], event["event"], change, event["actor"]]


@group.command("requeue")
@expand_option_groups
def requeue_dead_letters(
    some_id: OptionalId = None,
    *,
    which: DeadLetterFilterOptions,
    all_open: AllOpen = False,
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    repair: RepairOptions,
    audit: TenantAuditOptions,
    app: App = None,
    connection: ConnectionOptions,
) -> int:
    """Requeue dead letters as new jobs: one by its id, or all open ones that match, after a confirmation."""
    filter = which.without_age(audit.tenant)
    _check_selection(some_id, filter, which, all_open)
    if some_id is not None:
        requeue(some_id, repair=repair, audit=audit, app=app, connection=connection)
        return 0
    if repair.payload is not None or repair.edit:
        raise typer.BadParameter("--payload and --edit need the ID of one dead letter")
    application = load_optional_app(app)

    async def act(engine: Engine, dry: bool) -> DeadLetterBulkResult:
        matching = which.add_age(filter, engine.store.now())
        options: dict[str, Any] = {"rate": rate, "take_steps": repair.take_steps, "dry_run": dry}
        if application is not None:
            options["check"] = application.dead_letters.check
        return await engine.dead_letters.requeue_many(matching, audit.scope(), **options)

    def run(dry: bool) -> DeadLetterBulkResult:
        return connection.with_app(application).run(lambda engine: act(engine, dry))

    return _run_in_bulk(run, "requeued", dry_run, yes, connection.as_json)


@group.command("discard")
@expand_option_groups
def discard(
    dlq_id: OptionalId = None,
    *,
    which: DeadLetterFilterOptions,
    all_open: AllOpen = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    audit: TenantAuditOptions,
    connection: ConnectionOptions,
) -> int:
    """Discard dead letters. If the contract requires two people, the first proposes and another confirms."""
    filter = which.without_age(audit.tenant)
    _check_selection(dlq_id, filter, which, all_open)
    if dlq_id is not None:
        _discard_one(dlq_id, audit, connection)
        return 0

    async def act(engine: Engine, dry: bool) -> DeadLetterBulkResult:
        matching = which.add_age(filter, engine.store.now())
        return await engine.dead_letters.discard_many(matching, audit.scope(), dry_run=dry)

    def run(dry: bool) -> DeadLetterBulkResult:
        return connection.run(lambda engine: act(engine, dry))

    return _run_in_bulk(run, "discarded", dry_run, yes, connection.as_json)


def _discard_one(dlq_id: str, audit: TenantAuditOptions, connection: ConnectionOptions) -> None:
    async def act(engine: Engine) -> Discard:
        return await engine.dead_letters.discard(dlq_id, audit.scope())

    discarded = connection.run(act)
    proposed = "discard proposed; another person confirms it with the same command"
    view = {"confirmed": discarded.confirmed, "item": dead_letter_view(discarded.item)}
    connection.print_result(view, f"{dlq_id} {'discarded' if discarded.confirmed else proposed}")


def _check_selection(some_id: str | None, filter: Filter, which: DeadLetterFilterOptions, all_open: bool) -> None:
    """An id, or a filter, or --all: without any of them a bulk command must not mean all dead letters."""
    by_filter = all_open or not which.is_any_age or replace(filter, tenant_id=None) != Filter()
    if some_id is None and not by_filter and filter.tenant_id is None:
        raise typer.BadParameter("give the ID of a dead letter, a filter like --type, --queue, --error-code, or --all")
    if some_id is not None and by_filter:
        raise typer.BadParameter("give the ID of one dead letter or a filter, not both")


def _run_in_bulk(
    run: Callable[[bool], DeadLetterBulkResult], done: str, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Count with a dry run, ask for confirmation, run, print the result."""
    preview = run(True)
    number = preview.matched - preview.for_two
    two = f"; {preview.for_two} more need two people and must be discarded one by one" if preview.for_two else ""
    sentence = f"{pluralize(number, 'dead letter')} would be {done}{two}"
    confirmed = not dry_run and number > 0 and confirm(sentence, yes, as_json)
    result = run(False) if confirmed else preview
    if as_json:
        print_json({"dry_run": not confirmed, **asdict(result)})
    elif confirmed:
        print_line(f"{pluralize(result.done, 'dead letter')} {done}{two}")
        for refusal in result.refusals:
            print_line(f"{refusal['dlq_id']} skipped: {refusal['code']}: {refusal['message']}")
    elif dry_run or not number:
        print_line(sentence)
    return 0 if (confirmed and not result.refused) or dry_run or not number else 1
