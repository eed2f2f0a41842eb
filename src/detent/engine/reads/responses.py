"""The JSON objects that REST, the command line and Python show, each declared once; the OpenAPI document has them too.

`show` makes one from a row: a key has the value of the attribute of the same name, times as ISO-8601 text, unless the
caller gives another value. The text in Annotated is the description of a key.
"""

from collections.abc import Callable, Hashable
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, TypedDict, TypeVar, cast, get_args

from detent.core.contract.model import Phase
from detent.core.options.job_options import JobKeys, RunOptions
from detent.core.options.option import REST, options_of
from detent.core.times import iso
from detent.engine.submit.declarations import Warning

JsonObject = dict[str, Any]
C = TypeVar("C", bound=type)
T = TypeVar("T")
TIME = object()
"""Marks a time, which rows have in microseconds."""
Timestamp = Annotated[str, TIME]
PhaseName = Literal["claimable", "leased", "blocked", "final"]
assert set(get_args(PhaseName)) == {str(phase) for phase in Phase}
DeadLetterState = Literal["open", "requeued", "discarded"]


def show(answer: type[T], row: object, **values: object) -> T:
    """The row as this answer; `values` are those that are not an attribute of the row."""
    shown = {
        name: values[name] if name in values else iso(getattr(row, name)) if is_time else getattr(row, name)
        for name, is_time in _keys(cast(Hashable, answer))
    }
    return cast(T, shown)


@cache
def _keys(answer: Hashable) -> list[tuple[str, bool]]:
    """The keys, and whether each is a time."""
    return [(name, _is_time(hint)) for name, hint in answer.__annotations__.items()]


def _is_time(hint: Any) -> bool:
    return TIME in getattr(hint, "__metadata__", ()) or any(map(_is_time, get_args(hint)))


def with_stored_options(table: type) -> Callable[[C], C]:
    """Adds the options that the row of the answer stores to its keys, after `contract`."""
    types = {field.name: field.type for field in fields(table)}
    annotated: Any = Annotated  # mypy does not accept a type that is computed
    options = {name: annotated[types[name], row.help] for name, row in options_of(table, REST).items()}

    def extend(answer: C) -> C:
        own = list(answer.__annotations__.items())
        place = list(answer.__annotations__).index("contract") + 1
        answer.__annotations__ = dict([*own[:place], *options.items(), *own[place:]])
        return answer

    return extend


def answer_of(name: str, result: type, **more: Any) -> Any:
    """The answer that shows all fields of a result, a dataclass or named tuple, and `more` keys before them."""
    return type(name, (), {"__annotations__": {**more, **result.__annotations__}, "__doc__": result.__doc__})


@with_stored_options(JobKeys)
class Job(TypedDict):
    """A job. payload, result and error_message are null if the token may not see payloads."""

    id: str
    job_type: Annotated[str, "Selects the handler."]
    contract: Annotated[str, "Name of the contract, which defines the statuses and legal transitions."]
    status: Annotated[str, "A status of the contract."]
    phase: Annotated[
        PhaseName, "Kind of status: claimable (queued), leased (running), blocked (waiting) or final (finished)."
    ]
    version: Annotated[int, "Number of status changes so far."]
    due_at: Annotated[Timestamp | None, "When it may be claimed, or when its wait times out."]
    execution_no: Annotated[int, "Number of executions so far."]
    max_retries: int
    payload: Any
    result: Any
    error_code: str | None
    error_message: str | None
    schedule_type: str | None
    scheduled_at: Timestamp | None
    parent_id: Annotated[str | None, "The job that created this one as its child."]
    dlq_id: Annotated[str | None, "Its dead letter."]
    requeued_from: Annotated[str | None, "The job or dead letter that this job was requeued from."]
    worker: Annotated[str | None, "The worker that holds the lease."]
    lease_until: Timestamp | None
    created_at: Timestamp
    updated_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None
    view: Annotated[JsonObject, "The job in the format of its contract."]


class TransitionResponse(Job):
    """The job after the transition."""

    taken_from: Annotated[str | None, "The worker that held the job under a live lease and has lost it."]


class SubmitResponse(TypedDict):
    """The submitted job, or the existing one with the same idempotency_key or task_id."""

    idempotent_hit: Annotated[bool, "True if the job existed before."]
    job: Job
    task: NotRequired[Annotated[JsonObject | None, "The task, for contracts that identify jobs by task_id."]]
    warnings: NotRequired[
        Annotated[list[Warning], "Why the job may not run: JOB_TYPE_UNKNOWN if no worker declares it."]
    ]


