"""Planted bugs: classes with one deliberate defect each, to show that the simulator and explorer find it.

Production code cannot reach them: they are passed in as Hooks, by `detent simulate --bug` and by tests only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from detent.core.contract.model import Move, Phase
from detent.core.job import Change, Job, Micros, Signal, Step
from detent.core.outcome import Outcome
from detent.core.schedule import FIRE_KEY, Advance, Fire, Schedule
from detent.engine import BatchResult
from detent.handler.lease import Lease
from detent.ports.claims import Claimed, Extended, Success
from detent.stores.sqlite.claim import SqliteTx
from detent.worker.state import Batch, Held, Interrupt, WorkerState

from .controlled_store import DEFAULT_HOOKS, Hooks


class SettlesWithoutToken(SqliteTx):
    async def succeed(self, successes: Sequence[Success]) -> list[Success]:
        rows = await self.lock([success.id for success in successes])
        tokens = {job_id: row.token for job_id, row in rows.items() if row.phase is Phase.LEASED}
        forged = [success._replace(token=tokens.get(success.id) or success.token) for success in successes]
        return await super().succeed(forged)


class LogsWithoutRow(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.after.phase is Phase.CLAIMABLE and change.events:
                await self.add_events(change.events)
            else:
                await super().apply([change])


class WritesRowWithoutLog(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        await super().apply([replace(change, events=change.events[:-1]) for change in changes])


class KeepsVersion(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            before = change.before
            if before and change.after.phase is Phase.CLAIMABLE:
                change = replace(change, after=replace(change.after, version=before.version))
            await super().apply([change])


class KeepsRetryCount(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        await super().apply([_with(change, retries=change.before.retries) for change in changes if change.before])


class DoesNotChargeLosses(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            before, after = change.before, change.after
            kept = before is not None and after.phase is Phase.CLAIMABLE and after.retries == before.retries
            await super().apply([_with(change, failures=before.failures) if kept and before else change])


class ExpiresLiveLeases(SqliteTx):
    async def expired(self, limit: int, contracts: Sequence[str]) -> list[Job]:
        now, self.now = self.now, self.now + _HOUR
        try:
            return await super().expired(limit, contracts)
        finally:
            self.now = now


_HOUR: Micros = 3_600_000_000


class ForgetsExpired(SqliteTx):
    async def expired(self, limit: int, contracts: Sequence[str]) -> list[Job]:
        return [job for job in await super().expired(limit, contracts) if job.failures + job.interruptions == 0]


class MissesSignal(SqliteTx):
    """Hides signals from a job that is still leased, so a job that starts to wait never finds one sent before."""

    async def signal(self, job_id: str, name: str) -> Signal | None:
        signal = await super().signal(job_id, name)
        job = (await self.lock([job_id])).get(job_id)
        return None if job and job.phase is Phase.LEASED else signal

    async def add_signal(self, signal: Signal) -> None:
        if await super().signal(signal.job_id, signal.name) is None:
            await super().add_signal(signal)


class RecordsWithoutToken(SqliteTx):
    """Records a step without comparing tokens, so also for a worker that lost the job."""

    async def record_step(self, step: Step, token: str) -> bool:
        await self.put_step(step)
        return True


class ForgetsBegun(SqliteTx):
    """Reports that the start of a step was recorded, but writes nothing."""

    async def record_step(self, step: Step, token: str) -> bool:
        return await super().record_step(step, token) if step.finished else True


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
    " detent_jobs WHERE phase = ?)"
)


class ForgetsDeadLetter(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        await super().apply([replace(change, dead_letter=None) for change in changes])


class LogsFinalEventTwice(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            await super().apply([change])
            if change.after.phase is Phase.FINAL and change.events:
                last = change.events[-1]
                again = replace(last, seq=last.seq + 1, source=last.target)
                after = replace(change.after, version=last.seq + 1)
                await super().apply([Change(before=change.after, after=after, events=[again])])


class LosesSubmits(SqliteTx):
    """Acknowledges some submits without writing them."""

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        return await super().insert([change for change in changes if int(change.after.id[-1], 16) % 2])


class RevivesLeases(SqliteTx):
    """A late heartbeat leases the job again although its lease was expired and the job released."""

    async def extend(self, held: Mapping[str, str], lease: Micros) -> Extended:
        for job_id, job in (await self.lock(list(held))).items():
            contract = self.registered_contracts[job.contract]
            if job.token == held[job_id] and job.phase is Phase.CLAIMABLE:
                status = contract.in_phase(Phase.LEASED)[0]
                values = (status, str(Phase.LEASED), self.now + lease, job_id)
                self.connection.execute(_REVIVE, values)
        return await super().extend(held, lease)


_REVIVE = (
    "UPDATE detent_jobs SET status = ?, phase = ?, lease_until = ?, worker = 'revived', ready = 0, next_retry_at ="
    " NULL "
    "WHERE id = ?"
)


class IgnoresBackoff(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            after, before = change.after, change.before
            if before and after.retries > before.retries and after.phase is Phase.CLAIMABLE:
                at = None if after.next_retry_at is None else self.now
                change = _with(change, due_at=self.now, ready=True, next_retry_at=at)
            await super().apply([change])


class IgnoresLatestEventTime(SqliteTx):
    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            events = [replace(event, at=self.now) for event in change.events]
            at = max(self.now, change.after.created_at) if events else change.after.updated_at
            finished = None if change.after.finished_at is None else at
            await super().apply([_with(replace(change, events=events), updated_at=at, finished_at=finished)])


class UsesStaleCounts(SqliteTx):
    """Returns the counts of its previous call, like a claim that counts before it holds the lock."""

    async def leased_by_lane(self) -> dict[int, int]:
        current = await super().leased_by_lane()
        previous, _PREVIOUS_COUNTS[self.connection] = _PREVIOUS_COUNTS.get(self.connection, {}), current
        return previous


_PREVIOUS_COUNTS: WeakKeyDictionary[Any, dict[int, int]] = WeakKeyDictionary()


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


class FiresWithoutCompare(SqliteTx):
    """Fires a schedule without the compare-and-set, and without the two guards behind it: fire row and key."""

    async def due_schedules(self, limit: int, contracts: Sequence[str]) -> list[Schedule]:
        current = await super().due_schedules(limit, contracts)
        previous, _PREVIOUS_DUE[self.connection] = _PREVIOUS_DUE.get(self.connection, []), current
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


_PREVIOUS_DUE: WeakKeyDictionary[Any, list[Schedule]] = WeakKeyDictionary()


class RunsOnWithoutLease(WorkerState):
    """Tells no handler that its job is lost, and never lets it ask the store."""

    def batch_done(
        self, result: BatchResult, batch: Batch | None = None, new_lease: Callable[[], Lease] = Lease
    ) -> list[Claimed]:
        return super().batch_done(result, batch)

    def _abandon(self, held: Held, outcome: Outcome | None, reason: str) -> Interrupt:
        interrupt = super()._abandon(held, outcome, reason)
        held.lease.lost = None
        return interrupt


class ReclaimsTooEarly(WorkerState):
    """Reclaims leases although a reclaim grace is in force."""

    def next_batch(self, now: float = 0.0, *, may_reclaim: bool = True) -> Batch | None:
        return super().next_batch(now, may_reclaim=True)


class AcceptsLateResult(WorkerState):
    """Takes the result of an execution that has lost its job for the result of the one that holds it now."""

    def handler_ended(self, job_id: str, token: str, outcome: Outcome) -> bool:
        held = self.held.get(job_id)
        return super().handler_ended(job_id, held.claimed.token if held else token, outcome)


def _with(change: Change, **columns: object) -> Change:
    return replace(change, after=replace(change.after, **columns))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted bug: its name, a description, and the classes it replaces."""

    name: str
    description: str
    hooks: Hooks


