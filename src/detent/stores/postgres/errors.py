"""Translates asyncpg errors to Detent errors."""

import asyncpg

from detent.core.errors import (
    DatabaseUnusable,
    InvalidInput,
    SchemaMismatch,
    StoreContended,
    StoreRefused,
    StoreUnavailable,
    VersionConflict,
)
from detent.stores.sql_files import SCHEMA_CHANGED

CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""The transaction was rolled back and may be repeated at once."""
UNAVAILABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
_UNUSABLE = {
    asyncpg.InvalidCatalogNameError: (
        "DATABASE_MISSING",
        "create the database with `createdb NAME`, or correct its name in the URL: postgresql://user@host/NAME",
    ),
    asyncpg.InvalidAuthorizationSpecificationError: (
        "DATABASE_LOGIN_REFUSED",
        "correct user and password in the URL, special characters percent-encoded (%40 for @)",
    ),
    asyncpg.InsufficientPrivilegeError: (
        "DATABASE_RIGHTS_MISSING",
        "docs/operate/postgres.md lists the rights of each role",
    ),
}
_SCHEMA_CHANGED = (asyncpg.UndefinedColumnError, asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError)
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
    for refusal, (code, advice) in _UNUSABLE.items():
        if isinstance(error, refusal):
            return DatabaseUnusable(f"Postgres refuses: {error}; {advice}", code=code)
    if isinstance(error, _SCHEMA_CHANGED):
        return SchemaMismatch(SCHEMA_CHANGED.format(error))
    if _is_bouncer_error(error):
        return InvalidInput(
            "this server is a PgBouncer, which keeps no session settings and prepared statements; add ?pgbouncer=1 to "
            "the URL, or connect to Postgres directly",
            code="PGBOUNCER_UNDECLARED",
        )
    if isinstance(error, asyncpg.LockNotAvailableError):
        return StoreUnavailable(
            "a table or row stays locked by another transaction; end that transaction (pg_stat_activity and pg_locks "
            "show it); workers and servers retry automatically"
        )
    if isinstance(error, CONFLICTS):
        return StoreContended(f"concurrent transactions conflict ({type(error).__name__}: {error}); repeat the call")
    if isinstance(error, UNAVAILABLE):
        cause = f"{type(error).__name__}: {error}"
        advice = "check that it runs and that the URL is right; workers and servers retry automatically"
        return StoreUnavailable(f"Postgres does not answer ({cause}); {advice}")
    return error


def rows_are_locked(error: StoreUnavailable) -> bool:
    """True if a statement gave up waiting for a lock. It was rolled back."""
    return isinstance(error.__cause__, asyncpg.LockNotAvailableError)


def _is_bouncer_error(error: BaseException) -> bool:
    """PgBouncer refuses startup parameters; if it is configured to ignore them, prepared statements fail sooner or
    later, because the next transaction runs on another connection."""
    if isinstance(error, asyncpg.InvalidSQLStatementNameError | asyncpg.DuplicatePreparedStatementError):
        return "__asyncpg_" in str(error)
    return isinstance(error, asyncpg.ProtocolViolationError) and "unsupported startup parameter" in str(error)
