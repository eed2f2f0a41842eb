"""The InvariantMonitor of a simulation: reads the raw tables after every commit and reports broken invariants."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw

from detent.core.contract.model import Contract, Move, Phase
from detent.core.errors import DetentError
from detent.core.job import APPROVAL, TIMEOUT_GRACE, Job, Micros
from detent.core.limits import JobKind, Limit
from detent.core.retry import deterministic_jitter
from detent.core.schedule import Schedule
from detent.engine import Settlement, Submission
from detent.engine.execution.settle import digest_of
from detent.engine.refusal import SETTLE_REFUSED
from detent.ports.claims import Claimed
from detent.ports.verification import DeadLetterRow, EventRow, JobRow
from detent.proof.controlled_store import ManualClock
from detent.proof.job_checker import EVENTS_QUERY, JOBS_QUERY, check_job
from detent.proof.verify.fold import ContractTable
from detent.proof.verify.limits import LimitCheck, Step
from detent.proof.verify.rules import Finding

from .handler import (
    RETRY_SOON_SECONDS,
    SIGNAL,
    SLEEP,
    SLEEP_SECONDS,
    SNOOZE_SECONDS,
    SOON,
    TOKEN_FIELD,
    TOKEN_PREFIX,
    WAIT_SECONDS,
)
from .job_rules import check_order, check_retry, check_wake, is_suspect, move_of
from .loop import SECOND
from .related_jobs import RelatedJobsMonitor
from .schedules import ScheduleMonitor


class InvariantMonitor:
    """Compares every changed row with its log, and each new event with the row before and after it."""

    def __init__(
        self,
        connection: apsw.Connection,
        contracts: Mapping[str, Contract],
        clock: ManualClock,
        limits: Sequence[Limit] = (),
        keep: Micros | None = None,
        quotas: Mapping[str, int] | None = None,
        max_deliveries: int | None = None,
    ) -> None:
        """keep: how long after its end a job may be deleted; None: never. quotas: tenant -> most unfinished jobs.
        max_deliveries: of a task on the stream, without a result; None: tasks are not on a stream."""
        self.max_deliveries = max_deliveries
        self._connection = connection
        self._tables = {name: ContractTable(contract) for name, contract in contracts.items()}
        self._clock = clock
        self._logs: dict[str, list[EventRow]] = {}
        self._rows: dict[str, JobRow] = {}
        self._results: dict[str, tuple[str | None, str | None, str | None]] = {}
        """job id -> (token, result, error code)"""
        self._leases: dict[str, tuple[Micros, str]] = {}
        """job id -> (lease_until, token)"""
        self._cancel_requested: set[str] = set()
        """Leased jobs with a cancel request."""
        self._schedules = ScheduleMonitor(connection, contracts)
        self._related_jobs = RelatedJobsMonitor(connection, contracts)
        self._contracts = contracts
        self._limits, self._has_limits = LimitCheck(limits), bool(limits)
        self._quotas = quotas or {}
        self._total_changes = -1
        self._keep = keep
        self._deleted: set[str] = set()
        self._step_sums: list[Any] = []
        self._steps: dict[tuple[str, str], tuple[Any, Any]] = {}
        self._signal_sums: list[Any] = []
        self._signals: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.events = 0
        self.acknowledged: set[str] = set()
        self.unfinished: set[str] = set()
        """Jobs that have not ended, by the rows last checked."""
        self.violations: list[Finding] = []
        self.on_violation: Callable[[], object] = lambda: None
        self.is_kept: Callable[[str, str | None], bool] = lambda job_id, token: False

    def report(self, job_id: str, rule: str, detail: str, seq: int | None = None) -> None:
        self.violations.append(Finding(job_id, seq, rule, detail))
        self.on_violation()

    def check_commit(self) -> list[EventRow]:
        """Check what the last transaction wrote; the events it added."""
        changes = self._connection.total_changes()
        if changes == self._total_changes:
            return []
        self._total_changes = changes
        for job_id, seq in self._connection.execute(_WITHOUT_ACTOR, (self.events,)):
            self.report(job_id, "actor.missing", "the event does not say who caused it", seq)
        query = EVENTS_QUERY + " WHERE n > ? ORDER BY n"
        new_events = [EventRow(*values) for values in self._connection.execute(query, (self.events,))]
        self.events += len(new_events)
        for job_id in dict.fromkeys(event.job_id for event in new_events):
            self._check_job(job_id, [event for event in new_events if event.job_id == job_id])
        self._check_limits(new_events)
        self._check_quotas(new_events)
        self._check_deleted()
        for finding in (*self._schedules.check_commit(), *self._related_jobs.check_commit()):
            self.report(*finding)
        self._read_leases()
        self._check_steps()
        self._check_signals()
        return new_events

    def _read_leases(self) -> None:
        """A lease never outlasts the timeout of its execution."""
        leased: Any = self._connection.execute(_LEASES, (str(Phase.LEASED),)).fetchall()
        before, self._leases = self._leases, {row[0]: (row[1], row[2]) for row in leased}
        self._cancel_requested = {row[0] for row in leased if row[3]}
        for job_id, lease_until, token, _, longest, by_detent in leased:
            until, holder = before.get(job_id, (0, None))
            if by_detent and holder == token and lease_until < until > self._clock.wall:
                self.report(job_id, "lease.cut", f"the lease of its live worker ended at {lease_until}, not {until}")
            if longest is not None and lease_until > longest:
                self.report(job_id, "lease.long", f"its lease ends {lease_until - longest} µs after its timeout")

    def _check_deleted(self) -> None:
        """Only jobs that ended long enough ago are deleted, and none with an open dead letter."""
        if self._keep is None:
            return
        stored = {job_id for (job_id,) in self._connection.execute("SELECT id FROM detent_jobs")}
        for job_id in self._rows.keys() - stored - self._deleted:
            row = self._rows[job_id]
            self._deleted.add(job_id)
            if row.phase != Phase.FINAL or (row.finished_at or 0) + self._keep > self._clock.highest:
                self.report(job_id, "prune.early", f"deleted while it was {row.status}, ended at {row.finished_at}")
            if row.dlq_id is not None and row.dlq_id not in self._related_jobs.closed:
                self.report(job_id, "prune.dead-letter", f"deleted with its open dead letter {row.dlq_id}")

    def _check_job(self, job_id: str, new_events: list[EventRow]) -> None:
        rows: Any = self._connection.execute(JOBS_QUERY + " WHERE id = ?", (job_id,)).fetchall()
        if not rows:
            self.report(job_id, "log.orphan", "events of a job that does not exist")
            return
        row, before = JobRow(*rows[0]), self._rows.get(job_id)
        table = self._tables[row.contract]
        log = self._logs.setdefault(job_id, [])
        log += new_events
        for event in new_events:
            self._check_event(table, before, event)
        dead_letters = [DeadLetterRow(*values) for values in self._connection.execute(_DEAD_LETTERS, (job_id,))]
        signals = [name for (name,) in self._connection.execute(_SIGNALS, (job_id,))]
        for finding in check_job(table, row, log, dead_letters, signals):
            self.report(*finding, row.version)
        if before is not None:
            self._check_settling_token(row, new_events)
        self._check_version(row, new_events)
        self._check_dead_letters(row, len(dead_letters))
        self._rows[job_id] = row
        (self.unfinished.discard if row.phase == Phase.FINAL else self.unfinished.add)(job_id)
        self._results[job_id] = self._result_of(job_id)
        self._check_interruptions(row)
        if before is None:
            for finding in (*self._related_jobs.check_requeued(job_id), *self._related_jobs.check_child(job_id)):
                self.report(*finding)
        contract, resting = self._contracts[row.contract], row.phase in (Phase.CLAIMABLE, Phase.BLOCKED)
        if job_id in self._cancel_requested and resting and row.status not in contract.cancel_requests:
            self.report(job_id, "cancel.forgotten", f"it is {row.status}, its cancel request was not carried out")

    def _check_interruptions(self, row: JobRow) -> None:
        """A job that was interrupted too often has ended."""
        contract = self._contracts[row.contract]
        most = (
            self.max_deliveries - 1 if contract.uses_stream and self.max_deliveries else contract.loss.max_interruptions
        )
        if most and row.phase != Phase.FINAL and row.interruptions > most:
            self.report(row.id, "interruptions.many", f"it goes on after {row.interruptions} interruptions")

    def _check_dead_letters(self, row: JobRow, dead_letters: int) -> None:
        rule = self._contracts[row.contract].dead_letters
        for first, created in self._connection.execute(_FIRST_FAILED, (row.id,)):
            charged = [event.at for event in self._logs[row.id] if '"charged":true' in (event.data or "")]
            if first != min(charged, default=created):
                detail = f"its dead letter says that it failed first at {first}, the log {charged[:1] or created}"
                self.report(row.id, "dead-letter.first", detail)
        if dead_letters and rule and rule.note and (noted := self._count_notes(row.id, rule.note)) != dead_letters:
            self.report(row.id, "note.missing", f"{dead_letters} dead letters have {noted} notes {rule.note}")

    def _count_notes(self, job_id: str, name: str) -> int:
        rows: Any = self._connection.execute(_COUNT_NOTES, (job_id, name)).fetchall()
        return int(rows[0][0])

    def _check_version(self, row: JobRow, new_events: list[EventRow]) -> None:
        """A job that a worker of the old version cannot run is handed back, it does not fail."""
        for event in new_events:
            failed = _UNBOUND in (event.data or "") and json.loads(event.data or "{}").get("error_code") == _UNBOUND
            if failed and event.source and self._contracts[row.contract].edge(event.source, Move.RELEASE):
                self.report(row.id, "version.failed", "a job failed because an old version cannot run it", event.seq)

    def _check_event(self, table: ContractTable, before: JobRow | None, event: EventRow) -> None:
        """A lease is not expired before its end; a job is not claimed before it is due, nor from a paused queue."""
        if before is None:
            return
        move, contract = move_of(table, event), self._contracts[before.contract]
        data = json.loads(event.data or "{}")
        reason = data.get("reason")
        lost = reason == "lease_expired" or move is Move.RECLAIM
        if lost and self.is_kept(event.job_id, self._results[event.job_id][0]):
            self.report(event.job_id, "lease.lost", "a worker that no fault has hit lost its lease", event.seq)
        expired = lost or reason == "execution_timeout"
        lease_until, _ = self._leases.get(event.job_id, (0, None))
        if expired and lease_until > self._clock.wall:
            left = lease_until - self._clock.wall
            self.report(event.job_id, "lease.live", f"a lease with {left} µs left was expired", event.seq)
        if move is Move.CLAIM and event.source == before.status and (before.due_at or 0) > self._clock.highest:
            self.report(event.job_id, "due.early", f"claimed before its due_at {before.due_at}", event.seq)
        findings = [*check_retry(contract, before, event, move)]
        if move is Move.WAKE:
            if reason in ("timeout", "expired") and (before.due_at or 0) > self._clock.highest:
                self.report(event.job_id, "wake.early", f"its wait timed out before {before.due_at}", event.seq)
            findings += check_wake(self._connection, before, event)
            findings += self._related_jobs.check_wake(event.job_id)
        if move is Move.CLAIM and not contract.uses_stream:  # a message is delivered anyway
            findings += check_order(self._connection, event.job_id)
            for (queue,) in self._connection.execute(_PAUSED_QUEUE, (event.job_id,)):
                self.report(event.job_id, "pause.ignored", f"claimed while its queue {queue} is paused", event.seq)
        for finding in findings:
            self.report(*finding, event.seq)
        requested = contract.approval_notes.get("requested") or "approval.requested"
        if move is Move.HOLD and not self._count_notes(event.job_id, requested):
            self.report(event.job_id, "note.missing", "it waits for an approval without a note", event.seq)
        if move is Move.RETRY:
            self._check_backoff(before, event)
        self._check_pause(event, data)

    def _check_backoff(self, before: JobRow, event: EventRow) -> None:
        """A retry waits as long as its handler says, if the contract allows that, or as the backoff says."""
        rule, data = self._contracts[before.contract].retry, json.loads(event.data or "{}")
        delay = rule.backoff.delay_ms(event.job_id, event.retries + 1, deterministic_jitter) * 1_000
        if (data.get("error_message") or "").endswith(SOON) and not rule.frozen:
            delay = int(RETRY_SOON_SECONDS * SECOND)
        waits = data.get("due_at", event.at) - event.at
        if waits != delay:
            detail = f"retry {event.retries + 1} is due after {waits} µs, it must wait {delay} µs"
            self.report(event.job_id, "retry.delay", detail, event.seq)

    def _check_pause(self, event: EventRow, data: Mapping[str, Any]) -> None:
        """A snooze, a sleep or a wait lasts as long as the handler says."""
        name = SNOOZED if data.get("reason") == SNOOZED else data.get("correlation_key")
        due_at = data.get("due_at")
        if name in _PAUSES and (None if due_at is None else due_at - event.at) not in _PAUSES[name]:
            self.report(event.job_id, "pause.differs", f"{name} at {event.at} lasts until {due_at}", event.seq)

    def _check_settling_token(self, row: JobRow, new_events: list[EventRow]) -> None:
        """Results, errors and reasons name the token of their execution: the one the job was leased under.

        Not checked: results from the stream that claim the job and settle it in one commit.
        """
        (holder, old, _), (_, result, error) = self._results[row.id], self._result_of(row.id)
        table = self._tables[row.contract]
        moves = {move_of(table, event) for event in new_events}
        if Move.SUCCEED in moves and result is None:
            self.report(row.id, "result.lost", "the job succeeded, but its result is not stored", row.version)
        if Move.SUCCEED in moves and error is not None:
            self.report(row.id, "error.kept", f"the job succeeded, and keeps the error {error}", row.version)
        if self._contracts[row.contract].uses_stream and moves & {Move.CLAIM, Move.RECLAIM}:
            return
        tokens = [json.loads(result)[TOKEN_FIELD]] if result and result != old else []
        data = [json.loads(event.data) for event in new_events if event.data]
        messages = [values.get("error_message") or values.get("reason") or "" for values in data]
        tokens += [text.partition(TOKEN_PREFIX)[2].split()[0] for text in messages if TOKEN_PREFIX in text]
        for token in tokens:
            if token != holder:
                self.report(row.id, "settle.stale", f"{token} settled a job held under {holder}", row.version)

    def _check_quotas(self, new_events: Sequence[EventRow]) -> None:
        """A commit that creates jobs leaves their tenant within its quota. Endless waits do not count."""
        created = [self._rows[event.job_id].tenant_id for event in new_events if event.source is None]
        for tenant in {*created} & self._quotas.keys():
            rows = [row for job_id in self.unfinished if (row := self._rows[job_id]).tenant_id == tenant]
            backlog = sum(row.phase != Phase.BLOCKED or row.due_at is not None for row in rows)
            if backlog > (most := self._quotas[tenant]):
                self.report("", "quota.exceeded", f"{backlog} unfinished jobs of {tenant}, at most {most} are allowed")

    def fingerprint(self) -> list[Any]:
        """Numbers that any committed change of jobs alters."""
        return self._connection.execute(_FINGERPRINT).fetchall()

    def check_rolled_back(self, before: list[Any]) -> None:
        """A transaction that failed in the middle has changed nothing."""
        if (after := self.fingerprint()) != before:
            self.report("", "batch.torn", f"a failed transaction changed {before[0]} to {after[0]}")

    def _check_limits(self, new_events: Sequence[EventRow]) -> None:
        """What limits bound is counted from the log, in commit order."""
        if not self._has_limits:
            return
        for event in new_events:
            for contract, *kind in self._connection.execute(_KIND, (event.job_id,)):
                step = Step(event.job_id, event.at, contract, event.source, event.target, JobKind(*kind))
                for excess in self._limits.feed(step, self._contracts):
                    self.report(event.job_id, "limit.exceeded", excess)

    def _result_of(self, job_id: str) -> tuple[str | None, str | None, str | None]:
        rows: Any = self._connection.execute(_RESULT, (job_id,)).fetchall()
        return rows[0][0], rows[0][1], rows[0][2]

    def _check_signals(self) -> None:
        """The first signal of a name counts: it is never changed, and deleted with its job only."""
        sums = self._connection.execute(_SIGNAL_SUMS).fetchall()
        if sums == self._signal_sums:
            return
        self._signal_sums = sums
        stored: dict[tuple[str, str], tuple[Any, ...]] = {
            (job_id, name): tuple(values) for job_id, name, *values in self._connection.execute(_ALL_SIGNALS)
        }
        for key, values in self._signals.items():
            if key[0] not in self._deleted and stored.get(key) != values:
                self.report(key[0], "signal.changed", f"{key[1]!r} was {values}, it is {stored.get(key)}")
        for job_id, name in stored.keys() - self._signals.keys():
            for _ in self._connection.execute(_AWAITS_SIGNAL, (job_id, name)):
                self.report(job_id, "signal-missed", f"the job waits for {name!r}, but that signal was sent")
        self._signals = stored

    def check_submitted(self, submission: Submission, job_id: str) -> None:
        """An acknowledged job is stored as it was submitted."""
        if not (log := self._logs.get(job_id)):
            return  # reported as lost at the end
        retries = submission.max_retries
        wanted = [submission.queue, submission.tenant_id, submission.priority, submission.timeout_ms]
        rows: Any = self._connection.execute(_SUBMITTED, (job_id,))
        for payload, max_retries, *stored in rows:
            if (json.loads(payload), stored) != (submission.payload, wanted) or retries not in (None, max_retries):
                self.report(job_id, "submit.differs", f"{retries}, {wanted} submitted, {max_retries}, {stored} stored")
        due_at = json.loads(log[0].data or "{}").get("due_at", log[0].at)
        if not submission.hold and due_at - log[0].at < int((submission.delay or 0.0) * SECOND):
            self.report(job_id, "submit.differs", f"submitted with a delay of {submission.delay} s, due at {due_at}")
        if submission.hold and move_of(self._tables[self._rows[job_id].contract], log[0]) is not Move.HOLD:
            self.report(job_id, "submit.differs", f"submitted to be held, its first event is {log[0].event}")

    def check_changed(self, job: Job) -> None:
        """What an operator has changed is stored as the call returned it, unless the job was changed again since."""
        for version, status, request in self._connection.execute(_CHANGED, (job.id,)):
            forgotten = job.cancel_requested is not None and request != job.cancel_requested
            if version < job.version or (version == job.version and (status != job.status or forgotten)):
                detail = f"a call returned {job.status}, version {job.version}; it is {status}, version {version}"
                self.report(job.id, "change.lost", detail)
        # The cancel of a parent requests that of its children without an entry.
        if job.cancel_requested is None and not list(self._connection.execute(_AUDITED, (job.id,))):
            self.report(job.id, "audit.missing", f"the job was changed to {job.status}, the audit log has no entry")

    def check_refused(self, job_id: str, refusal: DetentError) -> None:
        """A call that has created its job is answered with that job when it is repeated."""
        if job_id in self._rows and job_id not in self._deleted:
            self.report(job_id, "repeat.refused", f"the call had created the job, and was refused with {refusal.code}")

    def check_schedule(self, schedule: Schedule) -> None:
        for finding in self._schedules.check_edited(schedule):
            self.report(*finding)

    def check_signalled(self, job: Job, name: str, data: Any, *, is_first: bool) -> None:
        """An acknowledged signal is stored, with its data if it is the first of its name."""
        if job.id in self._deleted:
            return
        stored = [json.loads(row[0]) for row in self._connection.execute(_SIGNALLED, (job.id, name))]
        if not stored or (is_first and stored != [data]):
            self.report(job.id, "signal.lost", f"signal {name!r} was sent with {data}, stored is {stored}")

    def check_voted(self, job: Job, person: str) -> None:
        """A vote that did not decide is stored."""
        if job.wait_kind == APPROVAL and not list(self._connection.execute(_VOTED, (job.id, job.wait_name, person))):
            self.report(job.id, "vote.lost", f"the vote of {person} was acknowledged, and is not stored")

    def check_claimed(self, claimed: Claimed) -> None:
        """A worker receives the payload and the tenant of the job that it claimed, and whether it is a suspect."""
        received = (claimed.payload, claimed.tenant_id, claimed.queue, claimed.job_type, claimed.timeout_ms)
        for stored in self._connection.execute(_CLAIMED, (claimed.id,)):
            if stored != received:
                self.report(claimed.id, "claim.differs", f"a worker received {received}, stored is {stored}")
        log = self._logs.get(claimed.id, [])
        if claimed.suspect != is_suspect(self._tables[claimed.contract], log, claimed.execution_no):
            detail = f"execution {claimed.execution_no} was claimed with suspect {claimed.suspect}, its log differs"
            self.report(claimed.id, "suspect.differs", detail)

    def check_refusal(self, settlement: Settlement) -> None:
        """A refused result leaves a note, and is not the one that ended the execution."""
        job_id = settlement.id
        if job_id in self._deleted:
            return
        if not self._count_notes(job_id, SETTLE_REFUSED):
            self.report(job_id, "note.missing", "a late result was refused without a note")
        digest = f'%"settlement":"{digest_of(settlement.outcome)}"%'
        for (seq,) in self._connection.execute(_SETTLED_AS, (digest, job_id, settlement.token)):
            self.report(
                job_id, "repeat.refused", "this result has ended the execution, its repetition was refused", seq
            )

    def _check_steps(self) -> None:
        """Only the holder of a job records its steps, and a finished step never changes."""
        sums = self._connection.execute(_STEP_SUMS).fetchall()
        if sums == self._step_sums:
            return
        self._step_sums = sums
        for job_id, name, result, finished, token, phase, *executions in self._connection.execute(_STEPS):
            before, now = self._steps.get((job_id, name)), (result, finished)
            if now == before:
                continue
            self._steps[job_id, name] = now
            if before is not None and before[1]:
                self.report(job_id, "step.changed", f"{name} changed from {before[0]} to {result}")
            value = json.loads(result) if result else None
            recorded_by = value.get(TOKEN_FIELD) if isinstance(value, dict) else token
            if recorded_by != token or phase != Phase.LEASED:
                detail = f"{name} was recorded by {recorded_by}, the job was {phase} under {token}"
                self.report(job_id, "step.stale", detail)
            if len({*executions}) > 1:
                self.report(job_id, "step.execution", f"{name} was recorded for execution {executions[0]}")

    def _check_step_results(self) -> None:
        """The step results that a job's result contains are the recorded ones, whichever execution recorded them."""
        for job_id, name, step_result, job_result in self._connection.execute(_STEPS_OF_RESULTS):
            if json.loads(job_result).get(name, _MISSING) not in (_MISSING, json.loads(step_result)):
                detail = f"{name} is recorded as {step_result}, the job's result contains {job_result}"
                self.report(job_id, "step.differs", detail)

    def check_acknowledged(self, message_ids: Sequence[str]) -> None:
        """A message is acknowledged only after the result of its delivery is stored, or refused as too late."""
        for message_id in message_ids:
            values = (message_id, str(Phase.LEASED), self._clock.wall)
            for (job_id,) in self._connection.execute(_HELD_BY_MESSAGE, values):
                self.report(job_id, "ack.early", f"message {message_id} was acknowledged while it held the job")

    def any_ended(self, job_ids: Sequence[str]) -> bool:
        return any(job_id in self._rows and self._rows[job_id].phase == Phase.FINAL for job_id in job_ids)

    def jobs_where(self, condition: Callable[[Contract, JobRow], bool]) -> list[str]:
        return [job_id for job_id, row in self._rows.items() if condition(self._contracts[row.contract], row)]

    def jobs_between_executions(self) -> list[str]:
        """Jobs that have run, have not ended, and are not leased."""
        resting = (Phase.CLAIMABLE, Phase.BLOCKED)
        return [job_id for job_id, row in self._rows.items() if row.execution_no and row.phase in resting]

    def final_check(self, healed_at: Micros) -> None:
        """What can be checked only when every job has ended. healed_at: when the last fault was over."""
        self._check_step_results()
        for job_id, key in self._connection.execute(_KEYS_WITHOUT_JOB):
            self.report(job_id, "key.left", f"the job was deleted, and its key {key!r} stays taken")
        for job_id in sorted(self.acknowledged - self._rows.keys()):
            self.report(job_id, "submit.lost", "an acknowledged submit is not in the database")
        for finding in (*self._schedules.final_check(), *self._related_jobs.final_check(healed_at)):
            self.report(*finding)

    def unfinished_jobs(self, condition: str = "true") -> list[JobRow]:
        query = f"{JOBS_QUERY} WHERE phase <> ? AND {condition} ORDER BY id"
        rows = self._connection.execute(query, (str(Phase.FINAL),))
        return [JobRow(*values) for values in rows]


