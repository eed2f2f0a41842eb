"""WorkerState under random sequences of events, with a model of the store: slots add up, every job is settled once."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from detent.core.errors import NotSupported, StaleLease
from detent.core.outcome import Outcome, Snoozed, Stopped, Succeeded
from detent.engine import BatchResult, Settlement
from detent.handler.stop_requests import StopKind
from detent.worker.state import Batch, HeartbeatAnswer, Interrupt, WorkerState
from support.worker.claims import CODES, at, claimed


class WorkerStateMachine(RuleBasedStateMachine):
    """rows: {job id: token} leased to this worker in the store. tasks: running handlers, also of lost jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.number = 0
        self.rows: dict[str, str] = {}
        self.tokens: dict[str, str] = {}
        self.earlier: dict[str, str] = {}
        self.queue: list[tuple[str, str]] = []
        self.tasks: list[tuple[str, str]] = []
        self.settled: list[tuple[str, str]] = []
        self.batch: Batch | None = None

    @initialize(slots=st.integers(1, 4))
    def begin(self, slots: int) -> None:
        self.state = WorkerState(slots, cancel_grace=3.0)

    @rule()
    def send_batch(self) -> None:
        batch = self.state.next_batch()
        assert batch is None or self.batch is None, "a second batch is in flight"
        self.batch = self.batch or batch

    @rule(data=st.data(), answered=st.booleans())
    def settle_and_claim(self, data: st.DataObject, answered: bool) -> None:
        """Send a batch and answer it in one step, so that a run gets far."""
        self.state.wants_jobs = True
        self.send_batch()
        if self.batch is not None and answered:
            self.answer(data)
        elif self.batch is not None:
            self.lose_answer(data.draw(st.booleans()))
        self.start_all(data)

    @precondition(lambda self: self.batch is not None)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        batch = self._take_batch()
        result = BatchResult()
        for settlement in batch.settled:
            self._settle(settlement, data.draw(st.sampled_from(("yes", "later", "refused"))), result)
        for _ in range(batch.claim_limit - data.draw(st.integers(0, batch.claim_limit))):
            result.claimed.append(claimed(*self._lease(data)))
        to_start = self.state.batch_done(result)
        superseded = {interrupt.id for interrupt in self.state.pop_superseded()}
        self.queue = [entry for entry in self.queue if entry[0] not in superseded]
        self.queue += [(c.id, c.token) for c in to_start]

    def _settle(self, settlement: Settlement, how: str, result: BatchResult) -> None:
        if self.rows.get(settlement.id) != settlement.token:
            result.refused[settlement.id] = StaleLease("another worker holds it")
        elif how == "later":
            result.later.append(settlement)
        elif how == "refused" and isinstance(settlement.outcome, Snoozed):
            result.refused[settlement.id] = NotSupported("the contract has no snooze")
        else:
            del self.rows[settlement.id]
            self.settled.append((settlement.id, settlement.token))

    def _lease(self, data: st.DataObject) -> tuple[str, str]:
        """Mostly a new job; sometimes one the worker held before, or lost without knowing it yet."""
        self.number += 1
        earlier_jobs = sorted(self.tokens.keys() - self.rows.keys())
        job_id = data.draw(st.sampled_from([*earlier_jobs[-2:], f"j{self.number}"]))
        if job_id in self.tokens:
            self.earlier[job_id] = self.tokens[job_id]
        self.rows[job_id] = self.tokens[job_id] = f"t{self.number}"
        return job_id, self.rows[job_id]

    @precondition(lambda self: self.batch is not None)
    @rule(committed=st.booleans())
    def lose_answer(self, committed: bool) -> None:
        """The reply is lost. The batch may be committed; it claimed nothing, because the store returns such claims."""
        batch = self._take_batch()
        if committed:
            for settlement in batch.settled:
                if self.rows.get(settlement.id) == settlement.token:
                    del self.rows[settlement.id]
                    self.settled.append((settlement.id, settlement.token))
        self.state.batch_failed()

    def _take_batch(self) -> Batch:
        batch, self.batch = self.batch, None
        assert batch is not None
        return batch

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def start_all(self, data: st.DataObject) -> None:
        for job_id, token in self.queue:
            timeout, soft = (data.draw(st.sampled_from((None, seconds, 5.0))) for seconds in (1.0, 0.5))
            if self.state.handler_started(job_id, token, self.now, timeout, soft):
                self.tasks.append((job_id, token))
        self.queue.clear()

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), outcome=st.sampled_from((Succeeded("1"), Snoozed(1), Stopped())))
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        job_id, token = self.tasks.pop(data.draw(st.integers(0, len(self.tasks) - 1)))
        before = self.state.held.get(job_id)
        is_held = before is not None and before.claimed.token == token
        assert self.state.handler_ended(job_id, token, outcome) is is_held

    @rule(seconds=st.sampled_from((0.5, 2.0, 6.0)))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self._interrupted(self.state.tick(at(self.now), CODES))
        assert not self.state.deferred

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        """Some leases are lost, some jobs have cancel requests, some answers are late."""
        late = {job_id: self.earlier[job_id] for job_id in self.state.held if job_id in self.earlier}
        held = dict(data.draw(st.sampled_from([self.state.leases_to_extend(self.now), late])))
        for job_id in list(held):
            if self.rows.get(job_id) == held[job_id] and data.draw(st.booleans()):
                del self.rows[job_id]
        lost = frozenset(job_id for job_id in held if self.rows.get(job_id) != held[job_id])
        cancels = {job_id: "{}" for job_id in held if job_id not in lost and data.draw(st.booleans())}
        kept = {
            job_id: held_job.claimed.token
            for job_id, held_job in self.state.held.items()
            if self.rows.get(job_id) == held_job.claimed.token and (held_job.started or job_id not in cancels)
        }
        self._interrupted(self.state.heartbeat_answered(HeartbeatAnswer(lost, cancels, held), self.now))
        assert kept.items() <= {k: h.claimed.token for k, h in self.state.held.items()}.items()

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """Another worker expired a lease; this worker does not know it yet."""
        del self.rows[data.draw(st.sampled_from(sorted(self.rows)))]

    @precondition(lambda self: self.number > 12)
    @rule()
    def stop(self) -> None:
        self.state.stop()
        self.queue.clear()

    @precondition(lambda self: self.state.stopping)
    @rule()
    def hand_back_running(self) -> None:
        self._interrupted(self.state.hand_back_running())
        assert not self.state.held

    def _interrupted(self, interrupts: list[Interrupt]) -> None:
        stopped = {interrupt.id for interrupt in interrupts if interrupt.kind is StopKind.END}
        assert not stopped & self.state.held.keys()
        self.queue = [entry for entry in self.queue if entry[0] not in stopped]

    @invariant()
    def slots_add_up(self) -> None:
        state: Any = getattr(self, "state", None)
        if state is None:
            return
        assert state.abandoned >= 0 and state.free >= 0
        running = {(k, h.claimed.token) for k, h in state.held.items() if h.started}
        assert running <= set(self.tasks)
        assert state.abandoned == len(self.tasks) - len(running), (
            "an abandoned slot is a task whose job the worker lost"
        )
        assert len(self.tasks) + len(self.queue) <= state.slots

    @invariant()
    def every_lease_is_settled_once(self) -> None:
        state: Any = getattr(self, "state", None)
        if state is None:
            return
        assert len(set(self.settled)) == len(self.settled), "settled twice"
        held = {(k, h.claimed.token) for k, h in state.held.items()}
        unsettled = [(settlement.id, settlement.token) for settlement in state.unsettled()]
        assert len(set(unsettled)) == len(unsettled), "two settlements of one job"
        assert not held & set(unsettled)
        assert set(self.rows.items()) <= held | set(unsettled), "a lease without a held job or a settlement"

    def teardown(self) -> None:
        """After any sequence, a stop ends with every job settled or handed back."""
        if not hasattr(self, "state"):
            return
        state = self.state
        state.stop()
        self._interrupted(state.hand_back_running())
        for _ in range(20):
            self.batch = self.batch or state.next_batch()
            if self.batch is None:
                state.tick(at(self.now), CODES)
                if state.done:
                    break
                continue
            result = BatchResult()
            for settlement in self._take_batch().settled:
                self._settle(settlement, "yes", result)
            state.batch_done(result)
        assert state.done
        assert not self.rows


TestWorkerState = WorkerStateMachine.TestCase
TestWorkerState.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
