"""streams: tasks are delivered over Redis Streams; the database holds their state."""

import json
from enum import StrEnum
from typing import Any

from detent.core.job import Event, Job
from detent.core.retry import Immediate, RetryRule

from .model import Contract, DeadLetterRule, Edge, KeyRule, LossRule, Move, Phase, StopRule


class ResultStatus(StrEnum):
    """The status a worker that uses only the stream may report in a result message."""

    CLAIMED = "claimed"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


def _view(job: Job) -> dict[str, Any]:
    return {
        "task_id": job.id,
        "tool_name": job.job_type,
        "status": job.status,
        "payload": json.loads(job.payload),
        "retry_count": job.failures,
        "idempotency_key": job.idempotency_key,
        "trace_id": job.trace_id,
        "output": None if job.result is None else json.loads(job.result),
        "error": job.error_message,
        "error_code": job.error_code,
    }


def _envelope(job: Job, event: Event) -> dict[str, Any]:
    charged = bool((event.data or {}).get("charged"))
    return {
        "event_type": event.event,
        "task_id": job.id,
        "trace_id": job.trace_id,
        "retry_count": event.retries + charged,
        **(event.data or {}),
    }


STREAMS = Contract(
    name="streams",
    description="Tasks that Redis Streams delivers to workers; the database holds their state.",
    statuses={
        "queued": Phase.CLAIMABLE,
        "running": Phase.LEASED,
        "waiting_approval": Phase.BLOCKED,
        "succeeded": Phase.FINAL,
        "failed": Phase.FINAL,
    },
    edges=(
        Edge(Move.SUBMIT, None, "task.created", "queued"),
        Edge(Move.HOLD, None, "task.created", "waiting_approval"),
        Edge(Move.CLAIM, "queued", "task.claimed", "running"),
        Edge(Move.SUCCEED, "running", "task.succeeded", "succeeded"),
        Edge(Move.RETRY, "running", "task.retrying", "queued"),
        Edge(Move.RECLAIM, "running", "task.reclaimed", "running"),
        Edge(Move.FAIL, "running", "task.failed", "failed"),
        Edge(Move.WAKE, "waiting_approval", "approval.approved", "queued"),
        Edge(Move.REJECT, "waiting_approval", "task.failed", "failed"),
    ),
    codes={"illegal_transition": "TASK_TRANSITION_INVALID"},
    retry=RetryRule(
        Immediate(),
        max_retries=3,
        permanent_codes=frozenset({"PAYLOAD_INVALID", "SCHEMA_INVALID", "TOOL_UNKNOWN"}),
    ),
    loss=LossRule(Move.RECLAIM, charged=False),
    stop=StopRule(None),
    dead_letters=DeadLetterRule(discard_people=1, note="task.dlq"),
    keys=KeyRule(scope=(), generated=True, same_content="nothing", kept_by_requeue=True),
    approval_statuses=frozenset({"waiting_approval"}),
    approval_notes={"requested": "approval.requested", "rejected": "approval.rejected"},
    retry_counter="failures",
    names_tasks=True,
    uses_stream=True,
    heartbeat_note="task.heartbeat",
    lease_seconds=300.0,
    view=_view,
    envelope=_envelope,
)
