"""The rules that `verify` checks: their names, one sentence each, and the report of findings."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

RULES = {
    "contract-unknown": "A job's contract is known to the program or declared in the database.",
    "creation-first": "Every job has a log, and its first event creates the job.",
    "seq-gap": "The events of a job are numbered 1, 2, 3, … without gaps.",
    "version-differs": "A job's version is the number of its last event.",
    "source-differs": "The source of an event is the target of the event before it.",
    "step-illegal": "Every (source, event, target) of a log is an edge of the job's contract.",
    "final-absorbing": "A finished job gets no further event unless it is reopened (formal invariant 1).",
    "final-once": "A finished job has exactly one final event, any other job has none (formal invariant 1).",
    "waiting-unlogged": "A job is blocked from the event that blocked it until one wakes it (formal invariant 2).",
    "running-unlogged": "A job is leased, and can succeed or fail, only after an event leased it (formal invariant 3).",
    "blocked-taken": "A blocked job is not claimed, retried or reclaimed before it was woken (formal invariant 4).",
    "follow-at-once": "A follow-up edge is committed with the edge before it; no job stays in the status between them.",
    "status-differs": "A job's status is the status in which its log ends.",
    "phase-differs": "A job's phase is the phase that its contract gives to its status.",
    "executions-differ": "execution_no is the number of times the job was leased according to its log.",
    "failures-differ": "failures is the number of charged failures in the log since the job was created or reopened.",
    "retries-differ": "retries is the number of retries in the log since the job was created or reopened.",
    "interruptions-differ": "interruptions is the number of uncharged lost leases logged since creation or reopening.",
    "event-counters": "Every event carries the execution number and the retry count at the time it was logged.",
    "budget-exceeded": "A job is not retried more than max_retries times, and a frozen max_retries does not change.",
    "time-backwards": "The times of a job's events never decrease.",
    "created-differs": "created_at is the time of the first event.",
    "updated-differs": "updated_at is the time of the last event.",
    "started-differs": "started_at is the time of the first claim, or empty if the job was never claimed.",
    "finished-differs": "finished_at is the time of the final event, or empty if the job has not finished.",
    "success-late": "A job with a timeout succeeded no later than that after its last execution began.",
    "lease-missing": "A leased job has a token, a worker and a lease that ends after the job was claimed.",
    "lease-left": "A job that is not leased has no worker and no lease_until.",
    "token-unearned": "A job has a token if and only if it was claimed at least once.",
    "due-missing": "A claimable job has a due time, and only claimable jobs are marked ready.",
    "due-differs": "due_at is the due time in the data of the last event, if it has one.",
    "retry-at-differs": "next_retry_at is set in exactly the statuses that the contract names, and equals due_at.",
    "wait-differs": "wait_name is the name in the data of the last event; a job that is not blocked has none.",
    "data-unreadable": "The data of an event is a JSON object.",
    "key-missing": "A job owns the row of its key, unless derived from its id, and of its task_id if that is a key.",
    "key-taken": "The row of a job's key belongs to that job: no two jobs have the same key.",
    "key-stray": "Every row in keys belongs to a job that has this key.",
    "key-without-job": "Every row in keys belongs to a job that exists.",
    "attempt-missing": "A job has a task_attempt if and only if its contract numbers the attempts of a task.",
    "attempt-gap": "The attempts of a task are numbered 1, 2, 3, … without gaps or repetition.",
    "dead-letter-missing": "A job that failed permanently has a dead letter, one for each time.",
    "dead-letter-unearned": "Only a job that failed permanently has a dead letter.",
    "dead-letter-differs": "A dead letter and its job name each other and agree on contract, tenant and retry count.",
    "dead-letter-twice": "A job has at most one dead letter per retry count.",
    "dead-letter-orphan": "Every dead letter belongs to a job that exists.",
    "requeue-link": "A requeued dead letter names the job created from it, and that job names the dead letter.",
    "discard-people": "A discard was made by as many different people as the contract requires, all in the audit log.",
    "discard-reason": "Everyone who took part in a discard gave a reason.",
    "fire-missing": "A job that has the key of a schedule run is the job recorded for that run.",
    "fire-without-job": "The job of a schedule run exists, or was pruned.",
    "fire-differs": "The job of a schedule run has the time and the key of that run.",
    "schedule-set-back": "The next run of a schedule is later than its last run.",
    "schedule-unfired": "The last run of a schedule is recorded, with the job that the schedule names.",
    "event-orphan": "Every event belongs to a job that exists.",
    "note-orphan": "Every note belongs to a job that exists.",
    "step-orphan": "Every recorded step belongs to a job that exists.",
    "step-unearned": "A step was recorded in an execution that its job had, or copied by a requeue.",
    "step-empty": "A finished step has a result.",
    "takeover-unnamed": "A takeover event names the old consumer, the new consumer and the message (streams).",
    "parcel-orphan": "Every outbox item belongs to a job that exists (streams).",
    "signal-orphan": "Every signal belongs to a job that exists.",
    "signal-missed": "A job does not wait for a signal that is on record.",
    "parent-stranded": "A job that waits for children has an unfinished child or an unprocessed child event.",
    "awaited-adrift": "Only a job that waits for children has awaited children, and they are its own children.",
    "approval-missing": "A job that waits for an approval has an undecided approval request of that name.",
    "approval-uncounted": "An approval is decided by its quorum, by one rejection, or by its deadline as declared.",
    "approval-orphan": "Every approval request belongs to a job that exists, and every vote to an approval request.",
    "queue-missing": "A claimable job is in the queue, or in timers until it is due (Postgres).",
    "timer-missing": "A blocked job with a due time is in timers (Postgres).",
    "claim-missing": "A leased job is in a row of claims that is checked no later than its lease ends (Postgres).",
    "approval-unlisted": "A job that waits for an approval is in awaiting_approval (Postgres).",
    "place-stray": "A row of queue, timers or awaiting_approval fits its job: phase, lane and due time (Postgres).",
    "note-adrift": "A note follows an event that exists.",
    "final-reopened": "Warning: an operator reopened a finished job (formal invariant 1).",
    "schedule-astray": "Warning: the next run of a schedule is at a time that its expression does not give (any more).",
    "contract-changed": "Warning: database and program have different statuses or edges for a contract of this name.",
}
"""Name -> what must hold. Names are stable: programs match on them."""

WARNINGS = frozenset({"final-reopened", "contract-changed", "key-without-job", "schedule-astray"})
"""Rules whose breach is no violation: operators may reopen, pruning removes jobs, time zone rules change."""

KEPT_AT_MOST = 10_000


class Finding(NamedTuple):
    """A broken rule: the job (or None), the event's seq (None: the row itself), the rule, what was found."""

    job_id: str | None
    seq: int | None
    rule: str
    detail: str


@dataclass(slots=True)
class Report:
    """The result of a verification. At most KEPT_AT_MOST findings of each kind are kept; the others are counted."""

    jobs: int = 0
    events: int = 0
    violations: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    left_out: int = 0

    @property
    def ok(self) -> bool:
        return not self.violations

    def add(self, job_id: str | None, seq: int | None, rule: str, detail: str) -> None:
        assert rule in RULES, rule
        findings = self.warnings if rule in WARNINGS else self.violations
        if len(findings) < KEPT_AT_MOST:
            findings.append(Finding(job_id, seq, rule, detail))
        else:
            self.left_out += 1

    def as_dict(self) -> dict[str, Any]:
        fields = {
            "ok": self.ok,
            "jobs": self.jobs,
            "events": self.events,
            "violations": [finding._asdict() for finding in self.violations],
            "warnings": [finding._asdict() for finding in self.warnings],
        }
        return {**fields, "left_out": self.left_out} if self.left_out else fields
