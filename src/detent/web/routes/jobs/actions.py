"""Actions on one job: cancel, abort, signal, approve, reject, requeue, reopen. The actor is the token's person."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Body
from starlette.responses import Response

from detent.core.access import Power, Scope
from detent.core.job import Job
from detent.engine import Engine
from detent.engine.reads import responses
from detent.engine.reads.views import job_view, submitted_view
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas

from .filters import JobId

router = Router(tags=["jobs"])
OptionalReason = Annotated[schemas.ReasonRequest | None, Body()]
OptionalDecision = Annotated[schemas.DecisionRequest | None, Body()]


async def _act(request: ApiRequest, action: Callable[[Engine], Awaitable[Job]]) -> Response:
    engine = await request.engine()
    job = await action(engine)
    return json_response(job_view(engine.contract(job.contract), job, payloads=request.caller.payloads))


def _decision(caller: Caller, body: schemas.DecisionRequest | None) -> dict[str, Any]:
    """The arguments of engine.approvals.approve and reject."""
    return {
        "scope": _scope(caller, body),
        "roles": caller.deciding_roles,
        "digest": body.digest if body else None,
    }


def _scope(caller: Caller, body: schemas.ReasonRequest | None) -> Scope:
    return Scope(caller.person, body.reason if body else None)


@router.route_for("POST", "/jobs/{job_id}/cancel", needs=Power.OPERATE, responses={200: responses.Job})
async def cancel_job(
    request: ApiRequest, job_id: JobId, body: Annotated[schemas.CancelRequest | None, Body()] = None
) -> Response:
    """Cancel a job. A running job is requested to stop, if its contract defines that; force cancels it at once.

    409 if the contract has no such transition from the job's status.
    """
    scope, force = _scope(request.caller, body), bool(body and body.force)
    return await _act(request, lambda engine: engine.jobs.cancel(job_id, scope, force=force))


@router.route_for("POST", "/jobs/{job_id}/abort", needs=Power.OPERATE, responses={200: responses.Job})
async def abort_job(request: ApiRequest, job_id: JobId, body: OptionalReason = None) -> Response:
    """Abort: make a job fail that no worker holds. 409 if a worker holds it or its contract has no such transition."""
    return await _act(request, lambda engine: engine.jobs.abort(job_id, _scope(request.caller, body)))


@router.route_for("POST", "/jobs/{job_id}/approve", needs=Power.REVIEW, responses={200: responses.Job})
async def approve_job(request: ApiRequest, job_id: JobId, body: OptionalDecision = None) -> Response:
    """Approve a job that waits for approval. With a quorum, it continues when enough people have approved.

    409 if it does not wait for approval or the digest does not match, 403 APPROVAL_ROLE_REQUIRED without a required
    role, 400 APPROVAL_REQUIRED if the same person approves twice.
    """
    return await _act(request, lambda engine: engine.approvals.approve(job_id, **_decision(request.caller, body)))


@router.route_for("POST", "/jobs/{job_id}/reject", needs=Power.REVIEW, responses={200: responses.Job})
async def reject_job(request: ApiRequest, job_id: JobId, body: OptionalDecision = None) -> Response:
    """Reject a job that waits for approval; one rejection is enough. Errors are those of approve.

    A job held before its first execution ends; a running handler gets the rejection as the result of its request.
    """
    return await _act(request, lambda engine: engine.approvals.reject(job_id, **_decision(request.caller, body)))


@router.route_for("POST", "/jobs/{job_id}/reopen", needs=Power.OPERATE, responses={200: responses.Job})
async def reopen_job(request: ApiRequest, job_id: JobId, body: OptionalReason = None) -> Response:
    """Reopen a finished job: the same job runs again. 409 if its contract has no such transition."""
    return await _act(request, lambda engine: engine.jobs.reopen(job_id, _scope(request.caller, body)))


@router.route_for("POST", "/jobs/{job_id}/signal", needs=Power.OPERATE, responses={200: responses.SignalResponse})
async def signal_job(request: ApiRequest, job_id: JobId, body: schemas.SignalRequest) -> Response:
    """Send a signal that a job waits for or will wait for. The first one of a name is kept, later ones are ignored."""
    engine, caller = await request.engine(), request.caller
    job, first = await engine.jobs.signal(job_id, body.name, Scope(caller.person), body.data)
    view = job_view(engine.contract(job.contract), job, payloads=caller.payloads)
    return json_response({"first": first, "job": view})


@router.route_for("POST", "/jobs/{job_id}/requeue", needs=Power.OPERATE, responses={201: responses.SubmitResponse})
async def requeue_job(
    request: ApiRequest, job_id: JobId, body: Annotated[schemas.RequeueRequest | None, Body()] = None
) -> Response:
    """Requeue a finished job as a new job, which is linked to it. 409 if the job is not finished."""
    engine, caller = await request.engine(), request.caller
    submitted = await engine.jobs.requeue(
        job_id,
        _scope(caller, body),
        payload=body.payload if body else None,
        new_id=request.fresh_id,
    )
    view = submitted_view(engine.contract(submitted.job.contract), submitted, payloads=caller.payloads)
    return json_response(view, 201)
