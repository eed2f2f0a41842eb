"""Jobs, events and dead letters as JSON objects: the same in REST, CLI and Python."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from detent.core.contract.builtin import CONTRACTS, DEFAULT
from detent.core.contract.io import contract_to
from detent.core.contract.model import Contract
from detent.core.job import DeadLetter, Event, Job, LogLine, Note, Progress, Step
from detent.core.times import iso
from detent.engine.execution.steps import STEP_FINISHED, STEP_STARTED
from detent.engine.payload_access import redact_dead_letter, redact_entry, redact_job, redact_progress
from detent.engine.runtime import Runtime
from detent.engine.submit.prepare import Submitted
from detent.ports.tx import MAX_NOTE_NUMBER, MAX_SEQ, Tx

from . import operations, responses
from .responses import show

PROGRESS = "progress"
CAPTURED = "log"
"""The names of the notes that show the progress and the captured log lines of an execution."""
MAX_LOG_LINES = 2_000
MAX_NAMES = 20


@dataclass(frozen=True, slots=True)
class History:
    """A job with its events and notes."""

    contract: Contract
    job: Job
    events: list[Event]
    notes: list[Note]

    def as_dict(self) -> dict[str, Any]:
        return {"job": job_view(self.contract, self.job), "events": self.entries()}

    def published(self) -> Iterator[dict[str, Any]]:
        """The events as the contract publishes them: `event` is the name, `data` the body."""
        for entry in self.entries():
            if message := published(entry, has_envelopes=self.contract.envelope is not None):
                yield {"event": message[0], "data": message[1]}

    def entries(self, *, payloads: bool = True) -> list[responses.Event]:
        """Events and notes in one list: each note comes after the event it follows."""
        job, events, notes = self.job, self.events, self.notes
        if not payloads:
            job, events = redact_job(job), [redact_entry(event) for event in events]
            notes = [redact_entry(note) for note in notes]
        status_at = {event.seq: event.target for event in events}
        rows = [(event.seq, 0, event_view(self.contract, job, event)) for event in events]
        rows += [(note.seq, 1, note_view(job, note, status_at.get(note.seq, job.status))) for note in notes]
        return [row for _, _, row in sorted(rows, key=lambda entry: entry[:2])]


class LogCursor(NamedTuple):
    """The next page of a log, newest first, has the events below `seq` and the notes below number `note`."""

    seq: int = MAX_SEQ
    note: int = MAX_NOTE_NUMBER


NEWEST = LogCursor()


async def read_newest_entries(
    tx: Tx, runtime: Runtime, job: Job, limit: int, below: LogCursor
) -> tuple[list[responses.Event], LogCursor | None]:
    events = await tx.log.last_events(job.id, limit + 1, below.seq)
    numbered = await tx.log.last_notes(job.id, limit + 1, below.note)
    notes = [_shortened(note) for _, note in reversed(numbered)]
    history = History(runtime.contract(job.contract), job, events, notes)
    entries = history.entries(payloads=runtime.payloads)[::-1]
    page = entries[:limit]
    shown_notes = sum(entry["note"] for entry in page)
    shown_events = len(page) - shown_notes
    if len(entries) == len(page):
        return page, None
    seq = events[shown_events - 1].seq if shown_events else below.seq
    return page, LogCursor(seq, numbered[shown_notes - 1][0] if shown_notes else below.note)


def _shortened(note: Note) -> Note:
    """Names of children can be many; the list of children has them all."""
    children = (note.data or {}).get("children", ())
    if len(children) <= MAX_NAMES:
        return note
    return replace(note, data={**(note.data or {}), "children": children[:MAX_NAMES]})


async def read_history(tx: Tx, contract: Contract, job: Job) -> History:
    """The log of a job. Recorded steps, the last progress and captured log lines are among the notes; they are stored
    in their own tables only."""
    events, notes = await tx.log.events(job.id), await tx.log.notes(job.id)
    steps = await tx.steps.list_steps(job.id)
    claims = {event.execution_no: event for event in reversed(events)}
    others = [_step_note(step, None if step.at < job.created_at else claims.get(step.execution_no)) for step in steps]
    progress = (await tx.output.progress_of([job.id])).get(job.id)
    if progress is not None and progress.execution_no in claims:
        others.append(_progress_note(progress, claims[progress.execution_no]))
    lines = await tx.output.last_log_lines(job.id, MAX_LOG_LINES)
    others += [_log_note(job.id, list(group), claims.get(number)) for number, group in groupby(lines, _execution_of)]
    return History(contract, job, events, sorted([*notes, *others], key=lambda note: note.at))


def _step_note(step: Step, claim: Event | None) -> Note:
    """A step as a note of the execution that recorded it. claim None: a requeue took the step over."""
    data = {"name": step.name, "started_at": iso(step.started_at)}
    if not step.finished and step.result:
        data["error"] = json.loads(step.result)
    seq, actor = (claim.seq, claim.actor) if claim else (1, None)
    name = STEP_FINISHED if step.finished else STEP_STARTED
    return Note(step.job_id, seq, name, step.at, actor, step.execution_no, data)


def _progress_note(progress: Progress, claim: Event) -> Note:
    data = {"share": progress.share, "message": progress.message}
    return Note(progress.job_id, claim.seq, PROGRESS, progress.at, claim.actor, progress.execution_no, data)


_execution_of = attrgetter("execution_no")


def _log_note(job_id: str, lines: list[LogLine], claim: Event | None) -> Note:
    """The captured lines of one execution as one note. Lines are numbered from 1: the first shows how many are gone."""
    left_out, last = lines[0].n - 1, lines[-1]
    data = {"lines": [log_line_view(line) for line in lines], **({"left_out": left_out} if left_out else {})}
    seq, actor = (claim.seq, claim.actor) if claim else (1, None)
    return Note(job_id, seq, CAPTURED, last.at, actor, last.execution_no, data)


def log_line_view(line: LogLine) -> dict[str, str | None]:
    return {"at": iso(line.at), "level": line.level, "logger": line.logger, "message": line.message}


def progress_view(progress: Progress | None, *, payloads: bool) -> responses.ProgressReport | None:
    if progress is None:
        return None
    return show(responses.ProgressReport, progress if payloads else redact_progress(progress))


def step_view(step: Step) -> responses.StepRecord:
    result = None if step.result is None else json.loads(step.result)
    return show(responses.StepRecord, step, finished_at=iso(step.at) if step.finished else None, result=result)


def job_view(contract: Contract, job: Job, *, payloads: bool = True) -> responses.Job:
    """A job as the API shows it; payloads False hides payload, result and error message."""
    if not payloads:
        job = redact_job(job)
    view = contract.view(job)
    if not payloads:
        view = {name: None if name in ("payload", "payload_json", "output") else view[name] for name in view}
    return show(
        responses.Job,
        job,
        payload=json.loads(job.payload) if payloads else None,
        result=None if job.result is None else json.loads(job.result),
        view=view,
    )


def submitted_view(contract: Contract, submitted: Submitted) -> responses.SubmitResponse:
    """The response of POST /jobs."""
    job = submitted.job
    view: responses.SubmitResponse = {"idempotent_hit": submitted.hit, "job": job_view(contract, job)}
    if submitted.warnings:
        view["warnings"] = list(submitted.warnings)
    if contract.keys.task_id_is_key:
        view["task"] = contract.view(job)
    return view


def event_view(contract: Contract, job: Job, event: Event) -> responses.Event:
    trace_id, envelope = job.trace_id, contract.envelope and contract.envelope(job, event)
    return show(responses.Event, event, trace_id=trace_id, data=event.data or {}, note=False, envelope=envelope)


def published(view: Mapping[str, Any], *, has_envelopes: bool) -> tuple[str, Mapping[str, Any]] | None:
    """The name and the body under which a contract publishes an event, given as `event_view` shows it.

    Contracts without envelopes publish the view itself. None: the event is not published; notes never are.
    """
    body = view["envelope"] if has_envelopes else None if view["note"] else view
    return None if body is None else (body.get("type") or body.get("event_type") or view["event"], body)


def note_view(job: Job, note: Note, status: str) -> responses.Event:
    """A note in the form of an event that does not change the status."""
    values: dict[str, Any] = {"source": status, "target": status, "note": True, "envelope": None}
    return show(responses.Event, note, event=note.name, trace_id=job.trace_id, data=note.data or {}, **values)


def dead_letter_view(item: DeadLetter, *, payloads: bool = True) -> responses.DeadLetter:
    item = item if payloads else redact_dead_letter(item)
    payload, context = json.loads(item.payload), json.loads(item.context)
    values = {"dlq_id": item.id, "payload_json": payload, "context_json": context, "retry_count": item.retries}
    return show(responses.DeadLetter, item, **values, error_group=item.error_group or None)


def contract_view(contract: Contract) -> operations.Contract:
    """A contract's statuses, edges, error codes and retry rule; notes are not edges."""
    return show(operations.Contract, contract, **contract_to(contract))


def contracts_view(contracts: Mapping[str, Contract]) -> list[operations.ContractSummary]:
    return [
        {
            "name": contract.name,
            "description": contract.description,
            "carried": contract.name in CONTRACTS,
            "default": contract.name == DEFAULT,
            "statuses": len(contract.statuses),
            "edges": len(contract.edges),
            "max_retries": contract.retry.max_retries,
            "dead_letters": contract.dead_letters is not None,
        }
        for contract in sorted(contracts.values(), key=lambda contract: contract.name)
    ]
