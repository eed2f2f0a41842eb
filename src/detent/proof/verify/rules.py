"""The rules `verify` holds a database to: their names, one sentence each, and the findings made under them."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

RULES = {
    "contract-unknown": "A job's contract is carried by the program or declared in the database.",
    "creation-first": "A log begins with an event that creates the job, and every job has a log.",
    "seq-gap": "The events of a job are numbered 1, 2, 3, … without gaps.",
    "version-differs": "A job's version is the number of its last event.",
    "source-differs": "An event leaves the status that the event before it led to.",
    "step-illegal": "Every step (source, event, target) of a log is an edge of the job's contract.",
    "final-absorbing": "Nothing happens to a job after its end, unless it is reopened (formal invariant 1).",
    "final-once": "An ended job has exactly one final event, any other job none (formal invariant 1).",
    "waiting-unlogged": "A job waits only if its last event says so (formal invariant 2).",
    "running-unlogged": "A job is held only if its last event gave it to a worker (formal invariant 3).",
    "blocked-taken": "A blocked job is not claimed, retried or reclaimed before it was woken (formal invariant 4).",
    "follow-at-once": "Follow-up edges are committed with the edge before them, so no job rests in between.",
    "status-differs": "A job's status is the one its log leads to.",
    "phase-differs": "A job's phase is the phase its contract gives to its status.",
    "executions-differ": "execution_no is the number of times the log gave the job to a worker.",
    "failures-differ": "failures is the number of charged failures in the log since the job was created or reopened.",
    "retries-differ": "retries is the number of retries in the log since the job was created or reopened.",
    "interruptions-differ": "interruptions is the number of uncharged losses in the log since creation or reopening.",
    "event-counters": "Every event carries the execution number and the retry count that held when it happened.",
    "budget-exceeded": "No job is tried more often than its max_retries, and a frozen max_retries stays as it is.",
    "time-backwards": "The times of a job's events never run backwards.",
    "created-differs": "created_at is the time of the first event.",
    "updated-differs": "updated_at is the time of the last event.",
    "started-differs": "started_at is the time of the first claim, empty before.",
    "finished-differs": "finished_at is the time of the final event, empty before.",
    "lease-missing": "A held job has a token, a worker and a lease that began no earlier than its claim.",
    "lease-left": "A job that nobody holds has no worker and no lease.",
    "token-unearned": "A job has a token if and only if it was ever claimed.",
    "due-missing": "A claimable job has a due time, and only claimable jobs are marked ready.",
    "due-differs": "due_at is the moment the last event logged, if it logged one.",
    "retry-at-differs": "next_retry_at is set exactly in the statuses the contract names, to the due time.",
    "wait-differs": "wait_name is what the last event waits for; a job that is not blocked waits for nothing.",
    "data-unreadable": "What an event carries is a JSON object.",
    "key-missing": "A job owns the row of its idempotency key and of its task_id where that is a key.",
    "key-taken": "No two jobs bear one key: the row of a job's key belongs to that job.",
    "key-stray": "Every row in keys belongs to a job that bears that key.",
    "key-without-job": "A key belongs to a job that exists.",
    "attempt-missing": "A job has a task_attempt if and only if its contract numbers the runs of a task.",
    "attempt-gap": "The runs of one task are numbered 1, 2, 3, … without gaps or repetition.",
    "dead-letter-missing": "A job that was given up has its dead letter on record, one for each time.",
    "dead-letter-unearned": "Only a job that was given up has a dead letter.",
    "dead-letter-differs": "A dead letter and its job name each other and agree on contract, tenant and retry count.",
    "dead-letter-twice": "There is one dead letter per job and retry count.",
    "dead-letter-orphan": "Every dead letter belongs to a job that exists.",
    "requeue-link": "A requeued dead letter names the job made from it, and that job names the dead letter.",
    "discard-people": "A discard was made by as many different people as the contract asks for, all on audit.",
    "discard-reason": "Everyone who took part in a discard gave a reason.",
    "fire-missing": "A job that bears the key of a fire is the one job on record with that fire.",
    "fire-without-job": "The job of a fire exists, or was pruned.",
    "fire-differs": "A job made by a fire bears its moment and its key.",
    "schedule-set-back": "A schedule is to fire later than it last fired.",
    "schedule-unfired": "The last fire a schedule tells of is on record with the job it names.",
    "event-orphan": "Every event belongs to a job.",
    "note-orphan": "Every note belongs to a job.",
    "step-orphan": "Every recorded step belongs to a job.",
    "step-unearned": "A step was recorded in an execution its job had, or taken over by a requeue.",
    "step-empty": "A finished step has a result.",
    "takeover-unnamed": "A takeover names the old consumer, the new one and the message (streams).",
    "parcel-orphan": "What waits in the outbox tells of a job that exists (streams).",
    "signal-orphan": "Every signal belongs to a job.",
    "parent-stranded": "A job that waits for children waits for one that has not ended, or there is news for it.",
    "awaited-adrift": "Only a job that waits for children has children it waits for, and they are its own.",
    "approval-missing": "A job that waits for people has asked them something that is not decided.",
    "approval-uncounted": "A question was decided by its quorum, by one who rejected, or by its deadline as declared.",
    "approval-orphan": "Every question belongs to a job, and every vote to a question.",
    "note-adrift": "A note follows an event that exists.",
    "final-reopened": "Warning: an operator reopened an ended job (formal invariant 1).",
    "schedule-astray": "Warning: a schedule is to fire at a moment its expression does not mean (any more).",
    "contract-changed": "Warning: the database holds another table than the program for a contract of this name.",
}
"""Name -> what must hold. Names are stable: programs match on them."""

WARNINGS = frozenset({"final-reopened", "contract-changed", "key-without-job", "schedule-astray"})
"""Rules that do not make a database wrong: an operator's right, the work of a pruner, a law about summer time."""

KEPT_AT_MOST = 10_000


class Finding(NamedTuple):
    """Where a rule is broken: the job (or None), the event (or None for the row itself), the rule, what was found."""

    job_id: str | None
    seq: int | None
    rule: str
    detail: str


@dataclass(slots=True)
class Report:
    """What a verification found. Findings beyond a bound are counted, not kept."""

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
        kept = self.warnings if rule in WARNINGS else self.violations
        if len(kept) < KEPT_AT_MOST:
            kept.append(Finding(job_id, seq, rule, detail))
        else:
            self.left_out += 1

    def as_dict(self) -> dict[str, Any]:
        told = {
            "ok": self.ok,
            "jobs": self.jobs,
            "events": self.events,
            "violations": [finding._asdict() for finding in self.violations],
            "warnings": [finding._asdict() for finding in self.warnings],
        }
        return {**told, "left_out": self.left_out} if self.left_out else told
