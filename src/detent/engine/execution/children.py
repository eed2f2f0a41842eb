"""Parents and children: enqueued under the parent's token, counted where they end, cancelled with their parent.

The end of a child is news for its parent, written in the transaction that ends it. Whoever committed it looks at the
parent afterwards, and what nobody looked at (a crash came between) a sweep finds. A parent that goes to wait is locked
first and only then looks who has ended, so an end is seen by one of the two and never by none.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from detent.core.child_ids import FAILURE, wakes
from detent.core.contract.model import Contract, Move, Phase
from detent.core.decide import decide, then
from detent.core.errors import DetentError, InvalidInput, StaleLease, StepMismatch
from detent.core.job import CHILDREN, Change, Facts, Job, Note, Wait
from detent.engine.reads.tree import ENQUEUED
from detent.engine.submit import quotas
from detent.engine.submit.prepare import Prepared, prepare, submit_in
from detent.engine.submit.submission import Submission
from detent.ports.children import Ended
from detent.ports.claims import Claimed
from detent.ports.tx import Tx

from .settle import lacks

if TYPE_CHECKING:
    from detent.engine.engine import Engine

ACTOR = "detent"
BATCH = 500
"""Children made in one transaction."""
STOPPED_AT_ONCE = 200
LOOKS_AT_ONCE = 25
"""Rounds after one act; what is left then is done by the next sweeps."""
NAMED_IN_NOTE = 20
_MANY = 1_000


@dataclass(frozen=True, slots=True)
class Named:
    """One child as its parent knows it: the name fixes the id, `after` are the names of those it comes after."""

    name: str
    ask: Submission
    after: tuple[str, ...] = ()


@dataclass(slots=True)
class Look:
    """What a look at a parent came to."""

    woken: Job | None = None
    more: bool = False
    """Children are left to be cancelled."""
    related_ids: set[str] = field(default_factory=set)


async def enqueue(engine: "Engine", parent: Claimed, children: Sequence[Named]) -> None:
    """Make children in bounded batches. Those a former execution made are the same ones, and must be asked alike."""
    for start in range(0, len(children), BATCH):
        batch = [(one, prepare(engine, one.ask, engine.store.now())) for one in children[start : start + BATCH]]
        fresh = batch
        if parent.execution_no > 1:
            fresh = await _not_there(engine, batch)
        if fresh:
            present = await engine.write(partial(_insert, parent, fresh))
            if present:  # this very call was made before, and its answer was lost
                await _not_there(engine, [pair for pair in fresh if pair[1].change.after.id in present])


async def _not_there(engine: "Engine", batch: list[tuple[Named, Prepared]]) -> list[tuple[Named, Prepared]]:
    ids = [made.change.after.id for _, made in batch]
    there = await engine.store.read(lambda tx: tx.lock(ids))
    for one, made in batch:
        job = there.get(made.change.after.id)
        if job is not None and not _same(job, made.change.after):
            raise StepMismatch(
                f"the child {one.name!r} of job {job.parent_id} was enqueued with other arguments before; keep "
                "what was enqueued, or enqueue the changed one after it",
                child=one.name,
                child_id=job.id,
            )
    return [pair for pair in batch if pair[1].change.after.id not in there]


def _same(there: Job, asked: Job) -> bool:
    return all(
        getattr(there, name) == getattr(asked, name) for name in ("contract", "job_type", "payload", "parent_id")
    )


async def _insert(parent: Claimed, batch: Sequence[tuple[Named, Prepared]], tx: Tx) -> set[str]:
    jobs = [made.change.after for _, made in batch]
    quota = await quotas.lock_quotas(tx, (job.tenant_id for job in jobs))
    row = (await tx.lock([parent.id])).get(parent.id)
    if row is None or row.token != parent.token or row.phase is not Phase.LEASED:
        raise StaleLease(f"the lease on job {parent.id} was lost; it has no more children", job_id=parent.id)
    quotas.check_payloads(quota, jobs)
    plain = [made for _, made in batch if not _alone(made)]
    present: set[str] = await tx.insert([made.change for made in plain]) if plain else set()
    for _, made in batch:
        if _alone(made):
            await submit_in(tx, made)
    await quotas.check_backlogs(tx, quota, (job.tenant_id for job in jobs if job.id not in present))
    told = [
        {"name": one.name, "id": made.change.after.id, "job_type": one.ask.job_type, "after": list(one.after)}
        for one, made in batch[:NAMED_IN_NOTE]
    ]
    data = {"count": len(batch) - len(present), "children": told}
    at = max(tx.now, row.updated_at)
    await tx.add_notes([Note(row.id, row.version, ENQUEUED, at, row.worker, row.execution_no, data)])
    return present


def _alone(made: Prepared) -> bool:
    """Keys and numbered runs are looked up one by one; everything else goes in one statement."""
    return bool(made.keys) or made.contract.task_attempts


async def ends(engine: "Engine", parent_id: str, ids: Sequence[str]) -> dict[str, Ended]:
    """How these children of the parent stand; a job that is none of its children is refused."""
    found: dict[str, Ended] = {}
    for start in range(0, len(ids), _MANY):
        part = ids[start : start + _MANY]
        found |= {end.id: end for end in await engine.store.read(lambda tx, part=part: tx.child_ends(part))}  # type: ignore[misc]
    for job_id in ids:
        if job_id not in found or found[job_id].parent_id != parent_id:
            raise InvalidInput(
                f"job {job_id} is no child of job {parent_id}; wait for what ctx.enqueue gave you", code="CHILD_UNKNOWN"
            )
    return found


async def wait(engine: "Engine", tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts) -> Change:
    """The parent's row is locked; only now see who of the children is left, so that no end is missed."""
    move = Move.PARK if wait.park and contract.edge(job.status, Move.PARK) else Move.WAIT
    if not contract.edge(job.status, move):
        raise lacks(contract, "a wait")
    change = decide(contract, job, move, tx.now, replace(facts, wait=wait))
    children = list(dict.fromkeys(wait.children))
    left = await tx.await_children(job.id, children, wait.wakes_on)
    ended = len(children) - left
    failed = 0
    if ended and left and wait.wakes_on == FAILURE:
        failed = int(await tx.ended_badly(children, good(engine.contracts.values())))
    if not wakes(wait.wakes_on, ended, failed, left > 0):
        return change
    await tx.end_awaited(job.id, children)
    return then(contract, change, Move.WAKE, tx.now, Facts(actor=facts.actor, reason="children ended"))


