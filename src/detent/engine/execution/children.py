"""Parents and children: children are enqueued under the parent's lease token and cancelled with their parent.

The transaction that ends a child records that end for its parent. The process that committed it then processes the
parent; after a crash in between, a sweep does it. A parent that starts to wait is locked before its children are read,
so each end is seen either by the waiting parent or by the processing afterwards.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from detent.core.child_ids import FAILURE, should_wake
from detent.core.contract.model import Contract, Move, Phase
from detent.core.decide import add_move, decide
from detent.core.errors import DetentError, InvalidInput, StaleLease, StepMismatch
from detent.core.job import CHILDREN, Change, Facts, Job, Note, Wait
from detent.engine.reads.tree import ENQUEUED
from detent.engine.submit import quotas
from detent.engine.submit.prepare import Prepared, prepare, submit_in_transaction
from detent.engine.submit.submission import Submission
from detent.ports.children import ChildState
from detent.ports.claims import Claimed
from detent.ports.tx import Tx

from .settle import not_supported

if TYPE_CHECKING:
    from detent.engine.engine import Engine

ACTOR = "detent"
BATCH = 500
"""Children created in one transaction."""
CANCEL_BATCH = 200
MAX_ROUNDS = 25
"""Rounds of parent processing after one commit; the next sweeps do the rest."""
MAX_NAMES_IN_NOTE = 20
_READ_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class ChildRequest:
    """One child to enqueue. Its name determines its id; `after` are the names of the children it runs after."""

    name: str
    submission: Submission
    after: tuple[str, ...] = ()


@dataclass(slots=True)
class ParentUpdate:
    """The result of processing one parent."""

    woken: Job | None = None
    more: bool = False
    """True if some children are still to be cancelled."""
    parents_to_process: set[str] = field(default_factory=set)


async def enqueue(engine: "Engine", parent: Claimed, children: Sequence[ChildRequest]) -> None:
    """Create children in batches. Children of an earlier execution are kept; raises StepMismatch if they differ."""
    for start in range(0, len(children), BATCH):
        requests = children[start : start + BATCH]
        batch = [(request, prepare(engine, request.submission, engine.store.now())) for request in requests]
        new_children = batch
        if parent.execution_no > 1:
            new_children = await _without_existing(engine, batch)
        if new_children:
            present = await engine.write(partial(_insert, parent, new_children))
            if present:  # the same call committed before and its reply was lost
                await _without_existing(engine, [pair for pair in new_children if pair[1].change.after.id in present])


async def _without_existing(
    engine: "Engine", batch: list[tuple[ChildRequest, Prepared]]
) -> list[tuple[ChildRequest, Prepared]]:
    ids = [prepared.change.after.id for _, prepared in batch]
    existing = await engine.store.read(lambda tx: tx.jobs.lock(ids))
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
    row = (await tx.jobs.lock([parent.id])).get(parent.id)
    if row is None or row.token != parent.token or row.phase is not Phase.LEASED:
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
    at = max(tx.now, row.updated_at)
    await tx.log.add_notes([Note(row.id, row.version, ENQUEUED, at, row.worker, row.execution_no, data)])
    return present


def _needs_own_statement(prepared: Prepared) -> bool:
    """Jobs with keys or numbered runs need lookups and are inserted one by one; all others in one statement."""
    return bool(prepared.keys) or prepared.contract.task_attempts


async def _child_states(ids: Sequence[str], tx: Tx) -> list[ChildState]:
    return await tx.children.child_states(ids)


async def child_states(engine: "Engine", parent_id: str, ids: Sequence[str]) -> dict[str, ChildState]:
    """The states of these children; raises InvalidInput for a job that is not a child of the parent."""
    states: dict[str, ChildState] = {}
    for start in range(0, len(ids), _READ_BATCH):
        read = partial(_child_states, ids[start : start + _READ_BATCH])
        states |= {state.id: state for state in await engine.store.read(read)}
    for job_id in ids:
        if job_id not in states or states[job_id].parent_id != parent_id:
            raise InvalidInput(
                f"job {job_id} is not a child of job {parent_id}; wait only for children from ctx.enqueue",
                code="CHILD_UNKNOWN",
            )
    return states


async def wait(engine: "Engine", tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts) -> Change:
    """The parent's row is locked before the unfinished children are read, so no end of a child is missed."""
    move = Move.PARK if wait.park and contract.edge(job.status, Move.PARK) else Move.WAIT
    if not contract.edge(job.status, move):
        raise not_supported(contract, "a wait")
    change = decide(contract, job, move, tx.now, replace(facts, wait=wait))
    children = list(dict.fromkeys(wait.children))
    left = await tx.awaited.await_children(job.id, children, wait.wakes_on)
    ended = len(children) - left
    failed = 0
    if ended and left and wait.wakes_on == FAILURE:
        failed = int(await tx.children.any_failed(children, success_statuses(engine.contracts.values())))
    if not should_wake(wait.wakes_on, ended, failed, left > 0):
        return change
    await tx.awaited.stop_awaiting(job.id, children)
    return add_move(contract, change, Move.WAKE, tx.now, Facts(actor=facts.actor, reason="children ended"))


def success_statuses(contracts: Iterable[Contract]) -> list[str]:
    """The "contract status" pairs that mean success."""
    return sorted({f"{c.name} {edge.target}" for c in contracts for edge in c.edges if edge.move is Move.SUCCEED})


