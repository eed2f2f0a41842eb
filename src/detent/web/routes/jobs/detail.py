"""What the page of a job shows in addition to the job: allowed actions, its wait, steps, approvals, children."""

import json
from typing import Any

from detent.core.access import Power
from detent.core.approval import Approval, may_decide
from detent.core.contract.model import Contract, Move, Phase
from detent.core.job import APPROVAL, Job, Step
from detent.core.times import iso
from detent.engine.execution.approvals import approval_view
from detent.engine.reads import responses
from detent.engine.reads.responses import show
from detent.ports.tx import Tx
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router

from .filters import JobId

router = Router(tags=["jobs"])
_MAX_CHILDREN = 20


@router.route_for("GET", "/jobs/{job_id}/detail", Power.READ)
async def get_job_detail(request: ApiRequest, job_id: JobId) -> responses.JobDetail:
    """The actions that a job's contract and the caller's role allow, and its wait, steps, approvals and children."""
    engine, caller = request.engine, request.caller
    job = await engine.jobs.get(job_id)

    async def read_detail(tx: Tx) -> tuple[list[Step], list[Approval], list[Job], int]:
        children = await tx.children.list_children(job.id, None, _MAX_CHILDREN)
        total = sum(row.number for row in await tx.children.count_children(job.id)) if children else 0
        return await tx.steps.list_steps(job.id), await tx.approvals.approvals_of(job.id), children, total

    steps, approvals, children, total = await engine.store.read(read_detail)
    contract = engine.contract(job.contract)
    acts = [action for action in allowed_actions(contract, job) if _permitted(caller, action, job, approvals)]
    return show(
        responses.JobDetail,
        job,
        job_id=job.id,
        acts=acts,
        wait=_wait(job),
        cancel_requested=job.cancel_requested is not None,
        steps=[_step(step, caller.payloads) for step in steps],
        approvals=[_approval(approval, caller.payloads) for approval in approvals],
        children={"total": total, "jobs": [show(responses.ChildJob, child) for child in children]},
    )


def _permitted(caller: Caller, action: dict[str, Any], job: Job, approvals: list[Approval]) -> bool:
    """Whether the caller's role allows the action and, for an approval with roles, whether the caller has one."""
    if action["needs"] is Power.REVIEW and job.wait_kind == APPROVAL:
        current = [approval for approval in approvals if approval.name == job.wait_name]
        if not all(may_decide(approval.request, caller.deciding_roles) for approval in current):
            return False
    return caller.may(Power(action["needs"]))


def allowed_actions(contract: Contract, job: Job) -> list[dict[str, Any]]:
    """The actions that the contract allows in the job's status."""
    actions: list[dict[str, Any]] = []
    if contract.edge(job.status, Move.CANCEL):
        by_request = job.status in contract.cancel_requests
        actions.append({"act": "cancel", "needs": Power.OPERATE, "request": by_request})
    if job.phase is not Phase.LEASED and contract.edge(job.status, Move.FAIL):
        actions.append({"act": "abort", "needs": Power.OPERATE})
    if job.status in contract.approval_statuses:
        actions += [{"act": act, "needs": Power.REVIEW} for act in ("approve", "reject")]
    if job.phase is not Phase.FINAL and contract.has(Move.WAIT):
        actions.append({"act": "signal", "needs": Power.OPERATE})
    if contract.edge(job.status, Move.REOPEN):
        actions.append({"act": "reopen", "needs": Power.OPERATE})
    if job.phase is Phase.FINAL:
        actions.append({"act": "requeue", "needs": Power.OPERATE})
    return actions


def _wait(job: Job) -> responses.JobWait | None:
    if job.phase is not Phase.BLOCKED or job.wait_name is None:
        return None
    return {"name": job.wait_name, "kind": job.wait_kind, "until": iso(job.due_at)}


def _approval(approval: Approval, payloads: bool) -> dict[str, Any]:
    """Without payloads the texts that come from the handler are left out."""
    return {**approval_view(approval), **({} if payloads else {"about": None, "summary": None})}


def _step(step: Step, payloads: bool) -> responses.StepRecord:
    result = json.loads(step.result) if payloads and step.result is not None else None
    return show(responses.StepRecord, step, result=result)
