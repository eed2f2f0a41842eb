"""Errors of Detent. Each has a stable code, an HTTP status and a message that tells the user what to do."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


class DetentError(Exception):
    """Base of all errors that Detent raises.

    `code` is stable and meant for programs, `message` is for people, `http_status` is the status of the REST response,
    `retryable` says whether the same call may succeed later. `extra` has further fields (conflict_fields, limit, ...).
    A subclass sets its defaults with class keywords: `class NotFound(DetentError, code="JOB_NOT_FOUND", ...)`.
    """

    code = "DETENT_ERROR"
    http_status = 500
    retryable = False

    def __init_subclass__(cls, code: str | None = None, http_status: int = 0, retryable: bool | None = None) -> None:
        cls.code = code or cls.code
        cls.http_status = http_status or cls.http_status
        cls.retryable = cls.retryable if retryable is None else retryable

    def __init__(self, message: str, *, code: str | None = None, http_status: int | None = None, **extra: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.http_status = http_status or type(self).http_status
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def as_dict(self) -> dict[str, Any]:
        """The error as REST and `--json` show it: code, message, retryable, and the fields of `extra`."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable, **self.extra}


class ContractError(DetentError, code="CONTRACT_INVALID", http_status=422):
    """A declared contract is not valid; the message names the faulty row."""


class ContractChanged(DetentError, code="CONTRACT_CHANGED", http_status=409):
    """A declared contract lacks a status or edge that unfinished jobs of the database use."""


class UnknownContract(DetentError, code="CONTRACT_UNKNOWN", http_status=422):
    """No contract has this name."""


class InvalidInput(DetentError, code="INPUT_INVALID", http_status=422):
    """An argument, payload, option or setting is not valid; `code` says which."""


class ExtraMissing(InvalidInput, ImportError, code="EXTRA_MISSING"):
    """A package is not installed that only an extra of Detent brings; the message has the command that installs it."""


def check_number(value: Any, field: str, low: float, high: float, code: str, *, whole: bool = True) -> None:
    """Raise InvalidInput unless the value is a number from low to high; true and false are no numbers."""
    kind = "a whole number" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not low <= value <= high:
        raise InvalidInput(f"{field} must be {kind} from {low} to {high}, got {value!r:.60}", code=code, field=field)


class RetryDelayFrozen(InvalidInput, code="RETRY_DELAY_FROZEN"):
    """A failure asks for a delay of its retry, but its contract fixes the delays."""


class InvalidSchedule(InvalidInput, code="SCHEDULE_INVALID"):
    """A value of a schedule is not valid. A contract may replace the code."""


class NotFound(DetentError, code="JOB_NOT_FOUND", http_status=404):
    """No job, dead letter, schedule or worker has this id or name."""


class IllegalMove(DetentError, code="JOB_TRANSITION_INVALID", http_status=409):
    """The contract has no edge for this move from the job's status."""


class StaleLease(DetentError, code="LEASE_STALE", http_status=409):
    """The lease token is no longer valid: another worker holds the job, or it has ended.

    In a handler: stop working on the job, its results are not recorded.
    """


class VersionConflict(DetentError, code="VERSION_CONFLICT", http_status=409, retryable=True):
    """The job was changed between read and write."""


class IdempotencyConflict(DetentError, code="IDEMPOTENCY_CONFLICT", http_status=409):
    """The idempotency key belongs to a job with another content."""


class TenantViolation(DetentError, code="TENANT_SCOPE_VIOLATION", http_status=403):
    """The job or other object belongs to another tenant."""


class ScopeViolation(DetentError, code="TOKEN_SCOPE_VIOLATION", http_status=403):
    """The request names a queue, a job type or a resource outside of what the token is limited to."""


class QuotaExceeded(DetentError, code="TENANT_BACKLOG_FULL", http_status=429, retryable=True):
    """The tenant's backlog quota is full."""


class ApprovalRequired(DetentError, code="APPROVAL_REQUIRED", http_status=400):
    """The act needs a named person, a reason, a role, or another person than this one."""


class DeadLetterConflict(DetentError, code="DLQ_REQUEUE_CONFLICT", http_status=409):
    """The dead letter is not open: it was requeued or discarded before."""


