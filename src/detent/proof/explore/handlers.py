"""What handlers do between their start and their end: steps of a `once`, or a child, through the real engine."""

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
from .worker_memory import JOB_TYPE, HeldJob, LeaseRef, WorkerMemory, claimed_job
from .worker_steps import CHILD_ENQUEUED

ONCE = "only"


class Scenario(StrEnum):
    """Which handlers the jobs have."""

    JOBS = "jobs"
    """Two jobs whose handlers only end: with a result, a failure or a wait."""
    ONCE = "once"
    """One job whose handler runs a `once`: it looks it up, records its start, runs it, records its result."""
    CHILD = "child"
    """A job that enqueues the other one as its child, and may wait for it."""

    def fits(self, contract: Contract) -> bool:
        """Jobs of a contract without waits cannot wait for children."""
        return self is not Scenario.CHILD or contract.has(Move.WAIT)


class Stage:
    """How far a handler has got; kept in its worker's memory."""

    BEGUN = 0
    NOT_RECORDED = 1
    STARTED = 2
    EXECUTED = 3
    DONE = 4
    CHILD_ENQUEUED = CHILD_ENQUEUED


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
        if self._scenario is Scenario.ONCE:
            handlers: list[HeldJob | LeaseRef] = [*memory.held, *memory.abandoned]
            for handler in handlers:
                yield from self._once_steps(state, memory, handler)
        elif self._scenario is Scenario.CHILD:
            for held in memory.held:
                if held.job == 0 and held.stage == Stage.BEGUN:
                    yield from self._enqueue_child(state, memory, held)

    def _once_steps(
        self, state: DatabaseState, memory: WorkerMemory, handler: HeldJob | LeaseRef
    ) -> Iterator[HandlerStep]:
        job, unchanged = state.jobs[handler.job], CallEffect(state.snapshot)
        job_id = JOBS[handler.job]
        if job is None or (isinstance(handler, LeaseRef) and handler.stage < Stage.STARTED):
            return  # a handler that knows that its job is lost begins nothing
        if handler.stage == Stage.BEGUN:
            after = Stage.DONE if job.steps else Stage.NOT_RECORDED
            yield HandlerStep(f"looks up the once of {job_id}", unchanged, memory.at_stage(handler, after))
        elif handler.stage == Stage.NOT_RECORDED:
            yield from self._record(state, memory, handler, finished=False)
        elif handler.stage == Stage.STARTED:
            snapshot = state.snapshot.with_effect(handler.job)
            times = snapshot.effects[handler.job]
            broken = (job_id, "once.twice", f"a once was executed {times} times") if times > 1 else None
            effect = CallEffect(snapshot, violation=broken)
            yield HandlerStep(f"runs the once of {job_id}", effect, memory.at_stage(handler, Stage.EXECUTED))
        elif handler.stage == Stage.EXECUTED:
            yield from self._record(state, memory, handler, finished=True)

    def _record(
        self, state: DatabaseState, memory: WorkerMemory, handler: HeldJob | LeaseRef, *, finished: bool
    ) -> Iterator[HandlerStep]:
        """The record is made, made with a lost reply, or refused; after a lost reply the handler repeats it."""
        number = self._calls.database.execution_number(state.snapshot, handler.job, handler.token)
        step = Step(JOBS[handler.job], ONCE, "digest", "1" if finished else None, finished, number, NOW)
        name = ("step", handler.job, handler.token, finished)
        effect = self._calls.run(state, name, partial(steps.record_step, self._calls.engine, step, handler.token))
        refused = isinstance(effect.result, DetentError)
        after = Stage.DONE if refused or finished else Stage.STARTED
        words = f"records the {'result' if finished else 'start'} of the once of {JOBS[handler.job]}"
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
