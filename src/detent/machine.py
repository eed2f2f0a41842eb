"""The worker's decisions as a synchronous state machine: something happened in, orders out. No clock, no tasks."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from .core.job import Failure
from .core.outcome import Cancelled, Failed, Outcome, Stopped
from .engine import Cycled, Settlement
from .ports import Claimed, Extended


@dataclass(slots=True)
class Held:
    """A job in our hands: queued for a slot, or running in one."""

    claimed: Claimed
    deadline: float | None = None
    started: bool = False
    asked_to_stop: bool = False


@dataclass(frozen=True, slots=True)
class Order:
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
class Machine:
    """Slots, leases and settlements of one worker. At most one order is out at any time."""

    slots: int
    cancel_grace: float = 30.0
    held: dict[str, Held] = field(default_factory=dict)
    finished: list[Settlement] = field(default_factory=list)
    deferred: list[Settlement] = field(default_factory=list)
    """Settlements whose row somebody else held; said again at the next tick."""
    ghosts: int = 0
    """Handlers that still occupy a slot though their job is no longer ours."""
    hungry: bool = True
    ordered: Order | None = None
    stopping: bool = False
    _deadlines: list[tuple[float, str, str]] = field(default_factory=list)

    @property
    def free(self) -> int:
        return self.slots - len(self.held) - self.ghosts

    @property
    def done(self) -> bool:
        waiting = self.held or self.finished or self.deferred
        return self.stopping and not waiting and self.ordered is None

    def order(self) -> Order | None:
        """The next transaction, if there is reason for one: something to settle, or room and appetite."""
        if self.ordered is not None:
            return None
        want = self.free if self.hungry and not self.stopping else 0
        if not self.finished and want <= 0:
            return None
        self.ordered = Order(self.finished, max(0, want))
        self.finished = []
        return self.ordered

    def cycled(self, answer: Cycled) -> list[Claimed]:
        """The order was carried out: these are to be started."""
        order, self.ordered = self.ordered, None
        assert order is not None, "an answer without an order"
        if order.want:
            self.hungry = len(answer.claimed) >= order.want
        self.deferred += answer.later
        for claimed in answer.claimed:
            self.held[claimed.id] = Held(claimed)
        return answer.claimed

    def cycle_failed(self) -> None:
        """Nobody knows whether it happened: say the settlements again, they count once."""
        order, self.ordered = self.ordered, None
        assert order is not None, "a failure without an order"
        self.finished = order.settled + self.finished
        self.hungry = True

    def started(self, job_id: str, now: float, timeout: float | None) -> bool:
        """A slot takes the job; False if it is no longer ours to run."""
        held = self.held.get(job_id)
        if held is None:
            return False
        held.started = True
        if timeout is not None:
            held.deadline = now + timeout
            heapq.heappush(self._deadlines, (held.deadline, job_id, held.claimed.token))
        return True

    def ended(self, job_id: str, token: str, outcome: Outcome) -> None:
        """A handler came to its end. If the job was taken from it meanwhile, only its slot comes free."""
        held = self.held.get(job_id)
        if held is None or held.claimed.token != token:
            self.ghosts -= 1
            return
        del self.held[job_id]
        self.finished.append(Settlement(job_id, token, held.claimed.contract, outcome))

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
                spent = f"the handler ran past its timeout of {held.claimed.timeout_ms} ms and was stopped"
                outcome = Failed(Failure(code, spent, "Timeout"))
            interrupts.append(self._take_away(held, outcome, "timeout"))
        return interrupts

    def extended(self, answer: Extended, now: float) -> list[Interrupt]:
        """Leases were checked: drop what is lost, tell those who were asked to stop."""
        interrupts = []
        for job_id in answer.lost:
            held = self.held.get(job_id)
            if held is not None:
                interrupts.append(self._take_away(held, None, "lease lost"))
        for job_id, asked in answer.cancels.items():
            held = self.held.get(job_id)
            if held is not None and not held.asked_to_stop:
                held.asked_to_stop = True
                heapq.heappush(self._deadlines, (now + self.cancel_grace, job_id, held.claimed.token))
                interrupts.append(Interrupt(job_id, asked, gentle=True))
        return interrupts

    def leases(self, now: float, overrun: float) -> dict[str, str]:
        """Every token we answer for: {id: token}. Called from the heart's thread, hence the copy.

        A job whose deadline is long past sits in a loop that is blocked for good: it is left to its lease.
        """
        running = {
            job_id: held.claimed.token
            for job_id, held in list(self.held.items())
            if held.deadline is None or held.deadline + overrun > now
        }
        return running | {said.id: said.token for said in list(self.deferred)}

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
        self.finished.append(Settlement(claimed.id, claimed.token, claimed.contract, Stopped()))

    def _take_away(self, held: Held, outcome: Outcome | None, why: str) -> Interrupt:
        claimed = held.claimed
        del self.held[claimed.id]
        if held.started:
            self.ghosts += 1
        if outcome is not None:
            self.finished.append(Settlement(claimed.id, claimed.token, claimed.contract, outcome))
        return Interrupt(claimed.id, why)

    def adopt(self, claimed: Iterable[Claimed]) -> list[Claimed]:
        """Rows that bear our token after a lost reply: a claim we never heard of."""
        fresh = [c for c in claimed if c.id not in self.held]
        for one in fresh:
            self.held[one.id] = Held(one)
        return fresh