class SignalRefused(DetentError, code="SIGNAL_REFUSED", http_status=409):
    """The job cannot take this signal: it has ended, waits for another name, or keeps too many signals."""


class NotSupported(DetentError, code="CONTRACT_LACKS_MOVE", http_status=422):
    """The contract has no status for this operation."""


class StepMismatch(DetentError, code="STEP_MISMATCH", http_status=409):
    """A step was called with other arguments than those it was recorded with; also a child or an approval.

    Keep the recorded arguments, or give the changed step another name. Not retryable: uncaught, the job fails for good.
    """


class OnceUnfinished(DetentError, code="ONCE_UNFINISHED", http_status=409):
    """A `ctx.once` call was begun but its end was not recorded: it may have taken effect, so it is not run again.

    Catch it, check outside whether the effect happened, then continue or call `ctx.once` under another name.
    """


class StepOrphaned(DetentError, code="STEP_ORPHANED", http_status=409):
    """The job has a recorded step that the code no longer calls, and is declared with strict_steps=True.

    Call the step again, or requeue the job to run the new code from the start.
    """


class StoreUnavailable(DetentError, code="STORE_UNAVAILABLE", http_status=503, retryable=True):
    """The database cannot be reached or is overloaded; the call may be repeated."""


class SchemaMismatch(StoreUnavailable, code="SCHEMA_MISMATCH", retryable=False):
    """The database was set up or upgraded by another version of Detent, or not set up; `message` says what to do."""


class StoreContended(StoreUnavailable):
    """The transaction conflicted with concurrent ones, again and again, and was rolled back."""


class DatabaseUnusable(StoreUnavailable, code="DATABASE_UNUSABLE", retryable=False):
    """The URL is well formed but cannot be used: wrong path, database, user or password; `code` says which."""


class DatabaseFileLost(StoreUnavailable, code="DATABASE_FILE_LOST", retryable=False):
    """The SQLite file was removed or replaced while it was open: what was committed since then is not in it."""


class SqliteFileInUse(DetentError, code="SQLITE_FILE_IN_USE", http_status=409):
    """A second library of this process may not open a SQLite file that Detent has open, or the other way round."""


class StoreRefused(DetentError, code="STORE_CONSTRAINT", http_status=500):
    """A database constraint refused a write: a bug in Detent, or a contract that is not registered in the database."""


class TransactionTooLong(DetentError, code="TRANSACTION_TOO_LONG", http_status=503, retryable=True):
    """A user's transaction held the only writer for too long and was rolled back."""


class JobFailed(DetentError, code="JOB_FAILED", http_status=409):
    """Raised by `handle.result()`: the job ended without a result. It failed, was cancelled or was rejected.

    `job_id` and `status` are those of the job; `error_code`, `error_message` and `error_class` (the name of the
    exception's class) say why it failed, None if it was cancelled or rejected.

        except JobFailed as failed:
            if failed.error_code == "CARD_DECLINED": ...
    """

    def __init__(
        self,
        message: str,
        *,
        job_id: str = "",
        status: str = "",
        error_code: str | None = None,
        error_message: str | None = None,
        error_class: str | None = None,
    ) -> None:
        super().__init__(message, job_id=job_id, status=status, job_code=error_code)
        self.job_id = job_id
        self.status = status
        self.error_code = error_code
        self.error_message = error_message
        self.error_class = error_class


def invalid_value(error: "ValidationError", path: str = "", *, code: str) -> InvalidInput:
    """The first problem of a pydantic validation, with the path of its key: `retention.batch must be a number`."""
    problem = error.errors(include_url=False)[0]
    key = ".".join([*([path] if path else []), *map(str, problem["loc"])])
    text = problem["msg"].removeprefix("Value error, ").replace("Input should be a valid", "must be a")
    text = text.replace("Input should be", "must be").partition(", unable to")[0]
    text = _SETTING_PROBLEMS.get(problem["type"], text)
    if text.startswith("must") and isinstance(problem["input"], str | int | float):
        text += f", got {problem['input']!r}"
    return InvalidInput(f"{key} {text}", code=code)


_SETTING_PROBLEMS = {
    "extra_forbidden": "is unknown",
    "unexpected_keyword_argument": "is unknown",
    "missing": "is missing",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
}
