"""`detent jobs`: looking at jobs. list, show, events, why, export; the acts are in job_acts.py."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text as Line

from detent.cli.connection import open_engine
from detent.cli.option_groups import Page, Place, spread
from detent.cli.options import InQueue, InStatus, JobId, OfContract, OfType, Tenant, Text, option
from detent.cli.output import console, counted, say, say_json, shortened, show_fields, show_table, table, when
from detent.core.contract.model import Contract, Move, Phase
from detent.core.job import Job, Micros
from detent.core.times import from_iso
from detent.engine import Engine, History
from detent.engine.reads.views import history_view, job_view
from detent.engine.reads.why import why as ask_why
from detent.observability.job_logs import CAPTURED
from detent.ports.listing import Filter

group = typer.Typer(help="Look at jobs and act on them.", no_args_is_help=True)

_COLOURS = {Phase.CLAIMABLE: "yellow", Phase.LEASED: "cyan", Phase.BLOCKED: "magenta", Phase.FINAL: "red"}
_MARK = "settlement"
"""What the engine knows a repeated settlement by; of no use to people."""
_COLUMNS = ("id", "type", "status", "queue", ">tries", "due", "updated", "error")


@dataclass(frozen=True, slots=True)
class Which:
    """Jobs by what they are."""

    status: InStatus = None
    phase: Annotated[Phase | None, option("--phase", "Only this phase, whatever the contract calls it.")] = None
    queue: InQueue = None
    contract: OfContract = None
    tenant: Tenant = None
    job_type: OfType = None
    text: Text = None

    def filter(self) -> Filter:
        phase = self.phase and str(self.phase)
        return Filter(self.contract, self.status, phase, self.queue, self.tenant, self.job_type, self.text)


@group.command("list")
@spread
def list_jobs(
    *,
    which: Which,
    part: Page,
    watch: Annotated[bool, option("--watch", "Stay and show changes as they come; Ctrl-C ends it.")] = False,
    every: Annotated[float, option("--every", "Seconds between two looks of --watch.", min=0.1, max=3600)] = 1.0,
    place: Place,
) -> None:
    """List jobs, newest first."""
    chosen = replace(which.filter(), before=part.cursor, limit=part.limit)
    if watch and place.as_json:
        raise typer.BadParameter("--watch draws for people; leave out --json, or call again for each look")
    if watch:
        with suppress(KeyboardInterrupt):
            asyncio.run(_watch(place.url, chosen, every))
        return

    async def act(engine: Engine) -> tuple[Micros, list[tuple[Contract, Job]], str | None]:
        page, next_cursor = await _page(engine, chosen)
        return engine.store.now(), [(engine.contract(job.contract), job) for job in page], next_cursor

    now, page, next_cursor = place.run(act)
    if place.as_json:
        say_json({"jobs": [job_view(its, job) for its, job in page], "next_cursor": next_cursor})
        return
    if not page:
        say("no jobs" if chosen == Filter(limit=part.limit) else "no jobs match")
        return
    show_table(_COLUMNS, [_row(now, its, job) for its, job in page])
    if next_cursor:
        say(f"more: --cursor {next_cursor}")


async def _page(engine: Engine, chosen: Filter) -> tuple[list[Job], str | None]:
    """One more than asked for tells whether there is a next page."""
    found = await engine.jobs(replace(chosen, limit=chosen.limit + 1))
    page = found[: chosen.limit]
    return page, page[-1].id if len(found) > chosen.limit else None


def _row(now: Micros, contract: Contract, job: Job) -> list[str | Line | int]:
    error = f"{job.error_code}: {job.error_message}" if job.error_code else ""
    due = when(now, job.due_at) if job.phase in (Phase.CLAIMABLE, Phase.BLOCKED) else ""
    tail = [due, when(now, job.updated_at), shortened(error, 40)]
    return [job.id, job.job_type, _status(contract, job), job.queue, job.execution_no, *tail]


def _status(contract: Contract, job: Job) -> Line:
    ended_well = any(edge.move is Move.SUCCEED and edge.target == job.status for edge in contract.edges)
    return Line(job.status, style="green" if ended_well else _COLOURS[job.phase])


async def _watch(url: str | None, chosen: Filter, every: float) -> None:
    engine = await open_engine(url)
    try:
        with Live(await _picture(engine, chosen), console=console(), auto_refresh=False) as live:
            while True:
                await asyncio.sleep(every)
                live.update(await _picture(engine, chosen), refresh=True)
    finally:
        await engine.close()


async def _picture(engine: Engine, chosen: Filter) -> RenderableType:
    page, _ = await _page(engine, chosen)
    counts = await engine.store.read(lambda tx: tx.counts())
    totals = {phase: sum(n for _, _, its, n in counts if its == phase) for phase in Phase}
    now = engine.store.now()
    head = Line("   ".join(f"{phase} {number}" for phase, number in totals.items()), style="bold")
    return Group(head, table(_COLUMNS, [_row(now, engine.contract(job.contract), job) for job in page]))


@group.command("show")
@spread
def show(job_id: JobId, tenant: Tenant = None, *, place: Place) -> None:
    """Show one job."""

    async def act(engine: Engine) -> tuple[Micros, dict[str, Any], Job]:
        job = await engine.job(job_id, tenant=tenant)
        return engine.store.now(), job_view(engine.contract(job.contract), job), job

    now, view, job = place.run(act)
    if place.as_json:
        say_json(view)
        return
    moments = {name: getattr(job, name) for name in ("due_at", "created_at", "started_at", "finished_at")}
    fields = {**view, "payload": job.payload, "result": job.result}
    fields |= {name: f"{view[name]} ({when(now, at)})" for name, at in moments.items() if at is not None}
    del fields["view"]
    show_fields(fields)


@group.command("events")
@spread
def events(job_id: JobId, tenant: Tenant = None, *, place: Place) -> None:
    """Show everything that happened to a job: status changes, and notes between them."""

    async def act(engine: Engine) -> tuple[Micros, History]:
        return engine.store.now(), await engine.history(job_id, tenant=tenant)

    now, history = place.run(act)
    rows = history_view(history.contract, history.job, history.events, history.notes)
    if place.as_json:
        say_json({"events": rows, "next_cursor": None})
        return
    show_table(
        (">seq", "event", "change", "when", "actor", "data"),
        [
            [
                row["seq"],
                row["event"],
                "" if row["note"] else f"{row['source'] or '·'} -> {row['target']}",
                when(now, from_iso(row["at"], field="at")),
                row["actor"],
                shortened(_data(row), 60),
            ]
            for row in rows
        ],
    )
    for row in rows:
        if row["note"] and row["event"] == CAPTURED:
            _show_log(row)


def _data(row: dict[str, Any]) -> str:
    data: dict[str, Any] = row["data"]
    if row["note"] and row["event"] == CAPTURED:
        return f"{counted(len(data.get('lines', ())), 'line')}, below"
    return ", ".join(f"{name}={value}" for name, value in data.items() if name != _MARK)


def _show_log(row: dict[str, Any]) -> None:
    say()
    say(f"logged in execution {row['execution_no']}:")
    for line in row["data"].get("lines", ()):
        say(f"  {line['at']} {line['level']} {line['logger']}: {line['message']}")
    if left_out := row["data"].get("left_out"):
        say(f"  and {counted(left_out, 'line')} more that were not kept")


@group.command("why")
@spread
def why(job_id: JobId, tenant: Tenant = None, *, place: Place) -> None:
    """Say why a job is not running."""

    async def act(engine: Engine) -> Any:
        return await ask_why(engine, job_id, tenant)

    answer = place.run(act)
    also = [f"also {other['reason']}: {other['sentence']}" for other in answer.details["also"]]
    place.tell(answer.as_dict(), f"{answer.reason}: {answer.sentence}", *also)


@group.command("export")
@spread
def export(
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="[JOB_ID]...", help="These jobs only.")] = None,
    *,
    which: Which,
    output: Annotated[Path | None, option("--output", "Write to this file instead of stdout.")] = None,
    place: Place,
) -> None:
    """Print jobs with their whole history, one JSON object a line; with --json as one list."""
    chosen = which.filter()

    async def act(engine: Engine) -> int:
        target = output.open("w", encoding="utf-8") if output else sys.stdout
        number = 0
        try:
            async for job_id in _ids(engine, job_ids or [], chosen):
                line = (await engine.history(job_id, tenant=which.tenant)).as_dict()
                if place.as_json:
                    target.write("[" if number == 0 else ",")
                target.write(_compact(line) + "\n")
                number += 1
            if place.as_json:
                target.write("]\n" if number else "[]\n")
        finally:
            if output:
                target.close()
        return number

    try:
        number = place.run(act)
    except OSError as error:
        if output is None:
            raise
        raise typer.BadParameter(f"--output cannot be written: {error}") from None
    if output and not place.as_json:
        say(f"{number} jobs written to {output}")


async def _ids(engine: Engine, given: list[str], chosen: Filter) -> AsyncIterator[str]:
    for job_id in given:
        yield job_id
    cursor: str | None = None
    while not given:
        page, cursor = await _page(engine, replace(chosen, before=cursor, limit=500))
        for job in page:
            yield job.id
        if cursor is None:
            return


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
