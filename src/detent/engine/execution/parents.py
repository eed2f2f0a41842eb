"""Parents of ended or cancelled jobs: woken if they waited for them; the children of a cancelled parent are cancelled.

The transaction that ends a child records that end for its parent. The process that committed it then processes the
parent; after a crash in between, a sweep does it. A parent that starts to wait is locked before its children are read,
so each end is seen either by the waiting parent or by the processing afterwards.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from detent.core.child_ids import should_wake
from detent.core.contract.builtin import find_contract
from detent.core.contract.model import Contract, Move, Phase
from detent.core.decide import decide, request_cancel
from detent.core.errors import DetentError
from detent.core.job import CHILDREN, Facts, Job
from detent.ports.store import Store
from detent.ports.tx import Tx

ACTOR = "detent"
CANCEL_BATCH = 200
MAX_ROUNDS = 25
"""Rounds of parent processing after one commit; the next sweeps do the rest."""
Contracts = Mapping[str, Contract]


class ParentUpdate(NamedTuple):
    """The result of processing one parent."""

    woken: Job | None = None
    to_process: frozenset[str] = frozenset()
    """The parents to process next; among them this one, if some of its children are still to be cancelled."""


async def process_child_events(store: Store, contracts: Contracts, parent_ids: set[str]) -> None:
    """After a commit: process the parents it affected, then their parents, and so on. On an error the sweep does it."""
    try:
        for _ in range(MAX_ROUNDS):
            ready = await store.read(lambda tx, ids=parent_ids: tx.awaited.parents_ready(sorted(ids)))  # type: ignore[misc]
            if not ready:
                return
            parent_ids = await _process_parents(store, contracts, ready)
    except DetentError:
        return


async def process_pending_child_events(store: Store, contracts: Contracts, limit: int) -> list[str]:
    """For the sweep: process all parents that have unprocessed ends of children; returns their ids."""
    parents: list[str] = await store.read(lambda tx: tx.awaited.parents_with_ended_children(limit))
    if parents and (next_parents := await _process_parents(store, contracts, parents)):
        await process_child_events(store, contracts, next_parents)
    return parents


async def _process_parents(store: Store, contracts: Contracts, parents: Sequence[str]) -> set[str]:
    next_parents: set[str] = set()
    for parent_id in parents:
        next_parents |= (await store.write(partial(process_parent, contracts, parent_id))).to_process
    return next_parents


async def process_parent(contracts: Contracts, parent_id: str, tx: Tx) -> ParentUpdate:
    """Process the ended children of one parent: wake it if it waited for them; if it was cancelled, cancel the rest."""
    job = (await tx.jobs.lock([parent_id], wait=False)).get(parent_id)
    if job is None:  # locked by a transaction that processes it after its commit; or the parent does not exist
        if not await tx.children.child_states([parent_id]):
            await tx.awaited.drop_ended_children(parent_id)
        return ParentUpdate()
    failed_by_child = await tx.awaited.take_ended_children(parent_id)
    woken = None
    if job.phase is Phase.BLOCKED and job.wait_kind == CHILDREN:
        woken = await _wake(contracts, tx, job, failed_by_child)
    if not await tx.children.has_children_to_cancel(parent_id):
        return ParentUpdate(woken)
    return ParentUpdate(woken, frozenset(await _cancel_children_of(contracts, tx, job)))


async def _wake(contracts: Contracts, tx: Tx, job: Job, failed_by_child: dict[str, bool]) -> Job | None:
    ended = await tx.awaited.stop_awaiting(job.id, list(failed_by_child)) if failed_by_child else {}
    failed = sum(failed_by_child[child] for child in ended)
    wakes_on = next(iter(ended.values()), "")
    if not should_wake(wakes_on, len(ended), failed, await tx.awaited.awaits_children(job.id)):
        return None
    facts = Facts(actor=ACTOR, reason="children ended")
    change = decide(find_contract(contracts, job.contract), job, Move.WAKE, tx.now, facts)
    await tx.jobs.apply([change])
    return change.after


async def _cancel_children_of(contracts: Contracts, tx: Tx, parent: Job) -> set[str]:
    """Cancel up to CANCEL_BATCH children, or request it where a worker holds the child; returns the next parents."""
    statuses = cancellable_statuses(contracts.values())
    reason = f"its parent {parent.id} was cancelled"
    affected: set[str] = set()
    for child in await tx.children.cancellable_children(parent.id, statuses, CANCEL_BATCH):
        affected |= await cancel_child(contracts, tx, child, reason)
    return affected if await tx.children.all_children_cancelled(parent.id, statuses) else affected | {parent.id}


async def cancel_child(contracts: Contracts, tx: Tx, child: Job, reason: str) -> set[str]:
    """Cancel a child, or request it from the worker that holds it; returns the parents that this affects."""
    contract = find_contract(contracts, child.contract)
    if child.status in contract.cancel_requests:
        change = request_cancel(child, tx.now, ACTOR, reason)
    else:
        change = decide(contract, child, Move.CANCEL, tx.now, Facts(actor=ACTOR, reason=reason))
    await tx.jobs.apply([change])
    return change.affected_parents


def cancellable_statuses(contracts: Iterable[Contract]) -> list[str]:
    """The "contract status" pairs in which a job can be cancelled, or a cancel can be requested."""
    moves = {f"{c.name} {edge.source}" for c in contracts for edge in c.edges if edge.move is Move.CANCEL}
    return sorted(moves | {f"{c.name} {status}" for c in contracts for status in c.cancel_requests})
