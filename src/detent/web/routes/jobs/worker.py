"""The worker protocol over HTTP, for workers in any language: claim, heartbeat, settle, deregister."""

import asyncio
import json
from typing import Annotated, Any, Literal, cast

from pydantic import Field, StringConstraints, WithJsonSchema

from detent.core.access import Power
from detent.core.contract.model import Phase
from detent.core.errors import InvalidInput
from detent.core.job import CHILDREN, Failure, Wait
from detent.core.options.option import PRINTABLE
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.core.retry import Origin
from detent.core.times import SECOND
from detent.engine.control.access import Forbidden
from detent.engine.reads import responses, worker_protocol
from detent.engine.reads.responses import show
from detent.engine.submit.submission import json_text
from detent.ports.listing import WorkerRow
from detent.version import __version__
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

from .filters import UUID

router = Router(tags=["worker"])
_MAX_WAIT = 20.0
_POLL_SECONDS = 0.5
_PARK_SECONDS = 60.0
"""A wait that may last longer is parked, as in workers that use the library."""
MAX_AWAITED = 10_000
_MAX_WORKER_ID = 200
Key = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=schemas.VISIBLE)]
ChildId = Annotated[str, StringConstraints(pattern=UUID)]
Seconds = Annotated[float, Field(ge=0, le=31_536_000)]
LeaseSeconds = Annotated[float, Field(ge=1, le=86_400)]


_KEY = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": schemas.VISIBLE}
_HELD = {
    "type": "object",
    "description": "The jobs that the worker holds: job id -> token of its lease.",
    "maxProperties": 1_000,
    "propertyNames": _KEY,
    "additionalProperties": _KEY,
}


class LeaseToken(schemas.RequestBody):
    """A job and the token of its lease, from claim."""

    job_id: Key
    token: Key = Field(description="Token of the lease, from claim.")


class WorkerName(schemas.RequestBody):
    worker: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=PRINTABLE)] = Field(
        description="Name of the worker; its id is PERSON/NAME."
    )


class ClaimRequest(WorkerName):
    job_types: Annotated[list[schemas.Name], Field(min_length=1, max_length=500)]
    queues: Annotated[list[schemas.Name], Field(min_length=1, max_length=500)] | None = Field(
        None, description="Null: all queues."
    )
    limit: int = Field(1, ge=1, le=100, description="Max number of jobs to claim.")
    lease_seconds: LeaseSeconds = Field(30.0, description="Without a heartbeat the lease ends after this time.")
    wait_seconds: float = Field(0.0, ge=0, le=_MAX_WAIT, description="How long to wait for the first job.")
    slots: int | None = Field(None, ge=1, le=1_000, description="Jobs it runs at the same time. Default: limit.")
    host: schemas.Name | None = Field(None, description="Its host name, for display. Default: its address.")
    pid: int = Field(
        0, ge=0, le=2**31 - 1, description="Its process id. A new process ignores commands to the old one."
    )


class HeartbeatRequest(WorkerName):
    held: Annotated[dict[Key, Key], Field(max_length=1_000), WithJsonSchema(_HELD)]
    lease_seconds: LeaseSeconds = Field(30.0, description="The leases end this long after the heartbeat.")


class WaitRequest(schemas.RequestBody):
    """What the job waits for: a signal of this name, or children."""

    name: schemas.Name = Field(description="One wait for the job's life. A timeout is recorded under this name.")
    kind: Literal["signal", "webhook", "human", "timer"] = Field("signal", description="Shown to people.")
    timeout_seconds: float | None = Field(None, ge=0, le=1e9, description="Null: without end.")
    children: Annotated[list[ChildId], Field(min_length=1, max_length=MAX_AWAITED)] | None = Field(
        None, description="Ids of children to wait for instead of a signal."
    )
    wakes_on: Literal["end", "failure", "any"] = Field(
        "failure", description="end: all children ended; failure: all ended or one failed; any: one ended."
    )


_OUTCOME_FIELDS = {
    "succeed": ("result",),
    "fail": ("code", "message", "retryable", "after_seconds"),
    "snooze": ("after_seconds",),
    "cancel": ("reason",),
    "stop": (),
    "wait": ("wait",),
}
_FIELDS_OF_OTHERS = {
    outcome: sorted({name for names in _OUTCOME_FIELDS.values() for name in names} - set(own))
    for outcome, own in _OUTCOME_FIELDS.items()
}


