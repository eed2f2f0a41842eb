"""The JSON objects about operations, declared as in `responses`: contracts, queues, workers, alerts, counts."""

from typing import Annotated, Literal, NotRequired, TypedDict

from .responses import JsonObject, ProgressReport, Timestamp, VerifyReport

SpanName = Literal["5m", "15m", "hour", "6h", "day", "week", "30d"]


class HealthResponse(TypedDict):
    ok: bool


class Contract(TypedDict):
    """The table of a contract."""

    name: str
    description: Annotated[str, "What it is for, in one line; may be empty."]
    statuses: Annotated[dict[str, str], "status -> phase"]
    edges: Annotated[list[JsonObject], "Legal transitions: move, source, event, target."]
    codes: Annotated[JsonObject, "Error codes."]
    retry: Annotated[JsonObject, "Retry policy."]


class ContractSummary(TypedDict):
    name: str
    description: Annotated[str, "What it is for, in one line; may be empty."]
    carried: Annotated[bool, "True for a built-in contract."]
    default: Annotated[bool, "True for the contract of submissions that name none."]
    statuses: Annotated[int, "Number of statuses."]
    edges: Annotated[int, "Number of legal transitions."]
    max_retries: int
    dead_letters: Annotated[bool, "Whether jobs that fail for good become dead letters."]


class LimitResponse(TypedDict):
    """A limit."""

    queue: str | None
    job_type: str | None
    tenant_id: str | None
    key: str | None
    per: str | None
    concurrency: Annotated[int | None, "Max concurrent jobs."]
    rate: Annotated[int | None, "Max starts per period_seconds."]
    period_seconds: float | None


class QuotaResponse(TypedDict):
    """A tenant's weight and quotas; null means no quota."""

    tenant_id: str
    weight: int
    max_backlog: int | None
    max_payload: int | None


class QuotaRemovedResponse(TypedDict):
    tenant_id: str
    removed: bool


class Pause(TypedDict):
    """A paused queue, job type or tenant."""

    kind: Annotated[str, "queue, job_type or tenant."]
    name: str
    actor: Annotated[str, "The person who paused it."]
    reason: str | None
    at: Timestamp


StateName = Annotated[
    Literal["active", "idle", "paused", "draining", "no_worker", "at_limit"],
    "paused: it is, or all of its ready jobs belong to paused types and tenants and none runs; no_worker: no live "
    "worker runs some of its jobs; draining: all workers that could run them claim no more; "
    "at_limit: no ready job may start because of limits; active: jobs are ready or running; else idle.",
]


class JobNumbers(TypedDict):
    """Numbers of unfinished jobs."""

    due: Annotated[int, "Number of ready jobs."]
    due_paused: Annotated[int, "How many of the ready jobs belong to paused tenants."]
    later: Annotated[int, "Number of scheduled jobs; time-outs of waiting jobs are not counted."]
    held: Annotated[int, "Number of running jobs."]
    oldest_due_at: Annotated[Timestamp | None, "Since when the oldest ready job is due."]


class Queue(JobNumbers):
    """A queue with jobs, one that is paused, or one that a live worker serves."""

    queue: str
    state: StateName
    unserved_types: Annotated[list[str], "Types with queued jobs that no live worker runs."]
    limited_by: Annotated[list[LimitResponse], "Limits that are reached now."]
    job_types: list[str]
    workers: Annotated[int, "Number of live workers that serve the queue."]
    paused: Pause | None
    paused_by: Annotated[list[Pause], "The paused types of a queue in the state paused."]


class JobType(JobNumbers):
    """A job type."""

    job_type: str
    state: StateName
    unserved_queues: Annotated[list[str], "Queues with queued jobs of this type that no live worker runs."]
    limited_by: Annotated[list[LimitResponse], "Limits that are reached now."]
    queues: list[str]
    workers: Annotated[int, "Number of live workers that run the type."]
    paused: Pause | None
    paused_by: Annotated[list[Pause], "The paused queues of a type in the state paused."]


class DeclaredType(TypedDict):
    """A job type as the last worker that started declares it."""

    job_type: str
    options: Annotated[JsonObject, "The declared options, for example queue, contract and max_retries."]
    payload_schema: Annotated[JsonObject | None, "The JSON schema of the payload; null: payloads are not checked."]


class JobKind(JobNumbers):
    """The jobs of one contract, queue and type."""

    contract: str
    queue: str
    job_type: str


