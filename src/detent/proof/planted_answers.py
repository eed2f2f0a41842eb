"""Planted bugs in what handlers and operators get back, and in what may be deleted; see `planted_bugs`."""

from collections.abc import Sequence
from dataclasses import replace

from detent.core.approval import APPROVE, REJECT, Approval, Vote
from detent.core.contract.model import Move, Phase
from detent.core.job import Change, Job, Signal
from detent.core.outcome import Failed, Outcome
from detent.core.times import SECOND
from detent.ports.children import ChildState
from detent.ports.pruning import Prunable, PruneRule
from detent.stores.sqlite.claim import SqliteTx
from detent.worker.state import WorkerState

from .bug import PlantedBugs

BUGS = planted = PlantedBugs()


@planted("retry-delay-dropped", "the delay that a handler chooses for its retry is ignored")
class DropsRetryDelays(WorkerState):
    def handler_ended(self, job_id: str, token: str, outcome: Outcome) -> bool:
        if isinstance(outcome, Failed):
            outcome = Failed(replace(outcome.failure, after=None))
        return super().handler_ended(job_id, token, outcome)


@planted("signal-not-written", "a signal that comes before its wait is acknowledged and not written")
class LosesEarlySignals(SqliteTx):
    async def add_signal(self, signal: Signal) -> None:
        job = (await self.lock([signal.job_id])).get(signal.job_id)
        if signal.timed_out or (job is not None and job.phase is Phase.BLOCKED):
            await super().add_signal(signal)


@planted("signal-data-lost", "a handler does not receive the data of its signal")
class LosesSignalData(SqliteTx):
    async def signal(self, job_id: str, name: str) -> Signal | None:
        signal = await super().signal(job_id, name)
        return signal and replace(signal, data="null")


@planted("child-results-swapped", "a parent receives the results of its children in another order")
class SwapsChildResults(SqliteTx):
    async def child_states(self, ids: Sequence[str]) -> list[ChildState]:
        states = await super().child_states(ids)
        results = [state.result for state in states]
        if None in results:
            return states
        return [state._replace(result=results[n - 1]) for n, state in enumerate(states)]


@planted("decision-inverted", "a handler is told the opposite of what people decided")
class InvertsDecisions(SqliteTx):
    async def approval(self, job_id: str, name: str) -> Approval | None:
        approval = await super().approval(job_id, name)
        inverted = {APPROVE: REJECT, REJECT: APPROVE}
        return approval and replace(approval, decision=inverted.get(approval.decision or "", approval.decision))


@planted("vote-not-written", "a vote that does not decide is acknowledged and not written")
class LosesVotes(SqliteTx):
    async def put_vote(self, job_id: str, name: str, vote: Vote) -> None:
        approval = await self.approval(job_id, name)
        if approval is not None and approval.request.quorum == 1:
            await super().put_vote(job_id, name, vote)


@planted("cancel-not-written", "a cancel of a waiting job is acknowledged and not written")
class LosesCancels(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        await super().apply([change for change in changes if not _cancels_waiting(change)])


def _cancels_waiting(change: Change) -> bool:
    return change.before is not None and change.before.phase is Phase.BLOCKED and change.ended is Move.CANCEL


@planted("wait-cut-short", "a wait times out up to two seconds early")
class WakesEarly(SqliteTx):
    async def due_blocked(self, limit: int, contracts: Sequence[str]) -> list[Job]:
        now, self.now = self.now, self.now + 2 * SECOND
        try:
            return await super().due_blocked(limit, contracts)
        finally:
            self.now = now


@planted("open-dead-letter-pruned", "a job is deleted with its open dead letter")
class PrunesOpenDeadLetters(SqliteTx):
    async def prunable(self, after: str, until: str | None, limit: int, rules: Sequence[PruneRule]) -> list[Prunable]:
        visited = await super().prunable(after, until, limit, rules)
        before = max((rule.before for rule in rules if rule.before is not None), default=0)
        opened = {job_id for (job_id,) in self.connection.execute(_ENDED_WITH_OPEN_DEAD_LETTER, (before,))}
        return [job._replace(may_prune=job.may_prune or job.id in opened) for job in visited]


_ENDED_WITH_OPEN_DEAD_LETTER = (
    "SELECT j.id FROM detent_job_list j JOIN detent_dead_letters l ON l.job_id = j.id AND l.status = 'open'"
    " WHERE j.phase = 'final' AND j.finished_at <= ?"
)
