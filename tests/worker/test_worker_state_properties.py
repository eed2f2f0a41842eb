"""The machine under any sequence of events, beside a store of its own: slots add up, every end is said exactly once."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from detent.core.errors import NotSupported, StaleLease
from detent.core.outcome import Outcome, Snoozed, Stopped, Succeeded
from detent.engine import BatchResult, Settlement
from detent.worker.state import Batch, HeartbeatAnswer, Interrupt, WorkerState

from .claims import CODES, claimed


class Walk(RuleBasedStateMachine):
    """rows: {id: token} the store has leased to us. Handlers run in `tasks`, whether the job is still ours or not."""

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
        self.order: Batch | None = None

    @initialize(slots=st.integers(1, 4))
    def begin(self, slots: int) -> None:
        self.state = WorkerState(slots, cancel_grace=3.0)

    @rule()
    def ask(self) -> None:
        order = self.state.order()
        assert order is None or self.order is None, "a second order is out"
        self.order = self.order or order

    @rule(data=st.data(), answered=st.booleans())
    def settle_and_claim(self, data: st.DataObject, answered: bool) -> None:
        """Ask and hear in one go, so that a walk gets far."""
        self.state.wants_jobs = True
        self.ask()
        if self.order is not None and answered:
            self.answer(data)
        elif self.order is not None:
            self.no_answer(data.draw(st.booleans()))
        self.start_all(data)

    @precondition(lambda self: self.order is not None)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        order = self._take_order()
        answer = BatchResult()
        for said in order.settled:
            self._settle(said, data.draw(st.sampled_from(("yes", "later", "refused"))), answer)
        for _ in range(order.want - data.draw(st.integers(0, order.want))):
            answer.claimed.append(claimed(*self._lease(data)))
        fresh = self.state.batch_done(answer)
        gone = {order.id for order in self.state.superseded()}
        self.queue = [entry for entry in self.queue if entry[0] not in gone]
        self.queue += [(c.id, c.token) for c in fresh]

    def _settle(self, said: Settlement, how: str, answer: BatchResult) -> None:
        if self.rows.get(said.id) != said.token:
            answer.refused[said.id] = StaleLease("not yours")
        elif how == "later":
            answer.later.append(said)
        elif how == "refused" and isinstance(said.outcome, Snoozed):
            answer.refused[said.id] = NotSupported("no snooze here")
        else:
            del self.rows[said.id]
            self.settled.append((said.id, said.token))

    def _lease(self, data: st.DataObject) -> tuple[str, str]:
        """Mostly a new job; sometimes one that was here before, or that we do not know yet that we lost."""
        self.number += 1
        known = sorted(self.tokens.keys() - self.rows.keys())
        job_id = data.draw(st.sampled_from([*known[-2:], f"j{self.number}"]))
        if job_id in self.tokens:
            self.earlier[job_id] = self.tokens[job_id]
        self.rows[job_id] = self.tokens[job_id] = f"t{self.number}"
        return job_id, self.rows[job_id]

    @precondition(lambda self: self.order is not None)
    @rule(done=st.booleans())
    def no_answer(self, done: bool) -> None:
        """The reply was lost; perhaps the store had settled everything (it claims nothing here: see WorkerState.adopt)."""
        order = self._take_order()
        if done:
            for said in order.settled:
                if self.rows.get(said.id) == said.token:
                    del self.rows[said.id]
                    self.settled.append((said.id, said.token))
        self.state.batch_failed()

    def _take_order(self) -> Batch:
        order, self.order = self.order, None
        assert order is not None
        return order

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def start_all(self, data: st.DataObject) -> None:
        for job_id, token in self.queue:
            if self.state.started(job_id, self.now, data.draw(st.sampled_from((None, 1.0, 5.0)))):
                self.tasks.append((job_id, token))
        self.queue.clear()

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), outcome=st.sampled_from((Succeeded("1"), Snoozed(1), Stopped())))
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        job_id, token = self.tasks.pop(data.draw(st.integers(0, len(self.tasks) - 1)))
        before = self.state.held.get(job_id)
        ours = before is not None and before.claimed.token == token
        assert self.state.ended(job_id, token, outcome) is ours

    @rule(seconds=st.sampled_from((0.5, 2.0, 6.0)))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self._interrupted(self.state.ticked(self.now, CODES))
        assert not self.state.deferred

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        """Some leases were lost, some jobs asked to stop, some answers come late."""
        late = {job_id: self.earlier[job_id] for job_id in self.state.held if job_id in self.earlier}
        held = dict(data.draw(st.sampled_from([self.state.leases(self.now, 30.0), late])))
        for job_id in list(held):
            if self.rows.get(job_id) == held[job_id] and data.draw(st.booleans()):
                del self.rows[job_id]
        lost = frozenset(job_id for job_id in held if self.rows.get(job_id) != held[job_id])
        asked = {job_id: "{}" for job_id in held if job_id not in lost and data.draw(st.booleans())}
        kept = {k: h.claimed.token for k, h in self.state.held.items() if self.rows.get(k) == h.claimed.token}
        self._interrupted(self.state.extended(HeartbeatAnswer(lost, asked, held), self.now))
        assert kept.items() <= {k: h.claimed.token for k, h in self.state.held.items()}.items()

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """Somebody found a lease expired; we have yet to hear of it."""
        del self.rows[data.draw(st.sampled_from(sorted(self.rows)))]

    @precondition(lambda self: self.number > 12)
    @rule()
    def stop(self) -> None:
        self.state.stop()
        self.queue.clear()

    @precondition(lambda self: self.state.stopping)
    @rule()
    def give_up(self) -> None:
        self._interrupted(self.state.give_up())
        assert not self.state.held

    def _interrupted(self, orders: list[Interrupt]) -> None:
        gone = {order.id for order in orders if not order.gentle}
        assert not gone & self.state.held.keys()
        self.queue = [entry for entry in self.queue if entry[0] not in gone]

    @invariant()
    def slots_add_up(self) -> None:
        state: Any = getattr(self, "machine", None)
        if state is None:
            return
        assert state.abandoned >= 0 and state.free >= 0
        running = {(k, h.claimed.token) for k, h in state.held.items() if h.started}
        assert running <= set(self.tasks)
        assert state.abandoned == len(self.tasks) - len(running), "a ghost is a task whose job was taken away"
        assert len(self.tasks) + len(self.queue) <= state.slots

    @invariant()
    def nothing_is_forgotten_or_said_twice(self) -> None:
        state: Any = getattr(self, "machine", None)
        if state is None:
            return
        assert len(set(self.settled)) == len(self.settled), "settled twice"
        known = {(k, h.claimed.token) for k, h in state.held.items()}
        unsettled = [(said.id, said.token) for said in state.unsettled()]
        assert len(set(unsettled)) == len(unsettled), "one end, said twice"
        assert not known & set(unsettled)
        assert set(self.rows.items()) <= known | set(unsettled), "a lease nobody answers for"

    def teardown(self) -> None:
        """Whatever happened, a stop brings it to an end: everything ended or handed back."""
        if not hasattr(self, "machine"):
            return
        state = self.state
        state.stop()
        self._interrupted(state.give_up())
        for _ in range(20):
            self.order = self.order or state.order()
            if self.order is None:
                state.ticked(self.now, CODES)
                if state.done:
                    break
                continue
            answer = BatchResult()
            for said in self._take_order().settled:
                self._settle(said, "yes", answer)
            state.batch_done(answer)
        assert state.done
        assert not self.rows


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
