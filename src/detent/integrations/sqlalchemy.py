"""SQLAlchemy 2: enqueue in the transaction of a session or connection, and sessions in the transaction of a job.

    async with AsyncSession(engine) as session, session.begin():
        session.add(Order(number=7))
        await charge.enqueue_in(session, order=7)

`enqueue_in` finds this module by itself; import it for `job_session`. The dialects are asyncpg and psycopg 3.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.pool import StaticPool

from detent.client.external_transaction import CallerTransaction
from detent.core.errors import InvalidInput, NotSupported
from detent.handler.context import Context

_WAITING = "detent_notifications"
"""Key in `Session.info` of the functions to call once the session's transaction has ended."""


async def caller_transaction(caller: Any) -> CallerTransaction:
    """The driver's connection of a session or connection, inside the transaction that SQLAlchemy will commit.

    For blocking kinds this coroutine never suspends.
    """
    if isinstance(caller, async_scoped_session | scoped_session):
        caller = caller()
    if isinstance(caller, AsyncSession):
        return CallerTransaction(await _async_driver(await caller.connection()), _at_end_of(caller.sync_session))
    if isinstance(caller, Session):
        return CallerTransaction(_driver(caller.connection()), _at_end_of(caller))
    if isinstance(caller, AsyncConnection):
        return CallerTransaction(await _async_driver(caller))
    if isinstance(caller, Connection):
        return CallerTransaction(_driver(caller))
    raise InvalidInput(
        f"{type(caller).__qualname__} is not a session or connection; pass an AsyncSession, Session, AsyncConnection "
        "or Connection",
        code="CONNECTION_UNKNOWN",
    )


async def _async_driver(connection: AsyncConnection) -> Any:
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    starts_late = getattr(driver, "is_in_transaction", None)
    if starts_late is not None and not starts_late():
        await connection.exec_driver_sql("SELECT 1")  # the asyncpg dialect sends BEGIN with the first statement
    return driver


def _driver(connection: Connection) -> Any:
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


def _at_end_of(session: Session) -> Callable[[Callable[[], None]], None]:
    return lambda notify: session.info.setdefault(_WAITING, []).append(notify)


@event.listens_for(Session, "after_transaction_end")
def _call_waiting(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        for notify in session.info.pop(_WAITING, ()):
            notify()


@asynccontextmanager
async def job_session(ctx: Context, **options: Any) -> AsyncIterator[AsyncSession]:
    """An AsyncSession in `ctx.transaction()`: what it writes commits with the job's success, or with the step it is in.

        @app.job()
        async def charge(ctx: Context, order: int) -> None:
            async with job_session(ctx) as session:
                session.add(Payment(order=order))

    The session is flushed at the end of the block; an exception rolls everything back. Needs Postgres.
    options: for AsyncSession. Default: expire_on_commit=False.
    """
    async with ctx.transaction() as connection:
        if not hasattr(connection, "is_in_transaction"):
            raise NotSupported(
                "job_session needs jobs in Postgres; on SQLite use the connection of ctx.transaction()",
                code="STORE_LACKS_TRANSACTIONS",
            )

        async def lend() -> Any:
            return connection

        engine = create_async_engine("postgresql+asyncpg://", async_creator=lend, poolclass=StaticPool)
        async with engine.connect() as lent, AsyncSession(lent, **{"expire_on_commit": False, **options}) as session:
            yield session
            await session.commit()
            await lent.commit()
