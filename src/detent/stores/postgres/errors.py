"""Translates asyncpg errors to Detent errors."""

import asyncpg

from detent.core.errors import StoreRefused, StoreUnavailable, VersionConflict

CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""Deadlock or serialization failure: the transaction was rolled back and may be repeated at once."""
UNAVAILABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalClientError,
    asyncpg.LockNotAvailableError,
    *CONFLICTS,
    OSError,
    TimeoutError,
)
_RACES = {"jobs_task"}
"""Unique indexes that concurrent valid calls can violate: the second call repeats and takes the next number."""


def translate(error: BaseException) -> BaseException:
    """The Detent error for an asyncpg error; other errors are returned unchanged.

    A lost connection, a server that refuses work and an overloaded server all become StoreUnavailable.
    """
    if isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name in _RACES:
        return VersionConflict("another call took the same attempt number at the same time; repeat the call")
    if isinstance(error, asyncpg.IntegrityConstraintViolationError):
        return StoreRefused(f"the database refused a row that violates a constraint: {error}")
    if isinstance(error, asyncpg.DataError):
        return StoreRefused(f"the database cannot store a value: {error}")
    if isinstance(error, UNAVAILABLE):
        cause = f"{type(error).__name__}: {error}"
        advice = "check that it runs and that the URL is right; workers and servers retry automatically"
        return StoreUnavailable(f"Postgres does not answer ({cause}); {advice}")
    return error
