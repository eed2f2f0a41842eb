"""The worker's decisions as a synchronous state machine: events in, batches and interrupts out. No clock, no tasks."""

import heapq
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from detent.core.errors import DetentError, RetryDelayFrozen, StaleLease
from detent.core.job import Failure, Micros
from detent.core.outcome import Cancelled, Failed, Outcome, Stopped, timeout_failure
from detent.core.times import SECOND
from detent.engine import BatchResult, Settlement
from detent.handler.lease import Lease, Reading
from detent.handler.stop_requests import StopKind
from detent.ports.claims import Claimed, Extended

from .reclaim_grace import ReclaimGrace

START = Reading(0.0, 0)
_SPARE_DEADLINES = 64
_MIN_SLOTS_TO_SPLIT = 16
"""Below this number of slots a batch may fill all of them; from here on batches are a share of the slots."""
POLL_SECONDS = 1.0
"""A worker polls for new jobs this often if no notification arrives."""
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_GIVE_UP_PAUSE_SECONDS = 0.75
"""A worker that must end gives up on a store that failed until the pause was this long."""
LEASE_LOST = "lease lost"
"""Why a handler is interrupted whose job belongs to another worker now."""
_OUTCOME_REFUSED = "OutcomeRefused"
"""The error class of the failure that replaces an outcome the engine refused."""


@dataclass(slots=True)
class Held:
    """A claimed job: queued for a slot, or running in one."""

    claimed: Claimed
    deadline: float | None = None
    started: bool = False
    cancel_requested: bool = False
    timeout: float | None = None
    soft_deadline: float | None = None
    lease: Lease = field(default_factory=Lease)

    def settlement(self, outcome: Outcome) -> Settlement:
        claimed = self.claimed
        return Settlement(claimed.id, claimed.token, claimed.contract, outcome, claimed.parent_id, claimed)


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer(Extended):
    """The answer to a heartbeat, with the lease tokens it checked: a job may have been claimed again since then."""

    tokens: Mapping[str, str] = field(default_factory=dict)
    extended_at: Reading | None = None
    """Read before the leases were extended; None: they were only checked."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One transaction: settle these, and claim up to `claim_limit` jobs."""

    settled: list[Settlement]
    claim_limit: int
    may_claim_suspect: bool = field(default=False, compare=False)
    """False while another claim in flight may bring one, and between the times at which suspects are claimed."""
    reclaim: bool = field(default=False, compare=False)
    """Also claim jobs whose lease has expired."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A request to the execution of a job. END: stop its handler, its result no longer counts."""

    id: str
    reason: str
    kind: StopKind = StopKind.END


