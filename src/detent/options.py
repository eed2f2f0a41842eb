"""The keywords of `@app.job` and `using`, spelled out so that type checkers know them."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict


@dataclass(frozen=True, slots=True)
class Using:
    """How one enqueue differs from the job's declaration."""

    delay: float = 0.0
    at: datetime | str | None = None
    key: str | None = None
    scope: str | None = None
    tenant: str = "default"
    priority: int | None = None
    queue: str | None = None
    max_retries: int | None = None
    timeout: float | None = None
    trace_id: str | None = None
    task_id: str | None = None
    hold: bool = False


class UsingOptions(TypedDict, total=False):
    """The same as keywords, for type checkers."""

    delay: float
    at: datetime | str | None
    key: str | None
    scope: str | None
    tenant: str
    priority: int | None
    queue: str | None
    max_retries: int | None
    timeout: float | None
    trace_id: str | None
    task_id: str | None
    hold: bool


class JobOptions(TypedDict, total=False):
    """What @app.job takes besides the name."""

    queue: str
    contract: str | None
    max_retries: int | None
    timeout: float | None
    priority: int
    permanent_errors: tuple[type[BaseException], ...]
    retryable_errors: tuple[type[BaseException], ...]
    park_seconds: float
    strict_steps: bool