def _bug(name: str, description: str, transaction: type[SqliteTx]) -> Bug:
    return Bug(name, description, replace(DEFAULT_HOOKS, transaction=transaction))


BUGS: Mapping[str, Bug] = MappingProxyType(
    {
        bug.name: bug
        for bug in (
            _bug("settle-without-token", "a success is accepted without comparing tokens", SettlesWithoutToken),
            _bug(
                "event-without-row",
                "a job that becomes claimable is logged, but its row is not written",
                LogsWithoutRow,
            ),
            _bug("row-without-event", "the last event of a change is not logged", WritesRowWithoutLog),
            _bug("version-not-raised", "a job that becomes claimable keeps its version", KeepsVersion),
            _bug("retry-count-not-raised", "a retry is not counted", KeepsRetryCount),
            _bug(
                "loss-not-charged", "a lost lease is not charged although the contract charges it", DoesNotChargeLosses
            ),
            _bug("live-lease-expired", "leases are expired an hour too early", ExpiresLiveLeases),
            _bug(
                "lost-twice-forgotten", "a job that failed or was interrupted before is never expired", ForgetsExpired
            ),
            _bug("wait-misses-signal", "a job starts to wait without checking for a signal sent before", MissesSignal),
            _bug("zombie-step", "a step is recorded for a worker that lost the job", RecordsWithoutToken),
            Bug(
                "lost-job-runs-on",
                "an execution that has lost its job runs further steps",
                replace(DEFAULT_HOOKS, state=RunsOnWithoutLease),
            ),
            Bug(
                "lease-reclaimed-early",
                "a worker reclaims leases right after an outage or a jump of the clock",
                replace(DEFAULT_HOOKS, state=ReclaimsTooEarly),
            ),
            Bug(
                "late-result-accepted",
                "the result of an execution that has lost its job is settled for the current one",
                replace(DEFAULT_HOOKS, state=AcceptsLateResult),
            ),
            _bug("once-not-begun", "a once is not recorded before it runs", ForgetsBegun),
            _bug(
                "parent-misses-child", "a child that ends just before its parent waits does not wake it", MissesChildren
            ),
            _bug("dead-letter-forgotten", "a failed job gets no dead letter", ForgetsDeadLetter),
            _bug("second-final-event", "the final event of a job is logged twice", LogsFinalEventTwice),
            _bug("lost-submit", "some submits are acknowledged but not written", LosesSubmits),
            _bug("heartbeat-revives", "a late heartbeat restores an expired lease", RevivesLeases),
            _bug("backoff-ignored", "a retry is due immediately", IgnoresBackoff),
            _bug("time-runs-back", "event times follow a clock that was set back", IgnoresLatestEventTime),
            _bug("limit-counted-early", "a limit is checked against a count made before the lock", UsesStaleCounts),
            _bug("late-cancel", "a cancel after the success is applied", CancelsFinishedJobs),
            _bug(
                "fire-without-compare",
                "a schedule fires without compare-and-set, so one fire may create two jobs",
                FiresWithoutCompare,
            ),
        )
    }
)