class LeasedJob(TypedDict):
    """A job and the worker that holds it."""

    id: str
    contract: str
    queue: str
    job_type: str
    tenant_id: str
    worker: str
    execution_no: int
    since: Annotated[Timestamp, "When this execution started."]


class RunningJob(LeasedJob):
    """A job that a worker runs now."""

    progress: ProgressReport | None


class ServingWorker(TypedDict):
    """A live worker that runs jobs of the queue or type."""

    id: str
    host: str
    state: str
    slots: int
    busy: Annotated[int, "Number of slots in use."]


class KindDetails(TypedDict):
    """What runs now, who runs it, and what limits it."""

    kinds: Annotated[list[JobKind], "By contract, queue and type."]
    running_jobs: Annotated[list[RunningJob], "The jobs that run longest, at most 100."]
    serving: Annotated[list[ServingWorker], "Live workers."]
    limits: Annotated[list[LimitResponse], "Limits that apply to these jobs."]
    at: Timestamp


class QueueDetail(Queue, KindDetails):
    """A queue, what runs now, and which workers serve it."""


class JobTypeDetail(JobType, KindDetails):
    """A job type, what runs now, and which workers run it."""


class Attention(TypedDict):
    """Numbers of things that wait for a person; null: not for this token, or not counted yet."""

    approvals: Annotated[int, "Open approvals, counted up to 100."]
    dead_letters: Annotated[int | None, "Open dead letters."]
    alerts: Annotated[int | None, "Firing alerts."]


class QueueControls(TypedDict):
    pauses: Annotated[list[Pause], "Paused queues, job types and tenants."]
    limits: list[LimitResponse]


class QueueList(QueueControls):
    items: list[Queue]
    next_cursor: Annotated[str | None, "Always null: the list has one page."]


class PauseResponse(TypedDict):
    kind: str
    name: str
    paused: bool


class Overview(QueueControls):
    at: Timestamp
    queues: list[Queue]
    counted_at: Annotated[Timestamp | None, "When jobs, phases and statuses were counted; null before that."]
    jobs: Annotated[int | None, "Number of jobs."]
    phases: Annotated[dict[str, int] | None, "phase -> number of jobs"]
    statuses: Annotated[dict[str, dict[str, int]] | None, "contract -> status -> number of jobs"]
    dead_letters: Annotated[dict[str, int], "status -> number of dead letters"]
    workers: Annotated[
        dict[str, int] | None, "Live workers: their number, busy slots and all slots; null for a tenant."
    ]
    tenant_id: Annotated[str | None, "Whose jobs these are; null: of all tenants."]


class VerificationState(TypedDict):
    """Progress of the running verification, and the report of the last one."""

    under_way: Annotated[bool, "True while a verification runs."]
    done: Annotated[int, "Number of jobs checked so far."]
    total: Annotated[int, "Number of jobs to check."]
    started_at: Timestamp | None
    started_by: str | None
    ended_at: Timestamp | None
    error: Annotated[str | None, "Why the verification could not finish."]
    report: Annotated[VerifyReport | None, "Of the last verification, for all jobs."]


class Latency(TypedDict):
    """How long something took, in seconds; null if it did not happen. Percentiles are off by less than a tenth."""

    number: Annotated[int, "How many were measured."]
    mean_seconds: float | None
    p50_seconds: float | None
    p95_seconds: float | None
    p99_seconds: float | None


class SeriesSums(TypedDict):
    """What happened in a time."""

    submitted: int
    ended_well: Annotated[int, "Jobs that succeeded."]
    ended_badly: Annotated[int, "Jobs that failed; cancelled jobs are not counted."]
    retries: int
    wait: Annotated[Latency, "From due to claimed; also of retries, from the time of the retry on."]
    run: Annotated[Latency, "From claimed to the end of the execution."]


class SeriesPoint(SeriesSums):
    """The interval that starts at `at`."""

    at: Timestamp
    seconds: Annotated[int, "Length of the interval; less than bucket_seconds if it is not over."]
    wait_ms: Annotated[float | None, "wait.mean_seconds, in milliseconds."]
    run_ms: Annotated[float | None, "run.mean_seconds, in milliseconds."]


