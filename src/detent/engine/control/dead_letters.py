"""Dead letters: requeued as a new job, or discarded by as many people as the contract requires."""

import json
from dataclasses import dataclass, replace
from typing import Any

from detent.core.access import Scope
from detent.core.contract.model import Phase
from detent.core.decide import illegal_move
from detent.core.errors import ApprovalRequired, DeadLetterConflict, NotFound, TenantViolation
from detent.core.job import DeadLetter, DeadLetterStatus, Job
from detent.core.options.job_options import KEPT_BY_REQUEUES
from detent.engine.refusal import MOVE_REFUSED, Refused, refuse
from detent.engine.runtime import Runtime
from detent.engine.submit import quotas
from detent.engine.submit.prepare import Submitted, prepare
from detent.engine.submit.submission import Submission
from detent.engine.submit.submit import submit_within_quotas
from detent.ports.access import Audit
from detent.ports.tx import DeadLetterTable, Tx


@dataclass(frozen=True, slots=True)
class Discard:
    """The dead letter, and whether it is discarded (True) or waits for a second person to confirm (False)."""

    item: DeadLetter
    confirmed: bool


async def requeue(
    runtime: Runtime,
    tx: Tx,
    dlq_id: str,
    scope: Scope,
    *,
    payload: dict[str, Any] | None = None,
    new_id: str | None = None,
    take_steps: bool = False,
    delay: float = 0.0,
) -> Submitted:
    """Create a new job with reset counters, linked to the dead letter and with the same effect keys."""
    item = await find_dead_letter(tx.dead_letters, dlq_id, runtime.tenant_of(scope))
    contract = runtime.contract(item.contract)
    if new_id is not None and item.requeued_as == new_id:  # the same call committed before and its reply was lost
        return Submitted((await tx.jobs.lock([new_id]))[new_id])
    if item.status != DeadLetterStatus.OPEN:
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
    submitted = await _submit_copy(runtime, tx, submission, origin, item.job_id, scope.actor, new_id)
    if take_steps:
        for step in await tx.steps.list_steps(item.job_id):
            await tx.steps.put_step(replace(step, job_id=submitted.job.id))
    await tx.dead_letters.put_dead_letter(
        replace(item, status=DeadLetterStatus.REQUEUED, updated_at=tx.now, requeued_as=submitted.job.id)
    )
    data = {"requeued_as": submitted.job.id, "repaired": payload is not None}
    await tx.audit.add_audit(Audit(scope.actor, "dlq.requeue", dlq_id, item.tenant_id, scope.reason, data))
    return submitted


async def requeue_job(
    runtime: Runtime,
    tx: Tx,
    job_id: str,
    scope: Scope,
    *,
    new_id: str,
    payload: dict[str, Any] | None = None,
) -> Submitted | Refused:
    """Create a new job from any finished job; through its dead letter if it has one."""
    job = await runtime.find(tx, job_id, scope)
    contract = runtime.contract(job.contract)
    if job.phase is not Phase.FINAL:
        return await refuse(tx, job, illegal_move(contract, job, "requeue"), MOVE_REFUSED, scope.actor)
    item = await tx.dead_letters.dead_letter(job.dlq_id) if job.dlq_id else None
    if item is not None:
        return await requeue(runtime, tx, item.id, scope, payload=payload, new_id=new_id)
    content = json.loads(job.payload) if payload is None else payload
    submission = Submission(job.job_type, content, job.contract, job.queue, job.tenant_id, requeued_from=job.id)
    submitted = await _submit_copy(runtime, tx, submission, job, job.id, scope.actor, new_id)
    data = {"requeued_as": submitted.job.id, "repaired": payload is not None}
    await tx.audit.add_audit(Audit(scope.actor, "job.requeue", job.id, job.tenant_id, scope.reason, data))
    return submitted


async def _submit_copy(
    runtime: Runtime, tx: Tx, submission: Submission, origin: Job | None, root: str, actor: str, new_id: str | None
) -> Submitted:
    """Submit with reset counters and without the old idempotency key, but with the origin's options and effect keys."""
    submission = replace(submission, actor=actor, id=new_id, effect_root=root)
    if origin is not None:
        submission = replace(
            submission,
            **{name: getattr(origin, name) for name in KEPT_BY_REQUEUES},
            max_retries=origin.max_retries,
            effect_root=origin.effect_root or root,
        )
    (submitted,) = await submit_within_quotas(tx, [prepare(runtime, submission, tx.now)])
    return submitted


async def discard(runtime: Runtime, tx: Tx, dlq_id: str, scope: Scope) -> Discard:
    """Discard at once, or propose and then confirm by another person, as the contract requires."""
    item = await find_dead_letter(tx.dead_letters, dlq_id, runtime.tenant_of(scope))
    contract = runtime.contract(item.contract)
    required = contract.code("approval_required")
    if item.status != DeadLetterStatus.OPEN:
        raise DeadLetterConflict(
            f"dead letter {dlq_id} is {item.status}, only an open one can be discarded",
            code=contract.code("dlq_discard_conflict"),
            status=item.status,
        )
    check_discard(scope, required)
    person, reason = scope.actor.strip(), scope.reason
    people = contract.dead_letters.discard_people if contract.dead_letters else 1
    if people > 1 and item.proposed_by is None:
        item = replace(item, proposed_by=person, proposed_reason=reason, updated_at=tx.now)
        await tx.dead_letters.put_dead_letter(item)
        await tx.audit.add_audit(Audit(person, "dlq.discard.propose", dlq_id, item.tenant_id, reason))
        return Discard(item, confirmed=False)
    if people > 1 and item.proposed_by == person:
        raise ApprovalRequired(f"{person} proposed this discard; another person must confirm it", code=required)
    item = replace(item, status=DeadLetterStatus.DISCARDED, updated_at=tx.now)
    await tx.dead_letters.put_dead_letter(item)
    data = {"proposed_by": item.proposed_by, "proposed_reason": item.proposed_reason}
    await tx.audit.add_audit(Audit(person, "dlq.discard", dlq_id, item.tenant_id, reason, data))
    return Discard(item, confirmed=True)


def check_discard(scope: Scope, code: str | None = None) -> None:
    """Raise ApprovalRequired unless the scope names a person and a reason."""
    if not (scope.actor or "").strip() or not (scope.reason or "").strip():
        raise ApprovalRequired("a discard needs a named person and a reason", code=code)


async def find_dead_letter(dead_letters: DeadLetterTable, dlq_id: str, tenant: str | None) -> DeadLetter:
    item = await dead_letters.dead_letter(dlq_id)
    if item is None:
        raise NotFound(f"dead letter {dlq_id!r} does not exist", code="DLQ_ITEM_NOT_FOUND", dlq_id=dlq_id)
    if tenant is not None and item.tenant_id != tenant:
        raise TenantViolation(f"dead letter {dlq_id} belongs to another tenant", dlq_id=dlq_id)
    return item
