"""Exceptions that a handler raises to choose its outcome, and the internal exception that suspends a job."""

import asyncio
from datetime import timedelta

from detent.core.job import Wait
from detent.core.options.spans import seconds_of


class Retry(Exception):
    """Raise it in a handler to fail this execution and run the job again.

    It counts as a failure and uses up one retry; with no retries left the job fails. `after` is the delay in seconds
    before the next execution; without it the backoff of the job or of its contract applies. A contract with frozen
    retries (gate-b2) refuses `after` (RETRY_DELAY_FROZEN): its own backoff applies, and the log of the job says so.

        raise Retry("rate limited", after=30)
    """

    def __init__(
        self, message: str = "the handler requested a retry", *, after: float | timedelta | None = None
    ) -> None:
        super().__init__(message)
        self.after = None if after is None else seconds_of(after, "after", code="RETRY_DELAY_INVALID")


class Fail(Exception):
    """Raise it in a handler to fail this execution, with an error code of your own if you like.

    `code` is stored as the job's `error_code`, at most 200 characters; without it the contract's own code for failures
    (JOB_EXECUTION_FAILED, TASK_EXECUTION_FAILED, …). With `retryable=False` the job fails for good; with True it is
    retried as far as its retries allow. Default: False; the code decides where the contract lists codes (men).

        raise Fail("the card was declined", code="CARD_DECLINED")
    """

    def __init__(self, message: str = "", *, code: str | None = None, retryable: bool | None = None) -> None:
        super().__init__(message or code or "the handler raised Fail")
        self.code = code
        self.retryable = retryable


class Snooze(Exception):
    """Raise it in a handler to run the job again in `seconds`, without using up a retry.

    raise Snooze(60)  # the file has not arrived yet
    """

    def __init__(self, seconds: float | timedelta) -> None:
        super().__init__(f"snoozed for {seconds} s")
        self.seconds = seconds_of(seconds, "seconds", code="SNOOZE_INVALID")


class Cancel(Exception):
    """Raise it in a handler to end the job as cancelled; `reason` is kept in the job's log.

    Also the clean way to stop after `ctx.cancelled` became true.
    """

    def __init__(self, reason: str = "the handler cancelled the job") -> None:
        super().__init__(reason)
        self.reason = reason


class WaitTimeout(TimeoutError):
    """Raised by `ctx.wait_for` and `ctx.gather` when their timeout passed first.

    The timeout is recorded: the same wait raises WaitTimeout again in every later execution of the job.
    """


class SoftTimeout(asyncio.CancelledError):
    """Raised in a handler when its `soft_timeout` has passed, so that it can clean up before the timeout ends it.

    In an async handler it is raised where the handler awaits, once; in a plain one by its next call of the context.
    Return a partial result, or let it pass: then the execution fails with the timeout code of its contract. It is an
    asyncio.CancelledError, so that libraries release what they hold, and `except Exception` does not catch it.

        try:
            await crawl(pages)
        except SoftTimeout:
            return {"complete": False}
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "the soft timeout has passed")


class CancelRequested(BaseException):
    """Raised once, by the first call of the context after somebody has requested to cancel the job.

    Uncaught it ends the job as cancelled. A handler that catches it may call further steps to clean up until the grace
    (30 s) is over. A BaseException, so that `except Exception` in a handler does not catch it. `reason` is that of the
    request.

        try:
            await ctx.step("second call", ask_model, prompt)
        except CancelRequested:
            await ctx.step("clean up", release, order_id)
            raise
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "a cancel was requested")
        self.reason = reason


class Interrupted(BaseException):
    """Ends an execution as if its worker had stopped before it was done; for injected failures.

    A BaseException, so that `except Exception` in a handler does not catch it.
    """


class Suspend(BaseException):
    """Ends an execution because the job has to wait; the worker releases its slot and settles the job as waiting.

    A BaseException, so that `except Exception` in a handler does not catch it.
    """

    def __init__(self, wait: Wait) -> None:
        super().__init__(f"waiting for {wait.name}")
        self.wait = wait
