"""Pydantic models of request and response bodies: the base types, and those of jobs, events, queues and contracts.

Request bodies are validated strictly. Response models only describe the OpenAPI document; responses are not validated.
"""

from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, TypeVar, Union

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from detent.core.options.option import PRINTABLE, REST, JsonSchema, options_of

Model = TypeVar("Model", bound=BaseModel)
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=PRINTABLE)]
Prose = Annotated[str, StringConstraints(max_length=2_000, pattern=r"^[^\x00]*$")]
Timestamp = Annotated[str, Field(description="ISO-8601 UTC", examples=["2030-01-31T12:00:00.000000Z"])]


class RequestBody(BaseModel):
    """Base of all request bodies: unknown fields are refused, values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict[str, Any]}
_CONSTRAINTS = {
    "minimum": "ge",
    "maximum": "le",
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
}


def with_options(table: type, without: Collection[str] = ()) -> Callable[[type[Model]], type[Model]]:
    """Adds the options of a table in core.options to a request body; all of them may be null or left out."""
    rows = {name: row for name, row in options_of(table, REST).items() if name not in without}
    fields: dict[str, Any] = {
        name: (_type_of(row.schema) | None, Field(None, description=row.help)) for name, row in rows.items()
    }

    def extend(model: type[Model]) -> type[Model]:
        extended: type[Model] = create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)
        return extended

    return extend


def _type_of(schema: JsonSchema) -> Any:
    """The type whose values the schema describes."""
    if "anyOf" in schema:
        return Union[tuple(_type_of(part) for part in schema["anyOf"])]  # noqa: UP007
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    constraints = {_CONSTRAINTS[name]: value for name, value in schema.items() if name in _CONSTRAINTS}
    annotated: Any = Annotated  # mypy does not accept a type that is computed
    return annotated[_TYPES[schema["type"]], Field(**constraints)]


class Problem(BaseModel):
    """An error (RFC 9457). Depending on `code` it has further members, like `conflict_fields` or `limit`."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(description="Always about:blank.")
    title: str = Field(description="The HTTP reason phrase.")
    status: int = Field(description="The HTTP status code.")
    detail: str = Field(description="What is wrong and what to do.")
    code: str = Field(description="Stable error code, to be compared by programs.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    trace_id: str = Field(description="Id of this request in the server log.")


_PROBLEM_DESCRIPTIONS = {
    400: "Bad request",
    401: "Token missing, unknown, expired or revoked",
    403: "Not allowed for this role, tenant or session",
    404: "Not found",
    408: "Request body not received in time",
    409: "Conflict with the current state",
    413: "Request body too large",
    415: "Request body is not JSON",
    422: "Invalid value",
    429: "Too many requests",
    503: "Database unavailable; retry later",
}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": _PROBLEM} for status, text in _PROBLEM_DESCRIPTIONS.items()
}


class Job(BaseModel):
    """A job. payload, result and error_message are null if the token may not see payloads."""

    id: str
    job_type: str = Field(description="Selects the handler.")
    contract: str = Field(description="Name of the contract, which defines the statuses and legal transitions.")
    queue: str
    tenant_id: str
    status: str = Field(description="A status of the contract.")
    phase: Literal["claimable", "leased", "blocked", "final"] = Field(
        description="Kind of status: claimable (queued), leased (running), blocked (waiting) or final (finished)."
    )
    version: int = Field(description="Number of status changes so far.")
    due_at: Timestamp | None = Field(description="When it may be claimed, or when its wait times out.")
    priority: int = Field(description="Higher is claimed first.")
    execution_no: int = Field(description="Number of executions so far.")
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
    scheduled_at: Timestamp | None
    trace_id: str | None
    parent_id: str | None = Field(description="The job that created this one as its child.")
    dlq_id: str | None = Field(description="Its dead letter.")
    requeued_from: str | None = Field(description="The job or dead letter that this job was requeued from.")
    worker: str | None = Field(description="The worker that holds the lease.")
    lease_until: Timestamp | None
    created_at: Timestamp
    updated_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None
    view: dict[str, Any] = Field(description="The job in the format of its contract.")


class SubmitResponse(BaseModel):
    """The submitted job, or the existing one with the same idempotency_key or task_id."""

    idempotent_hit: bool = Field(description="True if the job existed before.")
    job: Job
    task: dict[str, Any] | None = Field(None, description="The task, for contracts that identify jobs by task_id.")


class BulkSubmitResponse(BaseModel):
    items: list[SubmitResponse] = Field(description="In the order of the request.")


class JobList(BaseModel):
    jobs: list[Job]
    next_cursor: str | None = Field(description="Null on the last page.")


