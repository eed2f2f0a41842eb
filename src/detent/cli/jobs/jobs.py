"""`detent jobs`, the commands that read: list, show, events, why, export."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from detent.cli.option_groups import CommandGroup, ConnectionOptions, PageOptions
from detent.cli.options import ContractFilter, JobId, QueueFilter, Tenant, TextFilter, TypeFilter, option
from detent.cli.output import (
    console,
    list_view,
    make_table,
    pluralize,
    print_fields,
    print_json,
    print_line,
    print_traceback,
    redraw,
    relative_time,
    shorten,
)
from detent.core.contract.model import Contract, Phase
from detent.core.job import Job, Micros
from detent.core.options.spans import parse_span
from detent.core.schedule import parse_interval
from detent.core.times import from_iso
from detent.engine import Engine
from detent.engine.reads import responses
from detent.engine.reads.listing import check_statuses
from detent.engine.reads.views import CAPTURED, job_view
from detent.engine.reads.why import last_traceback
from detent.ports.listing import Filter

group = CommandGroup(help="List, inspect and control jobs.", no_args_is_help=True)

_COLOURS = {Phase.CLAIMABLE: "yellow", Phase.LEASED: "cyan", Phase.BLOCKED: "magenta", Phase.FINAL: "red"}
_HIDDEN_FIELD = "settlement"
"""A digest by which the engine recognises a repeated settlement; not shown to people."""
_COLUMNS = ("id", "type", "status", "?queue", "?>attempts", "?due", "?updated", "?error")
_WIDE = 120
"""Columns of a terminal in which error messages have room."""


class ExportFormat(StrEnum):
    """What one line of `jobs export` is."""

    JOB = "job"
    ENVELOPE = "envelope"


@dataclass(frozen=True, slots=True)
class JobFilterOptions:
    """Selects jobs. Each field but `status` is named as in Filter."""

    status: Annotated[list[str] | None, option("Only this status; may be repeated.")] = None
    phase: Annotated[Phase | None, option("Only this phase, under any contract.")] = None
    queue: QueueFilter = None
    contract: ContractFilter = None
    tenant_id: Tenant = None
    job_type: TypeFilter = None
    text: TextFilter = None
    since: Annotated[str | None, option("Created since: 15m, 2h, 7d ago, or an ISO-8601 time.")] = None
    until: Annotated[str | None, option("Created until: 15m, 2h, 7d ago, or an ISO-8601 time.")] = None
    error_code: Annotated[str | None, option("Only jobs that ended with this error code.")] = None
    parent_id: Annotated[str | None, option("Only the children of this job.", name="--parent")] = None
    roots: Annotated[bool, option("Only jobs without a parent.")] = False
    worker: Annotated[str | None, option("Only jobs that this worker has claimed.")] = None
    trace_id: Annotated[str | None, option("Only jobs of this trace.", name="--trace")] = None
    min_duration: Annotated[
        str | None, option("Only jobs that took, or run for, longer than 90s, 5m, 2h.", name="--longer-than")
    ] = None
    max_duration: Annotated[str | None, option("Only jobs that took less than 90s, 5m, 2h.", name="--shorter-than")] = (
        None
    )
    min_attempts: Annotated[int | None, option("Only jobs with at least this many executions.", min=0)] = None

    def filter(self, engine: Engine) -> Filter:
        """Raises InvalidInput (STATUS_UNKNOWN) for a status that no contract has."""
        statuses = self.status or []
        check_statuses(engine.contracts, statuses)
        now = engine.store.now()
        fields: dict[str, Any] = {
            **asdict(self),
            "status": statuses[0] if len(statuses) == 1 else None,
            "statuses": tuple(statuses) if len(statuses) > 1 else None,
            "since": _moment(self.since, "--since", now),
            "until": _moment(self.until, "--until", now),
            "phase": self.phase and str(self.phase),
            "roots": self.roots or None,
            "min_duration": None if self.min_duration is None else parse_interval(self.min_duration),
            "max_duration": None if self.max_duration is None else parse_interval(self.max_duration),
        }
        return Filter(**fields)


def _moment(text: str | None, name: str, now: Micros) -> Micros | None:
    """A time: so long ago, or ISO-8601."""
    if text is None:
        return None
    ago = parse_span(text)
    return from_iso(text, field=name) if ago is None else now - ago


@group.command("list")
def list_jobs(
    *,
    which: JobFilterOptions,
    page_options: PageOptions,
    watch: Annotated[bool, option("Keep running and refresh the list; Ctrl-C stops.")] = False,
    every: Annotated[float, option("Seconds between two refreshes with --watch.", min=0.1, max=3600)] = 1.0,
    connection: ConnectionOptions,
) -> None:
    """List jobs, newest first."""

    def chosen(engine: Engine) -> Filter:
        return replace(which.filter(engine), before=page_options.cursor, limit=page_options.limit)

    if watch and connection.as_json:
        raise typer.BadParameter("--watch cannot be combined with --json")
    if watch:
        with suppress(KeyboardInterrupt):
            connection.run(lambda engine: redraw(lambda: _render(engine, chosen(engine)), every))
        return

    async def act(engine: Engine) -> tuple[list[tuple[Contract, Job]], str | None]:
        page, next_cursor = await engine.jobs.page(chosen(engine), seconds=inf)
        return [(engine.contract(job.contract), job) for job in page], next_cursor

    now, (page, next_cursor) = connection.run_with_time(act)
    view = list_view((job_view(contract, job) for contract, job in page), next_cursor)
    empty = "No jobs." if replace(which, status=which.status or None) == JobFilterOptions() else "No jobs match."
    connection.print_list(view, _COLUMNS, (_row(now, contract, job) for contract, job in page), empty)


def _row(now: Micros, contract: Contract, job: Job) -> list[str | Text | int]:
    error = f"{job.error_code}: {job.error_message}" if job.error_code else ""
    if console().width < _WIDE:
        error = job.error_code or ""
    due = relative_time(now, job.due_at) if job.phase in (Phase.CLAIMABLE, Phase.BLOCKED) else ""
    tail = [due, relative_time(now, job.updated_at), shorten(error, 40)]
    status = Text(job.status, style="green" if contract.succeeded(job.status) else _COLOURS[job.phase])
    return [job.id, job.job_type, status, job.queue, job.execution_no, *tail]


async def _render(engine: Engine, filter: Filter) -> RenderableType:
    page, _ = await engine.jobs.page(filter, seconds=inf)
    counts = await engine.store.read(lambda tx: tx.stats.counts())
    totals = {phase: sum(n for _, _, counted_phase, n in counts if counted_phase == phase) for phase in Phase}
    now = engine.store.now()
    head = Text("   ".join(f"{phase} {number}" for phase, number in totals.items()), style="bold")
    return Group(head, make_table(_COLUMNS, [_row(now, engine.contract(job.contract), job) for job in page]))


@group.command("show")
def show(job_id: JobId, tenant: Tenant = None, *, connection: ConnectionOptions) -> None:
    """Show one job."""

    now, history = connection.run_with_time(lambda engine: engine.scoped(tenant=tenant).jobs.history(job_id))
    job, view = history.job, job_view(history.contract, history.job)
    if connection.as_json:
        print_json(view)
        return
    times = {name: getattr(job, name) for name in ("due_at", "created_at", "started_at", "finished_at")}
    fields: dict[str, Any] = {**view, "payload": job.payload, "result": job.result}
    fields |= {name: f"{fields[name]} ({relative_time(now, at)})" for name, at in times.items() if at is not None}
    own = fields.pop("view")
    print_fields(fields)
    print_line()
    print_line(f"fields of {job.contract}:")
    print_fields({name: own[name] for name in own if own[name] != view.get(name) and not isinstance(own[name], dict)})
    print_traceback(last_traceback(job, history.events))


@group.command("events")
def show_events(job_id: JobId, tenant: Tenant = None, *, connection: ConnectionOptions) -> None:
    """Show the log of a job: status changes and notes, in order."""
    now, history = connection.run_with_time(lambda engine: engine.scoped(tenant=tenant).jobs.history(job_id))
    events = history.entries()
    columns = (">seq", "event", "change", "when", "actor", "data")
    connection.print_list(list_view(events), columns, (_event_row(now, row) for row in events))
    for event in events:
        if event["note"] and event["event"] == CAPTURED and not connection.as_json:
            _show_log(event)


def _event_row(now: Micros, event: responses.Event) -> list[str | int | None]:
    data = ", ".join(f"{name}={value}" for name, value in event["data"].items() if name != _HIDDEN_FIELD)
    if event["note"] and event["event"] == CAPTURED:
        data = f"{pluralize(len(event['data'].get('lines', ())), 'line')}, see below"
    change = "" if event["note"] else f"{event['source'] or '·'} -> {event['target']}"
    at = relative_time(now, from_iso(event["at"], field="at"))
    return [event["seq"], event["event"], change, at, event["actor"], shorten(data, 60)]


def _show_log(row: responses.Event) -> None:
    print_line()
    print_line(f"log of execution {row['execution_no']}:")
    if left_out := row["data"].get("left_out"):
        print_line(f"  ({pluralize(left_out, 'earlier line')} not kept)")
    for line in row["data"].get("lines", ()):
        print_line(f"  {line['at']} {line['level']} {line['logger']}: {line['message']}")


@group.command("why")
def why(job_id: JobId, tenant: Tenant = None, *, connection: ConnectionOptions) -> None:
    """Explain why a job is not running."""
    explanation = connection.run(lambda engine: engine.scoped(tenant=tenant).jobs.why(job_id))
    others = [f"also {other['reason']}: {other['sentence']}" for other in explanation.details["also"]]
    connection.print_result(asdict(explanation), f"{explanation.reason}: {explanation.sentence}", *others)
    if not connection.as_json:
        print_traceback(explanation.details.get("traceback"))


@group.command("export")
def export(
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="[JOB_ID]...", help="Only these jobs.")] = None,
    *,
    which: JobFilterOptions,
    format: Annotated[
        ExportFormat, option("job: one object per job. envelope: one per event, as its contract publishes it.")
    ] = ExportFormat.JOB,
    output: Annotated[Path | None, option("Write to this file instead of stdout.")] = None,
    connection: ConnectionOptions,
) -> None:
    """Print jobs with their full history, one JSON object per line; with --json as one array."""

    async def act(engine: Engine) -> int:
        number = lines = 0
        with output.open("w", encoding="utf-8") if output else nullcontext(sys.stdout) as target:
            async for job_id in _ids(engine, job_ids or [], which.filter(engine)):
                history = await engine.scoped(tenant=which.tenant_id).jobs.history(job_id)
                for line in [history.as_dict()] if format is ExportFormat.JOB else history.published():
                    if connection.as_json:
                        target.write("," if lines else "[")
                    target.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
                    lines += 1
                number += 1
            if connection.as_json:
                target.write("]\n" if lines else "[]\n")
        return number

    try:
        number = connection.run(act)
    except OSError as error:
        if output is None:
            raise
        raise typer.BadParameter(f"--output cannot be written: {error}") from None
    if output and not connection.as_json:
        print_line(f"{pluralize(number, 'job')} written to {output}")


async def _ids(engine: Engine, job_ids: list[str], filter: Filter) -> AsyncIterator[str]:
    for job_id in job_ids:
        yield job_id
    cursor: str | None = None
    while not job_ids:
        page, cursor = await engine.jobs.page(replace(filter, before=cursor, limit=500), seconds=inf)
        for job in page:
            yield job.id
        if cursor is None:
            return
