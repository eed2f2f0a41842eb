"""Messages and results that came over a stream, held against the database: taken, taken over, refused or dropped."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from detent.core.contract.model import Contract, Move, Phase
from detent.core.contract.streams import Report
from detent.core.decide import decide, then
from detent.core.errors import StaleLease
from detent.core.job import TASK, Change, Facts, Failure, Job, Micros
from detent.core.outcome import Failed, Outcome, Succeeded
from detent.engine.execution.settle import Settlement, settle_in
from detent.engine.execution.sweep import claimed_of
from detent.engine.refusal import SETTLE_REFUSED, refuse
from detent.ports.claims import Claimed
from detent.ports.outbox import OutboxItem
from detent.ports.stream import Delivery, Pending, Result, Stranded
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Taker:
    """Who takes, for how long, and how many deliveries a task may survive without a result."""

    worker: str
    lease: Micros
    max_deliveries: int | None = None


@dataclass(slots=True)
class Received:
    """What became of deliveries that could not be claimed at once: to be run, or strange; the rest is only dropped."""

    claimed: list[Claimed] = field(default_factory=list)
    unknown: list[Delivery] = field(default_factory=list)


async def receive(engine: "Engine", tx: Tx, taker: Taker, deliveries: Sequence[Delivery]) -> Received:
    """Messages whose job was not simply claimable: lost to another, ended, told twice, or not ours at all.

    A message that is dropped although its job goes on costs nothing: leases that run out are published again.
    """
    done = Received()
    jobs = await tx.lock([one.task_id for one in deliveries])
    for one in deliveries:
        job = jobs.get(one.task_id)
        if job is None or not engine.contract(job.contract).wired:
            done.unknown.append(one)
            continue
        if job.phase is Phase.FINAL or job.failures != one.retry_count:
            continue
        ours = job.phase is Phase.LEASED and job.token == one.message_id and job.worker == taker.worker
        taken = job if ours else await _take(engine, tx, job, taker, one.message_id)
        if taken is not None:
            jobs[job.id] = taken
            if taken.phase is Phase.LEASED:
                done.claimed.append(claimed_of(taken, one.message_id))
    return done


async def _take(engine: "Engine", tx: Tx, job: Job, taker: Taker, token: str) -> Job | None:
    """Claim a job, or take it over from a holder who is gone; None: it is somebody else's."""
    contract = engine.contract(job.contract)
    facts = Facts(worker=taker.worker, token=token, lease=taker.lease)
    if job.phase is Phase.CLAIMABLE and (job.due_at or 0) <= tx.now:
        change = decide(contract, job, Move.CLAIM, tx.now, facts)
    elif job.phase is Phase.LEASED and ((job.lease_until or 0) <= tx.now or job.token == token):
        change = _taken_over(engine, contract, job, taker, facts, tx.now)
    else:
        return None
    await tx.apply([change])
    return change.after


def _taken_over(engine: "Engine", contract: Contract, job: Job, taker: Taker, facts: Facts, now: Micros) -> Change:
    data = {"old_consumer": job.worker, "new_consumer": taker.worker, "message_id": job.token}
    if facts.token != job.token:
        data["new_message_id"] = facts.token
    told = Facts(worker=taker.worker, token=facts.token, lease=taker.lease, charged=False, data=data)
    change = decide(contract, job, Move.RECLAIM, now, told)
    limit = taker.max_deliveries
    if limit is not None and change.after.interruptions >= limit:
        gone = Failure(contract.code("lost"), f"{limit} deliveries ended without a result", "WorkerLost", False)
        given_up = Facts(actor=taker.worker, failure=gone, charged=False, dlq_id=engine.ids.job())
        return then(contract, change, Move.FAIL, now, given_up)
    return change


@dataclass(slots=True)
class Heard:
    """Messages that are done with, and results about nothing we know."""

    ended: list[str] = field(default_factory=list)
    unknown: list[Result] = field(default_factory=list)


async def hear(engine: "Engine", tx: Tx, results: Sequence[Result], lease: Micros, limit: int | None) -> Heard:
    """Results of workers that know only the stream, in the order they were told."""
    heard = Heard()
    jobs = await tx.lock(sorted({one.task_id for one in results}))
    for one in results:
        job = jobs.get(one.task_id)
        if job is None or not one.message_id or not engine.contract(job.contract).wired:
            heard.unknown.append(one)
            continue
        taker = Taker(one.worker or "unnamed worker", lease, limit)
        claims = one.says == Report.CLAIMED and one.problem is None
        jobs[job.id] = await (_hear_claim if claims else _hear_end)(engine, tx, job, taker, one)
        if not claims:
            heard.ended.append(one.message_id)
    return heard


