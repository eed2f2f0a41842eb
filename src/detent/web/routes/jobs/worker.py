"""The worker protocol over HTTP, for workers in any language: claim, heartbeat, settle."""

import asyncio
import json
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from detent.core.access import Power
from detent.core.contract.model import Phase
from detent.core.job import Failure
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Stopped, Succeeded
from detent.core.retry import Origin
from detent.core.times import SECOND
from detent.engine.control.access import Forbidden
from detent.engine.reads import responses
from detent.engine.reads.responses import show
from detent.engine.submit.submission import json_text
from detent.ports.listing import WorkerRow
from detent.version import __version__
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

router = Router(tags=["worker"])
_MAX_WAIT = 20.0
_POLL_SECONDS = 0.5
Key = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=schemas.VISIBLE)]
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


class ClaimRequest(schemas.RequestBody):
    worker: schemas.Name = Field(description="Name of the worker; its id is PERSON/NAME.")
    job_types: Annotated[list[schemas.Name], Field(min_length=1, max_length=500)]
    queues: Annotated[list[schemas.Name], Field(min_length=1, max_length=500)] | None = Field(
        None, description="Null: all queues."
    )
    limit: int = Field(1, ge=1, le=100, description="Max number of jobs to claim.")
    lease_seconds: LeaseSeconds = Field(30.0, description="Without a heartbeat the lease ends after this time.")
    wait_seconds: float = Field(0.0, ge=0, le=_MAX_WAIT, description="How long to wait for the first job.")


class HeartbeatRequest(schemas.RequestBody):
    worker: schemas.Name
    held: Annotated[dict[Key, Key], Field(max_length=1_000), WithJsonSchema(_HELD)]
    lease_seconds: LeaseSeconds = Field(30.0, description="The leases end this long after the heartbeat.")


class SettleRequest(schemas.RequestBody):
    """The outcome of an execution.

    succeed: result. fail: code, message, retryable, after_seconds (delay of the retry; contracts with frozen retries
    refuse it). snooze: after_seconds (the job is queued again and no retry is used). cancel: reason. stop: the job is
    queued again at once.
    """

    job_id: Key
    token: Key = Field(description="Token of the lease, from claim.")
    outcome: Literal["succeed", "fail", "snooze", "cancel", "stop"]
    result: Any = None
    code: schemas.Name | None = Field(None, description="Error code; default: the contract's own code.")
    message: schemas.Prose | None = None
    retryable: bool | None = Field(None, description="Null: the contract decides; gate-b2 retries only if true.")
    after_seconds: Seconds | None = None
    reason: schemas.Prose | None = None


@router.route_for("POST", "/worker/claim", Power.WORK)
async def claim_jobs(request: ApiRequest, body: ClaimRequest) -> responses.ClaimResponse:
    """Claim ready jobs of these types under a lease. Waits up to wait_seconds if there are none.

    Send heartbeats before the lease ends and settle each job. 403 if the token may not see payloads or has a tenant,
    or if a queue or type is named that it does not reach.
    """
    worker = _worker_id(request, body.worker)
    engine, reach = request.engine, request.caller.reach
    allowed = reach.within_queues(body.queues)
    queues = None if allowed is None else sorted(allowed)
    job_types = sorted(reach.within_types(body.job_types) or ())
    row = _worker_row(request, worker, body, job_types, queues)
    await engine.store.write(lambda tx: tx.workers.put_worker(row))
    loop = asyncio.get_running_loop()
    wait_until = loop.time() + body.wait_seconds
    while True:
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
    if claimed and await request.is_disconnected():
        for job in claimed:  # queue the jobs again at once instead of after their leases end
            await engine.settle(job.id, job.token, Stopped())
    jobs = [show(responses.ClaimedJob, job, payload=json.loads(job.payload)) for job in claimed]
    return {"jobs": jobs, "lease_seconds": body.lease_seconds}


@router.route_for("POST", "/worker/heartbeat", Power.WORK)
async def extend_leases(request: ApiRequest, body: HeartbeatRequest) -> responses.HeartbeatResponse:
    """Heartbeat: extend the leases of the held jobs. Returns which leases are lost and which jobs to cancel."""
    _worker_id(request, body.worker)
    extended = await request.engine.extend(body.held, body.lease_seconds)
    cancels = {job_id: json.loads(cancel).get("reason") for job_id, cancel in extended.cancels.items()}
    return {"lost": sorted(extended.lost), "cancels": cancels}


@router.route_for("POST", "/worker/settle", Power.WORK)
async def settle_job(request: ApiRequest, body: SettleRequest) -> responses.SettleResponse:
    """End an execution with its outcome. Idempotent. 409 LEASE_STALE if the lease is lost."""
    _worker_id(request, "settle")
    job = await request.engine.settle(body.job_id, body.token, outcome_of(body))
    return show(responses.SettleResponse, job, job_id=job.id, ended=job.phase is Phase.FINAL)


def outcome_of(body: SettleRequest) -> Outcome:
    after = None if body.after_seconds is None else int(body.after_seconds * SECOND)
    if body.outcome == "succeed":
        result = None if body.result is None else json_text(body.result, "RESULT_INVALID", "the result")
        return Succeeded(result)
    if body.outcome == "fail":
        code, message = body.code or "", body.message or ""
        return Failed(Failure(code, message, None, body.retryable, after=after, origin=Origin.REPORT))
    if body.outcome == "snooze":
        return Snoozed(after or 0)
    return Cancelled(body.reason) if body.outcome == "cancel" else Stopped()


def _worker_id(request: ApiRequest, name: str) -> str:
    """The worker's id: person and name. Raises if the token has a tenant or may not see payloads."""
    request.caller.require_all_tenants("the worker endpoints")
    if not request.caller.payloads:
        raise Forbidden("a worker needs a token that may see payloads", code="PAYLOADS_REQUIRED")
    return f"{request.caller.person}/{name}"[:200]


def _worker_row(
    request: ApiRequest, worker: str, body: ClaimRequest, job_types: list[str], queues: list[str] | None
) -> WorkerRow:
    now = request.engine.store.now()
    return WorkerRow(
        id=worker,
        host=request.client.host if request.client else "http",
        pid=0,
        version=__version__,
        queues=None if queues is None else json.dumps(queues),
        job_types=json.dumps(job_types),
        slots=body.limit,
        busy=0,
        state="working",
        started_at=now,
        seen_at=now,
        lease=int(body.lease_seconds * SECOND),
    )
