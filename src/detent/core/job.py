"""Stored records: jobs, events, notes, dead letters, signals, steps; and Change, one decided write of a job."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from detent.core.contract.model import Move, Phase
from detent.core.options.job_options import JobKeys
from detent.core.retry import Origin

Micros = int
"""A time or a duration in microseconds; times count from 1970-01-01 UTC."""

NEVER: Micros = 1 << 62
TIMEOUT_GRACE: Micros = 1_000_000
"""How long an execution keeps its lease after its timeout, so that its worker can report the timeout itself."""
SUSPECT_LOSSES = 2
"""A job whose last executions were lost this often is a suspect. One loss is the common fate of healthy jobs."""


@dataclass
class RequiredJobColumns:
    """The columns that every job has from the start."""

    __slots__ = ()
    id: str
    contract: str
    job_type: str
    status: str
    phase: Phase
    version: int
    payload: str
    created_at: Micros
    updated_at: Micros
    due_at: Micros | None


@dataclass(slots=True)
class Job(JobKeys, RequiredJobColumns):
    """One row: its state, and the options that it was submitted with. Immutable: a Change holds the next row."""

    ready: bool = False
    max_retries: int = 3
    execution_no: int = 0
    failures: int = 0
    retries: int = 0
    interruptions: int = 0
    losses: int = 0
    """Executions lost in a row: the worker died or lost its lease. 0 again after one that ended in good order."""
    token: str | None = None
    worker: str | None = None
    lease_until: Micros | None = None
    result: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    error_counts: str | None = None
    """JSON object: error code -> failures with it. Kept only if the contract caps codes."""
    next_retry_at: Micros | None = None
    wait_name: str | None = None
    wait_kind: str | None = None
    wait_parked: bool = False
    cancel_requested: str | None = None
    """JSON {actor, reason, at} of a cancel request that the holder has not carried out yet."""
    task_attempt: int | None = None
    schedule_type: str | None = None
    scheduled_at: Micros | None = None
    dlq_id: str | None = None
    """The dead letter of this job, or None."""
    first_failed_at: Micros | None = None
    started_at: Micros | None = None
    finished_at: Micros | None = None
    deadline_at: Micros | None = None
    """A job that has not started by then is cancelled."""

    @property
    def longest_lease(self) -> Micros:
        """No lease of an execution is longer: it ends with the timeout, after a grace."""
        return NEVER if self.timeout_ms is None else self.timeout_ms * 1_000 + TIMEOUT_GRACE

    @property
    def times_out_at(self) -> Micros:
        """When the execution of a leased job must have ended. It began at updated_at: heartbeats do not change that."""
        return self.updated_at + self.longest_lease - TIMEOUT_GRACE

    @property
    def awaited_signal(self) -> str | None:
        """The name of the signal that the job waits for; None if it does not wait, or for something else."""
        waits = self.phase is Phase.BLOCKED and self.wait_kind not in (APPROVAL, CHILDREN)
        return self.wait_name if waits else None

    @property
    def suspect(self) -> bool:
        """True if this job may be what kills its workers: it runs alone in its worker until an execution ends."""
        return self.losses >= SUSPECT_LOSSES

    def note(self, name: str, now: Micros, actor: str | None, data: dict[str, Any] | None = None) -> "Note":
        """A note that follows the last event of this job."""
        return Note(self.id, self.version, name, max(now, self.updated_at), actor, self.execution_no, data)


@dataclass(slots=True)
class Event:
    """One status change. seq: the job's version after it. retries: the count before it."""

    job_id: str
    seq: int
    event: str
    source: str | None
    target: str
    at: Micros
    actor: str | None = None
    execution_no: int = 0
    retries: int = 0
    data: dict[str, Any] | None = None


@dataclass(slots=True)
class Note:
    """A log entry without a status change; it follows the event with the same seq."""

    job_id: str
    seq: int
    name: str
    at: Micros
    actor: str | None = None
    execution_no: int = 0
    data: dict[str, Any] | None = None