async def _hear_claim(engine: "Engine", tx: Tx, job: Job, taker: Taker, one: Result) -> Job:
    if job.token == one.message_id and (job.phase is not Phase.LEASED or job.worker == taker.worker):
        return job  # said before
    return await _take(engine, tx, job, taker, one.message_id) or await _late(tx, job, one)


async def _hear_end(engine: "Engine", tx: Tx, job: Job, taker: Taker, one: Result) -> Job:
    """Without a `claimed` before it, the task is claimed and ended in one commit."""
    held = job.phase is Phase.LEASED and job.token == one.message_id
    if held and one.worker and job.worker != one.worker:
        return await _late(tx, job, one)
    if not held and job.token != one.message_id:
        taken = await _take(engine, tx, job, taker, one.message_id)
        if taken is None:
            return await _late(tx, job, one)
        job = taken
    said = Settlement(job.id, one.message_id, job.contract, _outcome(engine.contract(job.contract), one))
    answer = await settle_in(engine, tx, job, said)
    return answer if isinstance(answer, Job) else job


def _outcome(contract: Contract, one: Result) -> Outcome:
    if one.problem is not None:
        return Failed(Failure("RESULT_INVALID", one.problem, "ResultInvalid", retryable=False))
    if one.says == Report.SUCCEEDED:
        return Succeeded(one.output)
    code = one.error_code or contract.code("execution_failed")
    return Failed(Failure(code, one.error or code, None, retryable=None if one.retryable else False))


async def _late(tx: Tx, job: Job, one: Result) -> Job:
    error = StaleLease(
        f"{one.says[:40]!r} from {one.worker or 'a worker'} under message {one.message_id} came too late: "
        "the task is no longer that message's"
    )
    await refuse(tx, job, error, SETTLE_REFUSED, one.worker or None)
    return job


@dataclass(slots=True)
class Judged:
    """Messages of consumers that went silent: dropped, given back to a holder who lives, or published once more."""

    drop: list[Stranded] = field(default_factory=list)
    alive: list[Stranded] = field(default_factory=list)
    again: list[Stranded] = field(default_factory=list)
    unknown: list[Delivery] = field(default_factory=list)


async def judge(engine: "Engine", tx: Tx, stranded: Sequence[Stranded], lease: Micros) -> Judged:
    """A worker of ours is dead when its lease has run out; of others the stream alone can tell."""
    judged = Judged()
    ours = {worker.id for worker in await tx.workers()}
    jobs = await tx.lock(sorted({one.delivery.task_id for one in stranded}))
    for one in stranded:
        message_id = one.delivery.message_id
        job = jobs.get(one.delivery.task_id)
        if one.delivery.problem is not None or job is None or not engine.contract(job.contract).wired:
            judged.unknown.append(one.delivery)
        elif job.phase is Phase.LEASED and job.token == message_id:
            alive = job.worker in ours and (job.lease_until or 0) > tx.now
            (judged.alive if alive else judged.again).append(one)
        elif job.phase is Phase.CLAIMABLE and job.failures == one.delivery.retry_count:
            # It was handed to a consumer that never said so: the log tells of that hand-over too.
            facts = Facts(worker=one.consumer, token=message_id, lease=0)
            change = decide(engine.contract(job.contract), job, Move.CLAIM, tx.now, facts)
            await tx.apply([change])
            jobs[job.id] = change.after
            judged.again.append(one)
        else:
            judged.drop.append(one)
    dead = {one.delivery.task_id: one.delivery.message_id for one in judged.again}
    if dead:
        await tx.let_go(dead)
    return judged


async def overdue(engine: "Engine", tx: Tx, limit: int) -> list[Job]:
    """Leases of wired contracts that ran out."""
    return await tx.expired(limit, [name for name, contract in engine.contracts.items() if contract.wired])


async def answer_overdue(tx: Tx, jobs: Sequence[Job], seen: Sequence[Pending], lease: Micros) -> list[str]:
    """Who still holds its message is alive; a task whose message is gone is published again. Its ids."""
    idle = {one.message_id: one.idle_ms for one in seen}
    now_held = await tx.lock(sorted(job.id for job in jobs))
    again = []
    for job in jobs:
        row = now_held.get(job.id)
        if row is None or row.phase is not Phase.LEASED or row.token != job.token or row.token is None:
            continue
        waited = idle.get(row.token)
        if waited is None:
            again.append(row)
        elif (left := lease - waited * 1_000) > 0:
            await tx.extend({row.id: row.token}, left)
    await tx.put_outbox_items([OutboxItem(row.id, TASK, row.version, tx.now) for row in again])
    return [row.id for row in again]
