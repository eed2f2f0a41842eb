"""Enqueueing in the caller's own Postgres transaction: the job is there if and only if the caller commits.

Job, first event and keys are written on the connection that is handed over; commit and rollback are the caller's. No
worker can be told of a commit that Detent does not see, so a poll finds the job (within a second). `notify=True` rings
from inside the transaction instead: it is heard at the commit, but takes a lock that all such commits share.
SQLite is refused: it has one writer, and a transaction of the caller's would be a second one.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from detent.core.errors import NotSupported, VersionConflict
from detent.engine import Engine, Submission, Submitted
from detent.engine.submit.prepare import Prepared, needs_transaction, prepare, submit_in
from detent.engine.submit.submit import submit_within
from detent.ports.tx import Tx

_REPEATS = 3
_SAVEPOINT = "detent_enqueue"
_RACED = "jobs_task"
"""The unique index two callers can honestly run into: both gave their run the next number."""


class NoTransaction(NotSupported):
    """The connection commits every statement by itself, or the store cannot share one."""

    code = "TRANSACTION_REQUIRED"


async def submit_on(engine: Engine, connection: Any, ask: Submission, *, notify: bool = False) -> Submitted:
    """Submit on an asyncpg connection or a psycopg AsyncConnection that is inside a transaction."""
    return await _submit(engine, connection, ask, notify, None)


def submit_on_sync(
    engine: Engine,
    connection: Any,
    ask: Submission,
    run: Callable[[Coroutine[Any, Any, int]], int],
    *,
    notify: bool = False,
) -> Submitted:
    """The same on a psycopg Connection. run: how a coroutine gets to the event loop the engine belongs to."""
    from detent.stores.sqlite.session import run_now

    return run_now(_submit(engine, connection, ask, notify, run))


async def _submit(
    engine: Engine,
    connection: Any,
    ask: Submission,
    notify: bool,
    run: Callable[[Coroutine[Any, Any, int]], int] | None,
) -> Submitted:
    theirs = _borrowed(engine, connection, blocks=run is not None)
    prepared = prepare(engine, ask, engine.store.now())
    tx = engine.store.borrow(theirs, run)  # type: ignore[attr-defined]
    apart = needs_transaction(prepared) or await tx.lock_quota(ask.tenant_id) is not None
    made = await _kept_apart(theirs, tx, prepared) if apart else await submit_in(tx, prepared)
    if notify and not made.hit:
        from detent.stores.postgres.notifications import CHANNEL

        await theirs.execute("SELECT pg_notify($1, '')", CHANNEL)
    return made


def _borrowed(engine: Engine, connection: Any, *, blocks: bool) -> Any:
    if not hasattr(engine.store, "borrow"):
        raise NoTransaction(
            "SQLite has one writer and a file of its own; enqueue after your commit, or use Postgres",
            code="STORE_LACKS_TRANSACTIONS",
        )
    from detent.stores.postgres.caller_connection import caller_connection

    theirs = caller_connection(connection)
    if theirs.blocks != blocks:
        kind, call = ("a blocking", "enqueue_in_sync") if theirs.blocks else ("an async", "await enqueue_in")
        raise NoTransaction(f"this is {kind} connection; use {call}(connection, ...)", code="CONNECTION_UNKNOWN")
    if not theirs.in_transaction():
        raise NoTransaction("the connection is in no transaction; begin one, then enqueue, then commit")
    return theirs


async def _kept_apart(theirs: Any, tx: Tx, prepared: Prepared) -> Submitted:
    """Under a savepoint: a refusal leaves the caller's transaction as it was, a lost race is run again."""
    for _ in range(_REPEATS):
        await theirs.execute(f"SAVEPOINT {_SAVEPOINT}")
        try:
            (made,) = await submit_within(tx, [prepared])
        except Exception as error:
            await theirs.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            await theirs.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
            if not _lost_a_race(error):
                raise
            lost = error
        else:
            await theirs.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
            return made
    raise VersionConflict(
        "another transaction took the key or the number; roll back, and repeat in a transaction that sees it"
    ) from lost


def _lost_a_race(error: Exception) -> bool:
    told = getattr(error, "diag", error)  # psycopg keeps what the server told apart, asyncpg does not
    return isinstance(error, VersionConflict) or getattr(told, "constraint_name", None) == _RACED
