"""Outcomes of an execution, and the change each one causes: retry or fail, by the rules of the contract."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from detent.core.contract.model import Contract, Move
from detent.core.options.backoff import parse_backoff

from .decide import add_move, decide
from .errors import RetryDelayFrozen
from .job import Change, Facts, Failure, Job, Micros, Wait
from .retry import Jitter, deterministic_jitter


@dataclass(frozen=True, slots=True)
class Succeeded:
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    failure: Failure


@dataclass(frozen=True, slots=True)
class Snoozed:
    delay: Micros


@dataclass(frozen=True, slots=True)
class Cancelled:
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    wait: Wait


@dataclass(frozen=True, slots=True)
class Stopped:
    """The worker shuts down and hands the unfinished job back."""


@dataclass(frozen=True, slots=True)
class NotBound:
    """The worker's code cannot bind the payload; newer or older code may. Nothing was run."""

    failure: Failure
    give_up: Micros
    """How long the job is handed back to other workers before this failure counts."""


Outcome = Succeeded | Failed | Snoozed | Cancelled | Waits | Stopped | NotBound
HANDED_BACK = "handed_back"
"""The reason of the event, and with `job.` the name of the note, of a job whose payload a worker cannot bind."""
_FIRST_HAND_BACK, _LONGEST_HAND_BACK = 1_000_000, 10_000_000


def after_failure(
    contract: Contract, job: Job, failure: Failure, now: Micros, facts: Facts, jitter: Jitter = deterministic_jitter
) -> Change:
    """The change for a failed execution: RETRY if the failure is retryable and retries are left, else FAIL.

    Raises RetryDelayFrozen if the failure chooses a delay and the contract does not allow it.
    """
    if failure.after is not None and contract.retry.frozen:
        message = f"{contract.name} fixes the delays before retries; leave out after (after_seconds)"
        raise RetryDelayFrozen(f"{message}, or use another contract", field="after_seconds")
    failure = _completed(contract, failure)
    if not may_retry(contract, job, failure) or not contract.edge(job.status, Move.RETRY):
        return decide(contract, job, Move.FAIL, now, replace(facts, failure=exhausted_failure(contract, failure)))
    delay = retry_delay(contract, job, jitter) if failure.after is None else failure.after
    return decide(contract, job, Move.RETRY, now, replace(facts, failure=failure, delay=delay))


def _completed(contract: Contract, failure: Failure) -> Failure:
    """The failure with the contract's code if it names none; not retryable if the contract wants that to be said."""
    retryable = failure.retryable
    if retryable is None and failure.origin in contract.retry.opt_in:
        retryable = False
    return replace(failure, code=failure.code or contract.code("execution_failed"), retryable=retryable)


def retry_delay(contract: Contract, job: Job, jitter: Jitter) -> Micros:
    """How long the next retry of this job waits: by the job's own backoff, else by that of the contract."""
    backoff = contract.retry.backoff if job.backoff is None else parse_backoff(job.backoff)
    return backoff.delay_ms(job.id, job.retries + 1, jitter) * 1_000


def may_retry(contract: Contract, job: Job, failure: Failure) -> bool:
    seen = json.loads(job.error_counts).get(failure.code, 0) if job.error_counts else 0
    return job.failures < job.max_retries and contract.retry.allows(failure.code, failure.retryable, seen)


def exhausted_failure(contract: Contract, failure: Failure) -> Failure:
    """The failure to record without a retry: a contract may replace the code; the message then keeps the cause."""
    exhausted = contract.codes["retry_exhausted"]
    if not exhausted or not contract.retry.retries(failure.code, failure.retryable):
        return failure
    return replace(failure, code=exhausted, message=f"{failure.code}: {failure.message}")


def timeout_failure(code: str, seconds: float) -> Failure:
    return Failure(code, f"the execution took longer than its timeout of {seconds:g} s", "Timeout")


def timed_out(job: Job, now: Micros) -> bool:
    """True if the execution outlasted its timeout. False if its lease ended before: then its worker was lost."""
    return job.times_out_at < now and job.times_out_at <= (job.lease_until or 0)


def after_timeout(
    contract: Contract, job: Job, now: Micros, facts: Facts, jitter: Jitter = deterministic_jitter
) -> Change:
    """The change for an execution that outlasted its timeout: a failure with the contract's code."""
    failure = timeout_failure(contract.code("timeout"), (job.timeout_ms or 0) / 1_000)
    facts = replace(facts, reason="execution_timeout", losses=job.losses)
    return after_failure(contract, job, failure, now, facts, jitter)


