"""The shapes of schedules and their fires, for the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel

from .schemas import Moment


class Schedule(BaseModel):
    id: str
    name: str
    tenant_id: str
    schedule_type: Literal["at", "cron", "every"]
    expression: str
    timezone: str
    starts_at: Moment | None
    ends_at: Moment | None
    jitter_seconds: float
    misfire: str
    misfire_limit: int
    misfire_grace_seconds: float
    overlap: str
    job_type: str
    payload: Any
    contract: str
    queue: str
    priority: int
    max_retries: int | None
    timeout_ms: int | None
    limit_key: str
    deadline_seconds: float | None
    declared: bool
    paused: bool
    paused_at: Moment | None
    version: int
    created_at: Moment
    updated_at: Moment
    next_fire_at: Moment | None
    retry_at: Moment | None
    last_fire_at: Moment | None
    last_job_id: str | None
    fires: int
    misfires: int
    last_misfire_at: Moment | None
    overlapped: int
    last_error: str | None


class Schedules(BaseModel):
    schedules: list[Schedule]
    next_cursor: str | None


class ScheduleWithFires(Schedule):
    last_fires: list[dict[str, Any]]


class Fires(BaseModel):
    timezone: str
    fires: list[dict[str, Any]]


class Backfilled(BaseModel):
    dry_run: bool
    fires: int
    known: int
    made: int
    job_ids: list[str]
