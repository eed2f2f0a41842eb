"""The shapes of requests and answers, for the OpenAPI document; requests are checked against theirs, strictly."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

PRINTABLE = r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f\s][^\x00-\x1f\x7f]*$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=PRINTABLE)]
Prose = Annotated[str, StringConstraints(max_length=2_000, pattern=r"^[^\x00]*$")]
Moment = Annotated[str, Field(description="ISO-8601 UTC", examples=["2030-01-31T12:00:00.000000Z"])]


class Asks(BaseModel):
    """A request's body: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Problem(BaseModel):
    """RFC 9457, and what the code promises besides."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    trace_id: str


_TROUBLE = {
    400: "asked in a way this thing cannot be asked",
    401: "no token, or one that is over",
    403: "the role, the tenant or the session does not reach this far",
    404: "not there",
    408: "the body came too slowly",
    409: "refused as things stand",
    413: "too large",
    415: "not JSON",
    422: "a value that cannot be",
    429: "too many requests",
    503: "the database does not answer",
}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": _PROBLEM} for status, text in _TROUBLE.items()
}


class Job(BaseModel):
    id: str
    job_type: str
    contract: str
    queue: str
    tenant_id: str
    status: str
    phase: Literal["claimable", "leased", "blocked", "final"]
    version: int
    due_at: Moment | None
    priority: int
    execution_no: int
    max_retries: int
    timeout_ms: int | None
    payload: Any
    result: Any
    error_code: str | None
    error_message: str | None
    idempotency_key: str | None
    idempotency_scope: str | None
    task_id: str | None
    schedule_type: str | None
    scheduled_at: Moment | None
    trace_id: str | None
    parent_id: str | None
    dlq_id: str | None
    requeued_from: str | None
    worker: str | None
    lease_until: Moment | None
    created_at: Moment
    updated_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    view: dict[str, Any]


class Submitted(BaseModel):
    idempotent_hit: bool
    job: Job
    task: dict[str, Any] | None = None


class SubmittedMany(BaseModel):
    items: list[Submitted]


class Jobs(BaseModel):
    jobs: list[Job]
    next_cursor: str | None


class Event(BaseModel):
    seq: int
    event: str
    source: str | None
    target: str
    at: Moment
    actor: str | None
    execution_no: int
    trace_id: str | None
    data: dict[str, Any]
    note: bool
    envelope: dict[str, Any] | None


class Events(BaseModel):
    events: list[Event]
    next_cursor: str | None


class Why(BaseModel):
    reason: str
    sentence: str
    details: dict[str, Any]


class Violation(BaseModel):
    model_config = ConfigDict(extra="allow")
    job_id: str | None
    seq: int | None
    rule: str
    detail: str


class Verified(BaseModel):
    ok: bool
    jobs: int
    events: int
    violations: list[Violation]
    warnings: list[Violation]


class Signalled(BaseModel):
    first: bool
    job: Job


class Because(Asks):
    """Who did it is known from the token; why is said here."""

    reason: Prose | None = None


class Cancel(Because):
    force: bool = False


class Decide(Because):
    digest: str | None = Field(
        None, min_length=8, max_length=200, description="Of what was looked at; if something else is asked now, 409."
    )


class Requeue(Because):
    payload: dict[str, Any] | None = None


class Signal(Asks):
    name: Name
    data: Any = None


class NewStatus(Asks):
    new_status: Name


class Played(BaseModel):
    job_id: str
    final_status: str
    retry_count: int
    dlq_id: str | None
    retry_after_ms: int | None
    retry_at: Moment | None


class Me(BaseModel):
    name: str
    role: str
    tenant: str | None
    payloads: bool
    open: bool
    powers: list[str]
    roles: list[str] | None


class Health(BaseModel):
    ok: bool
    detail: str | None = None


class Begin(Asks):
    token: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[!-~]+$")]


class Session(Me):
    csrf_token: str


class DeadLetter(BaseModel):
    dlq_id: str
    tenant_id: str
    job_id: str
    contract: str
    job_type: str
    queue: str
    error_class: str | None
    error_code: str
    error_message: str | None
    payload_json: Any
    context_json: Any
    retry_count: int
    status: Literal["open", "requeued", "discarded"]
    first_failed_at: Moment
    created_at: Moment
    updated_at: Moment
    requeued_as: str | None
    proposed_by: str | None
    proposed_reason: str | None


class DeadLetters(BaseModel):
    items: list[DeadLetter]
    next_cursor: str | None


class Discarded(BaseModel):
    confirmed: bool
    item: DeadLetter


class DeadLetterWithHistory(DeadLetter):
    history: list[Event]
    acts: list[dict[str, Any]]


class ManyDone(BaseModel):
    dry_run: bool
    matched: int
    done: int
    for_two: int
    refused: int
    refusals: list[dict[str, Any]]
    job_ids: list[str]


class TokenShape(BaseModel):
    id: str
    name: str
    role: str
    roles: list[str]
    tenant: str | None
    payloads: bool
    valid: bool
    created_at: Moment
    created_by: str
    expires_at: Moment | None
    revoked_at: Moment | None


class NewToken(TokenShape):
    token: str


class Tokens(BaseModel):
    tokens: list[TokenShape]


class MakeToken(Asks):
    name: Name
    role: Literal["viewer", "operator", "reviewer", "admin"]
    tenant: Name | None = None
    payloads: bool = True
    expires_days: float | None = Field(None, gt=0, le=3_650)
    roles: list[Name] = Field([], max_length=50, description="The person's among people, for approvals that ask.")


class AuditEntry(BaseModel):
    n: int
    at: Moment
    actor: str
    act: str
    subject: str
    tenant_id: str | None
    reason: str | None
    data: dict[str, Any] | None


class AuditPage(BaseModel):
    items: list[AuditEntry]
    next_cursor: str | None


class Contract(BaseModel):
    name: str
    statuses: dict[str, str]
    edges: list[dict[str, Any]]
    codes: dict[str, Any]
    retry: dict[str, Any]


class Contracts(BaseModel):
    contracts: list[dict[str, Any]]


class Queues(BaseModel):
    queues: list[dict[str, Any]]
    pauses: list[dict[str, Any]]


class Paused(BaseModel):
    kind: str
    name: str
    paused: bool


class ClaimedJob(BaseModel):
    id: str
    token: str
    job_type: str
    contract: str
    queue: str
    tenant_id: str
    payload: dict[str, Any]
    execution_no: int
    retries: int
    timeout_ms: int | None
    trace_id: str | None
    effect_root: str
    idempotency_key: str | None


class ClaimedJobs(BaseModel):
    jobs: list[ClaimedJob]
    lease_seconds: float


class Beaten(BaseModel):
    lost: list[str]
    cancels: dict[str, str | None]


class Settled(BaseModel):
    job_id: str
    status: str
    phase: str
    version: int
    ended: bool
