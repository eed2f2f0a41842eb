"""The shapes of the answers that were made for the pages; anyone may ask for them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from .schemas import Moment


class Act(BaseModel):
    act: Literal["cancel", "abort", "approve", "reject", "signal", "reopen", "requeue"]
    needs: str
    request: bool | None = None


class Wait(BaseModel):
    name: str
    kind: str | None
    until: Moment | None


class StepShape(BaseModel):
    name: str
    finished: bool
    execution_no: int
    at: Moment
    result: Any


class JobDetail(BaseModel):
    job_id: str
    version: int
    acts: list[Act]
    wait: Wait | None
    cancel_requested: bool
    failures: int
    retries: int
    interruptions: int
    steps: list[StepShape]
    approvals: list[dict[str, Any]]
    children: dict[str, Any]


class BulkDone(BaseModel):
    dry_run: bool
    matched: int
    fitting: int
    done: int
    refused: int
    refusals: list[dict[str, Any]]
    next_cursor: str | None


class Overview(BaseModel):
    at: Moment
    counted_at: Moment | None
    jobs: int | None
    phases: dict[str, int] | None
    statuses: dict[str, dict[str, int]] | None
    queues: list[dict[str, Any]]
    pauses: list[dict[str, Any]]
    dead_letters: dict[str, int]
    workers: dict[str, int]


class Verification(BaseModel):
    under_way: bool
    done: int
    total: int
    started_at: Moment | None
    started_by: str | None
    ended_at: Moment | None
    error: str | None
    report: dict[str, Any] | None


class Question(BaseModel):
    """A job that waits for people, and what it asks; without a name it was held before it began."""

    model_config = ConfigDict(extra="allow")
    job_id: str
    job_type: str
    contract: str
    tenant_id: str
    status: str
    version: int
    since: Moment
    name: str | None
    summary: str | None
    about: Any
    digest: str | None
    roles: list[str]
    quorum: int
    missing: int
    deadline: Moment | None
    votes: list[dict[str, Any]] | None = None
    may_decide: bool


class Inbox(BaseModel):
    items: list[Question]
    next_cursor: str | None


class Point(BaseModel):
    """Counts within the span that begins at `at`; means are null where nothing was measured."""

    at: Moment
    submitted: int
    ended_well: int
    ended_badly: int
    retries: int
    wait_ms: float | None
    run_ms: float | None


class Series(BaseModel):
    span: Literal["hour", "day", "week"]
    at: Moment
    bucket_seconds: int
    points: list[Point]
