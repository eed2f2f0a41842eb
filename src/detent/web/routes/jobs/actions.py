"""Actions on one job: cancel, abort, signal, approve, reject, requeue, reopen; and the jobs that wait for approval.

The actor is the token's person.
"""

from typing import Annotated, Any

from fastapi import Body, Query
from pydantic import Field

from detent.core.access import Power
from detent.core.approval import may_decide
from detent.engine.execution.approvals import OpenApproval
from detent.engine.reads import responses
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

from .filters import JobId, Page, Paged

router = Router(tags=["jobs"])
OptionalDecision = Annotated[schemas.DecisionRequest | None, Body()]


@router.route_for("POST", "/jobs/{job_id}/cancel", Power.OPERATE)
async def cancel_job(
    request: ApiRequest, job_id: JobId, body: Annotated[schemas.CancelRequest | None, Body()] = None
) -> responses.Job:
    """Cancel a job. A running job is requested to stop, if its contract defines that; force cancels it at once.

    409 if the contract has no such transition from the job's status.
    """
    force = bool(body and body.force)
    return request.job_view(await request.engine.jobs.cancel(job_id, request.acting(body), force=force))


@router.route_for("POST", "/jobs/{job_id}/abort", Power.OPERATE)
async def abort_job(request: ApiRequest, job_id: JobId, body: schemas.OptionalReason = None) -> responses.Job:
    """Make a job fail that no worker runs. 409 if a worker runs it or its contract has no such transition."""
    return request.job_view(await request.engine.jobs.abort(job_id, request.acting(body)))


@router.route_for("POST", "/jobs/{job_id}/approve", Power.REVIEW)
async def approve_job(request: ApiRequest, job_id: JobId, body: OptionalDecision = None) -> responses.Job:
    """Approve a job that waits for approval. With a quorum, it continues when enough people have approved.

    409 if it does not wait for approval or the digest does not match, 403 APPROVAL_ROLE_REQUIRED without a required
    role, 400 APPROVAL_REQUIRED if the same person approves twice.
    """
    return request.job_view(await request.engine.approvals.approve(job_id, **_decision(request, body)))


@router.route_for("POST", "/jobs/{job_id}/reject", Power.REVIEW)
async def reject_job(request: ApiRequest, job_id: JobId, body: OptionalDecision = None) -> responses.Job:
    """Reject a job that waits for approval; one rejection is enough. Errors are those of approve.

    A job held before its first execution ends; a running handler gets the rejection as the result of its request.
    """
    return request.job_view(await request.engine.approvals.reject(job_id, **_decision(request, body)))


def _decision(request: ApiRequest, body: schemas.DecisionRequest | None) -> dict[str, Any]:
    """The arguments of engine.approvals.approve and reject."""
    digest = body.digest if body else None
    return {"scope": request.acting(body), "roles": request.caller.deciding_roles, "digest": digest}


@router.route_for("POST", "/jobs/{job_id}/reopen", Power.OPERATE)
async def reopen_job(request: ApiRequest, job_id: JobId, body: schemas.OptionalReason = None) -> responses.Job:
    """Reopen a finished job: the same job runs again. 409 if its contract has no such transition."""
    return request.job_view(await request.engine.jobs.reopen(job_id, request.acting(body)))


@router.route_for("POST", "/jobs/{job_id}/signal", Power.OPERATE)
async def signal_job(request: ApiRequest, job_id: JobId, body: schemas.SignalRequest) -> responses.SignalResponse:
    """Send a signal that a job waits for or will wait for. The first one of a name is kept, later ones are ignored."""
    job, first = await request.engine.jobs.signal(job_id, body.name, request.acting(), body.data)
    return {"first": first, "job": request.job_view(job)}


@router.route_for("POST", "/jobs/{job_id}/requeue", Power.OPERATE, status=201)
async def requeue_job(
    request: ApiRequest, job_id: JobId, body: Annotated[schemas.RequeueRequest | None, Body()] = None
) -> responses.SubmitResponse:
    """Requeue a finished job as a new job, which is linked to it. 409 if the job is not finished."""
    payload = body.payload if body else None
    return request.submitted_view(
        await request.engine.jobs.requeue(job_id, request.acting(body), payload=payload, new_id=request.fresh_id)
    )


class ApprovalFilter(Page):
    role: schemas.Name | None = Field(None, description="Only approvals that a person with this role may decide.")


@router.route_for("GET", "/approvals", Power.READ)
async def list_approvals(
    request: ApiRequest, query: Annotated[ApprovalFilter, Query()]
) -> Paged[responses.PendingApproval]:
    """List the jobs that wait for approval, oldest first. may_decide: whether the caller may approve or reject."""
    roles = None if query.role is None else [query.role]
    rows = await request.engine.approvals.waiting(roles=roles, after=query.cursor, limit=query.limit + 1)
    page, last = query.cut(rows)
    payloads = request.engine.payloads
    items: list[Any] = [
        {**row.as_dict(payloads=payloads), "may_decide": _may_decide(request.caller, row)} for row in page
    ]
    return items, last.job.id if last else None


def _may_decide(caller: Caller, row: OpenApproval) -> bool:
    return caller.may(Power.REVIEW) and (
        row.approval is None or may_decide(row.approval.request, caller.deciding_roles)
    )
