"""formal: the 9 x 10 table of states and events. Waiting is a status, and a blocked job is never reclaimed."""

from typing import Any

from detent.core.job import Job
from detent.core.retry import RetryRule, Table

from .model import Contract, Edge, KeyRule, LossRule, Move, Phase, StopRule


def _view(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "state": "Parked" if job.wait_parked else job.status,
        "attempt_id": job.token if job.phase is Phase.LEASED else None,
        "correlation_key": job.wait_name,
        "wait_type": job.wait_kind,
        "cancel_requested": job.cancel_requested is not None,
    }


FORMAL = Contract(
    name="formal",
    description="States and events of the formal model: waiting is a status, and a waiting job is never reclaimed.",
    statuses={
        "Queued": Phase.CLAIMABLE,
        "Running": Phase.LEASED,
        "Waiting": Phase.BLOCKED,
        "Parked": Phase.BLOCKED,
        "Retrying": Phase.CLAIMABLE,
        "Completed": Phase.FINAL,
        "Failed": Phase.FINAL,
        "Cancelled": Phase.FINAL,
    },
    edges=(
        Edge(Move.SUBMIT, None, "job_created", "Queued"),
        Edge(None, None, "job_queued", "Queued"),
        Edge(None, None, "job_requeued", "Queued"),
        Edge(None, "Queued", "job_requeued", "Queued"),
        Edge(None, "Queued", "job_leased", "Running"),
        Edge(Move.CLAIM, "Queued", "job_running", "Running"),
        Edge(None, "Queued", "wait_completed", "Queued"),
        Edge(Move.RETRY, "Running", "job_requeued", "Queued"),
        Edge(Move.EXPIRE, "Running", "job_requeued", "Queued"),
        Edge(Move.RELEASE, "Running", "job_requeued", "Queued"),
        Edge(Move.WAIT, "Running", "job_waiting", "Waiting"),
        Edge(None, "Running", "wait_completed", "Queued"),
        Edge(Move.SUCCEED, "Running", "job_completed", "Completed"),
        Edge(Move.FAIL, "Running", "job_failed", "Failed"),
        Edge(Move.CANCEL, "Running", "job_cancelled", "Cancelled"),
        Edge(Move.WAKE, "Waiting", "wait_completed", "Queued"),
        Edge(Move.CANCEL, "Waiting", "job_cancelled", "Cancelled"),
        Edge(Move.WAKE, "Parked", "wait_completed", "Queued"),
        Edge(Move.CANCEL, "Parked", "job_cancelled", "Cancelled"),
        Edge(None, "Retrying", "job_requeued", "Queued"),
        Edge(None, "Retrying", "job_leased", "Running"),
        Edge(Move.CLAIM, "Retrying", "job_running", "Running"),
        Edge(None, "Retrying", "wait_completed", "Queued"),
        Edge(Move.REOPEN, "Failed", "job_requeued", "Queued"),
    ),
    unreachable=frozenset({"Parked", "Retrying"}),
    retry=RetryRule(Table((1_000,)), max_retries=2, permanent_codes=frozenset({"PAYLOAD_INVALID"})),
    loss=LossRule(Move.EXPIRE, charged=True),
    stop=StopRule(Move.RELEASE),
    snooze=Move.RELEASE,
    cancel_requests=frozenset({"Queued", "Retrying", "Running"}),
    keys=KeyRule(scope=("tenant_id",), same_content="nothing"),
    strict_signals=True,
    parks_as="Parked",
    lease_seconds=30.0,
    view=_view,
)
