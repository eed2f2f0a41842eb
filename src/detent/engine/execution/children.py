"""The children of a running job: enqueued, read and cancelled under the parent's lease token."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from detent.core.child_ids import child_id
from detent.core.contract.model import Phase
from detent.core.errors import InvalidInput, StaleLease, StepMismatch
from detent.core.job import Job
from detent.engine.reads.tree import ENQUEUED
from detent.engine.refusal import find_leased
from detent.engine.runtime import Runtime
from detent.engine.submit import quotas
from detent.engine.submit.prepare import Prepared, prepare, submit_in_transaction
from detent.engine.submit.submission import DEFAULT_TENANT, Submission, check_name
from detent.ports.children import ChildState
from detent.ports.claims import Claimed
from detent.ports.tx import Tx

from .parents import cancel_child, cancellable_statuses

BATCH = 500
"""Children created in one transaction."""
MAX_NAMES_IN_NOTE = 300
_READ_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class ChildRequest:
    """One child to enqueue. Its name determines its id; `after` are the names of the children it runs after."""

    name: str
    submission: Submission
    after: tuple[str, ...] = ()


def child_request(parent: Claimed, name: str, submission: Submission, after: Sequence[str] = ()) -> ChildRequest:
    """The request for a child: its id is derived from parent and name; tenant and trace id are inherited."""
    check_name(name, "child name")
    if submission.idempotency_key is not None:
        problem = "a child takes no idempotency key, its name already makes it unique; leave the key out"
        raise InvalidInput(f"{submission.job_type}: {problem}", code="CHILD_KEY")
    if submission.tenant_id not in (DEFAULT_TENANT, parent.tenant_id):
        raise InvalidInput("a child belongs to the tenant of its parent; leave the tenant out", code="CHILD_TENANT")
    submission = replace(
        submission,
        id=child_id(parent.id, name),
        parent_id=parent.id,
        tenant_id=parent.tenant_id,
        trace_id=submission.trace_id or parent.trace_id,
        actor=f"job:{parent.id}",
    )
    return ChildRequest(name, submission, tuple(after))


async def enqueue(runtime: Runtime, parent: Claimed, children: Sequence[ChildRequest]) -> None:
    """Create children in batches. Children of an earlier execution are kept; raises StepMismatch if they differ."""
    for start in range(0, len(children), BATCH):
        requests = children[start : start + BATCH]
        batch = [(request, prepare(runtime, request.submission, runtime.store.now())) for request in requests]
        new_children = batch
        if parent.execution_no > 1:
            new_children = await _without_existing(runtime, batch)
        if new_children:
            present = await runtime.run(partial(_insert, parent, new_children))
            if present:  # the same call committed before and its reply was lost
                await _without_existing(runtime, [pair for pair in new_children if pair[1].change.after.id in present])


async def _without_existing(
    runtime: Runtime, batch: list[tuple[ChildRequest, Prepared]]
) -> list[tuple[ChildRequest, Prepared]]:
    ids = [prepared.change.after.id for _, prepared in batch]
    existing = await runtime.store.read(lambda tx: tx.jobs.lock(ids))
    for request, prepared in batch:
        job = existing.get(prepared.change.after.id)
        if job is not None and not _is_same_request(job, prepared.change.after):
            raise StepMismatch(
                f"the child {request.name!r} of job {job.parent_id} was enqueued with other arguments before; keep "
                "these arguments, and enqueue the changed child as an additional one",
                child=request.name,
                child_id=job.id,
            )
    return [pair for pair in batch if pair[1].change.after.id not in existing]


def _is_same_request(existing: Job, new_job: Job) -> bool:
    return all(
        getattr(existing, name) == getattr(new_job, name) for name in ("contract", "job_type", "payload", "parent_id")
    )


async def _insert(parent: Claimed, batch: Sequence[tuple[ChildRequest, Prepared]], tx: Tx) -> set[str]:
    jobs = [prepared.change.after for _, prepared in batch]
    tenant_quotas = await quotas.lock_quotas(tx.quotas, (job.tenant_id for job in jobs))
    row = await find_leased(tx, parent.id, parent.token)
    if row is None:
        raise StaleLease(f"the lease on job {parent.id} was lost; it cannot enqueue children", job_id=parent.id)
    quotas.check_payloads(tenant_quotas, jobs)
    plain = [prepared for _, prepared in batch if not _needs_own_statement(prepared)]
    present: set[str] = await tx.jobs.insert([prepared.change for prepared in plain]) if plain else set()
    for _, prepared in batch:
        if _needs_own_statement(prepared):
            await submit_in_transaction(tx, prepared)
    await quotas.check_backlogs(tx.quotas, tenant_quotas, (job.tenant_id for job in jobs if job.id not in present))
    child_notes = [
        {
            "name": request.name,
            "id": prepared.change.after.id,
            "job_type": request.submission.job_type,
            "after": list(request.after),
        }
        for request, prepared in batch[:MAX_NAMES_IN_NOTE]
    ]
    data = {"count": len(batch) - len(present), "children": child_notes}
    await tx.log.add_notes([row.note(ENQUEUED, tx.now, row.worker, data)])
    return present


def _needs_own_statement(prepared: Prepared) -> bool:
    """Jobs with keys or numbered runs need lookups and are inserted one by one; all others in one statement."""
    return bool(prepared.keys) or prepared.contract.task_attempts


async def child_states(runtime: Runtime, parent_id: str, ids: Sequence[str]) -> dict[str, ChildState]:
    """The states of these children; raises InvalidInput for a job that is not a child of the parent."""
    states: dict[str, ChildState] = {}
    for start in range(0, len(ids), _READ_BATCH):
        batch = ids[start : start + _READ_BATCH]
        rows = await runtime.store.read(lambda tx, batch=batch: tx.children.child_states(batch))  # type: ignore[misc]
        states |= {state.id: state for state in rows}
    for job_id in ids:
        if job_id not in states or states[job_id].parent_id != parent_id:
            raise InvalidInput(
                f"job {job_id} is not a child of job {parent_id}; wait only for children from ctx.enqueue",
                code="CHILD_UNKNOWN",
            )
    return states


async def cancel_children(runtime: Runtime, parent: Claimed, ids: Sequence[str], reason: str) -> None:
    """Cancel some children of a running parent, which must still hold its lease."""
    statuses = cancellable_statuses(runtime.contracts.values())

    async def act(tx: Tx) -> set[str]:
        if await find_leased(tx, parent.id, parent.token) is None:
            raise StaleLease(f"the lease on job {parent.id} was lost; it cannot cancel its children", job_id=parent.id)
        affected: set[str] = set()
        for child in (await tx.jobs.lock(ids)).values():
            cancellable = f"{child.contract} {child.status}" in statuses and child.phase is not Phase.FINAL
            if cancellable and child.cancel_requested is None and child.parent_id == parent.id:
                affected |= await cancel_child(runtime.contracts, tx, child, reason)
        return affected

    if ids:
        await runtime.run(act, lambda affected: affected)