def good(contracts: Iterable[Contract]) -> list[str]:
    """The "contract status" pairs that are a success."""
    return sorted({f"{c.name} {edge.target}" for c in contracts for edge in c.edges if edge.move is Move.SUCCEED})


async def look(engine: "Engine", parent_id: str, tx: Tx) -> Look:
    """Take the news of one parent: wake it if it waited for them, cancel its children if it was cancelled."""
    seen = Look(related_ids=tx.related_ids)
    job = (await tx.lock([parent_id], wait=False)).get(parent_id)
    if job is None:  # somebody holds it, and looks when they commit; or it is no job at all, or was pruned
        if not await tx.child_ends([parent_id]):
            await tx.drop_news(parent_id)
        return seen
    news = await tx.take_news(parent_id)
    if job.phase is Phase.BLOCKED and job.wait_kind == CHILDREN:
        seen.woken = await _wake(engine, tx, job, news)
    if await tx.has_orphans(parent_id):
        seen.more = not await _stop_children(engine, tx, job)
    return seen


async def _wake(engine: "Engine", tx: Tx, job: Job, news: dict[str, bool]) -> Job | None:
    ended = await tx.end_awaited(job.id, list(news)) if news else {}
    failed = sum(news[child] for child in ended)
    wakes_on = next(iter(ended.values()), "")
    if not wakes(wakes_on, len(ended), failed, await tx.still_awaited(job.id)):
        return None
    facts = Facts(actor=ACTOR, reason="children ended")
    change = decide(engine.contract(job.contract), job, Move.WAKE, tx.now, facts)
    await tx.apply([change])
    return change.after


