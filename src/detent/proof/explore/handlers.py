"""What handlers do between start and end, through the real engine: a step, a `once`, a child, an approval."""

from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from detent.core.contract.model import Contract, Move
from detent.core.errors import DetentError
from detent.core.job import Step
from detent.engine import Submission
from detent.engine.execution import children, steps

from .engine_calls import CallEffect, EngineCalls
from .snapshot import JOBS, NOW, DatabaseState
from .worker_memory import JOB_TYPE, QUESTION, HeldJob, LeaseRef, WorkerMemory, claimed_job
from .worker_steps import CHILD_ENQUEUED, UNDECIDED

STEP_NAME = "only"


class Scenario(StrEnum):
    """Which handlers the jobs have."""

    JOBS = "jobs"
    """Two jobs whose handlers only end: with a result, a failure or a wait."""
    ONCE = "once"
    """One job whose handler runs a `once`: it looks it up, records its start, runs it, records its result."""
    STEP = "step"
    """One job whose handler runs a plain step: it looks it up, runs it, records its result."""
    CHILD = "child"
    """A job that enqueues the other one as its child, and may wait for it."""
    APPROVAL = "approval"
    """One job whose handler asks for an approval of two people; unless that is decided it may wait for it."""

    @property
    def words(self) -> str:
        return _WORDS[self]

    @property
    def jobs(self) -> int:
        return 2 if self in (Scenario.JOBS, Scenario.CHILD) else 1

    def fits(self, contract: Contract) -> bool:
        """Not every contract has the statuses in which a job waits for children, or for an approval."""
        needed = {Scenario.CHILD: Move.WAIT, Scenario.APPROVAL: Move.HOLD}.get(self)
        return needed is None or contract.has(needed)


_WORDS = {
    Scenario.JOBS: "two jobs",
    Scenario.ONCE: "a job with a once",
    Scenario.STEP: "a job with a step",
    Scenario.CHILD: "a job with a child",
    Scenario.APPROVAL: "a job with an approval by two people",
}


class Stage:
    """How far a handler has got; kept in its worker's memory."""

    BEGUN = 0
    NOT_RECORDED = 1
    STARTED = 2
    EXECUTED = 3
    DONE = 4
    CHILD_ENQUEUED = CHILD_ENQUEUED
    UNDECIDED = UNDECIDED


class HandlerStep(NamedTuple):
    words: str
    effect: CallEffect
    after: WorkerMemory