def _outcome_schema(outcome: str) -> dict[str, Any]:
    """What a JSON schema says about one outcome: it has no values of the others; a wait and a snooze need theirs."""
    properties: dict[str, Any] = {"outcome": {"const": outcome}}
    properties |= {name: {"type": "null"} for name in _FIELDS_OF_OTHERS[outcome]}
    if outcome == "wait":
        properties["wait"] = {"type": "object", "additionalProperties": True}
    if outcome == "snooze":
        properties["after_seconds"] = {"type": "number"}
    needed = {"wait": "wait", "snooze": "after_seconds"}.get(outcome, "outcome")
    return {"properties": properties, "required": [needed]}


class SettleRequest(LeaseToken):
    """The outcome of an execution.

    succeed: result. fail: code, message, retryable, after_seconds (delay of the retry; contracts with frozen retries
    refuse it). snooze: after_seconds (the job is queued again and no retry is used). cancel: reason. stop: the job is
    queued again at once. wait: the job leaves its worker, and is claimed again when the wait ends.
    """

    model_config = schemas.any_of(*map(_outcome_schema, _OUTCOME_FIELDS))

    outcome: Literal["succeed", "fail", "snooze", "cancel", "stop", "wait"]
    result: Any = None
    code: schemas.Name | None = Field(None, description="Error code; default: the contract's own code.")
    message: schemas.Prose | None = None
    retryable: bool | None = Field(None, description="Null: the contract decides; gate-b2 retries only if true.")
    after_seconds: Seconds | None = None
    reason: schemas.Prose | None = None
    wait: WaitRequest | None = None


@router.route_for("POST", "/worker/claim", Power.WORK)
async def claim_jobs(request: ApiRequest, body: ClaimRequest) -> responses.ClaimResponse:
    """Claim ready jobs of these types under a lease. Waits up to wait_seconds if there are none.

    Send heartbeats before the lease ends and settle each job. After a drain or stop of the worker it gets no more jobs,
    only the command. 403 if the token may not see payloads or has a tenant, or if a queue or type is named that it
    does not reach.
    """
    worker = _worker_id(request, body.worker)
    engine, reach = request.engine, request.caller.reach
    allowed = reach.within_queues(body.queues)
    queues = None if allowed is None else sorted(allowed)
    job_types = sorted(reach.within_types(body.job_types) or ())
    row = _worker_row(request, worker, body, job_types, queues)
    command, claimed = await engine.workers.check_in(row), []
    loop = asyncio.get_running_loop()
    wait_until = loop.time() + body.wait_seconds
    while command is None:
        claimed = await engine.claim(
            engine.claim_request(
                worker,
                body.limit,
                body.lease_seconds,
                job_types=frozenset(job_types),
                queues=None if queues is None else frozenset(queues),
                reclaim=True,
            )
        )
        seconds_left = wait_until - loop.time()
        if claimed or seconds_left <= 0:
            break
        await request.web.commit_watch.wait(min(seconds_left, _POLL_SECONDS))
        if request.web.stopping.is_set() or await request.is_disconnected():
            break
        await request.reauthenticate()
        command = await engine.workers.command(worker)
    if claimed:
        await engine.workers.check_in(row)  # with the number of jobs that it holds now
    if claimed and await request.is_disconnected():
        for job in claimed:  # queue the jobs again at once instead of after their leases end
            await engine.settle(job.id, job.token, Stopped())
    jobs = [show(responses.ClaimedJob, job, payload=json.loads(job.payload)) for job in claimed]
    return cast(responses.ClaimResponse, {"jobs": jobs, "lease_seconds": body.lease_seconds, "command": command})


@router.route_for("POST", "/worker/heartbeat", Power.WORK)
async def extend_leases(request: ApiRequest, body: HeartbeatRequest) -> responses.HeartbeatResponse:
    """Extend the leases of the jobs that a worker holds (heartbeat).

    Returns lost leases, jobs to cancel, and a command to the worker. Send one every third of the lease, also
    while the worker holds nothing and does not claim.
    """
    worker = _worker_id(request, body.worker)
    extended = await request.engine.extend(body.held, body.lease_seconds)
    command = await request.engine.workers.record_heartbeat(worker, len(body.held.keys() - extended.lost))
    cancels = {job_id: json.loads(cancel).get("reason") for job_id, cancel in extended.cancels.items()}
    answer = {"lost": sorted(extended.lost), "cancels": cancels, "command": command}
    return cast(responses.HeartbeatResponse, answer)