async def _stop_children(engine: "Engine", tx: Tx, parent: Job) -> bool:
    """A bounded share of them: the edge at once, or a request to the holder. True when none is left."""
    where_to = stoppable(engine.contracts.values())
    reason = f"its parent {parent.id} was cancelled"
    for child in await tx.stoppable(parent.id, where_to, STOPPED_AT_ONCE):
        await stop(engine, tx, child, reason)
    return await tx.orphans_done(parent.id, where_to)


async def stop(engine: "Engine", tx: Tx, child: Job, reason: str) -> None:
    contract = engine.contract(child.contract)
    if child.status not in contract.cancel_requests:
        await tx.apply([decide(contract, child, Move.CANCEL, tx.now, Facts(actor=ACTOR, reason=reason))])
        return
    asked = {"actor": ACTOR, "reason": reason, "at": tx.now}
    after = replace(child, cancel_requested=json.dumps(asked, ensure_ascii=False))
    at = max(tx.now, child.updated_at)
    note = Note(child.id, child.version, "cancel.requested", at, ACTOR, child.execution_no, {"reason": reason})
    await tx.apply([Change(before=child, after=after, notes=[note])])


def stoppable(contracts: Iterable[Contract]) -> list[str]:
    """The "contract status" pairs from which a job can be cancelled, or asked to stop."""
    moves = {f"{c.name} {edge.source}" for c in contracts for edge in c.edges if edge.move is Move.CANCEL}
    return sorted(moves | {f"{c.name} {status}" for c in contracts for status in c.cancel_requests})


async def process_child_events(engine: "Engine", related_ids: set[str]) -> None:
    """After a commit: look at the families it touched, as deep as they go. A failure here leaves it to the sweep."""
    try:
        for _ in range(LOOKS_AT_ONCE):
            ready = await engine.store.read(lambda tx, related_ids=related_ids: tx.families_ready(sorted(related_ids)))  # type: ignore[misc]
            if not ready:
                return
            related_ids = await _look_at(engine, ready)
    except DetentError:
        return


async def _look_at(engine: "Engine", parents: Sequence[str]) -> set[str]:
    related_ids: set[str] = set()
    for parent_id in parents:
        seen: Look = await engine.store.write(partial(look, engine, parent_id))
        related_ids |= seen.related_ids | ({parent_id} if seen.more else set())
    return related_ids


async def process_pending_child_events(engine: "Engine", limit: int) -> list[str]:
    """What a sweep does: look at every parent for whom there is news that nobody took."""
    parents: list[str] = await engine.store.read(lambda tx: tx.families_with_news(limit))
    if parents:
        related_ids = await _look_at(engine, parents)
        if related_ids:
            await process_child_events(engine, related_ids)
    return parents


async def cancel_children(engine: "Engine", parent: Claimed, ids: Sequence[str], reason: str) -> None:
    """A running parent gives up some of its children."""
    where_to = stoppable(engine.contracts.values())

    async def act(tx: Tx) -> None:
        row = (await tx.lock([parent.id])).get(parent.id)
        if row is None or row.token != parent.token or row.phase is not Phase.LEASED:
            raise StaleLease(f"the lease on job {parent.id} was lost; leave its children alone", job_id=parent.id)
        for child in (await tx.lock(ids)).values():
            able = f"{child.contract} {child.status}" in where_to and child.phase is not Phase.FINAL
            if able and child.cancel_requested is None and child.parent_id == parent.id:
                await stop(engine, tx, child, reason)

    if ids:
        await engine.write(act)