class Event(BaseModel):
    """One entry of a job's log: a status change, or a note, which changes no status."""

    seq: int = Field(description="The job's version after the change; a note has that of the event before it.")
    event: str
    source: str | None = Field(description="Status before; null for the first event.")
    target: str = Field(description="Status after.")
    at: Timestamp
    actor: str | None = Field(description="The person or worker that caused it.")
    execution_no: int
    trace_id: str | None
    data: dict[str, Any]
    note: bool = Field(description="True for a note.")
    envelope: dict[str, Any] | None = Field(description="The event in the format of the contract, if it defines one.")


class EventList(BaseModel):
    events: list[Event]
    next_cursor: str | None = Field(description="Null on the last page.")


class WhyResponse(BaseModel):
    """Why a job is not running."""

    reason: str = Field(description="Stable code, like FINISHED or WAITS_FOR_SIGNAL.")
    sentence: str = Field(description="The same in English.")
    details: dict[str, Any]


class Violation(BaseModel):
    """A difference between a job's row, its log and its contract."""

    model_config = ConfigDict(extra="allow")
    job_id: str | None
    seq: int | None = Field(description="The event concerned.")
    rule: str = Field(description="The rule that is violated.")
    detail: str


class VerifyReport(BaseModel):
    """The result of comparing jobs with their logs and contracts."""

    ok: bool = Field(description="True if there are no violations.")
    jobs: int = Field(description="Number of jobs checked.")
    events: int = Field(description="Number of events checked.")
    violations: list[Violation]
    warnings: list[Violation]


class SignalResponse(BaseModel):
    first: bool = Field(description="False if the job already had a signal of this name; the first one is kept.")
    job: Job


class ReasonRequest(RequestBody):
    """An optional reason, for the log. The actor is the person of the token."""

    reason: Prose | None = None


class CancelRequest(ReasonRequest):
    force: bool = Field(False, description="Cancel a running job at once instead of requesting it from its worker.")


class DecisionRequest(ReasonRequest):
    digest: str | None = Field(
        None,
        min_length=8,
        max_length=200,
        description="Digest of the approval request that was reviewed, or its first 8 or more characters. "
        "409 APPROVAL_CHANGED if the job requests something else now.",
    )


class RequeueRequest(ReasonRequest):
    payload: dict[str, Any] | None = Field(default=None, description="Replaces the payload; null keeps it.")


class SignalRequest(RequestBody):
    name: Name
    data: Any = Field(None, description="JSON value that the waiting handler receives.")


class TransitionRequest(RequestBody):
    new_status: Name


class ManualRunResponse(BaseModel):
    """The job after an execution without a handler."""

    job_id: str
    final_status: str = Field(description="The job's status now.")
    retry_count: int
    dlq_id: str | None = Field(description="Its dead letter, if it failed for good.")
    retry_after_ms: int | None = Field(description="Delay of the retry; null without one.")
    retry_at: Timestamp | None


class HealthResponse(BaseModel):
    ok: bool
    detail: str | None = None


class Contract(BaseModel):
    """The table of a contract."""

    name: str
    statuses: dict[str, str] = Field(description="status -> phase")
    edges: list[dict[str, Any]] = Field(description="Legal transitions: move, source, event, target.")
    codes: dict[str, Any] = Field(description="Error codes.")
    retry: dict[str, Any] = Field(description="Retry policy.")


class ContractList(BaseModel):
    contracts: list[dict[str, Any]] = Field(description="Name and sizes of each contract.")


class QueueList(BaseModel):
    queues: list[dict[str, Any]] = Field(
        description="Per queue: number of ready (due), scheduled (later) and running (held) jobs, "
        "the oldest ready job, job types, workers, and its pause."
    )
    pauses: list[dict[str, Any]] = Field(description="Paused queues, job types and tenants.")


class PauseResponse(BaseModel):
    kind: str
    name: str
    paused: bool


class ClaimedJob(BaseModel):
    """A job that the caller now holds under a lease."""

    id: str
    token: str = Field(description="Proves the lease; send it with heartbeat and settle.")
    job_type: str
    contract: str
    queue: str
    tenant_id: str
    payload: dict[str, Any]
    execution_no: int = Field(description="1 for the first execution.")
    retries: int = Field(description="Number of retries so far.")
    timeout_ms: int | None
    trace_id: str | None
    effect_root: str = Field(
        description="Prefix for idempotency keys of side effects; the same for retries and requeues."
    )
    idempotency_key: str | None


class ClaimResponse(BaseModel):
    jobs: list[ClaimedJob] = Field(description="Empty if no job became ready in time.")
    lease_seconds: float


class HeartbeatResponse(BaseModel):
    lost: list[str] = Field(description="Jobs whose lease is lost; stop working on them.")
    cancels: dict[str, str | None] = Field(description="Jobs whose cancellation is requested -> reason.")


class SettleResponse(BaseModel):
    job_id: str
    status: str
    phase: str
    version: int
    ended: bool = Field(description="True if the job is finished; false if it runs again or waits.")
