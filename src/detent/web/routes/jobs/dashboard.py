"""For the dashboard: what the page of a job shows in addition to the job, and actions on many jobs.

The details of a job are the allowed actions, its wait, steps, approvals and children. Actions on many jobs change those
with given ids, or a page of those that match a filter; a dry run only counts them.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from detent.core.access import Power, Scope
from detent.core.approval import Approval, may_decide
from detent.core.contract.model import Contract, Move, Phase
from detent.core.errors import InvalidInput
from detent.core.job import APPROVAL, Job
from detent.core.times import iso
from detent.engine import Engine
from detent.engine.execution.approvals import approval_view
from detent.engine.jobs import BulkResult, Jobs
from detent.engine.reads import responses
from detent.engine.reads.responses import JsonObject, show
from detent.engine.reads.views import progress_view
from detent.ports.children import ChildCount
from detent.ports.tx import Tx
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

from .filters import Cursor, JobId, JobSelection, ids_or_filter

router = Router(tags=["jobs"])
_PAGE = 500
_DRY_RUN_PAGE = 5_000
BulkResponse = responses.answer_of(
    "JobBulkResponse",
    BulkResult,
    dry_run=bool,
    matched=Annotated[int, "Number of jobs on this page that match."],
    fitting=Annotated[int, "Number of those whose status allows the action."],
    next_cursor=Annotated[str | None, "Send it to continue; null on the last page."],
)


@router.route_for("GET", "/jobs/{job_id}/detail", Power.READ)
async def get_job_detail(request: ApiRequest, job_id: JobId) -> responses.JobDetail:
    """The actions that a job's contract and the caller's role allow; its wait, progress and approvals; the number of
    its steps and children."""
    engine, caller = request.engine, request.caller
    job = await engine.jobs.get(job_id)

    async def read_detail(tx: Tx) -> tuple[Any, ...]:
        counts = [count for count in await tx.children.count_children(job.id) if engine.sees(count)]
        progress = (await tx.output.progress_of([job.id])).get(job.id)
        has_logs = bool(await tx.output.last_log_lines(job.id, 1))
        origin, copy = await _origin(tx, job), await _requeued_as(tx, job)
        steps = await tx.steps.count_steps(job.id)
        return await tx.approvals.approvals_of(job.id), counts, progress, steps, has_logs, origin, copy

    approvals, counts, progress, steps, has_logs, origin, copy = await engine.store.read(read_detail)
    contract = engine.contract(job.contract)
    acts = [action for action in allowed_actions(contract, job) if _permitted(caller, action, job, approvals)]
    return show(
        responses.JobDetail,
        job,
        job_id=job.id,
        acts=acts,
        wait=_wait(job),
        cancel_requested=job.cancel_requested is not None,
        steps=steps,
        has_logs=has_logs,
        requeued_from=origin,
        requeued_as=copy,
        progress=progress_view(progress, payloads=engine.payloads),
        approvals=[approval_view(approval, payloads=engine.payloads) for approval in approvals],
        children={"total": sum(count.number for count in counts), "counts": _by_status(counts)},
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
    reviewed = job.status in contract.approval_statuses
    conditions: tuple[tuple[str, Power, object], ...] = (
        ("cancel", Power.OPERATE, contract.edge(job.status, Move.CANCEL)),
        ("abort", Power.OPERATE, job.phase is not Phase.LEASED and contract.edge(job.status, Move.FAIL)),
        ("approve", Power.REVIEW, reviewed),
        ("reject", Power.REVIEW, reviewed),
        ("signal", Power.OPERATE, job.phase is not Phase.FINAL and contract.has(Move.WAIT)),
        ("reopen", Power.OPERATE, contract.edge(job.status, Move.REOPEN)),
        ("requeue", Power.OPERATE, job.phase is Phase.FINAL),
    )
    request = {"request": job.status in contract.cancel_requests}
    return [
        {"act": act, "needs": needs, **(request if act == "cancel" else {})} for act, needs, met in conditions if met
    ]


def _wait(job: Job) -> responses.JobWait | None:
    if job.phase is not Phase.BLOCKED or job.wait_name is None:
        return None
    return {"name": job.wait_name, "kind": job.wait_kind, "until": iso(job.due_at)}


async def _origin(tx: Tx, job: Job) -> responses.JobOrigin | None:
    if job.requeued_from is None:
        return None
    is_dead_letter = await tx.dead_letters.dead_letter(job.requeued_from) is not None
    return {"kind": "dead_letter" if is_dead_letter else "job", "id": job.requeued_from}


async def _requeued_as(tx: Tx, job: Job) -> str | None:
    """From the audit log, which is the only place that records it at the job that was requeued."""
    if job.phase is not Phase.FINAL:
        return None
    acts = [row.entry.data for row in await tx.audit.list_audit(10, subject=job.id) if row.entry.act == "job.requeue"]
    return acts[0]["requeued_as"] if acts and acts[0] else None


def _by_status(counts: Sequence[ChildCount]) -> list[responses.ChildCounts]:
    numbers = Counter[tuple[str, str, str]]()
    for count in counts:
        numbers[count.contract, count.status, count.phase] += count.number
    return [
        {"contract": contract, "status": status, "phase": phase, "count": number}
        for (contract, status, phase), number in numbers.items()
    ]


_FILTERS = (*JobSelection.model_fields, "cursor")


class JobBulkRequest(schemas.ReasonRequest, JobSelection):
    """Either ids, or a filter. A filter is applied page by page: send next_cursor as cursor until it is null."""

    model_config = ids_or_filter(*_FILTERS)
    ids: list[str] | None = Field(None, min_length=1, max_length=_PAGE)
    cursor: Cursor | None = Field(None, description="next_cursor of the previous response")
    dry_run: bool = Field(True, description="Only count the jobs.")


@router.route_for("POST", "/bulk/cancel", Power.OPERATE, responses={200: BulkResponse})
async def cancel_jobs(request: ApiRequest, body: JobBulkRequest) -> JsonObject:
    """Cancel many jobs: those whose contract allows it and whose cancellation is not requested yet.

    With dry_run, the default, only count them.
    """
    return await _act_on_page(request, body, _can_cancel, Jobs.cancel_many)


@router.route_for("POST", "/bulk/requeue", Power.OPERATE, responses={200: BulkResponse})
async def requeue_jobs(request: ApiRequest, body: JobBulkRequest) -> JsonObject:
    """Requeue many finished jobs as new jobs. With dry_run, the default, only count them."""
    return await _act_on_page(request, body, lambda _, job: job.phase is Phase.FINAL, Jobs.requeue_many)


def _can_cancel(engine: Engine, job: Job) -> bool:
    return engine.contract(job.contract).edge(job.status, Move.CANCEL) is not None and job.cancel_requested is None


async def _act_on_page(
    request: ApiRequest,
    body: JobBulkRequest,
    is_allowed: Callable[[Engine, Job], bool],
    action: Callable[[Jobs, Sequence[str], Scope], Awaitable[BulkResult]],
) -> JsonObject:
    engine = request.engine
    jobs, cursor = await _matching_jobs(engine, request.caller, body)
    allowed_ids = [job.id for job in jobs if is_allowed(engine, job)]
    result = BulkResult()
    if not body.dry_run:
        result = await action(engine.jobs, allowed_ids, request.acting(body))
    counts = {"dry_run": body.dry_run, "matched": len(jobs), "fitting": len(allowed_ids)}
    return {**counts, **asdict(result), "next_cursor": cursor}


async def _matching_jobs(engine: Engine, caller: Caller, body: JobBulkRequest) -> tuple[list[Job], str | None]:
    if body.ids is None:
        return await engine.jobs.page(body.filter(caller, limit=_DRY_RUN_PAGE if body.dry_run else _PAGE))
    if body.model_dump(include=set(_FILTERS), exclude_none=True):
        raise InvalidInput("send either ids or a filter, not both", code="INPUT_INVALID", field="ids")
    return await engine.jobs.get_many(list(dict.fromkeys(body.ids))), None