class Handlers:
    """The next steps of all handlers that a worker runs, also of those that have lost their job."""

    def __init__(self, calls: EngineCalls, scenario: Scenario) -> None:
        self._calls = calls
        self._scenario = scenario

    def steps(self, state: DatabaseState, memory: WorkerMemory) -> Iterator[HandlerStep]:
        handlers: list[HeldJob | LeaseRef] = [*memory.held, *memory.abandoned]
        for handler in handlers:
            if self._scenario in (Scenario.ONCE, Scenario.STEP):
                yield from self._step_steps(state, memory, handler)
            elif isinstance(handler, HeldJob) and handler.job == 0 and handler.stage == Stage.BEGUN:
                if self._scenario is Scenario.CHILD:
                    yield from self._enqueue_child(state, memory, handler)
                elif self._scenario is Scenario.APPROVAL:
                    yield self._look_up_decision(state, memory, handler)

    def _step_steps(
        self, state: DatabaseState, memory: WorkerMemory, handler: HeldJob | LeaseRef
    ) -> Iterator[HandlerStep]:
        job_id, is_once = JOBS[handler.job], self._scenario is Scenario.ONCE
        if state.jobs[handler.job] is None or (isinstance(handler, LeaseRef) and handler.stage < Stage.STARTED):
            return  # a handler that knows that its job is lost begins nothing
        if handler.stage == Stage.BEGUN:
            yield self._look_up_step(state, memory, handler)
        elif handler.stage == Stage.NOT_RECORDED and is_once:
            yield from self._record(state, memory, handler, finished=False)
        elif handler.stage == Stage.NOT_RECORDED:
            effect = CallEffect(state.snapshot)
            yield HandlerStep(f"runs the step of {job_id}", effect, memory.at_stage(handler, Stage.EXECUTED))
        elif handler.stage == Stage.STARTED:
            snapshot = state.snapshot.with_effect(handler.job)
            times = snapshot.effects[handler.job]
            broken = (job_id, "once.twice", f"a once was executed {times} times") if times > 1 else None
            effect = CallEffect(snapshot, violation=broken)
            yield HandlerStep(f"runs the once of {job_id}", effect, memory.at_stage(handler, Stage.EXECUTED))
        elif handler.stage == Stage.EXECUTED:
            yield from self._record(state, memory, handler, finished=True)

    def _look_up_step(self, state: DatabaseState, memory: WorkerMemory, handler: HeldJob | LeaseRef) -> HandlerStep:
        """A former holder may miss what was recorded since; the holder of the job must not."""
        job, number = state.jobs[handler.job], self._execution_number(state, handler)
        claimed = claimed_job(handler.job, handler.token, self._calls.contract)._replace(execution_no=number or 1)
        look_up = partial(steps.recorded_steps, self._calls.engine, claimed)
        effect = self._calls.run(state, ("look up", handler.job, handler.token), look_up)
        if job and job.steps and number and not effect.result:
            broken = JOBS[handler.job], "step.repeated", "an execution runs a step that is recorded"
            effect = effect._replace(violation=broken)
        after = Stage.DONE if effect.result else Stage.NOT_RECORDED
        words = f"looks up the {self._scenario} of {JOBS[handler.job]}"
        return HandlerStep(words, effect, memory.at_stage(handler, after))

    def _look_up_decision(self, state: DatabaseState, memory: WorkerMemory, held: HeldJob) -> HandlerStep:
        job_id, store = JOBS[held.job], self._calls.engine.store
        look_up = partial(store.read, lambda tx: tx.approvals.approval(job_id, QUESTION))
        effect = self._calls.run(state, ("decision", held.job), look_up)
        decision = effect.result and effect.result.decision
        words = f"finds {'no decision' if decision is None else f'the decision to {decision}'} on {job_id}"
        after = memory.at_stage(held, Stage.UNDECIDED if decision is None else Stage.DONE)
        return HandlerStep(words, effect, after)

    def _execution_number(self, state: DatabaseState, handler: HeldJob | LeaseRef) -> int:
        return self._calls.database.execution_number(state.snapshot, handler.job, handler.token)

    def _record(
        self, state: DatabaseState, memory: WorkerMemory, handler: HeldJob | LeaseRef, *, finished: bool
    ) -> Iterator[HandlerStep]:
        """The record is made, made with a lost reply, or refused; after a lost reply the handler repeats it."""
        number = self._execution_number(state, handler)
        step = Step(JOBS[handler.job], STEP_NAME, "digest", str(number) if finished else None, finished, number, NOW)
        name = ("step", handler.job, handler.token, finished)
        effect = self._calls.run(state, name, partial(steps.record_step, self._calls.engine, step, handler.token))
        refused = isinstance(effect.result, DetentError)
        after = Stage.DONE if refused or finished else Stage.STARTED
        words = f"records the {'result' if finished else 'start'} of the {self._scenario} of {JOBS[handler.job]}"
        yield HandlerStep(words + ", refused" * refused, effect, memory.at_stage(handler, after))
        if not refused:
            yield HandlerStep(f"{words}, the reply is lost", effect, memory)

    def _enqueue_child(self, state: DatabaseState, memory: WorkerMemory, held: HeldJob) -> Iterator[HandlerStep]:
        calls, contract = self._calls, self._calls.contract
        submission = Submission(JOB_TYPE, contract=contract.name, id=JOBS[1], parent_id=JOBS[0], trace_id="trace")
        request, parent = children.ChildRequest("child", submission), claimed_job(0, held.token, contract)
        enqueue = partial(children.enqueue, calls.engine, parent, [request])
        effect = calls.run(state, ("enqueue", held.token), enqueue)
        refused = isinstance(effect.result, DetentError)
        after = memory if refused else memory.at_stage(held, Stage.CHILD_ENQUEUED)
        if not refused or effect.violation:
            yield HandlerStep("enqueues job-2 as a child of job-1", effect, after)