@dataclass(slots=True)
class WorkerState:
    """Slots, leases and settlements of one worker. Several batches may be in flight and end in any order."""

    slots: int
    cancel_grace: float = 30.0
    max_in_flight: int = 1
    lease_seconds: float = 30.0
    reclaim_grace: ReclaimGrace = field(init=False)
    beat_seconds: float = field(init=False)
    """How often the leases are extended."""
    _extended_at: float = float("-inf")
    held: dict[str, Held] = field(default_factory=dict)
    finished: list[Settlement] = field(default_factory=list)
    _skipped: set[str] = field(default_factory=set)
    """Jobs whose last settlement was skipped because another transaction locked the row."""
    deferred: list[Settlement] = field(default_factory=list)
    """Settlements skipped twice because of a row lock; tried again at the next tick."""
    abandoned: int = 0
    """Handlers that still occupy a slot although the worker no longer holds their job."""
    wants_jobs: bool = True
    _work_arrived_since_claim: bool = False
    """Jobs may have become claimable that the claims in flight did not see."""
    last_claim_full: bool = False
    """True if the last claim was full. A second concurrent claim is only worth it then."""
    in_flight: list[Batch] = field(default_factory=list)
    """Batches that were handed out and have not ended yet."""
    stopping: bool = False
    grace_over: bool = False
    """True once the jobs that still ran were handed back."""
    store_failing: bool = False
    """True if the last batch failed."""
    _pause: float = _FIRST_PAUSE_SECONDS
    _idle_seen_once: bool = False
    _reclaimed_at: float = float("-inf")
    _reclaim_next: bool = False
    """True: it is time to reclaim, and the next claim does it."""
    _notified: bool = False
    """True: a notification of new work ended the last wait, not the poll interval."""
    _waiting_suspects: dict[str, Claimed] = field(default_factory=dict)
    """Held suspects that start when this worker holds nothing else, one after the other."""
    _isolated: str | None = None
    """The id of the suspect that was started last."""
    _deadlines: list[tuple[float, str, str]] = field(default_factory=list)
    _superseded: list[Interrupt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reclaim_grace = ReclaimGrace(self.lease_seconds)
        self.beat_seconds = self.lease_seconds / 3

    @property
    def _batch_size(self) -> int:
        """A share of the slots, so that one share runs while the others are being settled and claimed."""
        return self.slots if self.slots < _MIN_SLOTS_TO_SPLIT else -(-self.slots // (1 + self.max_in_flight))

    @property
    def free(self) -> int:
        return self.slots - len(self.held) - self.abandoned

    @property
    def done(self) -> bool:
        waiting = self.held or self.finished or self.deferred
        return self.stopping and not waiting and not self.in_flight

    @property
    def busy(self) -> bool:
        return bool(self.held or self.in_flight)

    @property
    def idle(self) -> bool:
        """True if no job is held and nothing is to be settled or claimed."""
        return not (self.busy or self.finished or self.deferred or self.wants_jobs)

    @property
    def isolating(self) -> bool:
        """True while a suspect waits or runs here: nothing is claimed, so that its crash takes no other job along."""
        return bool(self._waiting_suspects) or self._isolated in self.held

    def next_suspect(self) -> Claimed | None:
        """A suspect to start now; None unless everything else this worker held is settled."""
        unsettled = self.finished or self.deferred or self.in_flight
        if not self._waiting_suspects or unsettled or len(self.held) > len(self._waiting_suspects):
            return None
        self._isolated = next(iter(self._waiting_suspects))
        return self._waiting_suspects.pop(self._isolated)

    def notify_work_available(self, *, notified: bool | None = None) -> None:
        """Jobs may have become claimable; a claim in flight may have missed them. notified: False after a poll."""
        self.wants_jobs = self._work_arrived_since_claim = True
        if notified is not None:
            self._notified = notified

    def next_batch(self, at: Reading = START) -> Batch | None:
        """The next transaction; None if nothing is to be settled and no job is to be claimed."""
        if len(self.in_flight) >= self.max_in_flight:
            return None
        room = self.free - sum(batch.claim_limit for batch in self.in_flight)
        wanted = self.wants_jobs and not self.stopping and not self.isolating
        claim_limit = max(0, min(room, self._batch_size)) if wanted else 0
        if not self.finished and not claim_limit:
            return None
        claimable = claim_limit if self.last_claim_full else 0
        if self.in_flight and 2 * max(claimable, len(self.finished)) < self._batch_size:
            return None  # a second transaction for less than half a batch costs more than it gains
        due = bool(claim_limit) and self._reclaim_is_due(at.monotonic)
        if due:  # after a notification the new jobs start first; the next claim, at once, is the one that reclaims
            self._reclaim_next = self._notified and not self._reclaim_next
            due = not self._reclaim_next
        if claim_limit:
            self._work_arrived_since_claim = False
        reclaim = due and self._may_reclaim(at)
        if reclaim:
            self._reclaimed_at = at.monotonic
        may_claim_suspect = due and not any(other.may_claim_suspect for other in self.in_flight)
        batch = Batch(self.finished, claim_limit, may_claim_suspect, reclaim)
        self.in_flight.append(batch)
        self.finished = []
        return batch

    def _reclaim_is_due(self, now: float) -> bool:
        """Expired leases are reclaimed, and suspects claimed, from time to time: new jobs start first."""
        every = min(POLL_SECONDS / 2, self.lease_seconds / 3)
        since = now - self._reclaimed_at
        return since >= 2 * every or (since >= every and not self._notified)

    def _may_reclaim(self, at: Reading) -> bool:
        self.reclaim_grace.check_clocks(at)
        return self.reclaim_grace.over(at.monotonic)

    def _remove_in_flight(self, batch: Batch | None) -> Batch:
        assert self.in_flight, "a result without a batch"
        return self.in_flight.pop(next(i for i, other in enumerate(self.in_flight) if batch is None or other is batch))

    def batch_done(
        self,
        result: BatchResult,
        batch: Batch | None = None,
        now: float = 0.0,
        new_lease: Callable[[int | None], Lease] = Lease,
    ) -> list[Claimed]:
        """The batch (the oldest, if not given) is committed. Returns the jobs to start."""
        batch = self._remove_in_flight(batch)
        self.reclaim_grace.store_answered(now)
        self._pause, self.store_failing = _FIRST_PAUSE_SECONDS, False
        if batch.claim_limit:
            self.last_claim_full = len(result.claimed) >= batch.claim_limit
            self.wants_jobs = self.last_claim_full or self._work_arrived_since_claim or self._reclaim_next
        for settlement in result.later:  # the first retry is immediate, the next ones wait for a tick
            (self.deferred if settlement.id in self._skipped else self.finished).append(settlement)
        self._skipped -= {settlement.id for settlement in batch.settled}
        self._skipped |= {settlement.id for settlement in result.later}
        self.finished += _failures_for_refused(batch.settled, result.refused)
        for claimed in result.claimed:
            old = self.held.get(claimed.id)
            if old is not None:  # its lease expired, and this worker claimed it again
                self._superseded.append(self._abandon(old, None, LEASE_LOST))
            self.held[claimed.id] = Held(claimed, lease=new_lease(claimed.timeout_ms))
        if self.stopping:  # stop() was called while the claim was in flight
            self.stop()
            return []
        suspects = {claimed.id: claimed for claimed in result.claimed if claimed.suspect}
        if not suspects:
            return result.claimed
        self._waiting_suspects |= suspects
        return [claimed for claimed in result.claimed if not claimed.suspect]

    def pop_superseded(self) -> list[Interrupt]:
        """Handlers whose job this worker claimed again under a new token: to be stopped before the new one starts."""
        interrupts, self._superseded = self._superseded, []
        return interrupts

    def batch_failed(self, batch: Batch | None = None) -> float | None:
        """It is unknown whether the batch was committed: send its settlements again, settling is idempotent.

        Returns the seconds to wait before that; None if the worker must end and the store does not answer.
        """
        batch = self._remove_in_flight(batch)
        self.finished = batch.settled + self.finished
        self.wants_jobs = self.store_failing = True
        self.reclaim_grace.store_lost()
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        return None if self.grace_over and pause >= _GIVE_UP_PAUSE_SECONDS else pause

    def waits_for_change(self, *, idle: bool) -> bool:
        """For a worker that runs until idle: stop if no work was left before and after a last claim.

        idle: no work is left now. False: go on with the last claim, or end.
        """
        if not idle:
            self._idle_seen_once = False
            return True
        if self._idle_seen_once and not self.wants_jobs:
            self.stop()
        else:  # one more claim, for jobs that became claimable before the check
            self._idle_seen_once = self.wants_jobs = True
        return False

    def handler_started(
        self, job_id: str, token: str, now: float, timeout: float | None, soft_timeout: float | None = None
    ) -> Held | None:
        """A slot starts the job; None if the worker no longer holds it, or holds it under a newer token."""
        held = self.held.get(job_id)
        if held is None or held.claimed.token != token:
            return None
        held.started = True
        if timeout is not None:
            ends = held.lease.ends  # earlier, if the answer to the claim was late
            held.timeout, held.deadline = timeout, now + timeout if ends is None else min(now + timeout, ends)
            self._push_deadline(held.deadline, held.claimed)
        if soft_timeout is not None and (timeout is None or soft_timeout < timeout):
            held.soft_deadline = now + soft_timeout
            self._push_deadline(held.soft_deadline, held.claimed)
        return held

    def handler_ended(self, job_id: str, token: str, outcome: Outcome) -> bool:
        """A handler ended. False if the worker no longer holds the job: then only the slot becomes free."""
        held = self.held.get(job_id)
        if held is None or held.claimed.token != token:
            self.abandoned -= 1
            return False
        del self.held[job_id]
        self.finished.append(held.settlement(outcome))
        return True

    def reports_late(self, job_id: str, outcome: Outcome) -> bool:
        """Whether to offer the result of a job that the worker no longer holds: the engine refuses it with a note.

        The worker's own settlement of the job (a timeout, a stop) must be committed first.
        """
        return not isinstance(outcome, Stopped) and all(settlement.id != job_id for settlement in self.unsettled())

    def seconds_until_tick(self, now: float, longest: float) -> float:
        deadline = self.next_deadline()
        return longest if deadline is None else min(longest, max(0.001, deadline - now))

    def next_deadline(self) -> float | None:
        return self._deadlines[0][0] if self._deadlines else None

    def tick(self, at: Reading, timeout_codes: dict[str, str]) -> list[Interrupt]:
        """Retry deferred settlements; time out handlers past their deadline (the first of deadline and result wins)."""
        self.reclaim_grace.check_clocks(at)
        self.finished += self.deferred
        self.deferred = []
        interrupts = []
        while self._deadlines and self._deadlines[0][0] <= at.monotonic:
            deadline, job_id, token = heapq.heappop(self._deadlines)
            held = self.held.get(job_id)
            if held is None or held.claimed.token != token:
                continue
            if deadline == held.soft_deadline:
                held.soft_deadline = None
                interrupts.append(Interrupt(job_id, "soft timeout", StopKind.SOFT_TIMEOUT))
                continue
            if held.cancel_requested:
                outcome: Outcome = Cancelled("forced at the end of the grace")
            else:
                outcome = Failed(timeout_failure(timeout_codes[held.claimed.contract], held.timeout or 0))
            interrupts.append(self._abandon(held, outcome, "timeout"))
        return interrupts

    def heartbeat_answered(self, answer: HeartbeatAnswer, now: float) -> list[Interrupt]:
        """Drop jobs whose lease is lost, confirm the others; pass cancel requests on to their handlers."""
        checked = {  # without the jobs that were claimed again since then
            job_id: held for job_id, held in self.held.items() if held.claimed.token == answer.tokens.get(job_id)
        }
        interrupts = []
        for job_id, held in checked.items():
            cancel_request = answer.cancels.get(job_id)
            if job_id in answer.lost:
                interrupts.append(self._abandon(held, None, LEASE_LOST))
                continue
            if answer.extended_at is not None:
                held.lease.confirm(answer.extended_at)
            if cancel_request is not None and not held.started:
                interrupts.append(self._abandon(held, Cancelled(cancel_reason(cancel_request)), "cancel"))
            elif cancel_request is not None and not held.cancel_requested:
                held.cancel_requested = True
                self._push_deadline(now + self.cancel_grace, held.claimed)
                interrupts.append(Interrupt(job_id, cancel_request, StopKind.CANCEL))
        return interrupts

    @property
    def check_seconds(self) -> float:
        """The pause between two heartbeats: those between two extensions only check the leases."""
        return min(1.0, self.beat_seconds)

    def extends_leases(self, now: float) -> bool:
        """Whether the next heartbeat extends the leases. One that failed is repeated at once."""
        return now - self._extended_at >= self.beat_seconds - self.check_seconds / 2

    def leases_extended(self, now: float) -> None:
        self._extended_at = now

    def leases_to_extend(self, now: float) -> dict[str, str]:
        """{job id: token} of every lease to extend. Called from the heartbeat's thread, hence the copies.

        Ended but unsettled jobs are included: a blocked event loop or an unreachable store must not lose a result.
        A job whose deadline is long past blocks the event loop for good: its lease is left to expire.
        """
        running = {
            job_id: held.claimed.token
            for job_id, held in list(self.held.items())
            if held.deadline is None or held.deadline + self.lease_seconds > now
        }
        return {settlement.id: settlement.token for settlement in self.unsettled()} | running

    def unsettled(self) -> list[Settlement]:
        """Settlements that are not known to be committed."""
        in_flight = (settlement for batch in list(self.in_flight) for settlement in batch.settled)
        return [*self.deferred, *self.finished, *in_flight]

    def stop(self) -> None:
        """Claim nothing more; hand back the jobs that wait for a slot."""
        self.stopping = True
        for held in [h for h in self.held.values() if not h.started]:
            self._abandon(held, Stopped(), "worker stops")

    def hand_back_running(self) -> list[Interrupt]:
        """The shutdown grace is over: hand back the jobs that still run."""
        self.grace_over = True
        return [self._abandon(held, Stopped(), "worker stops") for held in list(self.held.values())]

    def _abandon(self, held: Held, outcome: Outcome | None, reason: str) -> Interrupt:
        """Hold the job no longer, settle it with this outcome if there is one, and interrupt its handler."""
        job_id = held.claimed.id
        held.lease.lost = reason
        del self.held[job_id]
        self._waiting_suspects.pop(job_id, None)
        self.abandoned += held.started
        if outcome is not None:
            self.finished.append(held.settlement(outcome))
        return Interrupt(job_id, reason)

    def _push_deadline(self, deadline: float, claimed: Claimed) -> None:
        """Deadlines of ended jobs are removed in bulk, so that the heap stays proportional to the held jobs."""
        heapq.heappush(self._deadlines, (deadline, claimed.id, claimed.token))
        if len(self._deadlines) > 4 * len(self.held) + _SPARE_DEADLINES:
            tokens = {job_id: held.claimed.token for job_id, held in self.held.items()}
            self._deadlines = [entry for entry in self._deadlines if tokens.get(entry[1]) == entry[2]]
            heapq.heapify(self._deadlines)


def _failures_for_refused(settled: Iterable[Settlement], refused: Mapping[str, DetentError]) -> list[Settlement]:
    """Settlements that fail the job for good, with the code of the refusal, where the engine refused an outcome.

    Otherwise the lease would expire and the job would run again without end. Lost leases are left alone: the job
    belongs to another worker. Of a failure with a delay that the contract does not allow, only the delay is dropped.
    """
    failures = []
    for settlement in settled if refused else ():
        error, outcome = refused.get(settlement.id), settlement.outcome
        if error is None or isinstance(error, StaleLease) or isinstance(outcome, Stopped):
            continue
        if isinstance(outcome, Failed) and outcome.failure.error_class == _OUTCOME_REFUSED:
            continue
        failure = Failure(error.code, error.message, _OUTCOME_REFUSED, retryable=False)
        if isinstance(error, RetryDelayFrozen) and isinstance(outcome, Failed):
            failure = replace(outcome.failure, after=None)
        failures.append(settlement._replace(outcome=Failed(failure)))
    return failures


def seconds_until_due(moments: Iterable[Micros | None], now: Micros, longest: float) -> float:
    """The pause until the earliest of these moments, at most `longest`.

    What is overdue and was not taken is not for this process: check the less often, the longer it is overdue.
    """
    pauses = [abs(moment - now) / SECOND for moment in moments if moment is not None]
    return max(0.001, min([longest, *pauses])) if pauses else longest


def cancel_reason(cancel_request: str) -> str:
    """The reason in a cancel request (JSON), or the name of the person who requested it."""
    request = json.loads(cancel_request)
    return request.get("reason") or f"cancelled by {request.get('actor')}"
