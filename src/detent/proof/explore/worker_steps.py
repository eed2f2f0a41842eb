"""The steps of one worker process, as functions of its memory. The real WorkerState decides each of them."""

from functools import lru_cache
from typing import NamedTuple

from detent.core.contract.model import Contract, Move
from detent.core.errors import DetentError
from detent.engine import BatchResult
from detent.handler.lease import Reading
from detent.worker.state import HeartbeatAnswer, WorkerState

from .snapshot import FRESH, JOBS
from .worker_memory import (
    NEW_WORKER,
    OUTCOMES,
    BatchCall,
    LeaseRef,
    WorkerMemory,
    capture_memory,
    job_outcomes,
    restore_state,
)

CHILD_ENQUEUED, UNDECIDED = 5, 6
"""The stages of a handler that has enqueued its child, and of one that has found no decision of its approval."""
_MAY_WAIT = {CHILD_ENQUEUED: ["wait for its child"], UNDECIDED: ["wait for its approval"]}
"""Stage of a handler -> further outcomes."""
MAX_UNSETTLED = 2
"""Results a worker may hold that no store call has taken. It bounds the search; a real worker has no such limit."""


class WorkerStep(NamedTuple):
    """A step inside a process and its memory afterwards. late: a lease whose late result is sent to the store.

    accepted: a job that the worker settles with the result of an execution that had lost it, which breaks a rule.
    """

    words: str
    after: WorkerMemory
    late: LeaseRef | None = None
    accepted: str | None = None


class WorkerSteps:
    """The steps of workers under one contract; each memory is computed once and cached."""

    def __init__(self, contract: Contract, state: type[WorkerState], slots: int, *, waits: bool = True) -> None:
        self._contract = contract
        self._state = state
        self._slots = slots
        waits = waits and contract.has(Move.WAIT)
        self._outcomes = ["success", "failure", "permanent failure", *(["wait"] if waits else [])]
        cached = lru_cache(maxsize=1 << 16)
        self.internal = cached(self._internal)
        self.next_call = cached(self._next_call)
        self.leases = cached(self._leases)
        self.on_heartbeat_reply = cached(self._on_heartbeat_reply)

    def _internal(self, memory: WorkerMemory) -> list[WorkerStep]:
        """Crash, end of a handler, late end of a lost handler, end of the cancel grace, stop."""
        steps = [] if memory == NEW_WORKER else [WorkerStep("dies and restarts", NEW_WORKER)]
        unsettled = len(memory.finished) + len(memory.call.settled if memory.call else ())
        for held in memory.held if unsettled < MAX_UNSETTLED else ():
            for outcome in [*self._outcomes, *_MAY_WAIT.get(held.stage, ())]:
                state = self._restore(memory)
                state.handler_ended(JOBS[held.job], held.token, OUTCOMES[outcome])
                after = capture_memory(state, memory, memory.call, (LeaseRef(held.job, held.token),))
                steps.append(WorkerStep(f"ends {JOBS[held.job]} with {outcome}", after))
        steps += self._late_ends(memory)
        if any(held.cancel_requested for held in memory.held):
            state = self._restore(memory)
            state.tick(Reading(1.0, 0), {self._contract.name: "TIMEOUT"})
            words = "ends its cancelled jobs, their grace is over"
            steps.append(WorkerStep(words, capture_memory(state, memory, memory.call)))
        if memory.held and not memory.stopping:
            state = self._restore(memory)
            state.stop()
            state.hand_back_running()
            steps.append(WorkerStep("stops and releases its jobs", capture_memory(state, memory, memory.call)))
        return steps

    def _late_ends(self, memory: WorkerMemory) -> list[WorkerStep]:
        """A handler ends after the worker lost its job; the worker may send the result, which the store must refuse."""
        steps = []
        for position, lease in enumerate(memory.abandoned):
            job_id = JOBS[lease.job]
            state = self._restore(memory)
            if state.handler_ended(job_id, lease.token, OUTCOMES["success"]):
                steps.append(WorkerStep(f"accepts the late result of {job_id}", memory, accepted=job_id))
                continue
            fewer = memory._replace(abandoned=memory.abandoned[:position] + memory.abandoned[position + 1 :])
            after = capture_memory(state, fewer, memory.call)
            steps.append(WorkerStep(f"sees the handler of {job_id} end after the job was lost", after))
            if state.reports_late(job_id, OUTCOMES["success"]):
                steps.append(WorkerStep(f"sends the late result of {job_id}", after, lease))
        return steps

    def _next_call(self, memory: WorkerMemory) -> tuple[BatchCall, WorkerMemory] | None:
        """The settle_and_claim in progress or the next one; None if the worker has no reason for one."""
        if memory.call is not None:
            return memory.call, memory
        state = self._restore(memory)
        batch = state.next_batch()
        if batch is None:
            return None
        call = BatchCall(job_outcomes(batch.settled), batch.claim_limit, not state.held, FRESH)
        return call, capture_memory(state, memory, call)

    def on_batch_result(self, memory: WorkerMemory, result: BatchResult | DetentError) -> WorkerMemory:
        """The worker receives the result of its settle_and_claim and starts the claimed jobs."""
        state = self._restore(memory)
        if isinstance(result, DetentError):
            state.batch_failed()
        else:
            for claimed in state.batch_done(result):
                state.handler_started(claimed.id, claimed.token, 0.0, None)
        return capture_memory(state, memory, None)

    def _leases(self, memory: WorkerMemory) -> dict[str, str]:
        return self._restore(memory).leases_to_extend(0.0)

    def _on_heartbeat_reply(self, memory: WorkerMemory) -> tuple[WorkerMemory, list[int]]:
        """The worker receives a heartbeat's reply; returns (memory after it, jobs the worker no longer holds)."""
        assert memory.heartbeat is not None
        state, reply = self._restore(memory), memory.heartbeat
        tokens = {JOBS[lease.job]: lease.token for lease in reply.leases}
        cancels = {JOBS[n]: "{}" for n in reply.cancelled}
        state.heartbeat_answered(HeartbeatAnswer(frozenset(JOBS[n] for n in reply.lost), cancels, tokens), 0.0)
        released = [held.job for held in memory.held if JOBS[held.job] not in state.held]
        return capture_memory(state, memory._replace(heartbeat=None), memory.call), released

    def _restore(self, memory: WorkerMemory) -> WorkerState:
        return restore_state(self._state, memory, self._contract, self._slots)