class TimeSeries(TypedDict):
    """Throughput and latency over time."""

    span: SpanName
    by: Annotated[Literal["all", "queue", "job_type", "tenant"], "What the series is about."]
    name: Annotated[str | None, "Name of the queue, job type or tenant."]
    at: Timestamp
    bucket_seconds: Annotated[int, "Length of the interval of a point."]
    seconds: Annotated[int, "Length of the time that `total` covers, up to `at`."]
    points: list[SeriesPoint]
    total: Annotated[SeriesSums, "Of all points, up to `at`."]


class SeriesGroup(SeriesSums):
    """One queue, job type or tenant; the sums are those of the span up to now."""

    name: Annotated[str | None, "Null: those beyond the thousandth, together."]
    finished: Annotated[
        list[int],
        "Jobs that succeeded or failed in each point, oldest first, without a current point of less than a minute.",
    ]


class SeriesGroups(TypedDict):
    """Throughput and latency of every queue, job type or tenant with events in a span; most finished jobs first."""

    span: SpanName
    by: Literal["queue", "job_type", "tenant"]
    at: Timestamp
    bucket_seconds: Annotated[int, "Length of the interval of a point."]
    seconds: Annotated[int, "Length of the time that the sums cover, up to `at`."]
    items: list[SeriesGroup]
    next_cursor: Annotated[str | None, "Always null: the list has one page."]


class StatsResponse(TypedDict):
    """Counts of jobs. Unless the token is bound to a tenant, it also has backlog, dead letters, workers and pauses."""

    statuses: Annotated[dict[str, dict[str, int]], "contract -> status -> number of jobs"]
    phases: Annotated[dict[str, int], "phase -> number of jobs"]
    jobs: Annotated[int, "Number of jobs."]
    due: NotRequired[Annotated[int, "Number of ready jobs."]]
    due_paused: NotRequired[Annotated[int, "How many of the ready jobs belong to paused tenants."]]
    later: NotRequired[Annotated[int, "Number of scheduled jobs."]]
    held: NotRequired[Annotated[int, "Number of running jobs."]]
    oldest_due_at: NotRequired[Timestamp | None]
    dead_letters: Annotated[dict[str, int], "status -> number of dead letters"]
    workers: NotRequired[Annotated[dict[str, int], "Live workers: their number, busy slots and all slots."]]
    paused: NotRequired[Annotated[list[Pause], "Paused queues, job types and tenants."]]
    at: Timestamp


class HeldJob(LeasedJob):
    """A job that a worker holds."""

    lease_until: Timestamp


class WorkerCommand(TypedDict):
    """A command that was sent to a worker."""

    worker: str
    act: Annotated[str, "drain or stop."]
    actor: str
    reason: str | None
    at: Timestamp


class BlockedLoop(TypedDict):
    """Code that blocks the event loop of a worker, so that no other job of that worker runs meanwhile."""

    since: Timestamp
    location: Annotated[str, "File, line and function."]
    job_id: Annotated[str | None, "The job whose handler blocks it; null if it is not known."]
    job_type: str | None


class Worker(TypedDict):
    """A worker, the jobs it holds, and the last command to it."""

    id: str
    live: Annotated[bool, "False if it sent no heartbeat for three leases."]
    state: str
    host: str
    pid: int
    version: str
    queues: Annotated[list[str] | None, "Null: all queues."]
    job_types: list[str]
    slots: int
    busy: Annotated[int, "Number of slots in use."]
    load: Annotated[float, "busy / slots"]
    lease_seconds: float
    started_at: Timestamp
    seen_at: Annotated[Timestamp, "Its last heartbeat."]
    blocked: Annotated[BlockedLoop | None, "What blocks its event loop now."]
    held: list[HeldJob]
    order: WorkerCommand | None


class ExecutionNumbers(TypedDict):
    """Executions that a worker ended."""

    ended_well: Annotated[int, "Jobs that succeeded."]
    ended_badly: Annotated[int, "Jobs that failed for good."]
    retries: Annotated[int, "Executions that failed and are retried."]


class WorkerMinute(ExecutionNumbers):
    at: Timestamp


class WorkerThroughput(ExecutionNumbers):
    """What a worker has done lately, counted from the newest events."""

    since: Annotated[Timestamp, "At most 15 minutes ago; later if there are more than 50,000 events of all workers."]
    seconds: Annotated[float, "From then to now."]
    points: Annotated[list[WorkerMinute], "By minute, oldest first."]


class WorkerDetail(Worker):
    """A worker, what it runs now, and what it has done lately."""

    running_jobs: Annotated[list[RunningJob], "The jobs that run longest, at most 100."]
    recent: WorkerThroughput
    at: Timestamp