class Task(TypedDict):
    """A job of the contract men. last_error_reason is null if the token may not see payloads."""

    task_id: str
    schedule_type: str
    state: Annotated[str, "A status of the contract men."]
    attempt: Annotated[int, "The current attempt; the first is 1, the last 1 + max_retries."]
    max_retries: int
    timeout_ms: int | None
    idempotency_key: str | None
    last_error_code: str | None
    last_error_reason: str | None
    created_at: Timestamp
    updated_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None


class TaskEvent(TypedDict):
    """A published change of a task's state, task_state_changed; its payload has the eight fields of the contract."""

    type: str
    source: str
    session_key: str
    event_id: str
    payload: JsonObject


class TaskSubmitResponse(TypedDict):
    """The submitted task, or the existing one with the same task_id or idempotency_key."""

    idempotent_hit: Annotated[bool, "True if the task existed before."]
    task: Task


class BulkSubmitResponse(TypedDict):
    items: Annotated[list[SubmitResponse], "In the order of the request."]


class Event(TypedDict):
    """One entry of a job's log: a status change, or a note, which changes no status."""

    seq: Annotated[int, "The job's version after the change; a note has that of the event before it."]
    event: str
    source: Annotated[str | None, "Status before; null for the first event."]
    target: Annotated[str, "Status after."]
    at: Timestamp
    actor: Annotated[str | None, "The person or worker that caused it."]
    execution_no: int
    trace_id: str | None
    data: JsonObject
    note: Annotated[bool, "True for a note."]
    envelope: Annotated[JsonObject | None, "The event in the format of the contract, if it defines one."]


class Violation(TypedDict):
    """A difference between a job's row, its log and its contract."""

    job_id: str | None
    seq: Annotated[int | None, "The event concerned."]
    rule: Annotated[str, "The rule that is violated."]
    detail: str


class VerifyReport(TypedDict):
    """The result of comparing jobs with their logs and contracts."""

    ok: Annotated[bool, "True if there are no violations."]
    jobs: Annotated[int, "Number of jobs checked."]
    events: Annotated[int, "Number of events checked."]
    violations: list[Violation]
    warnings: list[Violation]
    left_out: NotRequired[Annotated[int, "Number of further findings, which are not listed."]]


class SignalResponse(TypedDict):
    first: Annotated[bool, "False if the job already had a signal of this name; the first one is kept."]
    job: Job


class ManualRunResponse(TypedDict):
    """The job after an execution without a handler."""

    job_id: str
    final_status: Annotated[str, "The job's status now."]
    retry_count: int
    dlq_id: Annotated[str | None, "Its dead letter, if it failed for good."]
    retry_after_ms: Annotated[int | None, "Delay of the retry; null without one."]
    retry_at: Timestamp | None


class ClaimedJob(TypedDict):
    """A job that the caller now holds under a lease."""

    id: str
    token: Annotated[str, "Proves the lease; send it with heartbeat and settle."]
    job_type: str
    contract: str
    queue: str
    tenant_id: str
    payload: JsonObject
    execution_no: Annotated[int, "1 for the first execution."]
    retries: Annotated[int, "Number of retries so far."]
    timeout_ms: int | None
    trace_id: str | None
    effect_root: Annotated[str, "Prefix for idempotency keys of side effects; the same for retries and requeues."]
    idempotency_key: str | None


class ClaimResponse(TypedDict):
    jobs: Annotated[list[ClaimedJob], "Empty if no job became ready in time, and always after a command."]
    lease_seconds: float
    command: Annotated[Literal["drain", "stop"] | None, "drain: finish what you hold, then exit. stop: exit now."]


class HeartbeatResponse(TypedDict):
    lost: Annotated[list[str], "Jobs whose lease is lost; stop working on them."]
    cancels: Annotated[dict[str, str | None], "Jobs whose cancellation is requested -> reason."]
    command: Annotated[Literal["drain", "stop"] | None, "A command to the worker, as in the answer to a claim."]


class SettleResponse(TypedDict):
    job_id: str
    status: str
    phase: str
    version: int
    ended: Annotated[bool, "True if the job is finished; false if it runs again or waits."]