class DeadLetterStatus(StrEnum):
    """Open until it is requeued as a new job or discarded."""

    OPEN = "open"
    REQUEUED = "requeued"
    DISCARDED = "discarded"


@dataclass(slots=True)
class DeadLetter:
    """The record of a failed job, to be requeued or discarded."""

    id: str
    job_id: str
    tenant_id: str
    contract: str
    job_type: str
    queue: str
    error_class: str | None
    error_code: str
    error_message: str | None
    payload: str
    context: str
    retries: int
    status: str
    first_failed_at: Micros
    created_at: Micros
    updated_at: Micros
    requeued_as: str | None = None
    proposed_by: str | None = None
    proposed_reason: str | None = None
    proposed_with: str | None = None
    """JSON: who else may have made the proposal, see `core.access.Signer`."""
    error_group: str = ""
    """The same for dead letters of the same error, see `error_group`."""


LONGEST_PATTERN = 300
_VARIABLE_PARTS = (
    (re.compile(r"\b[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\"(?:[^\"\\]|\\.)*\"|(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|`[^`]*`|“[^”]*”|‘[^’]*’|「[^」]*」"), "<text>"),
    (re.compile(r"(?<!\w)(\w{2,20}://[^\s/?#]+)[/?#][^\s,;)\]]*"), r"\1/<path>"),
    (re.compile(r"(?<![\w:/\\.>])(?:[A-Za-z]:|\.{1,2}|~)?(?:[/\\][\w.@%+=-]+){2,}[/\\]?"), "<path>"),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<email>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"), "<time>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\b(?=\w*\d)(?=\w*[a-z])\w{16,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"(?:(?<![\w>])[-+])?\d+(?:[.,]\d+)*(?:e[-+]?\d+\b)?", re.IGNORECASE), "<number>"),
    (re.compile(r"\s+"), " "),
)
"""What differs between two messages of the same error -> what stands for it. Quoted text comes before numbers."""


def error_pattern(message: str | None) -> str:
    """The message of an error with ids, quoted texts, paths, times and numbers replaced: `user <number> not found`."""
    text = (message or "")[: LONGEST_PATTERN * 4]
    for pattern, name in _VARIABLE_PARTS:
        text = pattern.sub(name, text)
    return text.strip()[:LONGEST_PATTERN]


def error_group(job_type: str, error_class: str | None, error_code: str, message: str | None) -> str:
    """An id for the dead letters of one job type that have the same class, code and pattern of their messages."""
    parts = "\0".join((job_type, error_class or "", error_code, error_pattern(message)))
    return blake2b(parts.encode("utf-8", "backslashreplace"), digest_size=10).hexdigest()


@dataclass(frozen=True, slots=True)
class Signal:
    """A message to a job under a name. Only the first signal per name counts."""

    job_id: str
    name: str
    data: str
    actor: str | None
    at: Micros
    timed_out: bool = False
    """True: the wait for this name timed out; later signals do not change that."""


SignalKey = tuple[str, str]
"""(job id, name) of a signal."""


@dataclass(frozen=True, slots=True)
class Step:
    """A recorded step of a handler. result: its JSON text once it is finished. at: when it was recorded."""

    job_id: str
    name: str
    digest: str
    result: str | None
    finished: bool
    execution_no: int
    at: Micros
    started_at: Micros | None = None
    """When its function was called first; None to record: the time of the record. Never after `at`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is, as its handler reported last. share: from 0 to 1."""

    job_id: str
    execution_no: int
    share: float
    message: str
    at: Micros


@dataclass(frozen=True, slots=True)
class LogLine:
    """A captured log line. n: its number within its execution, from 1."""

    execution_no: int
    n: int
    at: Micros
    level: str
    logger: str
    message: str