class LostJob(TypedDict):
    """A job that was reclaimed from a lost worker."""

    id: str
    job_type: str
    queue: str
    execution_no: int
    charged: Annotated[bool, "Whether the loss counted as a failure."]
    status: Annotated[str, "Its status afterwards."]
    at: Timestamp


class WorkerRecovery(TypedDict):
    """The jobs that were reclaimed from one lost worker."""

    worker: str
    last_seen_at: Timestamp | None
    began_at: Timestamp
    ended_at: Timestamp
    took_seconds: Annotated[float, "From its last heartbeat to the last job."]
    reclaimed: Annotated[int, "Number of jobs."]
    charged: Annotated[int, "Number of losses that counted as failures."]
    given_up: Annotated[int, "Number of jobs that failed for good."]
    jobs: list[LostJob]


class Alert(TypedDict):
    """The state of one rule for one subject."""

    rule: str
    subject: str
    state: Annotated[str, "pending, firing or resolved."]
    severity: str
    value: float
    summary: str
    since: Timestamp
    fired_at: Timestamp | None
    resolved_at: Timestamp | None
    updated_at: Timestamp
    episode: Annotated[int, "Number of times it has fired."]
    acknowledged_by: Annotated[str | None, "Who works on this episode."]
    acknowledged_at: Timestamp | None


class AlertDelivery(TypedDict):
    """A notification to an alert channel."""

    id: str
    rule: str
    subject: str
    sink: Annotated[str, "The channel."]
    news: Annotated[str, "The state of the alert that it reports."]
    state: Literal["delivered", "given up", "due"]
    attempts: int
    last_error: str | None
    created_at: Timestamp
    delivered_at: Timestamp | None


class ListedAlert(Alert):
    """An alert as the list shows it: also who silenced it, and where its cause is."""

    kind: Annotated[str | None, "The kind of its rule; null if this server has no such rule."]
    labels: Annotated[dict[str, str], "Its subject: queue, job_type, tenant, schedule, worker or webhook -> name."]
    silenced_until: Timestamp | None


class AlertRule(TypedDict):
    """A rule, as the server that answers has it in its settings."""

    name: str
    kind: str
    severity: str
    threshold: float
    unit: str
    for_seconds: float
    resolve_after_seconds: float
    window_seconds: float
    enabled: bool
    meaning: str


class Silence(TypedDict):
    """Channels are not notified of alerts of this rule until a time."""

    id: str
    rule: str
    subject: Annotated[str, "Empty: all subjects of the rule."]
    until: Timestamp
    actor: str
    reason: str | None
    created_at: Timestamp


class SilenceRemoved(TypedDict):
    id: str
    removed: bool


class Webhook(TypedDict):
    """A subscription to events of jobs. Its secret is shown once, when it is added."""

    id: str
    name: str
    url: str
    tenant_id: Annotated[str | None, "Null: events of all tenants."]
    queue: str | None
    job_type: str | None
    contract: str | None
    events: Annotated[list[str], "Names of events; empty: all."]
    phases: Annotated[list[str], "Phases that an event leads to; empty: all."]
    payloads: Annotated[bool, "False: without error texts and other data from handlers."]
    state: Literal["active", "paused", "disabled"]
    backlog: Annotated[int, "Number of deliveries that wait."]
    failures: Annotated[int, "Failed requests in a row."]
    failing_since: Timestamp | None
    retry_at: Annotated[Timestamp | None, "After a failure nothing is sent before this time."]
    last_error: str | None
    old_secret_until: Annotated[Timestamp | None, "Until then the secret before the last change signs, too."]
    created_by: str
    created_at: Timestamp


class NewWebhook(Webhook):
    secret: Annotated[str, "Signs the requests; store it now, it is not shown again."]


class EditedWebhook(Webhook):
    secret: Annotated[str | None, "The new secret, shown only now; null if it stays."]


class WebhookDelivery(TypedDict):
    """A request to a webhook about one event, with its retries."""

    id: Annotated[str, "The header webhook-id of its requests."]
    event: str
    job_id: str
    state: Literal["delivered", "given up", "due"]
    attempts: int
    last_error: str | None
    created_at: Timestamp
    due_at: Annotated[Timestamp | None, "Time of the next request."]
    delivered_at: Timestamp | None


class WebhookReplay(TypedDict):
    id: str
    replayed: Annotated[int | None, "Number of deliveries that are sent again; null for a position in the log."]
