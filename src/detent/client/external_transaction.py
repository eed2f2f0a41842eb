"""Enqueue in the caller's own Postgres transaction: the job exists if and only if the caller commits.

Job, first event and keys are written on the caller's connection; commit and rollback are the caller's. A session of
SQLAlchemy or a connection of Django says when its transaction has ended, and workers are notified then. A connection
of a driver does not: NOTIFY is sent inside the transaction, and the server delivers it at the commit.
SQLite is refused: the caller's sqlite3 is another copy of the SQLite library than Detent's, and two copies in one
process release each other's file locks.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
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


@dataclass(frozen=True, slots=True)
class CallerTransaction:
    """The transaction of a caller: the driver's connection, and how to learn that the transaction has ended."""

    connection: Any
    on_end: Callable[[Callable[[], None]], None] | None = None
    """Registers a function to call once the transaction has ended; None if the caller's library cannot tell."""


_FRAMEWORKS = {"sqlalchemy": "detent.integrations.sqlalchemy", "django": "detent.integrations.django"}
"""Library of the caller's object -> module with `caller_transaction(object)`, which finds the driver's connection."""


async def submit_on(engine: Engine, connection: Any, submission: Submission) -> Submitted:
    """Submit on a connection that is inside a transaction: of asyncpg, psycopg, SQLAlchemy (or a session) or Django.

    A blocking connection is used on another thread, so that the event loop goes on while the server is waited for.
    """
    loop = asyncio.get_running_loop()
    opened = await _opened(engine, connection)
    caller = _in_transaction(opened)
    if caller.blocks:
        submitted = await asyncio.to_thread(_submit_blocking, engine, caller, submission, opened, loop)
    else:
        submitted = await _submit(engine, caller, submission, opened, None)
    _notify_at_end(engine, opened, submitted, loop)
    return submitted


def submit_on_sync(
    engine: Engine, connection: Any, submission: Submission, loop: asyncio.AbstractEventLoop
) -> Submitted:
    """Submit on a blocking connection, from a thread that has no event loop. loop: that of the engine."""
    opened = run_now(_opened(engine, connection))
    caller = _in_transaction(opened)
    if not caller.blocks:
        raise NoTransaction(
            "this is an async connection; use await enqueue_in(connection, ...)", code="CONNECTION_UNKNOWN"
        )
    submitted = _submit_blocking(engine, caller, submission, opened, loop)
    _notify_at_end(engine, opened, submitted, loop)
    return submitted


def _submit_blocking(
    engine: Engine, caller: Any, submission: Submission, opened: CallerTransaction, loop: asyncio.AbstractEventLoop
) -> Submitted:
    def run(work: Coroutine[Any, Any, int]) -> int:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    return run_now(_submit(engine, caller, submission, opened, run))


async def _opened(engine: Engine, connection: Any) -> CallerTransaction:
    if not hasattr(engine.store, "transaction_on"):
        raise NoTransaction(
            "SQLite cannot share your transaction: the sqlite3 module is another copy of the SQLite library, and two "
            "copies in one process release each other's file locks; enqueue after your commit, or use Postgres",
            code="STORE_LACKS_TRANSACTIONS",
        )
    for kind in type(connection).__mro__:
        if framework := _FRAMEWORKS.get(kind.__module__.partition(".")[0]):
            opened: CallerTransaction = await import_module(framework).caller_transaction(connection)
            return opened
    return CallerTransaction(connection)


def _in_transaction(opened: CallerTransaction) -> Any:
    from detent.stores.postgres.caller_connection import caller_connection

    caller = caller_connection(opened.connection)
    if not caller.in_transaction():
        raise NoTransaction("the connection is in no transaction; begin one, then enqueue, then commit")
    return caller


async def _submit(
    engine: Engine, caller: Any, submission: Submission, opened: CallerTransaction, run: Run | None
) -> Submitted:
    prepared = prepare(engine, submission, engine.store.now())
    tx = engine.store.transaction_on(caller, run)  # type: ignore[attr-defined]
    quotas = await tx.quotas.lock_quotas([submission.tenant_id])
    if any(quota.max_backlog is not None for quota in quotas):
        await _check_isolation(caller)
    may_fail = needs_transaction(prepared) or bool(quotas)
    submitted = await (_submit_in_savepoint(caller, tx, prepared) if may_fail else submit_in_transaction(tx, prepared))
    if opened.on_end is None and not submitted.hit:
        await caller.execute("SELECT pg_notify($1, '')", engine.store.schema)  # type: ignore[attr-defined]
    return submitted


def _notify_at_end(
    engine: Engine, opened: CallerTransaction, submitted: Submitted, loop: asyncio.AbstractEventLoop
) -> None:
    """Notify workers once the transaction has ended; a notification after a rollback costs them one claim."""

    def notify() -> None:
        with suppress(RuntimeError):  # the event loop is closed: workers find the job with their next poll
            loop.call_soon_threadsafe(lambda: engine.store.notify_commit(other_processes=True))  # type: ignore[attr-defined]

    if opened.on_end is not None and not submitted.hit:
        opened.on_end(notify)


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
