"""Applies messages and results of a stream to jobs in the database: claims, reclaims, settles or drops them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from detent.core.contract.model import Contract, Move, Phase
from detent.core.contract.streams import ResultStatus
from detent.core.decide import add_move, decide
from detent.core.errors import StaleLease
from detent.core.job import TASK, Change, Facts, Failure, Job, Micros
from detent.core.outcome import Failed, Outcome, Succeeded, after_reclaim, after_timeout, timed_out
from detent.engine.execution.settle import Settlement, settle_job
from detent.engine.execution.sweep import claimed_of
from detent.engine.refusal import SETTLE_REFUSED, refuse
from detent.engine.runtime import Runtime
from detent.ports.claims import Claimed
from detent.ports.stream import Delivery, IdleMessage, OutboxItem, Pending, Result
from detent.ports.tx import Tx


@dataclass(frozen=True, slots=True)
class StreamClaimer:
    """The worker that claims, its lease, and how many deliveries of a task may end without a result."""

    worker: str
    lease: Micros
    max_deliveries: int | None = None


@dataclass(slots=True)
class ReceivedDeliveries:
    """Jobs to run, and deliveries that name no known task. All other deliveries are only acknowledged."""

    claimed: list[Claimed] = field(default_factory=list)
    unknown: list[Delivery] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)


async def receive_deliveries(
    runtime: Runtime, tx: Tx, claimer: StreamClaimer, deliveries: Sequence[Delivery]
) -> ReceivedDeliveries:
    """Handle deliveries whose job the batched claim did not take: held by another, ended, duplicate or unknown.

    Dropping a message of an unfinished job is safe: the job is published again when its lease expires.
    """
    received = ReceivedDeliveries()
    changes = received.changes
    jobs = await tx.jobs.lock([delivery.task_id for delivery in deliveries])
    for delivery in deliveries:
        job = jobs.get(delivery.task_id)
        if job is None or not runtime.contract(job.contract).uses_stream:
            received.unknown.append(delivery)
            continue
        if job.phase is Phase.FINAL or job.failures != delivery.retry_count:
            continue
        already_claimed = (
            job.phase is Phase.LEASED and job.token == delivery.message_id and job.worker == claimer.worker
        )
        after = (
            job if already_claimed else await _claim_or_reclaim(runtime, tx, job, claimer, delivery.message_id, changes)
        )
        if after is not None:
            jobs[job.id] = after
            if after.phase is Phase.LEASED:
                received.claimed.append(claimed_of(after, delivery.message_id))
    return received


async def _claim_or_reclaim(
    runtime: Runtime, tx: Tx, job: Job, claimer: StreamClaimer, token: str, changes: list[Change]
) -> Job | None:
    """Claim a job, or reclaim it if its lease has expired; None if another worker holds it. Adds to `changes`.

    An execution that outlasted its timeout is ended: the task comes again in a message of its own, if it is retried.
    """
    contract = runtime.contract(job.contract)
    facts = Facts(worker=claimer.worker, token=token, lease=claimer.lease)
    if job.phase is Phase.CLAIMABLE and (job.due_at or 0) <= tx.now:
        change = decide(contract, job, Move.CLAIM, tx.now, facts)
    elif job.phase is Phase.LEASED and ((job.lease_until or 0) <= tx.now or job.token == token):
        if timed_out(job, tx.now):
            facts = Facts(actor=claimer.worker, dlq_id=runtime.ids.job(), data={"worker": job.worker})
            change = after_timeout(contract, job, tx.now, facts, runtime.jitter)
        else:
            change = _reclaim(runtime, contract, job, claimer, token, tx.now)
    elif job.phase is Phase.CLAIMABLE:
        # Not due: the message is an old one, or the clock was set back since it was published. The caller drops it.
        await tx.outbox.put_outbox_items([OutboxItem(job.id, TASK, job.version, job.due_at or tx.now)])
        return None
    else:
        return None
    await tx.jobs.apply([change])
    changes.append(change)
    return change.after


def _reclaim(runtime: Runtime, contract: Contract, job: Job, claimer: StreamClaimer, token: str, now: Micros) -> Change:
    """RECLAIM the job, and FAIL it in the same commit if too many deliveries ended without a result."""
    more = {"new_message_id": token} if token != job.token else {}
    change = after_reclaim(contract, job, now, claimer.worker, token, claimer.lease, **more)
    limit = claimer.max_deliveries
    if limit and change.after.interruptions >= limit:
        failure = Failure(contract.code("lost"), f"{limit} deliveries ended without a result", "WorkerLost", False)
        facts = Facts(actor=claimer.worker, failure=failure, charged=False, dlq_id=runtime.ids.job())
        return add_move(contract, change, Move.FAIL, now, facts)
    return change


@dataclass(slots=True)
class AppliedResults:
    """Task messages to acknowledge, the changes, and results that name no known task."""

    ended: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    unknown: list[Result] = field(default_factory=list)


async def apply_results(
    runtime: Runtime, tx: Tx, results: Sequence[Result], lease: Micros, max_deliveries: int | None
) -> AppliedResults:
    """Apply the results of workers that use only the stream, in the order of the stream."""
    applied = AppliedResults()
    open_results = [result for result in results if not result.settled]
    jobs = await tx.jobs.lock(sorted({result.task_id for result in open_results}))
    for result in open_results:
        job = jobs.get(result.task_id)
        if job is None or not result.message_id or not runtime.contract(job.contract).uses_stream:
            applied.unknown.append(result)
            continue
        claimer = StreamClaimer(result.worker or "unnamed worker", lease, max_deliveries)
        is_claim = result.status == ResultStatus.CLAIMED and result.problem is None
        if is_claim and result.message_id in applied.ended:
            continue  # it comes after the end of its own execution, and the message is about to be acknowledged
        apply = _apply_claim if is_claim else _apply_end
        jobs[job.id] = await apply(runtime, tx, job, claimer, result, applied.changes)
        if not is_claim:
            applied.ended.append(result.message_id)
    return applied


async def _apply_claim(
    runtime: Runtime, tx: Tx, job: Job, claimer: StreamClaimer, result: Result, changes: list[Change]
) -> Job:
    if job.token == result.message_id and (job.phase is not Phase.LEASED or job.worker == claimer.worker):
        return job  # a repeated message
    after = await _claim_or_reclaim(runtime, tx, job, claimer, result.message_id, changes)
    return after or await _refuse_late(tx, job, result)


async def _apply_end(
    runtime: Runtime, tx: Tx, job: Job, claimer: StreamClaimer, result: Result, changes: list[Change]
) -> Job:
    """If no `claimed` came before it, the task is claimed and settled in one commit."""
    held = job.phase is Phase.LEASED and job.token == result.message_id
    if held and result.worker and job.worker != result.worker:
        return await _refuse_late(tx, job, result)
    if not held and job.token != result.message_id:
        claimed = await _claim_or_reclaim(runtime, tx, job, claimer, result.message_id, changes)
        if claimed is None:
            return await _refuse_late(tx, job, result)
        job = claimed
    outcome = _outcome(runtime.contract(job.contract), result)
    settled = await settle_job(runtime, tx, job, Settlement(job.id, result.message_id, job.contract, outcome))
    if not isinstance(settled, Change):
        return job
    if settled.events:  # else a repeated message
        changes.append(settled)
    return settled.after


def _outcome(contract: Contract, result: Result) -> Outcome:
    if result.problem is not None:
        return Failed(Failure("RESULT_INVALID", result.problem, "ResultInvalid", retryable=False))
    if result.status == ResultStatus.SUCCEEDED:
        return Succeeded(result.output)
    code = result.error_code or contract.code("execution_failed")
    return Failed(Failure(code, result.error or code, None, retryable=None if result.retryable else False))


async def _refuse_late(tx: Tx, job: Job, result: Result) -> Job:
    error = StaleLease(
        f"{result.status[:40]!r} from {result.worker or 'a worker'} under message {result.message_id} came too late: "
        "this message no longer holds the lease of the task"
    )
    await refuse(tx, job, error, SETTLE_REFUSED, result.worker or None)
    return job


@dataclass(slots=True)
class SortedIdleMessages:
    """Idle messages by what to do with them: drop, return to a live consumer, or publish again."""

    drop: list[IdleMessage] = field(default_factory=list)
    alive: list[IdleMessage] = field(default_factory=list)
    again: list[IdleMessage] = field(default_factory=list)
    unknown: list[Delivery] = field(default_factory=list)


async def sort_idle_messages(runtime: Runtime, tx: Tx, idle_messages: Sequence[IdleMessage]) -> SortedIdleMessages:
    """A Detent worker is lost when its lease has expired; any other worker when its message is idle on the stream."""
    sorted_messages = SortedIdleMessages()
    detent_workers = {worker.id for worker in await tx.workers.list_workers()}
    jobs = await tx.jobs.lock(sorted({message.delivery.task_id for message in idle_messages}))
    for message in idle_messages:
        message_id = message.delivery.message_id
        job = jobs.get(message.delivery.task_id)
        if message.delivery.problem is not None or job is None or not runtime.contract(job.contract).uses_stream:
            sorted_messages.unknown.append(message.delivery)
        elif job.phase is Phase.LEASED and job.token == message_id:
            alive = job.worker in detent_workers and (job.lease_until or 0) > tx.now
            (sorted_messages.alive if alive else sorted_messages.again).append(message)
        elif job.phase is Phase.CLAIMABLE and job.failures == message.delivery.retry_count:
            # The consumer never reported its claim: log it, so that the history shows the delivery.
            facts = Facts(worker=message.consumer, token=message_id, lease=0)
            change = decide(runtime.contract(job.contract), job, Move.CLAIM, tx.now, facts)
            await tx.jobs.apply([change])
            jobs[job.id] = change.after
            sorted_messages.again.append(message)
        else:
            sorted_messages.drop.append(message)
    lost = {message.delivery.task_id: message.delivery.message_id for message in sorted_messages.again}
    if lost:
        await tx.claims.expire_leases(lost)
    return sorted_messages


async def resolve_expired_leases(tx: Tx, jobs: Sequence[Job], pending: Sequence[Pending], lease: Micros) -> list[str]:
    """Extend the leases of consumers that kept their message alive; publish tasks without a message again.

    Returns the ids of the tasks that are published again.
    """
    idle = {entry.message_id: entry.idle_ms for entry in pending}
    rows = await tx.jobs.lock(sorted(job.id for job in jobs))
    without_message = []
    for job in jobs:
        row = rows.get(job.id)
        if row is None or row.phase is not Phase.LEASED or row.token != job.token or row.token is None:
            continue
        idle_ms = idle.get(row.token)
        if idle_ms is None:
            without_message.append(row)
        elif (left := lease - idle_ms * 1_000) > 0:
            await tx.claims.extend({row.id: row.token}, left)
    await tx.outbox.put_outbox_items([OutboxItem(row.id, TASK, row.version, tx.now) for row in without_message])
    return [row.id for row in without_message]
