"""What is stored: jobs, events, notes, dead letters, signals, steps; and Change, the only way they come about."""

from dataclasses import dataclass, field
from typing import Any

from detent.core.contract.model import Move, Phase

Micros = int
"""A moment or a span in microseconds; moments count from 1970-01-01 UTC."""


@dataclass(slots=True)
class Job:
    """One row. Treated as immutable: a Change says what the next row looks like."""

    id: str
    contract: str
    job_type: str
    queue: str
    tenant_id: str
    status: str
    phase: Phase
    version: int
    payload: str
    created_at: Micros
    updated_at: Micros
    due_at: Micros | None
    ready: bool = False
    priority: int = 0
    limit_key: str = ""
    max_retries: int = 3
    timeout_ms: int | None = None
    execution_no: int = 0
    failures: int = 0
    retries: int = 0
    interruptions: int = 0
    token: str | None = None
    worker: str | None = None
    lease_until: Micros | None = None
    result: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    error_counts: str | None = None
    """JSON object code -> retries spent on it, kept only where the contract caps codes."""
    next_retry_at: Micros | None = None
    wait_name: str | None = None
    wait_kind: str | None = None
    wait_parked: bool = False
    cancel_requested: str | None = None
    """JSON {actor, reason, at} of a cancel the holder has yet to obey."""
    idempotency_key: str | None = None
    idempotency_scope: str | None = None
    task_id: str | None = None
    task_attempt: int | None = None
    schedule_type: str | None = None
    scheduled_at: Micros | None = None
    trace_id: str | None = None
    parent_id: str | None = None
    dlq_id: str | None = None
    """The dead letter this job left behind, or None."""
    requeued_from: str | None = None
    """The dead letter this job was made from, or None."""
    effect_root: str | None = None
    """The id effect keys are derived from: the first job of a chain of requeues."""
    first_failed_at: Micros | None = None
    started_at: Micros | None = None
    finished_at: Micros | None = None
    traceparent: str | None = None
    """The W3C trace context the job was submitted in, if anyone traces."""
    deadline_at: Micros | None = None
    """If nobody has begun it by then, it is too late."""


@dataclass(slots=True)
class Event:
    """One status change. seq is the version it made; retries is the count before it."""

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
    """Something worth telling that changed no status; it follows the event `seq`."""

    job_id: str
    seq: int
    name: str
    at: Micros
    actor: str | None = None
    execution_no: int = 0
    data: dict[str, Any] | None = None


@dataclass(slots=True)
class DeadLetter:
    """What is kept of a job that was given up."""

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


@dataclass(frozen=True, slots=True)
class Signal:
    """A message to a job under a name; the first one under a name is the one that counts."""

    job_id: str
    name: str
    data: str
    actor: str | None
    at: Micros
    timed_out: bool = False
    """True: nobody came, and the wait ended by its timeout; that is the answer for good."""


@dataclass(frozen=True, slots=True)
class Step:
    """A recorded piece of work: started, and finished if it has a result."""

    job_id: str
    name: str
    digest: str
    result: str | None
    finished: bool
    execution_no: int
    at: Micros


@dataclass(frozen=True, slots=True)
class Loss:
    """A job that was taken from a worker because its lease ran out."""

    job_id: str
    execution_no: int
    worker: str
    job_type: str
    queue: str
    contract: str
    tenant_id: str
    seen_at: Micros | None
    """The worker's last sign of life, if it had introduced itself."""
    lease_until: Micros
    at: Micros
    charged: bool
    given_up: bool
    """True: no tries were left, the loss ended the job."""
    target: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an execution failed. retryable None: the contract decides by the code."""

    code: str
    message: str
    error_class: str | None = None
    retryable: bool | None = None
    traceback: str | None = None
    after: Micros | None = None
    """A delay asked for instead of the backoff."""


APPROVAL = "approval"
"""The kind of a wait that people end by deciding."""
CHILDREN = "children"
"""The kind of a wait that the ends of children end."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question put to people by a running job: what it is about, who may answer, how many must agree, until when."""

    summary: str
    about: str
    """JSON: what exactly is to be approved, as far as the handler says."""
    digest: str
    """Of the summary and of what it is about; whoever approves, approves this."""
    roles: tuple[str, ...] = ()
    """One of these a person needs; none: anybody may decide."""
    quorum: int = 1
    """So many different people must approve; one who rejects is enough."""
    on_expiry: str = "fail"
    """What the deadline decides if people have not: approve, reject or fail."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a job goes to wait for. timeout None: only the signal, the people or the children end it."""

    name: str
    kind: str = "signal"
    timeout: Micros | None = None
    park: bool = False
    asked: Asked | None = None
    children: tuple[str, ...] = ()
    wakes_on: str = "end"
    """Which ends of children end it: `end` of all, `failure` of one or the end of all, `any` end."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What decide must be told about a move; all of it optional, each move reads its own."""

    actor: str | None = None
    reason: str | None = None
    token: str | None = None
    worker: str | None = None
    lease: Micros | None = None
    delay: Micros = 0
    due_at: Micros | None = None
    charged: bool = True
    failure: Failure | None = None
    result: str | None = None
    wait: Wait | None = None
    dlq_id: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


TASK, LETTER = "task", "letter"
"""Kinds of parcels: work that may be taken, and a dead letter."""


@dataclass(slots=True)
class Change:
    """The one outcome of a decision: the next row and what is logged with it, committed together or not at all."""

    before: Job | None
    after: Job
    events: list[Event] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    dead_letter: DeadLetter | None = None
    outbox_item: str | None = None
    """What the stream is to be told of it: TASK, LETTER or nothing; kept in the outbox until it was told."""
    ended: Move | None = None
    """The move that ended the job, if this change did."""
