"""The worker's decisions as a synchronous state machine: something happened in, orders out. No clock, no tasks."""

import heapq
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from detent.core.errors import DetentError, StaleLease
from detent.core.job import Failure
from detent.core.outcome import Cancelled, Failed, Outcome, Stopped
from detent.engine import BatchResult, Settlement
from detent.ports.claims import Claimed, Extended

_SPARE_DEADLINES = 64
_WORTH_SHARING = 16
_REFUSED = "OutcomeRefused"
"""The error class of a failure that stands for an outcome the engine would not take."""


@dataclass(slots=True)
class Held:
    """A job in our hands: queued for a slot, or running in one."""

    claimed: Claimed
    deadline: float | None = None
    started: bool = False
    asked_to_stop: bool = False
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer(Extended):
    """A heartbeat's answer with the tokens it is about: a job may have come back under a new one meanwhile."""

    asked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batch:
    """Settle these and claim up to so many, in one transaction."""

    settled: list[Settlement]
    want: int


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop this handler: its result no longer matters. Or, gently: tell it that it should end."""

    id: str
    why: str
    gentle: bool = False


@dataclass(slots=True)
class WorkerState:
    """Slots, leases and settlements of one worker. Some orders may be out at a time, answered in any order."""

    slots: int
    cancel_grace: float = 30.0
    max_in_flight: int = 1
    held: dict[str, Held] = field(default_factory=dict)
    finished: list[Settlement] = field(default_factory=list)
    _passed_over: set[str] = field(default_factory=set)
    deferred: list[Settlement] = field(default_factory=list)
    """Settlements whose row somebody else held; said again at the next tick."""
    abandoned: int = 0
    """Handlers that still occupy a slot though their job is no longer ours."""
    wants_jobs: bool = True
    _news: bool = False
    """There may be more than the orders that are out could see."""
    last_claim_full: bool = False
    """The last claim brought all it asked for: another beside it will too. Else it would find what that one left."""
    in_flight: list[Batch] = field(default_factory=list)
    """Orders that were given and not answered yet."""
    stopping: bool = False
    _deadlines: list[tuple[float, str, str]] = field(default_factory=list)
    _superseded: list[Interrupt] = field(default_factory=list)

    @property
    def _batch(self) -> int:
        """A share of the slots: one share runs while the others are being settled and claimed."""
        return self.slots if self.slots < _WORTH_SHARING else -(-self.slots // (1 + self.max_in_flight))

    @property
    def free(self) -> int:
        return self.slots - len(self.held) - self.abandoned

    @property
    def done(self) -> bool:
        waiting = self.held or self.finished or self.deferred
        return self.stopping and not waiting and not self.in_flight

    def heard_of_work(self) -> None:
        """Something may have become claimable; a claim that is under way may have missed it."""
        self.wants_jobs = self._news = True

    def order(self) -> Batch | None:
        """The next transaction, if there is reason for one: something to settle, or room and appetite."""
        if len(self.in_flight) >= self.max_in_flight:
            return None
        room = self.free - sum(order.want for order in self.in_flight)
        want = max(0, min(room, self._batch)) if self.wants_jobs and not self.stopping else 0
        if not self.finished and not want:
            return None
        if self.in_flight and 2 * max(want if self.last_claim_full else 0, len(self.finished)) < self._batch:
            return None  # a further transaction costs more than the little it would carry is worth
        if want:
            self._news = False
        order = Batch(self.finished, want)
        self.in_flight.append(order)
        self.finished = []
        return order

    def _answered(self, order: Batch | None) -> Batch:
        assert self.in_flight, "an answer without an order"
        return self.in_flight.pop(next(i for i, one in enumerate(self.in_flight) if order is None or one is order))

    def batch_done(self, answer: BatchResult, order: Batch | None = None) -> list[Claimed]:
        """The order (the oldest, if not named) was carried out: these are to be started."""
        order = self._answered(order)
        if order.want:
            self.last_claim_full = len(answer.claimed) >= order.want
            self.wants_jobs = self.last_claim_full or self._news
        for said in answer.later:  # once again at once, then at the next tick
            (self.deferred if said.id in self._passed_over else self.finished).append(said)
        self._passed_over -= {said.id for said in order.settled}
        self._passed_over |= {said.id for said in answer.later}
        self.finished += _turned_down(order.settled, answer.refused)
        for claimed in answer.claimed:
            old = self.held.get(claimed.id)
            if old is not None:  # its lease had run out, and we are the ones who took it over
                self._superseded.append(self._take_away(old, None, "lease lost"))
            self.held[claimed.id] = Held(claimed)
        if self.stopping:  # claimed while we were told to stop
            self.stop()
            return []
        return answer.claimed

    def superseded(self) -> list[Interrupt]:
        """Handlers whose job came back to us under a new token: to be stopped before that one starts."""
        interrupts, self._superseded = self._superseded, []
        return interrupts

    def batch_failed(self, order: Batch | None = None) -> None:
        """Nobody knows whether it happened: say the settlements again, they count once."""
        order = self._answered(order)
        self.finished = order.settled + self.finished
        self.wants_jobs = True

    def started(self, job_id: str, now: float, timeout: float | None) -> bool:
        """A slot takes the job; False if it is no longer ours to run."""
        held = self.held.get(job_id)
        if held is None:
            return False
        held.started = True
        if timeout is not None:
            held.timeout, held.deadline = timeout, now + timeout
            self._push_deadline(held.deadline, held.claimed)
        return True

    def ended(self, job_id: str, token: str, outcome: Outcome) -> bool:
        """A handler came to its end. False: the job was taken from it meanwhile, only its slot comes free."""
        held = self.held.get(job_id)
        if held is None or held.claimed.token != token:
            self.abandoned -= 1
            return False
        del self.held[job_id]
        self.finished.append(Settlement(job_id, token, held.claimed.contract, outcome, held.claimed.parent_id))
        return True

    def next_deadline(self) -> float | None:
        return self._deadlines[0][0] if self._deadlines else None

    def ticked(self, now: float, timeout_codes: dict[str, str]) -> list[Interrupt]:
        """Deadlines that have come: the first of deadline and result wins."""
        self.finished += self.deferred
        self.deferred = []
        interrupts = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, job_id, token = heapq.heappop(self._deadlines)
            held = self.held.get(job_id)
            if held is None or held.claimed.token != token:
                continue
            if held.asked_to_stop:
                outcome: Outcome = Cancelled("forced at the end of the grace")
            else:
                code = timeout_codes[held.claimed.contract]
                spent = f"the handler ran past its timeout of {held.timeout or 0:g} s and was stopped"
                outcome = Failed(Failure(code, spent, "Timeout"))
            interrupts.append(self._take_away(held, outcome, "timeout"))
        return interrupts

    def extended(self, answer: Extended, now: float) -> list[Interrupt]:
        """Leases were checked: drop what is lost, tell those who were asked to stop."""
        interrupts = []
        for job_id in answer.lost:
            held = self._meant(job_id, answer)
            if held is not None:
                interrupts.append(self._take_away(held, None, "lease lost"))
        for job_id, asked in answer.cancels.items():
            held = self._meant(job_id, answer)
            if held is not None and not held.asked_to_stop:
                held.asked_to_stop = True
                self._push_deadline(now + self.cancel_grace, held.claimed)
                interrupts.append(Interrupt(job_id, asked, gentle=True))
        return interrupts

    def _meant(self, job_id: str, answer: Extended) -> Held | None:
        """What we hold of this job, unless the answer is about a token we no longer go by."""
        held = self.held.get(job_id)
        if held is None or not isinstance(answer, HeartbeatAnswer):
            return held
        return held if answer.asked.get(job_id) == held.claimed.token else None

    def leases(self, now: float, overrun: float) -> dict[str, str]:
        """Every token we answer for: {id: token}. Called from the heart's thread, hence the copies.

        What has ended but is not settled yet is still ours: a blocked loop or a store that is away must not cost a
        result. A job whose deadline is long past sits in a loop that is blocked for good: it is left to its lease.
        """
        running = {
            job_id: held.claimed.token
            for job_id, held in list(self.held.items())
            if held.deadline is None or held.deadline + overrun > now
        }
        return {said.id: said.token for said in self.unsettled()} | running

    def unsettled(self) -> list[Settlement]:
        """Ends the store has not taken yet."""
        return [*self.deferred, *self.finished, *(said for order in list(self.in_flight) for said in order.settled)]

    def stop(self) -> None:
        """No more claims; what waits for a slot is handed back at once."""
        self.stopping = True
        for held in [h for h in self.held.values() if not h.started]:
            self._hand_back(held)

    def give_up(self) -> list[Interrupt]:
        """The grace is over: hand back what still runs."""
        return [self._take_away(held, Stopped(), "worker stops") for held in list(self.held.values())]

    def _hand_back(self, held: Held) -> None:
        claimed = held.claimed
        del self.held[claimed.id]
        self.finished.append(Settlement(claimed.id, claimed.token, claimed.contract, Stopped(), claimed.parent_id))

    def _take_away(self, held: Held, outcome: Outcome | None, why: str) -> Interrupt:
        claimed = held.claimed
        del self.held[claimed.id]
        if held.started:
            self.abandoned += 1
        if outcome is not None:
            self.finished.append(Settlement(claimed.id, claimed.token, claimed.contract, outcome, claimed.parent_id))
        return Interrupt(claimed.id, why)

    def _push_deadline(self, deadline: float, claimed: Claimed) -> None:
        """Deadlines of jobs that have ended are dropped in bulk, so that the heap stays as small as what we hold."""
        heapq.heappush(self._deadlines, (deadline, claimed.id, claimed.token))
        if len(self._deadlines) > 4 * len(self.held) + _SPARE_DEADLINES:
            tokens = {job_id: held.claimed.token for job_id, held in self.held.items()}
            self._deadlines = [entry for entry in self._deadlines if tokens.get(entry[1]) == entry[2]]
            heapq.heapify(self._deadlines)

    def adopt(self, claimed: Iterable[Claimed]) -> list[Claimed]:
        """Rows that bear our token after a lost reply: a claim we never heard of."""
        fresh = [c for c in claimed if c.id not in self.held]
        for one in fresh:
            self.held[one.id] = Held(one)
        return fresh


def _turned_down(settled: Iterable[Settlement], refused: Mapping[str, DetentError]) -> list[Settlement]:
    """Ends the contract has no status for, or the store cannot hold: the job fails for good, with that code.

    Left alone it would run into its lease and start again, for ever. A lost lease is no such case: it is not ours.
    """
    again = []
    for said in settled:
        error, outcome = refused.get(said.id), said.outcome
        if error is None or isinstance(error, StaleLease) or isinstance(outcome, Stopped):
            continue
        if isinstance(outcome, Failed) and outcome.failure.error_class == _REFUSED:
            continue
        again.append(said._replace(outcome=Failed(Failure(error.code, error.message, _REFUSED, retryable=False))))
    return again


def reason_of(asked: str) -> str:
    """A cancel request as the handler reads it: the reason, else who asked."""
    request = json.loads(asked)
    return request.get("reason") or f"cancelled by {request.get('actor')}"
