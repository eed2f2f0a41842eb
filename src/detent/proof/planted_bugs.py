"""Planted bugs: classes with one deliberate defect each, to show that the simulator and explorer find it.

Production code cannot reach them: they are passed in as Hooks, by `detent simulate --bug` and by tests only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from detent.core.approval import APPROVE, Approval
from detent.core.contract.model import Move, Phase
from detent.core.job import Change, DeadLetter, DeadLetterStatus, Job, Micros, Note, Signal, Step
from detent.core.outcome import Failed, NotBound, Outcome
from detent.core.retry import Origin
from detent.core.schedule import FIRE_KEY, Advance, Fire, Misfire, Schedule
from detent.core.times import SECOND
from detent.engine import BatchResult
from detent.engine.refusal import SETTLE_REFUSED
from detent.handler.lease import Lease, Reading
from detent.handler.stop_requests import StopKind
from detent.ports.claims import Claimed, ClaimRequest, Extended, Success
from detent.ports.pruning import Prunable, PruneRule
from detent.ports.stream import OutboxItem
from detent.stores.sqlite.claim import SqliteTx
from detent.worker.state import START, Batch, HeartbeatAnswer, Held, Interrupt, WorkerState

from . import planted_answers
from .bug import AltersChanges, Bug, PlantedBugs, with_columns, with_due
from .controlled_store import DEFAULT_HOOKS

BUGS = planted = PlantedBugs()


@planted("settle-without-token", "a success is accepted without comparing tokens")
class SettlesWithoutToken(SqliteTx):
    async def succeed(self, successes: Sequence[Success]) -> list[Success]:
        rows = await self.lock([success.id for success in successes])
        tokens = {job_id: row.token for job_id, row in rows.items() if row.phase is Phase.LEASED}
        forged = [success._replace(token=tokens.get(success.id) or success.token) for success in successes]
        return await super().succeed(forged)


@planted("event-without-row", "a job that becomes claimable is logged, but its row is not written")
class LogsWithoutRow(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.after.phase is Phase.CLAIMABLE and change.events:
                await self.add_events(change.events)
            else:
                await super().apply([change])


@planted("row-without-event", "the last event of a change is not logged")
class WritesRowWithoutLog(AltersChanges):
    def alter(self, change: Change) -> Change:
        return replace(change, events=change.events[:-1])


@planted("version-not-raised", "a job that becomes claimable keeps its version")
class KeepsVersion(AltersChanges):
    def alter(self, change: Change) -> Change:
        kept = change.before and change.after.phase is Phase.CLAIMABLE
        return with_columns(change, version=change.before.version) if kept and change.before else change


@planted("retry-count-not-raised", "a retry is not counted")
class KeepsRetryCount(AltersChanges):
    def alter(self, change: Change) -> Change:
        return with_columns(change, retries=change.before.retries) if change.before else change


@planted("loss-not-charged", "a lost lease is not charged although the contract charges it")
class DoesNotChargeLosses(AltersChanges):
    def alter(self, change: Change) -> Change:
        before, after = change.before, change.after
        kept = before is not None and after.phase is Phase.CLAIMABLE and after.retries == before.retries
        return with_columns(change, failures=before.failures) if kept and before else change


@planted("live-lease-expired", "leases are expired an hour too early")
class ExpiresLiveLeases(SqliteTx):
    async def expired(self, limit: int, contracts: Sequence[str], timed_out: Sequence[str] = ()) -> list[Job]:
        now, self.now = self.now, self.now + _HOUR
        try:
            return await super().expired(limit, contracts, timed_out)
        finally:
            self.now = now


_HOUR: Micros = 3_600_000_000


@planted("lost-twice-forgotten", "a job that failed or was interrupted before is never expired")
class ForgetsExpired(SqliteTx):
    async def expired(self, limit: int, contracts: Sequence[str], timed_out: Sequence[str] = ()) -> list[Job]:
        expired = await super().expired(limit, contracts, timed_out)
        return [job for job in expired if job.failures + job.interruptions == 0]


@planted("wait-misses-signal", "a job starts to wait without checking for a signal sent before")
class MissesSignal(SqliteTx):
    """Hides signals from a job that is still leased, so a job that starts to wait never finds one sent before."""

    async def signal(self, job_id: str, name: str) -> Signal | None:
        signal = await super().signal(job_id, name)
        job = (await self.lock([job_id])).get(job_id)
        return None if job and job.phase is Phase.LEASED else signal

    async def add_signal(self, signal: Signal) -> None:
        if await super().signal(signal.job_id, signal.name) is None:
            await super().add_signal(signal)


@planted("zombie-step", "a step is recorded for a worker that lost the job")
class RecordsWithoutToken(SqliteTx):
    """Records a step without comparing tokens, so also for a worker that lost the job."""

    async def record_step(self, step: Step, token: str) -> bool:
        await self.put_step(step)
        return True


@planted("lost-job-runs-on", "an execution that has lost its job runs further steps")
class RunsOnWithoutLease(WorkerState):
    """Tells no handler that its job is lost, and never lets it ask the store."""

    def batch_done(
        self,
        result: BatchResult,
        batch: Batch | None = None,
        now: float = 0.0,
        new_lease: Callable[[int | None], Lease] = Lease,
    ) -> list[Claimed]:
        return super().batch_done(result, batch, now)

    def _abandon(self, held: Held, outcome: Outcome | None, reason: str) -> Interrupt:
        interrupt = super()._abandon(held, outcome, reason)
        held.lease.lost = None
        return interrupt


@planted("lease-reclaimed-early", "a worker reclaims leases right after an outage or a jump of the clock")
class ReclaimsTooEarly(WorkerState):
    """Reclaims leases although a reclaim grace is in force."""

    def _may_reclaim(self, at: Reading) -> bool:
        return super()._may_reclaim(at) or True


@planted("late-result-accepted", "the result of an execution that has lost its job is settled for the current one")
class AcceptsLateResult(WorkerState):
    """Takes the result of an execution that has lost its job for the result of the one that holds it now."""

    def handler_ended(self, job_id: str, token: str, outcome: Outcome) -> bool:
        held = self.held.get(job_id)
        return super().handler_ended(job_id, held.claimed.token if held else token, outcome)


@planted("reply-of-another-lease", "the answer to a heartbeat of an earlier execution is applied to the current one")
class AppliesOldAnswers(WorkerState):
    """Takes each answer for one about the tokens that the worker holds now."""

    def heartbeat_answered(self, answer: HeartbeatAnswer, now: float) -> list[Interrupt]:
        tokens = {job_id: self.held[job_id].claimed.token for job_id in answer.tokens if job_id in self.held}
        return super().heartbeat_answered(replace(answer, tokens=tokens), now)


@planted("once-not-begun", "a once is not recorded before it runs")
class ForgetsBegun(SqliteTx):
    """Reports that the start of a step was recorded, but writes nothing."""

    async def record_step(self, step: Step, token: str) -> bool:
        return await super().record_step(step, token) if step.finished else True


@planted("step-not-found", "an execution does not find the steps that earlier executions have recorded")
class FindsNoSteps(SqliteTx):
    async def list_steps(self, job_id: str) -> list[Step]:
        return []


@planted("quorum-ignored", "one approval decides although two people must approve")
class IgnoresQuorum(SqliteTx):
    async def approval(self, job_id: str, name: str) -> Approval | None:
        approval = await super().approval(job_id, name)
        return approval and replace(approval, request=replace(approval.request, quorum=1))


@planted("parent-misses-child", "a child that ends just before its parent waits does not wake it")
class MissesChildren(SqliteTx):
    """Parent and child check before they write, without a lock: a child that ends just before its parent waits sends
    no notification, and the parent waits for it nevertheless."""

    async def await_children(self, parent_id: str, ids: Sequence[str], wakes_on: str) -> int:
        await super().await_children(parent_id, ids, wakes_on)
        for child in ids:
            self.connection.execute(
                "INSERT OR IGNORE INTO detent_awaited VALUES (?, ?, ?)", (parent_id, child, wakes_on)
            )
        return len(ids)

    async def change(self, name: str, /, **values: Any) -> int:
        changed = await super().change(name, **values)
        if name in ("add_ended_child", "add_succeeded_children"):
            self.connection.execute(_DROP_NOTIFICATIONS, (str(Phase.BLOCKED),))
        return changed


_DROP_NOTIFICATIONS = (
    "DELETE FROM detent_child_events WHERE child_id IS NOT NULL AND parent_id NOT IN (SELECT id FROM"
    " detent_job_list WHERE phase = ?)"
)


@planted("dead-letter-forgotten", "a failed job gets no dead letter")
class ForgetsDeadLetter(AltersChanges):
    def alter(self, change: Change) -> Change:
        return replace(change, dead_letter=None)


@planted("second-final-event", "the final event of a job is logged twice")
class LogsFinalEventTwice(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            await super().apply([change])
            if change.after.phase is Phase.FINAL and change.events:
                last = change.events[-1]
                again = replace(last, seq=last.seq + 1, source=last.target)
                after = replace(change.after, version=last.seq + 1)
                await super().apply([Change(before=change.after, after=after, events=[again])])


@planted("lost-submit", "some submits are acknowledged but not written")
class LosesSubmits(SqliteTx):
    """Acknowledges some submits without writing them."""

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        return await super().insert([change for change in changes if int(change.after.id[-1], 16) % 2])


@planted("heartbeat-revives", "a late heartbeat restores an expired lease")
class RevivesLeases(SqliteTx):
    """A late heartbeat leases the job again although its lease was expired and the job released."""

    async def extend(self, held: Mapping[str, str], lease: Micros) -> Extended:
        for job_id, job in (await self.lock(list(held))).items():
            contract = self.registered_contracts[job.contract]
            if job.token == held[job_id] and job.phase is Phase.CLAIMABLE:
                status = contract.in_phase(Phase.LEASED)[0]
                state, worker = await self.number_of("state", job.contract, status), 1
                self.connection.execute(_REVIVE, (state, self.now + lease, worker, job_id))
        return await super().extend(held, lease)


_REVIVE = "UPDATE detent_jobs SET state = ?, lease_until = ?, worker = ?, ready = 0, next_retry_at = NULL WHERE id = ?"


@planted("backoff-ignored", "a retry is due immediately")
class IgnoresBackoff(AltersChanges):
    def alter(self, change: Change) -> Change:
        after, before = change.after, change.before
        if not before or after.retries <= before.retries or after.phase is not Phase.CLAIMABLE:
            return change
        at = None if after.next_retry_at is None else self.now
        return with_columns(change, due_at=self.now, ready=True, next_retry_at=at)


@planted("time-runs-back", "event times follow a clock that was set back")
class IgnoresLatestEventTime(AltersChanges):
    def alter(self, change: Change) -> Change:
        events = [replace(event, at=self.now) for event in change.events]
        at = max(self.now, change.after.created_at) if events else change.after.updated_at
        finished = None if change.after.finished_at is None else at
        return with_columns(replace(change, events=events), updated_at=at, finished_at=finished)


@planted("limit-counted-early", "a limit is checked against a count made before the lock")
class UsesStaleCounts(SqliteTx):
    """Returns the counts of its previous call, like a claim that counts before it holds the lock."""

    async def leased_by_lane(self) -> dict[int, int]:
        current = await super().leased_by_lane()
        previous: dict[int, int] = _PREVIOUS.get(self.connection, {})
        _PREVIOUS[self.connection] = current
        return previous


@planted("late-cancel", "a cancel after the success is applied")
class CancelsFinishedJobs(SqliteTx):
    """Presents a final row as one that can be cancelled, so an operator's late cancel undoes a success."""

    async def lock(self, ids: Sequence[str], *, wait: bool = True) -> dict[str, Job]:
        rows = await super().lock(ids, wait=wait)
        for job_id, job in rows.items():
            contract = self.registered_contracts.get(job.contract)
            if contract and job.phase is Phase.FINAL and job.result is not None:
                source = next((e.source for e in contract.edges if e.move is Move.CANCEL and e.source), job.status)
                rows[job_id] = replace(job, status=source, phase=contract.phase(source))
        return rows


