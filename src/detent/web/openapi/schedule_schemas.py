"""Pydantic models of the schedule endpoints' responses."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from .schemas import Timestamp


class Schedule(BaseModel):
    """A schedule: when it runs, which job each run creates, and what it has done so far."""

    id: str
    name: str
    tenant_id: str
    schedule_type: Literal["at", "cron", "every"]
    expression: str = Field(description="The cron expression, the interval or the time, depending on schedule_type.")
    timezone: str
    starts_at: Timestamp | None
    ends_at: Timestamp | None
    jitter_seconds: float = Field(description="Each job is due up to this many seconds after its run.")
    misfire: str = Field(description="What happens to missed runs: skip, once (create one job) or all.")
    misfire_limit: int = Field(description="Number of missed runs to make up for with misfire all.")
    misfire_grace_seconds: float = Field(description="A run counts as missed when it is later than this.")
    overlap: str = Field(description="If an earlier job has not finished: allow, skip, or cancel the earlier job.")
    job_type: str
    payload: Any = Field(description="Null if the token may not see payloads.")
    contract: str
    queue: str
    priority: int
    max_retries: int | None
    timeout_ms: int | None
    limit_key: str
    deadline_seconds: float | None = Field(description="A job that has not started this long after it is due is ended.")
    declared: bool = Field(description="True if application code declares it.")
    paused: bool
    paused_at: Timestamp | None
    version: int = Field(description="Incremented by each change; runs do not change it.")
    created_at: Timestamp
    updated_at: Timestamp
    next_fire_at: Timestamp | None = Field(description="The next run; null if paused or at its end.")
    retry_at: Timestamp | None = Field(description="When a run that found the tenant's backlog full is tried again.")
    last_fire_at: Timestamp | None = Field(description="The last run.")
    last_job_id: str | None = Field(description="The job of the last run.")
    fires: int = Field(description="Number of runs.")
    misfires: int = Field(description="Number of missed runs.")
    last_misfire_at: Timestamp | None
    overlapped: int = Field(description="Number of runs that were skipped because of overlap.")
    last_error: str | None = Field(
        description="Why the last run created no job; null if the token may not see payloads."
    )


class ScheduleList(BaseModel):
    schedules: list[Schedule]
    next_cursor: str | None = Field(description="Null on the last page.")


class ScheduleWithRuns(Schedule):
    last_fires: list[dict[str, Any]] = Field(description="The last 10 runs: fire_at, job_id, made_at.")


class SchedulePreview(BaseModel):
    timezone: str
    fires: list[dict[str, Any]] = Field(
        description="The next runs: fire_at, and due_at, which is fire_at plus the jitter of its job."
    )


class BackfillResponse(BaseModel):
    dry_run: bool
    fires: int = Field(description="Number of runs in the range.")
    known: int = Field(description="Number of runs that already had a job.")
    made: int = Field(description="Number of jobs created, or that would be created in a dry run.")
    job_ids: list[str] = Field(description="The new jobs.")