def after_loss(
    contract: Contract, job: Job, now: Micros, facts: Facts, jitter: Jitter = deterministic_jitter
) -> Change:
    """The change for a job whose lease expired; `contract.loss` decides the move and whether it is charged."""
    rule = contract.loss
    failure = Failure(contract.code("lost"), f"worker {job.worker} was lost while holding the job", "WorkerLost")
    facts = replace(facts, reason="lease_expired", losses=job.losses + 1)
    change = _interrupted(contract, job, rule.move, rule.charged, failure, now, facts, jitter)
    change.lease_lost = True
    return change


def after_stop(
    contract: Contract, job: Job, now: Micros, facts: Facts, jitter: Jitter = deterministic_jitter
) -> Change | None:
    """The change when the worker shuts down; None: the contract lets the lease expire."""
    rule = contract.stop
    if rule.move is None:
        return None
    failure = Failure(contract.code("stopped"), "worker stopped", "WorkerStopped")
    facts = replace(facts, reason="worker_stopped", losses=job.losses)
    return _interrupted(contract, job, rule.move, rule.charged, failure, now, facts, jitter)


def after_not_bound(
    contract: Contract,
    job: Job,
    outcome: NotBound,
    handed_back: Sequence[Micros],
    now: Micros,
    facts: Facts,
    jitter: Jitter = deterministic_jitter,
) -> Change:
    """The change for a payload that the worker cannot bind: the job is due again for other workers, uncharged.

    handed_back: the times of the hand-backs in a row before this one. Once `outcome.give_up` has passed since the first
    one, and under a contract without RELEASE, it is a failure. The delay doubles, so that old workers do not spin.
    """
    failure = outcome.failure
    left = outcome.give_up - (now - handed_back[0] if handed_back else 0)
    if left <= 0 or not contract.edge(job.status, Move.RELEASE):
        return after_failure(contract, job, failure, now, facts, jitter)
    delay = min(_FIRST_HAND_BACK << min(len(handed_back), 5), _LONGEST_HAND_BACK)
    # Spread, so that the worker that wakes first does not get all jobs of a batch again.
    delay = min(delay + jitter(job.id, len(handed_back) + 1, delay // 2), left)
    change = decide(contract, job, Move.RELEASE, now, replace(facts, delay=delay, reason=HANDED_BACK))
    data = {"error_code": failure.code, "error_message": failure.message, "give_up_at": now + left}
    change.notes.append(change.after.note(f"job.{HANDED_BACK}", now, facts.actor, data))
    return change


def _interrupted(
    contract: Contract, job: Job, move: Move, charged: bool, failure: Failure, now: Micros, facts: Facts, jitter: Jitter
) -> Change:
    facts = replace(facts, charged=charged)
    if charged and move is Move.RETRY:
        return after_failure(contract, job, failure, now, facts, jitter)
    if charged and not may_retry(contract, job, failure):
        facts = replace(facts, failure=exhausted_failure(contract, failure))
        return decide(contract, job, Move.FAIL, now, facts)
    recorded = None if move is Move.RELEASE and not charged else failure
    change = decide(contract, job, move, now, replace(facts, failure=recorded))
    return fail_after_interruptions(contract, change, now, replace(facts, failure=failure, charged=False))


def after_reclaim(
    contract: Contract, job: Job, now: Micros, worker: str, token: str, lease: Micros, **more: str
) -> Change:
    """The change for a job that another worker takes over directly, because its lease expired."""
    data = {"old_consumer": job.worker, "new_consumer": worker, "message_id": job.token, **more}
    facts = Facts(worker=worker, token=token, lease=lease, charged=False, losses=job.losses + 1, data=data)
    change = decide(contract, job, Move.RECLAIM, now, facts)
    change.lease_lost = True
    return change


def fail_after_interruptions(contract: Contract, change: Change, now: Micros, facts: Facts) -> Change:
    """Add the FAIL move if the job was interrupted more often than its contract allows."""
    limit = contract.loss.max_interruptions
    if limit and change.after.interruptions > limit and contract.edge(change.after.status, Move.FAIL):
        return add_move(contract, change, Move.FAIL, now, facts)
    return change
