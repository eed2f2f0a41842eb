"""men: scheduled tasks. Attempts count from 1; only two error codes are retried."""

from typing import Any

from detent.core.job import Event, Job
from detent.core.retry import Immediate, RetryRule
from detent.core.times import columns, iso

from .model import Contract, Edge, KeyRule, LossRule, Move, Phase, StopRule


def _view(job: Job) -> dict[str, Any]:
    return {
        **columns(job, "task_id", "schedule_type"),
        "state": job.status,
        "attempt": job.retries + 1,
        **columns(job, "max_retries", "timeout_ms", "idempotency_key"),
        "last_error_code": job.error_code,
        "last_error_reason": job.error_message,
        **columns(job, "created_at", "updated_at", "started_at", "finished_at"),
    }


def _envelope(job: Job, event: Event) -> dict[str, Any] | None:
    if event.source is None:
        return None
    data = event.data or {}
    return {
        "type": "task_state_changed",
        "source": "gateway.scheduler",
        "session_key": "scheduler:default",
        "event_id": f"evt_{job.id}_{event.seq}",
        "payload": {
            "task_id": job.task_id,
            "from_state": event.source,
            "to_state": event.target,
            "occurred_at": iso(event.at),
            "attempt": event.retries + 1,
            "reason_code": data.get("error_code"),
            "reason_message": data.get("error_message") or data.get("reason"),
            "idempotent_hit": False,
        },
    }


MEN = Contract(
    name="men",
    description="Scheduled tasks: attempts count from 1, and only two error codes are retried.",
    statuses={
        "pending": Phase.BLOCKED,
        "ready": Phase.CLAIMABLE,
        "running": Phase.LEASED,
        "succeeded": Phase.FINAL,
        "failed": Phase.FINAL,
        "cancelled": Phase.FINAL,
    },
    edges=(
        Edge(Move.SUBMIT, None, "task.pending", "pending"),
        Edge(Move.WAKE, "pending", "task.ready", "ready"),
        Edge(Move.CLAIM, "ready", "task.running", "running"),
        Edge(Move.SUCCEED, "running", "task.succeeded", "succeeded"),
        Edge(Move.FAIL, "running", "task.failed", "failed"),
        Edge(Move.RETRY, "running", "task.ready", "ready"),
        Edge(Move.CANCEL, "pending", "task.cancelled", "cancelled"),
        Edge(Move.CANCEL, "ready", "task.cancelled", "cancelled"),
        Edge(Move.CANCEL, "running", "task.cancelled", "cancelled"),
    ),
    codes={
        "illegal_transition": "TASK_INVALID_TRANSITION",
        "idempotency_conflict": "TASK_DUPLICATE",
        "invalid_schedule": "TASK_INVALID_SCHEDULE",
        "execution_failed": "TASK_EXECUTION_FAILED",
        "timeout": "TASK_TIMEOUT",
        "lost": "TASK_TIMEOUT",
        "stopped": "TASK_EXECUTION_FAILED",
        "payload_invalid": "TASK_EXECUTION_FAILED",
        "retry_exhausted": "TASK_RETRY_EXHAUSTED",
    },
    retry=RetryRule(
        Immediate(),
        max_retries=2,
        only_codes=frozenset({"TASK_TIMEOUT", "TASK_EXECUTION_FAILED"}),
        opt_in=frozenset(),
    ),
    loss=LossRule(Move.RETRY, charged=True),
    stop=StopRule(Move.RETRY, charged=True),
    keys=KeyRule(
        scope=("idempotency_scope",),
        same_content="critical",
        critical_fields=("schedule_type", "scheduled_at", "timeout_ms", "max_retries"),
        blank_is_absent=True,
        task_id_is_key=True,
    ),
    names_tasks=True,
    utc_only=True,
    due_on_submit=True,
    view=_view,
    envelope=_envelope,
    published_names=("task_state_changed",),
)