class DeadLetter(TypedDict):
    """A job that failed for good, kept until it is requeued or discarded."""

    dlq_id: str
    tenant_id: str
    job_id: Annotated[str, "The job that failed."]
    contract: str
    job_type: str
    queue: str
    error_class: str | None
    error_code: str
    error_message: Annotated[str | None, "Null if the token may not see payloads."]
    payload_json: Annotated[Any, "Null if the token may not see payloads."]
    context_json: Annotated[Any, "Null if the token may not see payloads."]
    retry_count: int
    status: DeadLetterState
    first_failed_at: Timestamp
    created_at: Timestamp
    updated_at: Timestamp
    requeued_as: Annotated[str | None, "The job it was requeued as."]
    proposed_by: Annotated[str | None, "The person who proposed to discard it."]
    proposed_reason: str | None
    error_group: Annotated[str | None, "Dead letters of the same error have the same; null as error_message."]


class ErrorGroup(TypedDict):
    """Dead letters of one job type with the same class, code and pattern of their messages."""

    group: Annotated[str | None, "Filter by it with error_group; null if the token may not see error messages."]
    job_type: str
    error_class: Annotated[str | None, "The class of the exception."]
    error_code: str
    pattern: Annotated[str | None, "The message with numbers, ids and quoted texts replaced; null as `group`."]
    count: Annotated[int, "Number of dead letters among those that were read."]
    proposed: Annotated[int, "Number of those that somebody proposed to discard."]
    proposed_by: Annotated[list[str], "Who did, at least two of them if there are several."]
    first_at: Annotated[
        Timestamp, "When the first dead letter of this group was created, even if it was deleted since."
    ]
    last_at: Timestamp
    last_id: Annotated[str, "The newest dead letter of the group."]
    slots: Annotated[list[int], "Number of new dead letters in each slot, oldest first."]


class ErrorGroupList(TypedDict):
    items: list[ErrorGroup]
    next_cursor: Annotated[None, "Always null: the list has one page."]
    more_groups: Annotated[int, "Number of groups that were left out because there are too many."]
    slots_since: Annotated[Timestamp, "Where the first slot begins."]
    slot_seconds: float
    searched_until: Annotated[Timestamp | None, "Everything newer was searched; null: everything was."]


class DeadLetterWithHistory(DeadLetter):
    history: Annotated[list[Event], "The log of the job."]
    acts: Annotated[list[JsonObject], "What people did with the dead letter, oldest first."]


class DiscardResponse(TypedDict):
    confirmed: Annotated[bool, "False if a second person has to confirm."]
    item: DeadLetter


@with_stored_options(RunOptions)
class Schedule(TypedDict):
    """A schedule: when it runs, which job each run creates, and what it has done so far."""

    id: str
    name: str
    schedule_type: Literal["at", "cron", "every"]
    expression: Annotated[str, "The cron expression, the interval or the time, depending on schedule_type."]
    in_words: Annotated[dict[str, str], "A cron expression in words: language (en, zh) -> text."]
    timezone: str
    starts_at: Timestamp | None
    ends_at: Timestamp | None
    jitter_seconds: Annotated[float, "Each job is due up to this many seconds after its run."]
    misfire: Annotated[str, "What happens to missed runs: skip, once (create one job) or all."]
    misfire_limit: Annotated[int, "Number of missed runs to make up for with misfire all."]
    misfire_grace_seconds: Annotated[float, "A run counts as missed when it is later than this."]
    overlap: Annotated[str, "If an earlier job has not finished: allow, skip, or cancel the earlier job."]
    job_type: str
    payload: Annotated[Any, "Null if the token may not see payloads."]
    contract: str
    max_retries: int | None
    deadline_seconds: Annotated[float | None, "A job that has not started this long after it is due is ended."]
    declared: Annotated[bool, "True if application code declares it."]
    paused: bool
    paused_at: Timestamp | None
    version: Annotated[int, "Incremented by each change; runs do not change it."]
    created_at: Timestamp
    updated_at: Timestamp
    next_fire_at: Annotated[Timestamp | None, "The next run; null if paused or at its end. Past while it is held back."]
    held_back: Annotated[bool, "True while the run of next_fire_at waits, because the tenant's backlog quota is full."]
    retry_at: Annotated[Timestamp | None, "When a run that is held back is tried again."]
    last_fire_at: Annotated[Timestamp | None, "The last run."]
    last_job_id: Annotated[str | None, "The job of the last run."]
    fires: Annotated[int, "Number of runs."]
    misfires: Annotated[int, "Number of missed runs."]
    last_misfire_at: Timestamp | None
    overlapped: Annotated[int, "Number of runs that were skipped because of overlap."]
    last_error: Annotated[str | None, "Why the last run created no job; null if the token may not see payloads."]