@planted("fire-without-compare", "a schedule fires without compare-and-set, so one fire may create two jobs")
class FiresWithoutCompare(SqliteTx):
    """Fires a schedule without the compare-and-set, and without the two guards behind it: fire row and key."""

    async def due_schedules(self, limit: int, contracts: Sequence[str]) -> list[Schedule]:
        current = await super().due_schedules(limit, contracts)
        previous: list[Schedule] = _PREVIOUS.get(self.connection, [])
        _PREVIOUS[self.connection] = current
        return [*current, *(schedule for schedule in previous if schedule.id not in {one.id for one in current})]

    async def advance_schedules(self, advances: Sequence[Advance]) -> int:
        await super().advance_schedules(advances)
        return len(advances)

    async def add_fires(self, fires: Sequence[Fire]) -> int:
        for fire in fires:
            self.connection.execute("DELETE FROM detent_fires WHERE schedule_id = ? AND fire_at = ?", fire[:2])
        return await super().add_fires(fires)

    async def key_owners(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        return await super().key_owners([key for key in keys if not key[1].startswith(FIRE_KEY)])

    async def take_all_keys(self, owned: Sequence[tuple[str, str, str]]) -> int:
        await super().take_all_keys(owned)
        return len(owned)


_PREVIOUS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""connection -> what a bug that uses stale values read last"""


@planted("prune-too-early", "finished jobs are deleted an hour before their time")
class PrunesTooEarly(SqliteTx):
    async def prunable(self, after: str, until: str | None, limit: int, rules: Sequence[PruneRule]) -> list[Prunable]:
        early = [rule._replace(before=rule.before + _HOUR) for rule in rules if rule.before is not None]
        return await super().prunable(after, until, limit, early)


@planted("interruption-not-counted", "a lost or released execution is not counted")
class DoesNotCountInterruptions(AltersChanges):
    def alter(self, change: Change) -> Change:
        return with_columns(change, interruptions=change.before.interruptions) if change.before else change


@planted("requeue-not-marked", "a requeued dead letter stays open, so it can be requeued again")
class KeepsDeadLettersOpen(SqliteTx):
    async def put_dead_letter(self, item: DeadLetter) -> None:
        if item.requeued_as is None:
            await super().put_dead_letter(item)


@planted("quota-counted-early", "a backlog quota is checked against a count made before the lock")
class UsesStaleBacklogs(SqliteTx):
    async def backlog_of(self, tenant_id: str, at_most: int) -> int:
        current = await super().backlog_of(tenant_id, at_most)
        counts: dict[str, int] = _PREVIOUS.setdefault(self.connection, {})
        previous, counts[tenant_id] = counts.get(tenant_id, 0), current
        return previous


@planted("batch-torn", "a batch is committed in two parts")
class CommitsInParts(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            await super().apply([change])
            if change is not changes[-1]:
                self._commit()

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        present = await super().insert(changes[:1])
        if len(changes) > 1:
            self._commit()
            present |= await super().insert(changes[1:])
        return present

    def _commit(self) -> None:
        self.connection.execute("COMMIT")
        self.connection.execute("BEGIN IMMEDIATE")


@planted("other-version-fails", "a worker fails a job that only another version of its code can run")
class FailsUnboundJobs(WorkerState):
    def handler_ended(self, job_id: str, token: str, outcome: Outcome) -> bool:
        failed = Failed(outcome.failure) if isinstance(outcome, NotBound) else outcome
        return super().handler_ended(job_id, token, failed)


@planted("heartbeat-trusted-late", "a lease is confirmed when the heartbeat's answer arrives, not when it was sent")
class TrustsLateAnswers(WorkerState):
    def heartbeat_answered(self, answer: HeartbeatAnswer, now: float) -> list[Interrupt]:
        sent = answer.extended_at
        if sent is not None:
            wall = sent.wall + int((now - sent.monotonic) * SECOND)
            answer = HeartbeatAnswer(answer.lost, answer.cancels, answer.tokens, Reading(now, wall))
        return super().heartbeat_answered(answer, now)


@planted("restart-not-noticed", "after a restart of the stream server no task is published again")
class IgnoresRestarts(SqliteTx):
    async def put_epoch(self, name: str, epoch: str, expected: str | None) -> bool:
        await super().put_epoch(name, epoch, expected)
        return False


@planted("outbox-deleted-early", "a task leaves the outbox before it is on the stream")
class DeletesOutboxEarly(SqliteTx):
    async def take_outbox_items(self, limit: int, hold: Micros) -> list[OutboxItem]:
        items = await super().take_outbox_items(limit, hold)
        for item in items:
            self.connection.execute("DELETE FROM detent_outbox WHERE job_id = ?", (item.job_id,))
        return items


@planted("retry-not-published", "a task that is retried is not put into the outbox")
class DoesNotPublishRetries(SqliteTx):
    async def write_outbox(self, changes: Iterable[Change]) -> None:
        await super().write_outbox(change for change in changes if change.before is None)


@planted("pause-ignored", "jobs of a paused queue are claimed")
class IgnoresPauses(SqliteTx):
    async def refresh_lane_cache(self) -> None:
        await super().refresh_lane_cache()
        self.lane_cache.paused = {}


@planted("signal-replaced", "a second signal of the same name replaces the first one")
class ReplacesSignals(SqliteTx):
    """Hides a signal from the sender of the next one, as long as the job is claimable."""

    async def signal(self, job_id: str, name: str) -> Signal | None:
        job = (await self.lock([job_id])).get(job_id)
        return None if job and job.phase is Phase.CLAIMABLE else await super().signal(job_id, name)

    async def add_signal(self, signal: Signal) -> None:
        self.connection.execute(
            "DELETE FROM detent_signals WHERE job_id = ? AND name = ?", (signal.job_id, signal.name)
        )
        await super().add_signal(signal)


@planted("backoff-halved", "a retry waits half as long as it must, in its row and in its event")
class HalvesBackoff(AltersChanges):
    def alter(self, change: Change) -> Change:
        after, before = change.after, change.before
        if not before or after.retries <= before.retries or after.phase is not Phase.CLAIMABLE or not after.due_at:
            return change
        return with_due(change, (after.due_at + after.updated_at) // 2)


@planted("dead-letter-not-noted", "a dead letter is recorded without the note that its contract wants")
class ForgetsDeadLetterNote(AltersChanges):
    def alter(self, change: Change) -> Change:
        return replace(change, notes=[]) if change.dead_letter else change


@planted("refusal-not-noted", "a late result is refused without a note")
class ForgetsRefusals(SqliteTx):
    async def add_notes(self, notes: Sequence[Note]) -> None:
        await super().add_notes([note for note in notes if note.name != SETTLE_REFUSED])


@planted("result-not-stored", "a job succeeds, but its result is not stored")
class ForgetsResults(SqliteTx):
    async def succeed(self, successes: Sequence[Success]) -> list[Success]:
        return await super().succeed([success._replace(result=None) for success in successes])


@planted("payload-of-another", "a worker that claims several jobs receives the payload of another one of them")
class MixesPayloads(SqliteTx):
    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        claimed = await super().claim(request)
        return [job._replace(payload=claimed[n - 1].payload) for n, job in enumerate(claimed)]


@planted("option-forgotten", "a job is stored without its timeout")
class ForgetsTimeouts(SqliteTx):
    async def insert(self, changes: Sequence[Change]) -> set[str]:
        return await super().insert([with_columns(change, timeout_ms=None) for change in changes])


@planted("cancel-request-forgotten", "a job that its worker hands back or retries forgets its cancel request")
class ForgetsCancelRequests(SqliteTx):
    async def lock(self, ids: Sequence[str], *, wait: bool = True) -> dict[str, Job]:
        rows = await super().lock(ids, wait=wait)
        return {job_id: replace(job, cancel_requested=None) for job_id, job in rows.items()}

    async def expired(self, limit: int, contracts: Sequence[str], timed_out: Sequence[str] = ()) -> list[Job]:
        expired = await super().expired(limit, contracts, timed_out)
        return [replace(job, cancel_requested=None) for job in expired]


@planted("lease-outlasts-timeout", "heartbeats extend a lease beyond the timeout of the execution")
class ExtendsBeyondTimeout(SqliteTx):
    async def extend(self, held: Mapping[str, str], lease: Micros) -> Extended:
        extended = await super().extend(held, lease)
        query = "UPDATE detent_jobs SET lease_until = ? WHERE id = ? AND token = ? AND lease_until IS NOT NULL"
        for job_id, token in held.items():
            self.connection.execute(query, (self.now + lease, job_id, token))
        return extended


@planted("claim-too-large", "a claim brings one job more than the worker has room for")
class ClaimsTooMany(SqliteTx):
    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        return await super().claim(replace(request, limit=request.limit + 1))


@planted("stopped-worker-claims", "a worker that stops or drains claims further jobs")
class ClaimsWhileStopping(WorkerState):
    def next_batch(self, at: Reading = START) -> Batch | None:
        stopping, self.stopping = self.stopping, self.grace_over
        try:
            return super().next_batch(at)
        finally:
            self.stopping = stopping


@planted("suspect-not-alone", "a job that may be what kills its workers runs beside other jobs")
class StartsSuspectsAtOnce(WorkerState):
    def next_suspect(self) -> Claimed | None:
        for job_id in list(self._waiting_suspects):
            return self._waiting_suspects.pop(job_id)
        return None


@planted("retry-given-up", "an error that may be retried fails the job for good")
class GivesUpRetries(WorkerState):
    def handler_ended(self, job_id: str, token: str, outcome: Outcome) -> bool:
        if isinstance(outcome, Failed):
            outcome = Failed(replace(outcome.failure, retryable=False))
        return super().handler_ended(job_id, token, outcome)


@planted("failure-for-good-retried", "a handler that raises Fail is retried")
class RetriesFail(WorkerState):
    def handler_ended(self, job_id: str, token: str, outcome: Outcome) -> bool:
        if isinstance(outcome, Failed) and outcome.failure.origin is Origin.FAIL:
            outcome = Failed(replace(outcome.failure, retryable=True))
        return super().handler_ended(job_id, token, outcome)


@planted("cancel-not-passed-on", "a worker does not tell the handler of a cancel request")
class KeepsCancelsSecret(WorkerState):
    def heartbeat_answered(self, answer: HeartbeatAnswer, now: float) -> list[Interrupt]:
        return [one for one in super().heartbeat_answered(answer, now) if one.kind is not StopKind.CANCEL]


@planted("slot-freed-early", "a handler that goes on without its job does not occupy a slot")
class FreesSlotsEarly(WorkerState):
    def _abandon(self, held: Held, outcome: Outcome | None, reason: str) -> Interrupt:
        interrupt = super()._abandon(held, outcome, reason)
        self.abandoned = 0
        return interrupt

    def handler_ended(self, job_id: str, token: str, outcome: Outcome) -> bool:
        ended = super().handler_ended(job_id, token, outcome)
        self.abandoned = 0
        return ended


@planted("requeue-loses-effect-keys", "a requeued job has other effect keys than the job that failed")
class ForgetsEffectRoots(SqliteTx):
    async def insert(self, changes: Sequence[Change]) -> set[str]:
        return await super().insert([with_columns(change, effect_root=None) for change in changes])


@planted("requeue-loses-payload", "a requeued job has another payload than the job that failed")
class ForgetsPayloads(SqliteTx):
    async def insert(self, changes: Sequence[Change]) -> set[str]:
        requeued = [
            with_columns(change, payload='{"plan":[]}') if change.after.requeued_from else change for change in changes
        ]
        return await super().insert(requeued)


@planted("dead-letter-reopened", "a dead letter that was requeued or discarded can be requeued again")
class ReopensDeadLetters(SqliteTx):
    async def dead_letter(self, dlq_id: str) -> DeadLetter | None:
        item = await super().dead_letter(dlq_id)
        return item and replace(item, status=DeadLetterStatus.OPEN, requeued_as=None)


@planted("newest-first", "the newest job of a lane is claimed first")
class ClaimsNewestFirst(SqliteTx):
    def rows(self, name: str, *values: Any) -> list[Any]:
        if name != "pick_lane":
            return super().rows(name, *values)
        lane, limit = values
        return super().rows(name, lane, 1_000)[-limit:]


@planted("wait-timeout-not-recorded", "the timeout of a wait is not recorded")
class ForgetsTimedOutWaits(SqliteTx):
    async def add_signal(self, signal: Signal) -> None:
        if not signal.timed_out:
            await super().add_signal(signal)


@planted("signal-wakes-nobody", "a signal is recorded, but the job that waits for it is not woken")
class WakesNobody(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        await super().apply([change for change in changes if not _is_signalled(change)])


def _is_signalled(change: Change) -> bool:
    waited = change.before is not None and change.before.phase is Phase.BLOCKED
    return waited and any((event.data or {}).get("reason") == "signalled" for event in change.events)


@planted("overlap-ignored", "a schedule that skips overlapping runs makes them")
class IgnoresOverlap(SqliteTx):
    async def unfinished_fires(self, schedule_ids: Sequence[str], limit: int) -> dict[str, list[str]]:
        return {}


@planted("missed-run-made", "a schedule that skips missed runs makes them")
class MakesMissedRuns(SqliteTx):
    async def due_schedules(self, limit: int, contracts: Sequence[str]) -> list[Schedule]:
        due = await super().due_schedules(limit, contracts)
        return [replace(schedule, misfire=Misfire.ALL) for schedule in due]


@planted("suspect-forgotten", "a job whose last executions were lost is claimed like any other")
class ForgetsLosses(AltersChanges):
    def alter(self, change: Change) -> Change:
        return with_columns(change, losses=0)


@planted("parent-woken-early", "a parent is woken when the first of its children has ended")
class WakesParentsEarly(SqliteTx):
    async def awaits_children(self, parent_id: str) -> bool:
        return False


@planted("children-run-on", "the children of a cancelled job are not cancelled")
class LeavesChildren(SqliteTx):
    async def has_children_to_cancel(self, parent_id: str) -> bool:
        return False


@planted("rejection-forgotten", "a rejection is not recorded as the decision")
class ForgetsRejections(SqliteTx):
    async def decide_approval(self, job_id: str, name: str, decision: str, at: Micros, *, expired: bool) -> None:
        if expired or decision == APPROVE:
            await super().decide_approval(job_id, name, decision, at, expired=expired)


BUGS["ack-before-commit"] = Bug(
    "ack-before-commit",
    "a stream worker acknowledges a message before its result is stored",
    replace(DEFAULT_HOOKS, acknowledges_early=True),
)
BUGS |= planted_answers.BUGS
