"""Every transition out of a state: each step each actor can take, with each store call done, lost or not done."""

from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, NamedTuple

from detent.core.access import Scope
from detent.core.contract.model import Move, Phase
from detent.core.errors import DetentError
from detent.engine import BatchResult
from detent.ports.claims import Extended
from detent.proof.controlled_store import BrokenRule, Hooks

from .engine_calls import CallEffect, EngineCalls, heartbeat_reply
from .handlers import Handlers, Scenario
from .snapshot import JOBS, NOW, SPAN_SECONDS, DatabaseState, JobState, StateSnapshot
from .worker_memory import LOST, NEW_WORKER, OUTCOMES, SIGNAL, BatchCall, LeaseRef, WorkerMemory
from .worker_steps import WorkerSteps

Workers = tuple[WorkerMemory, ...]


class Transition(NamedTuple):
    """A step and the state after it, tokens not renamed yet. label: (worker or None, words...)."""

    label: tuple[Any, ...]
    snapshot: StateSnapshot
    workers: Workers
    violation: BrokenRule | None = None


class Transitions:
    """Computes the successors of a state. A step is one store call, one reply received, or one action of a process."""

    def __init__(self, calls: EngineCalls, hooks: Hooks, slots: int, jobs: int, scenario: Scenario) -> None:
        self.calls = calls
        self.contract = calls.contract
        self._jobs = jobs
        self._submitted = range(1 if scenario is Scenario.CHILD else jobs)
        self.handlers = Handlers(calls, scenario)
        self.steps = WorkerSteps(self.contract, hooks.state, slots, waits=scenario is Scenario.JOBS)
        cancels = self.contract.has(Move.CANCEL)
        self._supported = {"signal": self.contract.has(Move.WAIT), "cancel": cancels, "late cancel": cancels}
        self._succeeded = self.contract.success_statuses
        self._elapsed: dict[int, StateSnapshot] = {}

    def successors(self, state: DatabaseState, workers: Workers) -> Iterator[Transition]:
        """All transitions out of (state, workers), reduced by two rules that lose no reachable database state.

        If some worker can only take steps inside its process, only its steps are tried: they commute with all others.
        Of several workers that have just started, only the first takes steps.
        """
        only = self._worker_with_private_steps(workers)
        if only is None:
            for label, effect in self._stateless_steps(state):
                yield Transition((None, *label), effect.snapshot, workers, effect.violation)
        for i, memory in enumerate(workers):
            if only not in (None, i) or (memory == NEW_WORKER and i and NEW_WORKER in workers[:i]):
                continue
            for words, effect, after in self._worker_steps(state, memory):
                all_workers = (*workers[:i], after, *workers[i + 1 :])
                yield Transition((i, words), effect.snapshot, all_workers, effect.violation)

    def _worker_with_private_steps(self, workers: Workers) -> int | None:
        """A worker whose next step is to take a finished call's result and which runs no handler."""
        for i, memory in enumerate(workers):
            if memory.call and not memory.held and self.calls.is_finished(memory.call):
                return i
        return None

    def _stateless_steps(self, state: DatabaseState) -> Iterator[tuple[tuple[Any, ...], CallEffect]]:
        """Steps of the clock, the sweeper, the producer and the operator; none of them has memory between steps."""
        if state.next_deadline is not None:
            yield (f"{state.next_deadline / 1e6:g} s pass",), CallEffect(self._after_deadline(state))
        if any(job and job.phase == Phase.LEASED for job in state.jobs):
            yield ("the sweeper expires leases",), self.calls.run(state, ("expire",), self.calls.engine.expire)
        if any(job and job.phase == Phase.BLOCKED and job.due is not None and job.due <= 0 for job in state.jobs):
            yield (
                ("the sweeper wakes waiting jobs that are due",),
                self.calls.run(state, ("wake",), self.calls.engine.wake),
            )
        if any(job and job.relations for job in state.jobs):
            process = self.calls.engine.process_child_events
            yield ("the sweeper processes ended children",), self.calls.run(state, ("children",), process)
        for number, job in enumerate(state.jobs[: self._jobs]):
            if number in self._submitted:
                again = "" if job is None else " again, the first reply was lost"
                submit = partial(self.calls.engine.jobs.submit, self.calls.submission(number))
                yield (f"{JOBS[number]} is submitted{again}",), self.calls.run(state, ("submit", number), submit)
            if job is not None:
                for words, effect in self._operator_steps(state, number, job):
                    yield ("the operator", words, JOBS[number]), effect

    def _operator_steps(self, state: DatabaseState, number: int, job: JobState) -> Iterator[tuple[str, CallEffect]]:
        job_id, scope = JOBS[number], Scope("operator")
        final = job.phase == Phase.FINAL
        jobs, approvals = self.calls.engine.jobs, self.calls.engine.approvals
        cancellable = job.status in self.contract.cancel_requests and self.contract.edge(job.status, Move.CANCEL)
        undecided = job.status in self.contract.approval_statuses
        votes = undecided and job.wait_name is not None
        colleague = Scope("colleague")
        acts: list[tuple[str, str, object, Callable[[], Coroutine[Any, Any, Any]]]] = [
            ("cancel", "cancels", not ((final and job.begun) or job.cancel), lambda: jobs.cancel(job_id, scope)),
            ("late cancel", "cancels the finished job", final and job.result, lambda: jobs.cancel(job_id, scope)),
            ("force", "cancels with force", cancellable and job.cancel, lambda: jobs.cancel(job_id, scope, force=True)),
            ("signal", "signals", not (final or job.signals), lambda: jobs.signal(job_id, SIGNAL, scope, 1)),
            ("abort", "aborts", self._has_edge(job, Phase.CLAIMABLE, Move.FAIL), lambda: jobs.abort(job_id, scope)),
            ("reopen", "reopens", self._has_edge(job, Phase.FINAL, Move.REOPEN), lambda: jobs.reopen(job_id, scope)),
            ("approve", "approves", undecided, lambda: approvals.approve(job_id, scope)),
            ("second approval", "lets a colleague approve", votes, lambda: approvals.approve(job_id, colleague)),
            ("reject", "rejects", undecided, lambda: approvals.reject(job_id, Scope(scope.actor, "no"))),
        ]
        for kind, words, possible, call in acts:
            if possible and self._supported.get(kind, True):
                yield words, self.calls.run(state, (kind, number), call)

    def _has_edge(self, job: JobState, phase: Phase, move: Move) -> bool:
        return job.phase == phase and self.contract.edge(job.status, move) is not None

    def _worker_steps(
        self, state: DatabaseState, memory: WorkerMemory
    ) -> Iterator[tuple[str, CallEffect, WorkerMemory]]:
        unchanged = CallEffect(state.snapshot)
        for words, after, late, accepted in self.steps.internal(memory):
            if accepted:
                yield words, unchanged._replace(violation=(accepted, "late.accepted", _ACCEPTED)), after
            else:
                yield words, self._settle_late(state, late) if late else unchanged, after
        yield from self.handlers.steps(state, memory)
        yield from self._batch_steps(state, memory)
        leases = self.steps.leases(memory)
        if leases and memory.heartbeat is None:
            extend = partial(self.calls.engine.extend, leases, SPAN_SECONDS)
            effect = self.calls.run(state, ("extend", tuple(leases.items())), extend)
            if isinstance(effect.result, Extended):
                reply = heartbeat_reply(leases, effect.result)
                yield "sends a heartbeat", effect, memory._replace(heartbeat=reply)
        if memory.heartbeat is not None:
            after, released = self.steps.on_heartbeat_reply(memory)
            for held in memory.held:
                job = state.jobs[held.job]
                if held.job in released and job and job.phase == Phase.LEASED and job.token == held.token:
                    unchanged = unchanged._replace(violation=(JOBS[held.job], "lease.dropped", _DROPPED))
            yield "receives its heartbeat's reply", unchanged, after

    def _settle_late(self, state: DatabaseState, late: LeaseRef) -> CallEffect:
        job_id, token = JOBS[late.job], late.token
        return self.calls.run(
            state, ("late", late.job, token), lambda: self.calls.engine.settle(job_id, token, _SUCCESS)
        )

    def _batch_steps(
        self, state: DatabaseState, memory: WorkerMemory
    ) -> Iterator[tuple[str, CallEffect, WorkerMemory]]:
        """The next store call of the worker's settle_and_claim: committed, committed with a lost reply, not done."""
        next_call = self.steps.next_call(memory)
        if next_call is None:
            return
        call, memory = next_call
        effect = self.calls.batch_step(state, call)
        if not isinstance(effect, CallEffect):
            failed = isinstance(effect, DetentError)
            violation = None if isinstance(effect, DetentError) else self._lost_success(state, call, effect)
            yield (
                f"receives the {'error' if failed else 'result'} of its settle_and_claim",
                CallEffect(state.snapshot, violation=violation),
                self.steps.on_batch_result(memory, effect),
            )
            return
        words = _describe(call)
        if not isinstance(effect.result, DetentError):
            yield words, effect, memory._replace(call=call.with_reply(effect.result))
        lost = memory._replace(call=call._replace(replies=(*call.replies, LOST)))
        yield f"{words}, the reply is lost", effect, lost
        if call.replies:
            yield f"{words}, the store fails before the commit", CallEffect(state.snapshot), lost

    def _lost_success(self, state: DatabaseState, call: BatchCall, result: BatchResult) -> BrokenRule | None:
        """A success that was acknowledged to the worker must be in the database."""
        for settled in call.settled:
            job = state.jobs[settled.job]
            undecided = any(settlement.id == JOBS[settled.job] for settlement in result.later)
            accepted = settled.outcome == "success" and JOBS[settled.job] not in result.refused and not undecided
            if accepted and (job is None or job.status not in self._succeeded):
                return JOBS[settled.job], "settle.lost", "an acknowledged success is not in the database"
        return None

    def _after_deadline(self, state: DatabaseState) -> StateSnapshot:
        snapshot = self._elapsed.get(state.number)
        if snapshot is None:
            assert state.next_deadline is not None
            snapshot = self.calls.database.normalize(state.snapshot, NOW + state.next_deadline)
            self._elapsed[state.number] = snapshot
        return snapshot


_SUCCESS = OUTCOMES["success"]
_ACCEPTED = "the result of an execution that had lost its job is settled for the execution that holds it"
_DROPPED = "the reply of an old heartbeat stops a handler whose lease is valid"


def _describe(call: BatchCall) -> str:
    if call.replies:
        return "continues its settle_and_claim"
    settles = [f"settles {JOBS[s.job]} ({s.outcome})" for s in call.settled]
    return " and ".join([*settles, *(["claims"] if call.want else [])])
