"""Enqueue in the caller's own Postgres transaction: the job exists if and only if the caller commits.

Job, first event and keys are written on the caller's connection; commit and rollback are the caller's. Detent does not
see that commit, so workers are not notified and find the job with their next poll, within a second. `notify=True` sends
NOTIFY inside the transaction instead: workers get it at the commit, but such commits take a lock they all share.
SQLite is refused: it has one writer, and the caller's transaction would be a second one.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from detent.core.errors import NotSupported, VersionConflict
from detent.engine import Engine, Submission, Submitted
from detent.engine.submit.prepare import (
    Prepared,
    needs_transaction,
    prepare,
    submit_in_transaction,
    submit_within_quotas,
)
from detent.ports.tx import Tx
from detent.system.run_now import run_now

_ATTEMPTS = 3
_SAVEPOINT = "detent_enqueue"
_RACED_INDEX = "jobs_task"
"""The unique index on the run number of a task: two concurrent callers may take the same next number."""


class NoTransaction(NotSupported, code="TRANSACTION_REQUIRED"):
    """The connection is in no transaction or of the wrong kind, or the store cannot use the caller's transaction."""


Run = Callable[[Coroutine[Any, Any, int]], int]
"""Runs a coroutine on the event loop of the engine."""


def submit_on_sync(
    engine: Engine, connection: Any, submission: Submission, run: Run, *, notify: bool = False
) -> Submitted:
    """Submit on a blocking psycopg Connection."""
    return run_now(submit_on(engine, connection, submission, run, notify=notify))


async def submit_on(
    engine: Engine, connection: Any, submission: Submission, run: Run | None = None, *, notify: bool = False
) -> Submitted:
    """Submit on an asyncpg connection or a psycopg AsyncConnection that is inside a transaction.

    run: given if the connection is a blocking one.
    """
    caller = _checked_connection(engine, connection, blocks=run is not None)
    prepared = prepare(engine, submission, engine.store.now())
    tx = engine.store.transaction_on(caller, run)  # type: ignore[attr-defined]
    quotas = await tx.quotas.lock_quotas([submission.tenant_id])
    if any(quota.max_backlog is not None for quota in quotas):
        await _check_isolation(caller)
    may_fail = needs_transaction(prepared) or bool(quotas)
    submitted = await (_submit_in_savepoint(caller, tx, prepared) if may_fail else submit_in_transaction(tx, prepared))
    if notify and not submitted.hit:
        await caller.execute("SELECT pg_notify($1, '')", engine.store.schema)  # type: ignore[attr-defined]
    return submitted


def _checked_connection(engine: Engine, connection: Any, *, blocks: bool) -> Any:
    if not hasattr(engine.store, "transaction_on"):
        raise NoTransaction(
            "SQLite has one writer, so it cannot share your transaction; enqueue after your commit, or use Postgres",
            code="STORE_LACKS_TRANSACTIONS",
        )
    from detent.stores.postgres.caller_connection import caller_connection

    caller = caller_connection(connection)
    if caller.blocks != blocks:
        kind, call = ("a blocking", "enqueue_in_sync") if caller.blocks else ("an async", "await enqueue_in")
        raise NoTransaction(f"this is {kind} connection; use {call}(connection, ...)", code="CONNECTION_UNKNOWN")
    if not caller.in_transaction():
        raise NoTransaction("the connection is in no transaction; begin one, then enqueue, then commit")
    return caller


async def _check_isolation(caller: Any) -> None:
    """A quota is exact because jobs are counted after its row was locked; an older snapshot would miss some."""
    ((level,),) = await caller.fetch("SELECT current_setting('transaction_isolation')")
    if level != "read committed":
        raise NoTransaction(
            f"the tenant has a quota, which cannot be checked in a {level.upper()} transaction; "
            "begin the transaction with ISOLATION LEVEL READ COMMITTED, or enqueue after your commit",
            code="ISOLATION_UNSUPPORTED",
        )


async def _submit_in_savepoint(caller: Any, tx: Tx, prepared: Prepared) -> Submitted:
    """An error leaves the caller's transaction usable; a lost race is tried again."""
    race_error: Exception | None = None
    for _ in range(_ATTEMPTS):
        await caller.execute(f"SAVEPOINT {_SAVEPOINT}")
        try:
            (submitted,) = await submit_within_quotas(tx, [prepared])
        except Exception as error:
            await caller.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            await caller.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
            if not _lost_a_race(error):
                raise
            race_error = error
        else:
            await caller.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
            return submitted
    raise VersionConflict(
        "another transaction took the idempotency key or run number; roll back, then repeat in a new transaction"
    ) from race_error


def _lost_a_race(error: Exception) -> bool:
    details = getattr(error, "diag", error)  # psycopg has the server's fields in `diag`, asyncpg on the error
    return isinstance(error, VersionConflict) or getattr(details, "constraint_name", None) == _RACED_INDEX
