"""Every refusal Detent can give: one exception, one stable code, one HTTP status, one sentence that says what to do."""

from typing import Any


class DetentError(Exception):
    """Base of all refusals. `extra` holds what the code promises besides (conflict_fields, limit, ...)."""

    code = "DETENT_ERROR"
    http_status = 500
    retryable = False

    def __init__(self, message: str, *, code: str | None = None, http_status: int | None = None, **extra: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.http_status = http_status or type(self).http_status
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def as_dict(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "retryable": self.retryable, **self.extra}


class ContractError(DetentError):
    """A declared contract is not a machine; the message names the faulty row."""

    code = "CONTRACT_INVALID"
    http_status = 422


class UnknownContract(DetentError):
    code = "CONTRACT_UNKNOWN"
    http_status = 422


class InvalidInput(DetentError):
    code = "INPUT_INVALID"
    http_status = 422


class NotFound(DetentError):
    code = "JOB_NOT_FOUND"
    http_status = 404


class IllegalMove(DetentError):
    """The contract has no such edge from where the job is."""

    code = "JOB_TRANSITION_INVALID"
    http_status = 409


class StaleLease(DetentError):
    """The token no longer stands on the row: someone else owns the job, or it has ended."""

    code = "LEASE_STALE"
    http_status = 409


class VersionConflict(DetentError):
    """The job changed between the look and the act."""

    code = "VERSION_CONFLICT"
    http_status = 409
    retryable = True


class IdempotencyConflict(DetentError):
    code = "IDEMPOTENCY_CONFLICT"
    http_status = 409


class TenantViolation(DetentError):
    code = "TENANT_SCOPE_VIOLATION"
    http_status = 403


class QuotaExceeded(DetentError):
    """A tenant has left as much with us as was agreed."""

    code = "TENANT_BACKLOG_FULL"
    http_status = 429
    retryable = True


class ApprovalRequired(DetentError):
    code = "APPROVAL_REQUIRED"
    http_status = 400


class DeadLetterConflict(DetentError):
    code = "DLQ_REQUEUE_CONFLICT"
    http_status = 409


class SignalRefused(DetentError):
    code = "SIGNAL_REFUSED"
    http_status = 409


class NotSupported(DetentError):
    """The contract has no status for what was asked."""

    code = "CONTRACT_LACKS_MOVE"
    http_status = 422


class StepMismatch(DetentError):
    """A recorded step was asked for with other arguments than it was recorded with."""

    code = "STEP_MISMATCH"
    http_status = 409


class OnceUnfinished(DetentError):
    """An at-most-once step was begun and never finished: nobody knows whether it happened, and it is not run again."""

    code = "ONCE_UNFINISHED"
    http_status = 409


class StepOrphaned(DetentError):
    """A step is recorded that the code no longer asks for, and the job is strict about that."""

    code = "STEP_ORPHANED"
    http_status = 409


class SchemaMismatch(DetentError):
    code = "SCHEMA_MISMATCH"
    http_status = 503


class StoreUnavailable(DetentError):
    code = "STORE_UNAVAILABLE"
    http_status = 503
    retryable = True


class StoreRefused(DetentError):
    """A check of the database stopped a write: a bug in Detent, or a contract the database was not told of."""

    code = "STORE_CONSTRAINT"
    http_status = 500


class TransactionTooLong(DetentError):
    """A user's transaction held the only writer for longer than it may; it was undone."""

    code = "TRANSACTION_TOO_LONG"
    http_status = 503
    retryable = True


class JobFailed(DetentError):
    """The job ended without a result: it failed, was cancelled or was rejected."""

    code = "JOB_FAILED"
    http_status = 409
