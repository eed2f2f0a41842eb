"""p3c: numbered runs of a task, with scheduled retries; a run is interrupted and resumed when its process dies."""

from typing import Any

from detent.core.job import Event, Job
from detent.core.retry import Exponential, RetryRule
from detent.core.times import columns, iso

from .model import Contract, Edge, KeyRule, LossRule, Move, Phase, StopRule


def _view(job: Job) -> dict[str, Any]:
    return {
        "run_id": job.id,
        "task_id": job.task_id,
        "run_status": job.status,
        "attempt": job.task_attempt,
        **columns(job, "idempotency_key", "next_retry_at", "error_code", "trace_id"),
        **columns(job, "created_at", "updated_at", "started_at", "finished_at"),
    }


def _envelope(job: Job, event: Event) -> dict[str, Any]:
    data = event.data or {}
    return {
        "type": "run.status.changed",
        "trace_id": job.trace_id,
        "payload": {
            "run_id": job.id,
            "task_id": job.task_id,
            "previous_status": event.source,
            "status": event.target,
            "attempt": job.task_attempt,
            "idempotency_key": job.idempotency_key,
            "next_retry_at": iso(data.get("due_at")) if event.target == "retry_scheduled" else None,
            "error_code": data.get("error_code"),
            "actor": event.actor,
        },
    }


P3C = Contract(
    name="p3c",
    description="Numbered runs of a task: retries are scheduled, and a run that loses its process is resumed.",
    statuses={
        "queued": Phase.CLAIMABLE,
        "running": Phase.LEASED,
        "retry_scheduled": Phase.CLAIMABLE,
        "interrupted": Phase.CLAIMABLE,
        "succeeded": Phase.FINAL,
        "failed": Phase.FINAL,
        "cancelled": Phase.FINAL,
    },
    edges=(
        Edge(Move.SUBMIT, None, "created", "queued"),
        Edge(Move.CLAIM, "queued", "worker_claim", "running"),
        Edge(Move.CANCEL, "queued", "cancel_command", "cancelled"),
        Edge(Move.SUCCEED, "running", "completed", "succeeded"),
        Edge(Move.FAIL, "running", "non_retryable_error", "failed"),
        Edge(Move.RETRY, "running", "retryable_error", "retry_scheduled"),
        Edge(Move.EXPIRE, "running", "process_restart", "interrupted"),
        Edge(Move.CANCEL, "running", "cancel_command", "cancelled"),
        Edge(Move.CLAIM, "retry_scheduled", "retry_due", "running"),
        Edge(Move.CANCEL, "retry_scheduled", "cancel_command", "cancelled"),
        Edge(Move.CLAIM, "interrupted", "recovery_resume", "running"),
        Edge(Move.FAIL, "interrupted", "recovery_abort", "failed"),
        Edge(Move.CANCEL, "interrupted", "cancel_command", "cancelled"),
    ),
    codes={"illegal_transition": "RUN_INVALID_TRANSITION", "lost": "PROCESS_RESTARTED", "stopped": "PROCESS_RESTARTED"},
    retry=RetryRule(
        Exponential(base_ms=15_000, cap_ms=300_000, jitter_ms=0),
        max_retries=3,
        permanent_codes=frozenset({"PAYLOAD_INVALID"}),
    ),
    loss=LossRule(Move.EXPIRE, charged=False),
    stop=StopRule(Move.EXPIRE, charged=False),
    keys=KeyRule(scope=(), generated=True, max_length=80, same_content="nothing"),
    retry_at_statuses=frozenset({"retry_scheduled"}),
    repeat_is_noop=True,
    names_tasks=True,
    task_attempts=True,
    trace_form="trace-run-{job_id}-{unique}",
    view=_view,
    envelope=_envelope,
    published_names=("run.status.changed",),
)