@dataclass(frozen=True, slots=True)
class Loss:
    """A job that was taken from a worker because its lease expired."""

    job_id: str
    execution_no: int
    worker: str
    job_type: str
    queue: str
    contract: str
    tenant_id: str
    seen_at: Micros | None
    """The worker's last heartbeat; None if it was not registered."""
    lease_until: Micros
    at: Micros
    charged: bool
    given_up: bool
    """True: no retries were left, the loss ended the job."""
    target: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an execution failed. code "": the contract's code for failures. retryable None: the contract decides."""

    code: str
    message: str
    error_class: str | None = None
    retryable: bool | None = None
    traceback: str | None = None
    after: Micros | None = None
    """A delay that replaces the backoff."""
    origin: Origin = Origin.ENGINE
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    """What the handler raised, for logs and hooks of this process. It is not stored."""


APPROVAL = "approval"
"""The kind of a wait that an approval or rejection ends."""
CHILDREN = "children"
"""The kind of a wait that ended children end."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A running job's request for approval: what to approve, required roles, quorum, default at the deadline."""

    summary: str
    about: str
    """JSON: the content to be approved, as given by the handler."""
    digest: str
    """Hash of `summary` and `about`; an approval refers to it."""
    roles: tuple[str, ...] = ()
    """A person needs one of these roles to decide; empty: no role is needed."""
    quorum: int = 1
    """How many different people must approve; one rejection is enough to reject."""
    on_expiry: str = "fail"
    """The decision at the deadline if there is none: approve, reject or fail."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a job waits for. timeout None: only the signal, the decision or the children end the wait."""

    name: str
    kind: str = "signal"
    timeout: Micros | None = None
    park: bool = False
    approval: ApprovalRequest | None = None
    children: tuple[str, ...] = ()
    wakes_on: str = "end"
    """When children end the wait: `end`: all ended; `failure`: one failed or all ended; `any`: one ended."""


@dataclass(slots=True)
class Facts:
    """The inputs of `decide` besides job and move. All are optional; each move reads those it needs.

    Treated as immutable: `frozen=True` would make its creation, one for each change, four times as slow.
    """

    actor: str | None = None
    reason: str | None = None
    token: str | None = None
    worker: str | None = None
    lease: Micros | None = None
    delay: Micros = 0
    due_at: Micros | None = None
    charged: bool = True
    losses: int = 0
    """`Job.losses` after an execution that does not end the job: one more if it was lost."""
    failure: Failure | None = None
    result: str | None = None
    wait: Wait | None = None
    dlq_id: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


TASK, DEAD_LETTER = "task", "letter"
"""Kinds of outbox items: a claimable task, or a dead letter."""


@dataclass(slots=True)
class Change:
    """The result of a decision: the next row, and the events and notes that are committed with it."""

    before: Job | None
    after: Job
    events: list[Event] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    dead_letter: DeadLetter | None = None
    outbox_item: str | None = None
    """What to publish to the stream: TASK, DEAD_LETTER or None. It stays in the outbox until it is published."""
    outbox_hold: Micros = 0
    """How long the outbox item is hidden from orchestrators, because the process that commits it publishes it."""
    ended: Move | None = None
    """The move that ended the job; None if this change did not end it."""
    failure: Failure | None = None
    """Why the execution failed that this change ended."""
    lease_lost: bool = False
    """True: the job was taken from a worker whose lease has expired."""

    @property
    def affected_parents(self) -> set[str]:
        """The jobs to process after the commit: the parent of an ended child, and a job that waits for children or was
        cancelled after it had started, so that it may have children."""
        after, affected = self.after, set[str]()
        if after.wait_kind == CHILDREN and self.events:
            affected.add(after.id)
        if self.ended is not None and after.parent_id is not None:
            affected.add(after.parent_id)
        if self.ended is Move.CANCEL and after.execution_no:
            affected.add(after.id)
        return affected


def unchanged(job: Job) -> Change:
    """The result of an act that found nothing to change."""
    return Change(before=job, after=job)
