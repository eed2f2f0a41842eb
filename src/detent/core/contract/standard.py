"""standard: the default contract, with a status for every feature of the engine."""

from typing import Any

from detent.core.job import Job
from detent.core.retry import Exponential, RetryRule
from detent.core.times import columns

from .model import Contract, DeadLetterRule, Edge, KeyRule, LossRule, Move, Phase, StopRule


def _view(job: Job) -> dict[str, Any]:
    return {
        **columns(job, "retries", "failures", "max_retries"),
        "waiting_for": job.wait_name,
        "cancel_requested": job.cancel_requested is not None,
    }


_STATUSES = {
    "scheduled": Phase.BLOCKED,
    "queued": Phase.CLAIMABLE,
    "retrying": Phase.CLAIMABLE,
    "interrupted": Phase.CLAIMABLE,
    "running": Phase.LEASED,
    "waiting": Phase.BLOCKED,
    "parked": Phase.BLOCKED,
    "waiting_approval": Phase.BLOCKED,
    "dlq_pending": Phase.BLOCKED,
    "dlq_recorded": Phase.BLOCKED,
    "succeeded": Phase.FINAL,
    "failed": Phase.FINAL,
    "cancelled": Phase.FINAL,
}

STANDARD = Contract(
    name="standard",
    description="The default: retries, waits, signals, approvals, cancelling, a status for every feature.",
    statuses=_STATUSES,
    edges=(
        Edge(Move.SUBMIT, None, "job.created", "queued"),
        Edge(Move.DEFER, None, "job.scheduled", "scheduled"),
        Edge(Move.HOLD, None, "job.held", "waiting_approval"),
        Edge(Move.HOLD, "running", "job.held", "waiting_approval"),
        Edge(Move.WAKE, "scheduled", "job.due", "queued"),
        Edge(Move.WAKE, "waiting", "job.woken", "queued"),
        Edge(Move.WAKE, "parked", "job.woken", "queued"),
        Edge(Move.WAKE, "waiting_approval", "job.decided", "queued"),
        Edge(Move.CLAIM, "queued", "job.claimed", "running"),
        Edge(Move.CLAIM, "retrying", "job.claimed", "running"),
        Edge(Move.CLAIM, "interrupted", "job.claimed", "running"),
        Edge(Move.SUCCEED, "running", "job.succeeded", "succeeded"),
        Edge(Move.RETRY, "running", "job.retrying", "retrying"),
        Edge(Move.RELEASE, "running", "job.released", "queued"),
        Edge(Move.EXPIRE, "running", "job.interrupted", "interrupted"),
        Edge(Move.WAIT, "running", "job.waiting", "waiting"),
        Edge(Move.PARK, "running", "job.parked", "parked"),
        Edge(Move.FAIL, "running", "job.failing", "dlq_pending"),
        Edge(Move.FAIL, "retrying", "job.failing", "dlq_pending"),
        Edge(Move.FAIL, "interrupted", "job.failing", "dlq_pending"),
        Edge(Move.FOLLOW, "dlq_pending", "job.dead_lettered", "dlq_recorded"),
        Edge(Move.FOLLOW, "dlq_recorded", "job.failed", "failed"),
        Edge(Move.REJECT, "waiting_approval", "job.rejected", "failed"),
        *(
            Edge(Move.CANCEL, status, "job.cancelled", "cancelled")
            for status, phase in _STATUSES.items()
            if phase is not Phase.FINAL
        ),
    ),
    retry=RetryRule(Exponential(), max_retries=3, permanent_codes=frozenset({"PAYLOAD_INVALID"})),
    loss=LossRule(Move.EXPIRE, charged=True),
    stop=StopRule(Move.RELEASE),
    snooze=Move.RELEASE,
    cancel_requests=frozenset({"running"}),
    dead_letters=DeadLetterRule(discard_people=2),
    keys=KeyRule(scope=("tenant_id", "idempotency_scope"), same_content="payload"),
    retry_at_statuses=frozenset({"retrying"}),
    approval_statuses=frozenset({"waiting_approval"}),
    approval_notes={"requested": "approval.requested", "rejected": "approval.rejected"},
    view=_view,
)
