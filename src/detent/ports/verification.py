"""What `verify` reads. A column of an outer join is None if the other row does not exist."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from detent.core.job import Micros

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which jobs to check. Without any restriction, rows that belong to no job are checked too."""

    job_id: str | None = None
    contract: str | None = None
    since: Micros | None = None
    """Only jobs whose updated_at is at this time or later."""


EVERYTHING = Scope()


class JobRange(NamedTuple):
    """Jobs of a scope by id: after `after`, up to and including `upto`; None means no bound."""

    scope: Scope
    after: str | None = None
    upto: str | None = None


class JobRow(NamedTuple):
    """The columns of a job that are compared with its log, or with other tables."""

    id: str
    contract: str
    status: str
    phase: str
    version: int
    execution_no: int
    failures: int
    retries: int
    interruptions: int
    created_at: Micros
    updated_at: Micros
    started_at: Micros | None
    finished_at: Micros | None
    has_token: bool
    has_worker: bool
    lease_until: Micros | None
    due_at: Micros | None
    ready: bool
    next_retry_at: Micros | None
    wait_name: str | None
    max_retries: int
    dlq_id: str | None
    requeued_from: str | None
    tenant_id: str
    idempotency_key: str | None
    idempotency_scope: str | None
    task_id: str | None
    task_attempt: int | None
    timeout_ms: int | None

    @property
    def state(self) -> tuple[str, str, int, int, int, int, int]:
        """What the log determines: status, phase, version, executions, failures, retries, interruptions."""
        return self[2:9]


class EventRow(NamedTuple):
    """One event. The fold of a log depends on the columns after `data`, and on flags of the data."""

    job_id: str
    seq: int
    at: Micros
    data: str | None
    event: str
    source: str | None
    target: str
    execution_no: int
    retries: int


class DeadLetterRow(NamedTuple):
    id: str
    job_id: str
    contract: str
    tenant_id: str
    retries: int


class RequeuedRow(NamedTuple):
    """A job that was requeued from `origin`, and the dead letter of that id."""

    job_id: str
    origin: str
    dlq_id: str | None
    requeued_as: str | None


class FiredRow(NamedTuple):
    schedule_id: str
    fire_at: Micros
    job_id: str


class StrayNote(NamedTuple):
    """A note that follows no event. version: of its job."""

    job_id: str
    seq: int
    name: str
    version: int | None


class StraySignal(NamedTuple):
    """A signal without a job, or one that its blocked job still waits for. status: of its job."""

    job_id: str
    name: str
    status: str | None


class StrayOutboxItem(NamedTuple):
    job_id: str
    kind: str


class StrayStep(NamedTuple):
    """A step of an execution that its job did not have, or without a result. executions: of its job."""

    job_id: str
    name: str
    execution_no: int
    executions: int | None


class UnnamedTakeover(NamedTuple):
    """An event whose data lack the old consumer, the new consumer or the message id."""

    job_id: str
    seq: int
    event: str


class DeadLetterLink(NamedTuple):
    """A dead letter, and its job: owner is the job's id, named its dlq_id."""

    id: str
    job_id: str
    contract: str
    status: str
    requeued_as: str | None
    owner: str | None
    named: str | None


class DiscardEntry(NamedTuple):
    """An audit entry about the discard of a dead letter."""

    dlq_id: str
    act: str
    actor: str
    reason: str | None


class KeyRow(NamedTuple):
    """A key, and the columns of the job that owns it."""

    space: str
    key: str
    owner: str
    job_id: str | None
    contract: str
    tenant_id: str
    idempotency_key: str | None
    idempotency_scope: str | None
    task_id: str | None


class AttemptRow(NamedTuple):
    task_id: str
    task_attempt: int
    job_id: str


class FireRow(NamedTuple):
    """A fire, and the columns of its job."""

    schedule_id: str
    fire_at: Micros
    job_id: str
    existing_id: str | None
    scheduled_at: Micros | None
    key: str | None


class ApprovalRow(NamedTuple):
    """An approval request, its counted votes, and the id of its job."""

    job_id: str
    name: str
    quorum: int
    decision: str | None
    expired: bool
    on_expiry: str
    approvals: int
    rejections: int
    owner: str | None


class StrandedParent(NamedTuple):
    """A parent that waits although no awaited child is open and no child event is left to process."""

    job_id: str
    wait_name: str | None


class AdriftChild(NamedTuple):
    """An awaited child whose parent does not wait, or that belongs to another parent."""

    parent_id: str
    child_id: str


class MissingApproval(NamedTuple):
    """A job that waits for an approval without an open one."""

    job_id: str
    wait_name: str | None


class StrayVote(NamedTuple):
    """A vote on an approval that does not exist."""

    job_id: str
    approval: str
    person: str


class MisplacedJob(NamedTuple):
    """An unfinished job that is not in the table where the store would find it."""

    job_id: str
    table: str


class StrayPlace(NamedTuple):
    """A row of such a table that does not fit its job. phase: of the job; wrong: what differs, if the phase fits."""

    job_id: str
    table: str
    phase: str | None
    wrong: str | None


class VerificationTable(Protocol):
    """Rows are ordered by their keys."""

    async def last_pruned_id(self) -> str:
        """No pruned job has an id above this one."""
        ...

    async def count_job_rows(self, scope: Scope) -> int: ...
    async def job_rows(self, jobs: JobRange, limit: int) -> list[JobRow]: ...

    async def rows_of(self, kind: type[T], jobs: JobRange) -> list[T]:
        """Rows of these jobs. kind: EventRow, DeadLetterRow, RequeuedRow, FiredRow, or one of the stray rows."""
        ...

    async def misplaced_jobs(self, rows: Sequence[JobRow]) -> list[MisplacedJob]:
        """Those of these jobs that the store would not find. Empty if it finds jobs by indexes alone."""
        ...

    async def unnamed_takeovers(self, jobs: JobRange, events: Sequence[str]) -> list[UnnamedTakeover]:
        """Among the events of these names."""
        ...

    async def dead_letter_links(self, scope: Scope, after: str | None, limit: int) -> list[DeadLetterLink]: ...
    async def discard_entries(self, scope: Scope, after: str | None, upto: str) -> list[DiscardEntry]: ...

    async def page(self, kind: type[T], after: T | None, limit: int) -> list[T]:
        """The next rows of the whole table. kind: KeyRow, AttemptRow, FireRow or ApprovalRow."""
        ...

    async def faults(self, kind: type[T], limit: int) -> list[T]:
        """kind: StrandedParent, AdriftChild, MissingApproval, StrayVote or StrayPlace."""
        ...
