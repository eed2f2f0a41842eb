"""What the server or the way to it can do to us, said in Detent's own refusals."""

import asyncpg

from detent.core.errors import StoreRefused, StoreUnavailable, VersionConflict

TIES = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""The database broke a tie against us: nothing happened, the same act may be tried again at once."""
LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalClientError,
    asyncpg.LockNotAvailableError,
    *TIES,
    OSError,
    TimeoutError,
)
_RACES = {"jobs_task"}
"""Unique indexes that two honest callers can run into: the second one looks again and takes the next number."""


def translate(error: BaseException) -> BaseException:
    """A lost, refusing or overloaded server is one kind of trouble for the caller: the store is not available."""
    if isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name in _RACES:
        return VersionConflict("another call took the same number at the same moment; repeat the call")
    if isinstance(error, asyncpg.IntegrityConstraintViolationError):
        return StoreRefused(f"the database refused a row that contradicts itself: {error}")
    if isinstance(error, asyncpg.DataError):
        return StoreRefused(f"the database cannot hold a value: {error}")
    if isinstance(error, LOST):
        cause = f"{type(error).__name__}: {error}"
        advice = "check that it runs and that the URL is right; workers and servers try again by themselves"
        return StoreUnavailable(f"Postgres does not answer ({cause}); {advice}")
    return error
