"""The worker protocol over HTTP, about a running job: its steps, signals, children, progress and log lines.

Every request names the job and the token of its lease; 409 LEASE_STALE if the lease is lost.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from detent.core.access import Power
from detent.core.errors import InvalidInput
from detent.core.job import Step
from detent.core.times import SECOND
from detent.engine.execution.executions import LogLine, NamedChild, StepRecord
from detent.engine.reads import worker_protocol
from detent.engine.reads.responses import show
from detent.engine.submit.submission import Submission, json_text
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

from .jobs import submission_of
from .worker import LeaseToken, Seconds, require_worker

router = Router(tags=["worker"])
MAX_CHILDREN = 500
_CHILD = {"$ref": "#/components/schemas/ChildSubmission"}


class StepRequest(LeaseToken):
    """A step that has run. A step that must never run twice is recorded twice: before it with finished false."""

    name: schemas.Name = Field(description="Unique in the job; put a counter into the name of a step in a loop.")
    digest: Annotated[str, Field(max_length=128, pattern=r"^[!-~]*$")] = Field(
        "", description="A hash of the step's arguments. 409 STEP_MISMATCH if it was recorded with another one."
    )
    result: Any = Field(None, description="JSON, at most 1 MiB.")
    finished: bool = True
    duration_seconds: Seconds | None = Field(
        None, description="How long the step ran, by the worker's clock; for a step that is finished."
    )


class Line(schemas.RequestBody):
    message: Annotated[str, Field(max_length=2_000)]
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    logger: schemas.Name = "worker"


class LogRequest(LeaseToken):
    lines: Annotated[list[Line], Field(min_length=1, max_length=200)]


class ProgressRequest(LeaseToken):
    share: float = Field(ge=0, le=1, description="How much of the job is done, from 0 to 1.")
    message: Annotated[str, Field(max_length=500)] = ""


class ChildrenRequest(LeaseToken):
    children: Annotated[
        list[Annotated[dict[str, Any], WithJsonSchema(_CHILD)]], Field(min_length=1, max_length=MAX_CHILDREN)
    ]


@router.route_for("POST", "/worker/steps", Power.WORK)
async def list_recorded_steps(request: ApiRequest, body: LeaseToken) -> list[worker_protocol.RecordedStep]:
    """The steps that the job has recorded in this and earlier executions. Do not run a finished one again."""
    require_worker(request)
    return [_step_view(step) for step in await request.engine.executions.steps(body.job_id, body.token)]


@router.route_for("POST", "/worker/steps/record", Power.WORK)
async def record_step(request: ApiRequest, body: StepRequest) -> worker_protocol.RecordedStep:
    """Record a step. Idempotent: the answer is the step as it is recorded, with the first result.

    409 STEP_MISMATCH if it was recorded with another digest; 409 ONCE_UNFINISHED if an earlier execution began it and
    did not record its end.
    """
    require_worker(request)
    if body.result is not None and not body.finished:
        raise InvalidInput("a step that is not finished has no result; leave it out", field="result")
    if body.duration_seconds is not None and not body.finished:
        message = "a step that is not finished has no duration; leave it out"
        raise InvalidInput(message, field="duration_seconds")
    result = json_text(body.result, "STEP_RESULT_INVALID", "the result of the step") if body.finished else None
    duration = None if body.duration_seconds is None else int(body.duration_seconds * SECOND)
    record = StepRecord(body.name, body.digest, result, body.finished, duration)
    return _step_view(await request.engine.executions.record_step(body.job_id, body.token, record))


@router.route_for("POST", "/worker/signals", Power.WORK)
async def list_signals(request: ApiRequest, body: LeaseToken) -> list[worker_protocol.ReceivedSignal]:
    """The signals that were sent to the job, and its waits that timed out, oldest first.

    To wait for one that is not here, settle with the outcome wait.
    """
    require_worker(request)
    signals = await request.engine.executions.signals(body.job_id, body.token)
    return [show(worker_protocol.ReceivedSignal, signal, data=json.loads(signal.data)) for signal in signals]


@router.route_for("POST", "/worker/children", Power.WORK)
async def enqueue_children(request: ApiRequest, body: ChildrenRequest) -> list[worker_protocol.EnqueuedChild]:
    """Enqueue children of the job, unless they exist, and return the state of each. Idempotent.

    To wait for children that have not ended, settle with the outcome wait. They belong to the tenant of the job. 409
    STEP_MISMATCH if a child of this name was enqueued with another type or payload.
    """
    require_worker(request)
    submissions = [await _child_of(request, child) for child in body.children]
    if len({name for name, _ in submissions}) < len(submissions):
        raise InvalidInput("two children have the same name; each needs one of its own", field="name")
    children = await request.engine.executions.enqueue_children(body.job_id, body.token, submissions)
    return [_child_view(child) for child in children]


@router.route_for("POST", "/worker/progress", Power.WORK)
async def report_progress(request: ApiRequest, body: ProgressRequest) -> worker_protocol.ProgressResponse:
    """Report how far the job is. Stored at most once a second; more calls are ignored."""
    require_worker(request)
    claimed = await request.engine.executions.progress(body.job_id, body.token, body.share, body.message)
    return {"cancel_requested": claimed.cancel_requested is not None}


@router.route_for("POST", "/worker/logs", Power.WORK)
async def add_log_lines(request: ApiRequest, body: LogRequest) -> worker_protocol.LogResponse:
    """Store log lines with the job. Of one execution the last 200 lines and 32 KiB are kept."""
    require_worker(request)
    lines = [LogLine(line.level, line.message, line.logger) for line in body.lines]
    stored = await request.engine.executions.add_log_lines(body.job_id, body.token, lines)
    return {"stored": stored, "left_out": len(lines) - stored}


async def _child_of(request: ApiRequest, child: dict[str, Any]) -> tuple[str, Submission]:
    """The name of a child, and its submission with the options that its type declares."""
    name, body = child.get("name"), {key: value for key, value in child.items() if key != "name"}
    if not isinstance(name, str):
        raise InvalidInput("each child needs a name that is unique in the job", code="INPUT_INVALID", field="name")
    if not isinstance(body.get("job_type"), str):
        raise InvalidInput(
            "each child needs a job_type; it selects the handler", code="INPUT_INVALID", field="job_type"
        )
    submission = submission_of(request.engine, request.caller, body, None)
    request.engine.reach.within_types({submission.job_type})
    given = {key for key, value in body.items() if value is not None}
    known_only = request.web.settings.known_types_only
    submission, _ = await request.engine.declarations.apply(submission, given, known_only=known_only)
    return name, submission


def _step_view(step: Step) -> worker_protocol.RecordedStep:
    return show(worker_protocol.RecordedStep, step, result=None if step.result is None else json.loads(step.result))


def _child_view(child: NamedChild) -> worker_protocol.EnqueuedChild:
    state = child.state
    return show(
        worker_protocol.EnqueuedChild,
        state,
        name=child.name,
        ended=state.phase == "final",
        succeeded=child.succeeded,
        result=None if state.result is None else json.loads(state.result),
    )