async def process_parent(engine: "Engine", parent_id: str, tx: Tx) -> ParentUpdate:
    """Process the ended children of one parent: wake it if it waited for them; if it was cancelled, cancel the rest."""
    update = ParentUpdate(parents_to_process=tx.parents_to_process)
    job = (await tx.jobs.lock([parent_id], wait=False)).get(parent_id)
    if job is None:  # locked by a transaction that processes it after its commit; or the parent does not exist
        if not await tx.children.child_states([parent_id]):
            await tx.awaited.drop_ended_children(parent_id)
        return update
    failed_by_child = await tx.awaited.take_ended_children(parent_id)
    if job.phase is Phase.BLOCKED and job.wait_kind == CHILDREN:
        update.woken = await _wake(engine, tx, job, failed_by_child)
    if await tx.children.has_children_to_cancel(parent_id):
        update.more = not await _cancel_children_of(engine, tx, job)
    return update


async def _wake(engine: "Engine", tx: Tx, job: Job, failed_by_child: dict[str, bool]) -> Job | None:
    ended = await tx.awaited.stop_awaiting(job.id, list(failed_by_child)) if failed_by_child else {}
    failed = sum(failed_by_child[child] for child in ended)
    wakes_on = next(iter(ended.values()), "")
    if not should_wake(wakes_on, len(ended), failed, await tx.awaited.awaits_children(job.id)):
        return None
    facts = Facts(actor=ACTOR, reason="children ended")
    change = decide(engine.contract(job.contract), job, Move.WAKE, tx.now, facts)
    await tx.jobs.apply([change])
    return change.after


async def _cancel_children_of(engine: "Engine", tx: Tx, parent: Job) -> bool:
    """Cancel up to CANCEL_BATCH children, or request it where a worker holds the child. True when none is left."""
    statuses = cancellable_statuses(engine.contracts.values())
    reason = f"its parent {parent.id} was cancelled"
    for child in await tx.children.cancellable_children(parent.id, statuses, CANCEL_BATCH):
        await cancel_child(engine, tx, child, reason)
    return await tx.children.all_children_cancelled(parent.id, statuses)


async def cancel_child(engine: "Engine", tx: Tx, child: Job, reason: str) -> None:
    contract = engine.contract(child.contract)
    if child.status not in contract.cancel_requests:
        await tx.jobs.apply([decide(contract, child, Move.CANCEL, tx.now, Facts(actor=ACTOR, reason=reason))])
        return
    request = {"actor": ACTOR, "reason": reason, "at": tx.now}
    after = replace(child, cancel_requested=json.dumps(request, ensure_ascii=False))
    at = max(tx.now, child.updated_at)
    note = Note(child.id, child.version, "cancel.requested", at, ACTOR, child.execution_no, {"reason": reason})
    await tx.jobs.apply([Change(before=child, after=after, notes=[note])])


def cancellable_statuses(contracts: Iterable[Contract]) -> list[str]:
    """The "contract status" pairs in which a job can be cancelled, or a cancel can be requested."""
    moves = {f"{c.name} {edge.source}" for c in contracts for edge in c.edges if edge.move is Move.CANCEL}
    return sorted(moves | {f"{c.name} {status}" for c in contracts for status in c.cancel_requests})


async def process_child_events(engine: "Engine", parent_ids: set[str]) -> None:
    """After a commit: process the parents it affected, then their parents, and so on. On an error the sweep does it."""
    try:
        for _ in range(MAX_ROUNDS):
            ready = await engine.store.read(partial(_parents_ready, parent_ids))
            if not ready:
                return
            parent_ids = await _process_parents(engine, ready)
    except DetentError:
        return


async def _parents_ready(parent_ids: set[str], tx: Tx) -> list[str]:
    return await tx.awaited.parents_ready(sorted(parent_ids))


async def _process_parents(engine: "Engine", parents: Sequence[str]) -> set[str]:
    next_parents: set[str] = set()
    for parent_id in parents:
        update: ParentUpdate = await engine.store.write(partial(process_parent, engine, parent_id))
        next_parents |= update.parents_to_process | ({parent_id} if update.more else set())
    return next_parents


async def process_pending_child_events(engine: "Engine", limit: int) -> list[str]:
    """For the sweep: process all parents that have unprocessed ends of children; returns their ids."""
    parents: list[str] = await engine.store.read(lambda tx: tx.awaited.parents_with_ended_children(limit))
    if parents:
        next_parents = await _process_parents(engine, parents)
        if next_parents:
            await process_child_events(engine, next_parents)
    return parents


async def cancel_children(engine: "Engine", parent: Claimed, ids: Sequence[str], reason: str) -> None:
    """Cancel some children of a running parent, which must still hold its lease."""
    statuses = cancellable_statuses(engine.contracts.values())

    async def act(tx: Tx) -> None:
        row = (await tx.jobs.lock([parent.id])).get(parent.id)
        if row is None or row.token != parent.token or row.phase is not Phase.LEASED:
            raise StaleLease(f"the lease on job {parent.id} was lost; it cannot cancel its children", job_id=parent.id)
        for child in (await tx.jobs.lock(ids)).values():
            cancellable = f"{child.contract} {child.status}" in statuses and child.phase is not Phase.FINAL
            if cancellable and child.cancel_requested is None and child.parent_id == parent.id:
                await cancel_child(engine, tx, child, reason)

    if ids:
        await engine.write(act)
