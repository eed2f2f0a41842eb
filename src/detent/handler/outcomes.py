"""What a handler may raise to say how its execution ended, and the suspension that waiting is made of."""

from detent.core.job import Wait


class Retry(Exception):
    """Try again, charged as a failure; `after` seconds instead of the contract's backoff."""

    def __init__(self, message: str = "the handler asked for a retry", *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Fail(Exception):
    """This execution failed, with a code of your own. retryable False: do not try again."""

    def __init__(self, message: str = "", *, code: str = "FAILED", retryable: bool = False) -> None:
        super().__init__(message or code)
        self.code = code
        self.retryable = retryable


class Snooze(Exception):
    """Not now: hand the job back, due again in so many seconds, not charged."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"snoozed for {seconds} s")
        self.seconds = seconds


class Cancel(Exception):
    """The job should end as cancelled."""

    def __init__(self, reason: str = "the handler cancelled the job") -> None:
        super().__init__(reason)
        self.reason = reason


class WaitTimeout(TimeoutError):
    """Nobody sent the signal in time; asking again under the same name gives the same answer."""


class Suspend(BaseException):
    """The job leaves its worker to wait. A BaseException, so that `except Exception` does not eat it."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(f"waiting for {wait.name}")
        self.wait = wait
