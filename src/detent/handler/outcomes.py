"""Exceptions that a handler raises to choose its outcome, and the internal exception that suspends a job."""

from detent.core.job import Wait


class Retry(Exception):
    """Raise it in a handler to fail this execution and run the job again.

    It counts as a failure and uses up one retry; with no retries left the job fails. `after` is the delay in seconds
    before the next execution; without it the backoff of the job or of its contract applies. A contract with frozen
    retries (gate-b2) refuses `after` (RETRY_DELAY_FROZEN): its own backoff applies, and the log of the job says so.

        raise Retry("rate limited", after=30)
    """

    def __init__(self, message: str = "the handler requested a retry", *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


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

    def __init__(self, seconds: float) -> None:
        super().__init__(f"snoozed for {seconds} s")
        self.seconds = seconds


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
