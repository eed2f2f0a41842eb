"""Planted bugs in what is promised to handlers, operators and callers, beyond a sound log; see `planted_bugs`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from detent.core.approval import APPROVE, REJECT, Approval, Vote
from detent.core.contract.model import Move, Phase
from detent.core.job import Change, Job, Micros, Signal
from detent.core.outcome import Failed, Outcome
from detent.core.schedule import Schedule
from detent.core.times import SECOND
from detent.handler.lease import Reading
from detent.ports.access import Audit
from detent.ports.children import ChildState
from detent.ports.claims import Extended
from detent.ports.pruning import Prunable, PruneRule
from detent.stores.sqlite.claim import SqliteTx
from detent.worker.state import Batch, Interrupt, WorkerState

from .bug import AltersChanges, PlantedBugs, with_columns, with_due

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


@planted("snooze-ignored", "a job that its handler snoozes is due at once")
class IgnoresSnoozes(AltersChanges):
    def alter(self, change: Change) -> Change:
        snoozed = any((event.data or {}).get("reason") == "snoozed" for event in change.events)
        return with_due(change, change.after.updated_at) if snoozed else change


@planted("sleep-cut-short", "a sleep lasts half as long as the handler says")
class HalvesSleeps(AltersChanges):
    def alter(self, change: Change) -> Change:
        after = change.after
        sleeps = after.phase is Phase.BLOCKED and after.wait_kind == "timer" and after.due_at is not None
        return with_due(change, (after.updated_at + (after.due_at or 0)) // 2) if sleeps else change


@planted("expiry-approves", "an approval whose deadline has passed is approved, whatever its default is")
class ApprovesExpired(SqliteTx):
    async def decide_approval(self, job_id: str, name: str, decision: str, at: Micros, *, expired: bool) -> None:
        await super().decide_approval(job_id, name, APPROVE if expired else decision, at, expired=expired)


@planted("edit-not-written", "an edit of a schedule is acknowledged and not written")
class LosesEdits(SqliteTx):
    async def change_schedule(self, before: Schedule, after: Schedule) -> bool:
        return before.expression != after.expression or await super().change_schedule(before, after)


@planted("repeated-submit-refused", "a submit with a key is refused when it is repeated")
class ForgetsOwners(SqliteTx):
    async def key_owners(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        return {}


@planted("repeated-result-refused", "a result is refused when it is repeated")
class ForgetsTokens(SqliteTx):
    async def lock(self, ids: Sequence[str], *, wait: bool = True) -> dict[str, Job]:
        rows = await super().lock(ids, wait=wait)
        return {job_id: job if job.worker else replace(job, token=None) for job_id, job in rows.items()}

    async def apply(self, changes: Sequence[Change]) -> None:
        """Writes the token that `lock` has hidden."""
        stored = await super().lock([change.after.id for change in changes])
        kept = {job_id: job.token for job_id, job in stored.items()}
        await super().apply([with_columns(c, token=c.after.token or kept.get(c.after.id)) for c in changes])


@planted("actor-not-logged", "events do not say who caused them")
class ForgetsActors(AltersChanges):
    def alter(self, change: Change) -> Change:
        return replace(change, events=[replace(event, actor=None) for event in change.events])


@planted("reopened-with-counters", "a reopened job keeps the retries of its former executions")
class KeepsCounters(AltersChanges):
    def alter(self, change: Change) -> Change:
        before = change.before
        reopened = before and before.phase is Phase.FINAL and change.after.phase is Phase.CLAIMABLE
        return with_columns(change, failures=before.failures, retries=before.retries) if reopened and before else change


@planted("child-of-another-tenant", "a child does not belong to the tenant of its parent")
class ForgetsTenants(SqliteTx):
    async def insert(self, changes: Sequence[Change]) -> set[str]:
        return await super().insert(
            [with_columns(change, tenant_id="default") if change.after.parent_id else change for change in changes]
        )


@planted("audit-not-written", "what operators do is not written to the audit log")
class ForgetsAudit(SqliteTx):
    async def add_audit(self, entry: Audit) -> None:
        pass


@planted("key-not-released", "a job is deleted, and its idempotency key stays taken")
class KeepsKeys(SqliteTx):
    async def drop_keys(self, owned: Sequence[tuple[str, str, str]], kept_until: Micros | None) -> int:
        return 0


@planted("first-failure-forgotten", "a dead letter says that its job failed first when it failed last")
class ForgetsFirstFailure(AltersChanges):
    def alter(self, change: Change) -> Change:
        letter = change.dead_letter
        return replace(change, dead_letter=letter and replace(letter, first_failed_at=letter.created_at))


@planted("lease-cut-short", "a heartbeat shortens the lease of its job")
class ShortensLeases(SqliteTx):
    async def extend(self, held: Mapping[str, str], lease: Micros) -> Extended:
        query = "UPDATE detent_jobs SET lease_until = ? WHERE id = ? AND token = ? AND lease_until IS NOT NULL"
        for job_id, token in held.items():
            self.connection.execute(query, (self.now + lease // 3, job_id, token))
        return await self.check_leases(held)


@planted("result-dropped-in-outage", "a worker forgets the results that it could not settle")
class ForgetsResultsInOutages(WorkerState):
    def batch_failed(self, batch: Batch | None = None) -> float | None:
        pause = super().batch_failed(batch)
        self.finished = []
        return pause


@planted("queued-job-not-returned", "a worker that stops does not hand back the jobs that wait for a slot")
class KeepsQueuedJobs(WorkerState):
    def stop(self) -> None:
        finished = list(self.finished)
        super().stop()
        self.finished = finished


@planted("timeout-not-enforced", "a worker lets handlers run beyond their timeout")
class IgnoresTimeouts(WorkerState):
    def tick(self, at: Reading, timeout_codes: dict[str, str]) -> list[Interrupt]:
        self._deadlines = []
        return super().tick(at, timeout_codes)


@planted("lease-not-extended", "heartbeats do not extend the leases of the worker's jobs")
class SendsEmptyHeartbeats(WorkerState):
    def leases_to_extend(self, now: float) -> dict[str, str]:
        return {}
