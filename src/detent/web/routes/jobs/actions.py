"""Acts on one job: cancel, abort, signal, approve, reject, requeue, reopen. Who acts is the token's person."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Body
from starlette.responses import Response

from detent.core.access import Power
from detent.core.job import Job
from detent.engine import Engine
from detent.engine.reads.views import job_view, submitted_view
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schemas

from .filters import JobId

router = Router(tags=["jobs"])
Because = Annotated[schemas.Because | None, Body()]
Decide = Annotated[schemas.Decide | None, Body()]


async def _acted(asked: ApiRequest, act: Callable[[Engine], Awaitable[Job]]) -> Response:
    engine = await asked.engine()
    job = await act(engine)
    return answer(job_view(engine.contract(job.contract), job, payloads=asked.caller.payloads))


def _word(who: Caller, body: schemas.Decide | None) -> dict[str, Any]:
    """One person's word: whose, why, in which roles, and on what."""
    told = {"actor": who.person, "tenant": who.tenant, "roles": who.deciding_roles}
    return {**told, "reason": _reason(body), "digest": body.digest if body else None}


def _reason(body: schemas.Because | None) -> str | None:
    return body.reason if body else None


@router.route_for("POST", "/jobs/{job_id}/cancel", needs=Power.OPERATE, answers={200: schemas.Job})
async def cancel(asked: ApiRequest, job_id: JobId, body: Annotated[schemas.Cancel | None, Body()] = None) -> Response:
    """Cancel: at once, or by asking the holder, as the contract says; force does not wait for the holder."""
    who, force = asked.caller, bool(body and body.force)
    return await _acted(
        asked, lambda e: e.cancel(job_id, actor=who.person, reason=_reason(body), tenant=who.tenant, force=force)
    )


@router.route_for("POST", "/jobs/{job_id}/abort", needs=Power.OPERATE, answers={200: schemas.Job})
async def abort(asked: ApiRequest, job_id: JobId, body: Because = None) -> Response:
    """Give up a job that no worker holds."""
    who = asked.caller
    return await _acted(asked, lambda e: e.abort(job_id, actor=who.person, reason=_reason(body), tenant=who.tenant))


@router.route_for("POST", "/jobs/{job_id}/approve", needs=Power.REVIEW, answers={200: schemas.Job})
async def approve(asked: ApiRequest, job_id: JobId, body: Decide = None) -> Response:
    """Let a job go on that waits for approval."""
    return await _acted(asked, lambda e: e.approve(job_id, **_word(asked.caller, body)))


@router.route_for("POST", "/jobs/{job_id}/reject", needs=Power.REVIEW, answers={200: schemas.Job})
async def reject(asked: ApiRequest, job_id: JobId, body: Decide = None) -> Response:
    """Refuse a job that waits for approval."""
    return await _acted(asked, lambda e: e.reject(job_id, **_word(asked.caller, body)))


@router.route_for("POST", "/jobs/{job_id}/reopen", needs=Power.OPERATE, answers={200: schemas.Job})
async def reopen(asked: ApiRequest, job_id: JobId, body: Because = None) -> Response:
    """Run the same ended job again, where the contract has such an edge."""
    who = asked.caller
    return await _acted(asked, lambda e: e.reopen(job_id, actor=who.person, reason=_reason(body), tenant=who.tenant))


@router.route_for("POST", "/jobs/{job_id}/signal", needs=Power.OPERATE, answers={200: schemas.Signalled})
async def signal(asked: ApiRequest, job_id: JobId, body: schemas.Signal) -> Response:
    """Tell a job what it waits for, or will wait for; the first under a name counts."""
    engine, who = await asked.engine(), asked.caller
    job, first = await engine.signal(job_id, body.name, body.data, actor=who.person, tenant=who.tenant)
    view = job_view(engine.contract(job.contract), job, payloads=who.payloads)
    return answer({"first": first, "job": view})


@router.route_for("POST", "/jobs/{job_id}/requeue", needs=Power.OPERATE, answers={201: schemas.Submitted})
async def requeue(asked: ApiRequest, job_id: JobId, body: Annotated[schemas.Requeue | None, Body()] = None) -> Response:
    """Make a new job from one that has ended, linked to it."""
    engine, who = await asked.engine(), asked.caller
    made = await engine.requeue_job(
        job_id,
        actor=who.person,
        reason=_reason(body),
        payload=body.payload if body else None,
        tenant=who.tenant,
        new_id=asked.fresh_id,
    )
    return answer(submitted_view(engine.contract(made.job.contract), made, payloads=who.payloads), 201)