_MISSING = object()
SNOOZED = "snoozed"
_UNBOUND = "PAYLOAD_INVALID"
_FINGERPRINT = """SELECT count(*), sum(version), sum(lease_until), (SELECT max(n) FROM detent_events),
(SELECT count(*) FROM detent_keys), (SELECT count(*) FROM detent_steps), (SELECT count(*) FROM detent_signals),
(SELECT count(*) FROM detent_fires), (SELECT count(*) FROM detent_dead_letters) FROM detent_jobs"""
_COUNT_NOTES = "SELECT count(*) FROM detent_notes WHERE job_id = ? AND name = ?"
_PAUSED_QUEUE = (
    "SELECT p.name FROM detent_pauses p CROSS JOIN detent_job_list j ON j.queue = p.name"
    " WHERE p.kind = 'queue' AND j.id = ?"
)
_KEYS_WITHOUT_JOB = (
    "SELECT job_id, key FROM detent_keys k WHERE NOT EXISTS (SELECT 1 FROM detent_jobs j WHERE j.id = k.job_id)"
)
_WITHOUT_ACTOR = "SELECT job_id, seq FROM detent_event_list WHERE n > ? AND actor IS NULL"
_FIRST_FAILED = "SELECT first_failed_at, created_at FROM detent_dead_letters WHERE job_id = ?"
_SETTLED_AS = (
    "SELECT seq FROM detent_jobs j JOIN detent_event_list e ON e.job_id = j.id AND e.execution_no = j.execution_no"
    " AND e.data LIKE ? WHERE j.id = ? AND j.token = ?"
)
_RESULT = "SELECT token, result, error_code FROM detent_job_list WHERE id = ?"
_AUDITED = "SELECT 1 FROM detent_audit WHERE subject = ? LIMIT 1"
_PAUSES: dict[str, tuple[Micros | None, ...]] = {
    SNOOZED: (int(SNOOZE_SECONDS * SECOND),),
    SLEEP: (int(SLEEP_SECONDS * SECOND),),
    SIGNAL: (int(WAIT_SECONDS * SECOND), None),
}
_SIGNAL_SUMS = "SELECT count(*), sum(at), sum(timed_out) FROM detent_signals"
_ALL_SIGNALS = "SELECT job_id, name, data, at, timed_out FROM detent_signals"
_AWAITS_SIGNAL = (
    "SELECT 1 FROM detent_job_list WHERE id = ? AND phase = 'blocked' AND wait_name = ?"
    " AND wait_kind NOT IN ('approval', 'children')"
)
_SUBMITTED = "SELECT payload, max_retries, queue, tenant_id, priority, timeout_ms FROM detent_job_list WHERE id = ?"
_CHANGED = "SELECT version, status, cancel_requested FROM detent_job_list WHERE id = ?"
_SIGNALLED = "SELECT data FROM detent_signals WHERE job_id = ? AND name = ?"
_VOTED = "SELECT 1 FROM detent_votes WHERE job_id = ? AND name = ? AND person = ?"
_CLAIMED = "SELECT payload, tenant_id, queue, job_type, timeout_ms FROM detent_job_list WHERE id = ?"
_KIND = "SELECT contract, queue, job_type, tenant_id, limit_key FROM detent_job_list WHERE id = ?"
_STEPS = (
    "SELECT s.job_id, s.name, s.result, s.finished, j.token, j.phase, s.execution_no, j.execution_no "
    "FROM detent_steps s JOIN detent_job_list j ON j.id = s.job_id"
)
_STEP_SUMS = "SELECT count(*), sum(finished), sum(at), sum(length(result)) FROM detent_steps"
_STEPS_OF_RESULTS = (
    "SELECT s.job_id, s.name, s.result, j.result FROM detent_steps s JOIN detent_job_list j ON j.id = s.job_id "
    "WHERE s.finished AND j.result IS NOT NULL"
)
_DEAD_LETTERS = f"SELECT {', '.join(DeadLetterRow._fields)} FROM detent_dead_letters WHERE job_id = ?"
_SIGNALS = "SELECT name FROM detent_signals WHERE job_id = ?"
_HELD_BY_MESSAGE = (
    "SELECT id FROM detent_job_list WHERE token = ? AND phase = ? AND coalesce(updated_at + timeout_ms * 1000 > ?, 1)"
)
_LEASES = (
    f"SELECT id, lease_until, token, cancel_requested, updated_at + timeout_ms * 1000 + {TIMEOUT_GRACE},"
    " EXISTS (SELECT 1 FROM detent_workers w WHERE w.id = j.worker) FROM detent_job_list j WHERE phase = ?"
)
