"""Dead letters: requeued as a new job, or discarded by as many people as the contract requires."""

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from detent.core.contract.model import Phase
from detent.core.decide import illegal_move
from detent.core.errors import ApprovalRequired, DeadLetterConflict, NotFound, TenantViolation
from detent.core.job import DeadLetter, Job
from detent.engine.refusal import MOVE_REFUSED, Refused, find, refuse
from detent.engine.submit import quotas
from detent.engine.submit.prepare import Submitted, prepare
from detent.engine.submit.submission import Submission
from detent.engine.submit.submit import submit_within_quotas
from detent.ports.access import Audit
from detent.ports.tx import DeadLetterTable, Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Discard:
    """The dead letter, and whether it is discarded (True) or waits for a second person to confirm (False)."""

    item: DeadLetter
    confirmed: bool


async def requeue(
    engine: "Engine",
    tx: Tx,
    dlq_id: str,
    actor: str,
    reason: str | None,
    payload: dict[str, Any] | None,
    tenant: str | None,
    new_id: str | None,
    take_steps: bool,
    delay: float = 0.0,
) -> Submitted:
    """Create a new job with reset counters, linked to the dead letter and with the same effect keys."""
    item = await find_dead_letter(tx.dead_letters, dlq_id, tenant)
    contract = engine.contract(item.contract)
    if new_id is not None and item.requeued_as == new_id:  # the same call committed before and its reply was lost
        return Submitted((await tx.jobs.lock([new_id]))[new_id])
    if item.status != "open":
        raise DeadLetterConflict(
            f"dead letter {dlq_id} is {item.status}, only an open one can be requeued",
            code=contract.code("dlq_requeue_conflict"),
            status=item.status,
        )
    await quotas.lock_quotas(tx.quotas, [item.tenant_id])
    origin = (await tx.jobs.lock([item.job_id])).get(item.job_id)
    content = json.loads(item.payload) if payload is None else payload
    submission = Submission(item.job_type, content, item.contract, item.queue, item.tenant_id, delay=delay)
    submission = replace(submission, requeued_from=dlq_id)
    submitted = await _submit_copy(engine, tx, submission, origin, item.job_id, actor, new_id)
    if take_steps:
        for step in await tx.steps.list_steps(item.job_id):
            await tx.steps.put_step(replace(step, job_id=submitted.job.id))
    await tx.dead_letters.put_dead_letter(
        replace(item, status="requeued", updated_at=tx.now, requeued_as=submitted.job.id)
    )
    data = {"requeued_as": submitted.job.id, "repaired": payload is not None}
    await tx.audit.add_audit(Audit(actor, "dlq.requeue", dlq_id, item.tenant_id, reason, data))
    return submitted


async def requeue_job(
    engine: "Engine",
    tx: Tx,
    job_id: str,
    actor: str,
    reason: str | None,
    payload: dict[str, Any] | None,
    tenant: str | None,
    new_id: str,
) -> Submitted | Refused:
    """Create a new job from any finished job; through its dead letter if it has one."""
    job = await find(tx.jobs, job_id, tenant)
    contract = engine.contract(job.contract)
    if job.phase is not Phase.FINAL:
        return await refuse(tx, job, illegal_move(contract, job, "requeue"), MOVE_REFUSED, actor)
    item = await tx.dead_letters.dead_letter(job.dlq_id) if job.dlq_id else None
    if item is not None:
        return await requeue(engine, tx, item.id, actor, reason, payload, tenant, new_id, False)
    content = json.loads(job.payload) if payload is None else payload
    submission = Submission(job.job_type, content, job.contract, job.queue, job.tenant_id, requeued_from=job.id)
    submitted = await _submit_copy(engine, tx, submission, job, job.id, actor, new_id)
    data = {"requeued_as": submitted.job.id, "repaired": payload is not None}
    await tx.audit.add_audit(Audit(actor, "job.requeue", job.id, job.tenant_id, reason, data))
    return submitted


async def _submit_copy(
    engine: "Engine", tx: Tx, submission: Submission, origin: Job | None, root: str, actor: str, new_id: str | None
) -> Submitted:
    """Submit with reset counters and without the old idempotency key, but with the origin's options and effect keys."""
    submission = replace(submission, actor=actor, id=new_id, effect_root=root)
    if origin is not None:
        submission = replace(
            submission,
            timeout_ms=origin.timeout_ms,
            max_retries=origin.max_retries,
            priority=origin.priority,
            trace_id=origin.trace_id,
            limit_key=origin.limit_key,
            effect_root=origin.effect_root or root,
        )
    (submitted,) = await submit_within_quotas(tx, [prepare(engine, submission, tx.now)])
    return submitted


async def discard(
    engine: "Engine", tx: Tx, dlq_id: str, person: str, reason: str | None, tenant: str | None
) -> Discard:
    """Discard at once, or propose and then confirm by another person, as the contract requires."""
    item = await find_dead_letter(tx.dead_letters, dlq_id, tenant)
    contract = engine.contract(item.contract)
    required = contract.code("approval_required")
    if item.status != "open":
        raise DeadLetterConflict(
            f"dead letter {dlq_id} is {item.status}, only an open one can be discarded",
            code=contract.code("dlq_discard_conflict"),
            status=item.status,
        )
    person = (person or "").strip()
    if not person or not reason or not reason.strip():
        raise ApprovalRequired("a discard needs a named person and a reason", code=required)
    people = contract.dead_letters.discard_people if contract.dead_letters else 1
    if people > 1 and item.proposed_by is None:
        item = replace(item, proposed_by=person, proposed_reason=reason, updated_at=tx.now)
        await tx.dead_letters.put_dead_letter(item)
        await tx.audit.add_audit(Audit(person, "dlq.discard.propose", dlq_id, item.tenant_id, reason))
        return Discard(item, confirmed=False)
    if people > 1 and item.proposed_by == person:
        raise ApprovalRequired(f"{person} proposed this discard; another person must confirm it", code=required)
    item = replace(item, status="discarded", updated_at=tx.now)
    await tx.dead_letters.put_dead_letter(item)
    data = {"proposed_by": item.proposed_by, "proposed_reason": item.proposed_reason}
    await tx.audit.add_audit(Audit(person, "dlq.discard", dlq_id, item.tenant_id, reason, data))
    return Discard(item, confirmed=True)


async def find_dead_letter(dead_letters: DeadLetterTable, dlq_id: str, tenant: str | None) -> DeadLetter:
    item = await dead_letters.dead_letter(dlq_id)
    if item is None:
        raise NotFound(f"dead letter {dlq_id!r} does not exist", code="DLQ_ITEM_NOT_FOUND", dlq_id=dlq_id)
    if tenant is not None and item.tenant_id != tenant:
        raise TenantViolation(f"dead letter {dlq_id} belongs to another tenant", dlq_id=dlq_id)
    return item
