"""The keyword options of `@app.job` and `app.limit`, typed for type checkers; those of `using` are in core.options."""

from functools import cached_property
from typing import TypedDict, Unpack

from detent.core.limits import Limit, make_limit
from detent.core.options.job_options import DeclaredOptions


class HandlerOptions(DeclaredOptions, total=False):
    """The options of `Detent.job`, described there."""

    contract: str | None
    permanent_errors: tuple[type[BaseException], ...]
    retryable_errors: tuple[type[BaseException], ...]
    capture_logs: bool
    park_seconds: float
    strict_steps: bool
    hand_back_seconds: float


class LimitOptions(TypedDict, total=False):
    """The options of `Detent.limit`, described there."""

    queue: str | None
    job_type: str | None
    tenant: str | None
    key: str | None
    per: str | None
    concurrency: int | None
    rate: tuple[int, float] | None


class Limited:
    """The part of an application that declares limits. They are written to the database when the app opens."""

    @cached_property
    def limits(self) -> list[Limit]:
        """The limits declared with `limit`."""
        return []

    def limit(self, **options: Unpack[LimitOptions]) -> Limit:
        """Declare a limit on jobs that run at once or that start within a period, over all workers.

            app.limit(queue="mail", concurrency=5)
            app.limit(job_type="call", rate=(100, 60))  # 100 starts in any 60 seconds
            app.limit(per="tenant", concurrency=2)  # 2 for each tenant

        queue, job_type, tenant, key: which jobs it applies to; all that are given must match. `key` is the limit_key of
            `using`. With none of them it applies to all jobs.
        per: "queue", "type", "tenant" or "key": a separate limit for each of these.
        concurrency: how many may run at the same time.
        rate: (N, seconds): how many may start within any such period.

        Raises InvalidInput (LIMIT_INVALID) if neither concurrency nor rate is given, or a value is wrong.
        """
        self.limits.append(make_limit(**options))
        return self.limits[-1]