class ScheduleRun(TypedDict):
    """A run that created a job."""

    fire_at: Timestamp
    job_id: str
    made_at: Timestamp


class PlannedRun(TypedDict):
    """A future run."""

    fire_at: Timestamp
    due_at: Annotated[Timestamp, "When its job is due: fire_at plus the jitter."]


class ScheduleWithRuns(Schedule):
    last_fires: Annotated[list[ScheduleRun], "The last 10 runs."]


class SchedulePreview(TypedDict):
    timezone: str
    in_words: Annotated[dict[str, str], "A cron expression in words: language (en, zh) -> text."]
    items: Annotated[list[PlannedRun], "The next runs."]
    next_cursor: Annotated[str | None, "Always null: send `after` for later runs."]


class CallerResponse(TypedDict):
    """The person behind the token and what the token permits."""

    name: str
    role: Annotated[str, "worker, producer, viewer, operator, reviewer or admin."]
    tenant_id: Annotated[str | None, "The tenant that the token is bound to; null for all tenants."]
    queues: Annotated[list[str], "The queues that the token is limited to; empty for all."]
    job_types: Annotated[list[str], "The job types that the token is limited to; empty for all."]
    payloads: Annotated[bool, "Whether payloads, results and error messages are shown."]
    shared_with: Annotated[list[str] | None, "Who else knows the token; null: no token proves who the caller is."]
    expires_at: Annotated[Timestamp | None, "When the token expires; null: never."]
    open: Annotated[bool, "True if this API needs no token, because none was ever created."]
    roles: Annotated[list[str] | None, "Roles that count in approvals; null if unknown."]
    powers: Annotated[list[str], "What the role permits."]


class SessionResponse(CallerResponse):
    session: Annotated[str, "A label of the session; not secret."]
    session_key: Annotated[str, "Send it as X-Session-Key with each request that sends the cookie."]


class TokenInfo(TypedDict):
    """A token without its secret."""

    id: str
    name: Annotated[str, "The person."]
    role: str
    roles: Annotated[list[str], "Further roles that count in approvals."]
    tenant_id: str | None
    queues: Annotated[list[str], "The queues that it is limited to; empty for all."]
    job_types: Annotated[list[str], "The job types that it is limited to; empty for all."]
    payloads: bool
    shared_with: Annotated[list[str], "Who knows the secret besides the owner; empty once the owner has rotated it."]
    valid: Annotated[bool, "False if expired or revoked."]
    created_at: Timestamp
    created_by: str
    expires_at: Timestamp | None
    expires_soon: Annotated[bool, "True if it expires within 14 days."]
    revoked_at: Timestamp | None


class TokenCreateResponse(TokenInfo):
    token: Annotated[str, "The secret. It is not stored and never shown again."]


class AuditEntry(TypedDict):
    """One action of a person."""

    n: Annotated[int, "Number of the entry."]
    at: Timestamp
    actor: Annotated[str, "The person."]
    act: Annotated[str, "The action, like job.cancel."]
    subject: Annotated[str, "Id or name of what was changed."]
    subject_name: Annotated[str | None, "Name of an id: job type, schedule or person; null if it was deleted."]
    tenant_id: str | None
    reason: str | None
    data: JsonObject | None


class SavedView(TypedDict):
    """A filter of a list that a person saved."""

    page: Annotated[Literal["jobs", "dead_letters"], "The list that it belongs to."]
    name: str
    query: Annotated[str, "The query of the page's address, without its question mark."]
    saved_at: Timestamp


class SavedViewDeleted(TypedDict):
    deleted: Annotated[str, "The name of the view."]


class JobAction(TypedDict):
    """An action that the job's status and the caller's role allow."""

    act: Literal["cancel", "abort", "approve", "reject", "signal", "reopen", "requeue"]
    needs: Annotated[str, "The power that it needs."]
    request: NotRequired[Annotated[bool | None, "For cancel: true if the worker is requested to stop the job."]]


class JobWait(TypedDict):
    """What a blocked job waits for."""

    name: str
    kind: str | None
    until: Annotated[Timestamp | None, "When the wait times out."]


