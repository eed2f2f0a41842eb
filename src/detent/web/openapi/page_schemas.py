"""Pydantic models of the endpoints that the dashboard uses; they are part of the public API."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from .schemas import Timestamp


class JobAction(BaseModel):
    """An action that the job's status and the caller's role allow."""

    act: Literal["cancel", "abort", "approve", "reject", "signal", "reopen", "requeue"]
    needs: str = Field(description="The power that it needs.")
    request: bool | None = Field(None, description="For cancel: true if the worker is requested to stop the job.")


class JobWait(BaseModel):
    """What a blocked job waits for."""

    name: str
    kind: str | None
    until: Timestamp | None = Field(description="When the wait times out.")


class StepRecord(BaseModel):
    """A recorded step of a handler."""

    name: str
    finished: bool
    execution_no: int
    at: Timestamp
    result: Any = Field(description="Null if the token may not see payloads.")


class JobDetail(BaseModel):
    """What the page of a job shows in addition to the job itself."""

    job_id: str
    version: int
    acts: list[JobAction]
    wait: JobWait | None
    cancel_requested: bool
    failures: int
    retries: int
    interruptions: int = Field(
        description="Executions that ended because their lease was lost and that did not count as failures."
    )
    steps: list[StepRecord]
    approvals: list[dict[str, Any]] = Field(description="Approval requests with their votes.")
    children: dict[str, Any] = Field(description="total: number of children; jobs: the first 20.")


class JobBulkResponse(BaseModel):
    dry_run: bool
    matched: int = Field(description="Number of jobs on this page that match.")
    fitting: int = Field(description="Number of those whose status allows the action.")
    done: int = Field(description="Number that was changed; 0 in a dry run.")
    refused: int = Field(description="Number that was refused.")
    refusals: list[dict[str, Any]] = Field(description="The first 20 refusals: job_id, code, detail.")
    next_cursor: str | None = Field(description="Send it to continue; null on the last page.")


class Overview(BaseModel):
    at: Timestamp
    counted_at: Timestamp | None = Field(description="When jobs, phases and statuses were counted; null before that.")
    jobs: int | None = Field(description="Number of jobs.")
    phases: dict[str, int] | None = Field(description="phase -> number of jobs")
    statuses: dict[str, dict[str, int]] | None = Field(description="contract -> status -> number of jobs")
    queues: list[dict[str, Any]] = Field(description="As in GET /queues.")
    pauses: list[dict[str, Any]] = Field(description="As in GET /queues.")
    dead_letters: dict[str, int] = Field(description="status -> number of dead letters")
    workers: dict[str, int] = Field(description="Live workers: their number, busy slots and all slots.")


class VerificationState(BaseModel):
    """Progress of the running verification, and the report of the last one."""

    under_way: bool = Field(description="True while a verification runs.")
    done: int = Field(description="Number of jobs checked so far.")
    total: int = Field(description="Number of jobs to check.")
    started_at: Timestamp | None
    started_by: str | None
    ended_at: Timestamp | None
    error: str | None = Field(description="Why the verification could not finish.")
    report: dict[str, Any] | None = Field(description="As in GET /jobs/{job_id}/verify, for all jobs.")


class PendingApproval(BaseModel):
    """A job that waits for approval. `name` is null if it is held before its first execution."""

    model_config = ConfigDict(extra="allow")
    job_id: str
    job_type: str
    contract: str
    tenant_id: str
    status: str
    version: int
    since: Timestamp
    name: str | None = Field(description="Name of the approval within the job.")
    summary: str | None = Field(description="What is to be approved; null if the token may not see payloads.")
    about: Any = Field(description="Data for the decision; null if the token may not see payloads.")
    digest: str | None = Field(description="Digest of summary and about; send it with the decision.")
    roles: list[str] = Field(description="Roles that may decide; empty for all reviewers.")
    quorum: int = Field(description="Number of people who must approve.")
    missing: int = Field(description="Number of approvals that are missing.")
    deadline: Timestamp | None
    votes: list[dict[str, Any]] | None = None
    may_decide: bool = Field(description="Whether the caller may approve or reject.")


class ApprovalList(BaseModel):
    items: list[PendingApproval]
    next_cursor: str | None = Field(description="Null on the last page.")


class SeriesPoint(BaseModel):
    """Counts of the interval that starts at `at`; averages are null if there was nothing to measure."""

    at: Timestamp
    submitted: int
    ended_well: int = Field(description="Jobs that succeeded.")
    ended_badly: int = Field(description="Jobs that failed; cancelled jobs are not counted.")
    retries: int
    wait_ms: float | None = Field(description="Average time in the queue before a claim, without retries.")
    run_ms: float | None = Field(description="Average time of an execution.")


class TimeSeries(BaseModel):
    span: Literal["hour", "day", "week"]
    at: Timestamp
    bucket_seconds: int = Field(description="Length of the interval of a point.")
    points: list[SeriesPoint]