@router.route_for("POST", "/worker/settle", Power.WORK)
async def settle_job(request: ApiRequest, body: SettleRequest) -> responses.SettleResponse:
    """End an execution with its outcome. Idempotent. 409 LEASE_STALE if the lease is lost."""
    require_worker(request)
    if body.wait is not None and body.wait.children:
        await request.engine.executions.check_children(body.job_id, body.wait.children)
    job = await request.engine.settle(body.job_id, body.token, outcome_of(body))
    return show(responses.SettleResponse, job, job_id=job.id, ended=job.phase is Phase.FINAL)


@router.route_for("POST", "/worker/deregister", Power.WORK)
async def deregister_worker(request: ApiRequest, body: WorkerName) -> worker_protocol.DeregisterResponse:
    """Remove a worker from the list when it exits. Its command is removed too. Settle what it holds first."""
    worker = _worker_id(request, body.worker)
    await request.engine.workers.deregister(worker)
    return {"worker": worker}


def outcome_of(body: SettleRequest) -> Outcome:
    _check_fields(body)
    after = None if body.after_seconds is None else int(body.after_seconds * SECOND)
    if body.outcome == "succeed":
        result = None if body.result is None else json_text(body.result, "RESULT_INVALID", "the result")
        return Succeeded(result)
    if body.outcome == "fail":
        code, message = body.code or "", body.message or ""
        return Failed(Failure(code, message, None, body.retryable, after=after, origin=Origin.REPORT))
    if body.outcome == "snooze":
        if after is None:
            raise InvalidInput("the outcome snooze needs after_seconds", field="after_seconds")
        return Snoozed(after)
    if body.outcome == "wait":
        return Waits(_wait_of(body.wait))
    return Cancelled(body.reason) if body.outcome == "cancel" else Stopped()


def _check_fields(body: SettleRequest) -> None:
    """Raise InvalidInput for a value that the outcome does not have."""
    for name in _FIELDS_OF_OTHERS[body.outcome]:
        if getattr(body, name) is not None:
            raise InvalidInput(f"the outcome {body.outcome} has no {name}; leave it out", field=name)


def _wait_of(body: WaitRequest | None) -> Wait:
    if body is None:
        raise InvalidInput("the outcome wait needs `wait` with the name of the wait", code="WAIT_INVALID", field="wait")
    given = body.model_fields_set
    if body.children is None and "wakes_on" in given:
        raise InvalidInput(
            "wakes_on is for a wait for children; send children with it", code="WAIT_INVALID", field="wait"
        )
    if body.children is not None and "kind" in given:
        raise InvalidInput("a wait for children has no kind; leave it out", code="WAIT_INVALID", field="wait")
    if body.kind == "timer" and body.timeout_seconds is None:
        raise InvalidInput("a timer needs timeout_seconds: it ends by itself", code="WAIT_INVALID", field="wait")
    timeout = None if body.timeout_seconds is None else int(body.timeout_seconds * SECOND)
    park = body.timeout_seconds is None or body.timeout_seconds > _PARK_SECONDS
    if body.children is None:
        return Wait(body.name, body.kind, timeout, park=park)
    return Wait(body.name, CHILDREN, timeout, park=park, children=tuple(body.children), wakes_on=body.wakes_on)


def _worker_id(request: ApiRequest, name: str) -> str:
    """The worker's id: person and name."""
    require_worker(request)
    worker = f"{request.caller.person}/{name}"
    if len(worker) > _MAX_WORKER_ID:
        message = f"the id of the worker, {worker[:40]}…, has more than {_MAX_WORKER_ID} characters; use a shorter name"
        raise InvalidInput(message, code="INPUT_INVALID", field="worker")
    return worker


def require_worker(request: ApiRequest) -> None:
    """Raise if the token has a tenant or may not see payloads."""
    request.caller.require_all_tenants("the worker endpoints")
    if not request.caller.payloads:
        raise Forbidden("a worker needs a token that may see payloads", code="PAYLOADS_REQUIRED")


def _worker_row(
    request: ApiRequest, worker: str, body: ClaimRequest, job_types: list[str], queues: list[str] | None
) -> WorkerRow:
    now = request.engine.store.now()
    return WorkerRow(
        id=worker,
        host=body.host or (request.client.host if request.client else "http"),
        pid=body.pid,
        version=__version__,
        queues=None if queues is None else json.dumps(queues),
        job_types=json.dumps(job_types),
        slots=body.slots or body.limit,
        busy=0,
        state="working",
        started_at=now,
        seen_at=now,
        lease=int(body.lease_seconds * SECOND),
    )