class StepRecord(TypedDict):
    """A recorded step of a handler."""

    name: str
    finished: Annotated[bool, "False: a ctx.once that has begun and has not ended."]
    execution_no: Annotated[int, "The execution that recorded it."]
    started_at: Annotated[Timestamp, "When its function was called first."]
    finished_at: Annotated[Timestamp | None, "When its result was recorded; null if it is not finished."]
    result: Annotated[Any, "Null if it was not requested, or the token may not see payloads."]


class ProgressReport(TypedDict):
    """How far the job is, as its handler reported last with ctx.progress."""

    share: Annotated[float, "From 0 to 1."]
    message: Annotated[str, "Empty if the token may not see payloads."]
    execution_no: int
    at: Timestamp


class ListedJob(Job):
    """A job in a list."""

    progress: Annotated[ProgressReport | None, "Of a running job: what its handler reported last."]


class ChildJob(TypedDict):
    """A child of a job."""

    id: str
    name: Annotated[str, "Its name within its parent."]
    after: Annotated[list[str], "Names of the siblings it runs after."]
    job_type: str
    contract: str
    status: str
    phase: str
    error_code: str | None
    execution_no: Annotated[int, "Number of executions so far."]
    worker: Annotated[str | None, "The worker that holds the lease."]
    progress: ProgressReport | None
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None


class ChildCounts(TypedDict):
    contract: str
    status: str
    phase: str
    count: int


class FoundJob(TypedDict):
    id: str
    job_type: str
    status: str


class FoundDeadLetter(TypedDict):
    dlq_id: str
    job_type: str


class FoundSchedule(TypedDict):
    id: str
    name: str


class SearchResponse(TypedDict):
    """What a text leads to, at most 8 of each kind."""

    jobs: list[FoundJob]
    dead_letters: list[FoundDeadLetter]
    queues: list[str]
    job_types: list[str]
    schedules: list[FoundSchedule]


class Children(TypedDict):
    total: Annotated[int, "Number of children."]
    counts: Annotated[list[ChildCounts], "Number of children by contract and status."]


class LogLine(TypedDict):
    """A captured log line."""

    execution_no: int
    n: Annotated[int, "Number of the line within its execution, from 1. Only the last lines of an execution are kept."]
    at: Timestamp
    level: str
    logger: str
    message: Annotated[str, "Empty if the token may not see payloads."]


class JobOrigin(TypedDict):
    """What a job was requeued from."""

    kind: Literal["dead_letter", "job"]
    id: str


class JobDetail(TypedDict):
    """What the page of a job shows in addition to the job itself."""

    job_id: str
    version: int
    acts: list[JobAction]
    wait: JobWait | None
    cancel_requested: bool
    failures: int
    retries: int
    interruptions: Annotated[
        int, "Executions that ended because their lease was lost and that did not count as failures."
    ]
    steps: Annotated[int, "Number of recorded steps."]
    has_logs: Annotated[bool, "Whether log lines were captured."]
    progress: ProgressReport | None
    requeued_from: JobOrigin | None
    requeued_as: Annotated[str | None, "The newest job that an operator requeued this one as."]
    approvals: Annotated[list[JsonObject], "Approval requests with their votes."]
    children: Children


class PendingApproval(TypedDict):
    """A job that waits for approval. `name` is null if it is held before its first execution."""

    job_id: str
    job_type: str
    contract: str
    tenant_id: str
    status: str
    version: int
    trace_id: str | None
    since: Timestamp
    name: Annotated[str | None, "Name of the approval within the job."]
    summary: Annotated[str | None, "What is to be approved; null if the token may not see payloads."]
    about: Annotated[Any, "Data for the decision; null if the token may not see payloads."]
    digest: Annotated[str | None, "Digest of summary and about; send it with the decision."]
    roles: Annotated[list[str], "Roles that may decide; empty for all reviewers."]
    quorum: Annotated[int, "Number of people who must approve."]
    missing: Annotated[int, "Number of approvals that are missing."]
    asked_at: NotRequired[Timestamp]
    deadline: Timestamp | None
    default: NotRequired[Annotated[str, "What the deadline decides: approve, reject or fail."]]
    decision: NotRequired[Annotated[str | None, "Null until it is decided."]]
    decided_at: NotRequired[Timestamp | None]
    expired: NotRequired[bool]
    votes: NotRequired[list[JsonObject] | None]
    may_decide: Annotated[bool, "Whether the caller may approve or reject."]
