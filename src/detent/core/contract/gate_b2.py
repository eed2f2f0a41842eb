"""gate-b2: three retries with jittered backoff, then a dead letter and failed. max_retries is frozen."""

import json
from typing import Any

from detent.core.job import Event, Job
from detent.core.retry import Exponential, Origin, RetryRule
from detent.core.times import columns

from .model import Contract, DeadLetterRule, Edge, KeyRule, LossRule, Move, Phase, StopRule


def _view(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.id,
        **columns(job, "tenant_id", "job_type", "status"),
        "retry_count": job.retries,
        **columns(job, "idempotency_key", "trace_id", "error_code"),
        "payload_json": json.loads(job.payload),
        **columns(job, "created_at", "updated_at"),
    }


def _envelope(job: Job, event: Event) -> dict[str, Any]:
    entered_retrying = event.target == "retrying"
    return {
        "trace_id": job.trace_id,
        "job_id": job.id,
        "retry_count": event.retries + entered_retrying,
        "status_transition": f"{event.source or ''} -> {event.target}".strip(),
    }


GATE_B2 = Contract(
    name="gate-b2",
    description="Three retries with growing delays, then a dead letter. The number of retries cannot be changed.",
    statuses={
        "queued": Phase.CLAIMABLE,
        "running": Phase.LEASED,
        "retrying": Phase.CLAIMABLE,
        "succeeded": Phase.FINAL,
        "dlq_pending": Phase.BLOCKED,
        "dlq_recorded": Phase.BLOCKED,
        "failed": Phase.FINAL,
    },
    edges=(
        Edge(Move.SUBMIT, None, "job.queued", "queued"),
        Edge(Move.CLAIM, "queued", "job.running", "running"),
        Edge(Move.SUCCEED, "running", "job.succeeded", "succeeded"),
        Edge(Move.RETRY, "running", "job.retrying", "retrying"),
        Edge(Move.FAIL, "running", "job.dlq_pending", "dlq_pending"),
        Edge(Move.CLAIM, "retrying", "job.running", "running"),
        Edge(Move.FAIL, "retrying", "job.dlq_pending", "dlq_pending"),
        Edge(Move.FOLLOW, "dlq_pending", "job.dlq_recorded", "dlq_recorded"),
        Edge(Move.FOLLOW, "dlq_recorded", "job.failed", "failed"),
    ),
    codes={"illegal_transition": "WF_STATE_TRANSITION_INVALID"},
    retry=RetryRule(
        Exponential(base_ms=1_000, cap_ms=30_000, jitter_ms=300),
        max_retries=3,
        frozen=True,
        permanent_codes=frozenset({"PAYLOAD_INVALID"}),
        opt_in=frozenset({Origin.FAIL, Origin.REPORT}),
    ),
    loss=LossRule(Move.RETRY, charged=True),
    stop=StopRule(Move.RETRY, charged=True),
    dead_letters=DeadLetterRule(discard_people=2),
    keys=KeyRule(scope=("tenant_id",), same_content="payload"),
    retry_at_statuses=frozenset({"retrying"}),
    view=_view,
    envelope=_envelope,
)
