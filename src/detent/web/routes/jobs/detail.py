"""What the page of one job shows beside the job itself: what may be done to it, what it waits for, its steps."""

import json
from typing import Any

from starlette.responses import Response

from detent.core.access import Power
from detent.core.approval import Approval, may_decide
from detent.core.contract.model import Contract, Move, Phase
from detent.core.job import APPROVAL, Job, Step
from detent.core.times import iso
from detent.engine.execution.approvals import approval_view
from detent.ports.tx import Tx
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import page_schemas

from .filters import JobId

router = Router(tags=["jobs"])
_SHOWN = 20


@router.route_for("GET", "/jobs/{job_id}/detail", needs=Power.READ, answers={200: page_schemas.JobDetail})
async def detail(asked: ApiRequest, job_id: JobId) -> Response:
    """The acts its status allows, by the contract's table; what it waits for; the steps it has recorded."""
    engine, caller = await asked.engine(), asked.caller
    job = await engine.job(job_id, tenant=caller.tenant)

    async def look(tx: Tx) -> tuple[list[Step], list[Approval], list[Job], int]:
        children = await tx.children(job.id, None, _SHOWN)
        total = sum(row[-1] for row in await tx.count_children(job.id)) if children else 0
        return await tx.steps(job.id), await tx.approvals_of(job.id), children, total

    steps, asked_for, children, total = await engine.store.read(look)
    contract = engine.contract(job.contract)
    return answer(
        {
            "job_id": job.id,
            "version": job.version,
            "acts": [act for act in acts(contract, job) if _offered(caller, act, job, asked_for)],
            "wait": _wait(job),
            "cancel_requested": job.cancel_requested is not None,
            "failures": job.failures,
            "retries": job.retries,
            "interruptions": job.interruptions,
            "steps": [_step(step, caller.payloads) for step in steps],
            "approvals": [_question(one, caller.payloads) for one in asked_for],
            "children": {"total": total, "jobs": [_child(child) for child in children]},
        }
    )


def _offered(caller: Caller, act: dict[str, Any], job: Job, asked_for: list[Approval]) -> bool:
    """What the role reaches, and of decisions those the person may make."""
    if act["needs"] is Power.REVIEW and job.wait_kind == APPROVAL:
        current = [one for one in asked_for if one.name == job.wait_name]
        if not all(may_decide(one.asked, caller.deciding_roles) for one in current):
            return False
    return caller.may(Power(act["needs"]))


def acts(contract: Contract, job: Job) -> list[dict[str, Any]]:
    """What a person may do to a job where it stands; nothing the engine would refuse for its status."""
    found = []
    if contract.edge(job.status, Move.CANCEL):
        asks = job.status in contract.cancel_requests
        found.append({"act": "cancel", "needs": Power.OPERATE, "request": asks})
    if job.phase is not Phase.LEASED and contract.edge(job.status, Move.FAIL):
        found.append({"act": "abort", "needs": Power.OPERATE})
    if job.status in contract.approval_statuses:
        found += [{"act": act, "needs": Power.REVIEW} for act in ("approve", "reject")]
    if job.phase is not Phase.FINAL and any(edge.move is Move.WAIT for edge in contract.edges):
        found.append({"act": "signal", "needs": Power.OPERATE})
    if contract.edge(job.status, Move.REOPEN):
        found.append({"act": "reopen", "needs": Power.OPERATE})
    if job.phase is Phase.FINAL:
        found.append({"act": "requeue", "needs": Power.OPERATE})
    return found


def _wait(job: Job) -> dict[str, Any] | None:
    if job.phase is not Phase.BLOCKED or job.wait_name is None:
        return None
    return {"name": job.wait_name, "kind": job.wait_kind, "until": iso(job.due_at)}


def _question(approval: Approval, payloads: bool) -> dict[str, Any]:
    """What a handler wrote into its question may be as private as a payload."""
    return {**approval_view(approval), **({} if payloads else {"about": None, "summary": None})}


def _child(job: Job) -> dict[str, Any]:
    parts = ("id", "job_type", "contract", "status", "error_code")
    return {**{name: getattr(job, name) for name in parts}, "phase": str(job.phase)}


def _step(step: Step, payloads: bool) -> dict[str, Any]:
    shown = payloads and step.result is not None
    return {
        "name": step.name,
        "finished": step.finished,
        "execution_no": step.execution_no,
        "at": iso(step.at),
        "result": json.loads(step.result) if shown and step.result is not None else None,
    }
