"""What happens inside one worker process, as functions of its memory alone; the real machine decides every step."""

from functools import lru_cache
from typing import NamedTuple

from detent.core.contract.model import Contract, Move
from detent.core.errors import DetentError
from detent.engine import BatchResult
from detent.worker.state import HeartbeatAnswer, WorkerState

from .frame import FRESH, JOBS
from .memory import NEWBORN, OUTCOMES, Call, Ghost, Memory, freeze, said, thaw

UNDELIVERED = 2
"""Results a worker may have on its hands that no store call has taken; a bound of the search, not of the machine."""


class Step(NamedTuple):
    """Something a process does by itself, and its memory after. late: a result it then offers to the store."""

    words: str
    after: Memory
    late: Ghost | None = None


class Steps:
    """The steps of one contract's workers; a memory is thought through once."""

    def __init__(self, contract: Contract, state: type[WorkerState], slots: int) -> None:
        self._contract = contract
        self._machine = state
        self._slots = slots
        waits = any(edge.move is Move.WAIT for edge in contract.edges)
        self._outcomes = ["success", "failure", "permanent failure", *(["wait"] if waits else [])]
        keep = lru_cache(maxsize=1 << 16)
        self.inside = keep(self._inside)
        self.order = keep(self._order)
        self.leases = keep(self._leases)
        self.heard = keep(self._heard)

    def _inside(self, memory: Memory) -> list[Step]:
        found = [] if memory == NEWBORN else [Step("dies and starts anew", NEWBORN)]
        undelivered = len(memory.finished) + len(memory.call.settled if memory.call else ())
        for hold in memory.held if undelivered < UNDELIVERED else ():
            for outcome in self._outcomes:
                state = self._thaw(memory)
                state.ended(JOBS[hold.job], hold.token, OUTCOMES[outcome])
                after = freeze(state, memory, memory.call, (Ghost(hold.job, hold.token),))
                found.append(Step(f"ends {JOBS[hold.job]} with {outcome}", after))
        found += self._late(memory)
        if any(hold.asked for hold in memory.held):
            state = self._thaw(memory)
            state.ticked(1.0, {self._contract.name: "TIMEOUT"})
            words = "ends what was asked to stop, the grace is over"
            found.append(Step(words, freeze(state, memory, memory.call)))
        if memory.held and not memory.stopping:
            state = self._thaw(memory)
            state.stop()
            state.give_up()
            found.append(Step("stops in good order", freeze(state, memory, memory.call)))
        return found

    def _late(self, memory: Memory) -> list[Step]:
        """A handler ends whose job was taken from it: the result is offered to the store, which must not take it."""
        found = []
        for position, abandoned_job in enumerate(memory.abandoned):
            job_id = JOBS[abandoned_job.job]
            state = self._thaw(memory)
            state.ended(job_id, "", OUTCOMES["success"])
            fewer = memory._replace(abandoned=memory.abandoned[:position] + memory.abandoned[position + 1 :])
            after = freeze(state, fewer, memory.call)
            found.append(Step(f"sees the handler of {job_id} end, its job was lost", after))
            if not any(one.id == job_id for one in state.unsettled()):
                found.append(Step(f"offers the late result of {job_id}", after, abandoned_job))
        return found

    def _order(self, memory: Memory) -> tuple[Call, Memory] | None:
        """The cycle under way, or the next one; None if there is no reason for one."""
        if memory.call is not None:
            return memory.call, memory
        state = self._thaw(memory)
        order = state.order()
        if order is None:
            return None
        call = Call(said(order.settled), order.want, not state.held, FRESH)
        return call, freeze(state, memory, call)

    def ended(self, memory: Memory, answer: BatchResult | DetentError) -> Memory:
        """The cycle's reply reaches the machine; what was claimed is started at once."""
        state = self._thaw(memory)
        if isinstance(answer, DetentError):
            state.batch_failed()
        else:
            for claimed in state.batch_done(answer):
                state.started(claimed.id, 0.0, None)
        return freeze(state, memory, None)

    def _leases(self, memory: Memory) -> dict[str, str]:
        return self._thaw(memory).leases(0.0, 1.0)

    def _heard(self, memory: Memory) -> tuple[Memory, list[int]]:
        """A heartbeat's answer reaches the machine; (the memory after, jobs that were let go)."""
        assert memory.beat is not None
        state, beat = self._thaw(memory), memory.beat
        about = {JOBS[lease.job]: lease.token for lease in beat.about}
        cancels = {JOBS[n]: "{}" for n in beat.asked}
        state.extended(HeartbeatAnswer(frozenset(JOBS[n] for n in beat.lost), cancels, about), 0.0)
        let_go = [hold.job for hold in memory.held if JOBS[hold.job] not in state.held]
        return freeze(state, memory._replace(beat=None), memory.call), let_go

    def _thaw(self, memory: Memory) -> WorkerState:
        return thaw(self._machine, memory, self._contract, self._slots)
