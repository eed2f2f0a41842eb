"""SQLAlchemy: savepoints and rollbacks with `enqueue_in`, and sessions in the transaction of a job."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from detent import Context, Detent, DetentError, JobFailed, Retry
from detent.integrations.sqlalchemy import job_session
from support.servers.databases import Database, house, newest
from support.waiting import within
from support.worker.running import working

pytestmark = pytest.mark.anyio


class Base(DeclarativeBase):
    pass


class Payment(Base):
    __tablename__ = "payments"
    order: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]


@pytest.fixture
def database() -> Iterator[Database]:
    database = house(newest()).database()
    yield database
    database.sql("DROP TABLE IF EXISTS payments")
    database.release()


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(database.url.replace("postgresql:", "postgresql+asyncpg:"))
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield engine
    await engine.dispose()


@pytest.fixture
async def app(database: Database) -> AsyncIterator[Detent]:
    async with Detent(database.url) as app:
        yield app


def payments(database: Database) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.sql('SELECT "order", amount FROM payments ORDER BY 1')]


async def test_a_savepoint_takes_back_its_own_jobs_only(app: Detent, engine: AsyncEngine, database: Database) -> None:
    @app.job("ship")
    async def ship(order: int) -> None: ...

    async with AsyncSession(engine) as session, session.begin():
        await ship.enqueue_in(session, order=1)
        nested = await session.begin_nested()
        await ship.enqueue_in(session, order=2)
        await nested.rollback()
        async with session.begin_nested():
            await ship.enqueue_in(session, order=3)
    assert [row[0] for row in database.sql("SELECT payload::json ->> 'order' FROM detent.job_list ORDER BY 1")] == [
        "1",
        "3",
    ]


async def test_the_session_of_a_job_commits_with_its_success(
    app: Detent, engine: AsyncEngine, database: Database
) -> None:
    seen: list[Any] = []

    @app.job("pay")
    async def pay(ctx: Context, order: int) -> int:
        async with job_session(ctx) as session:
            session.add(Payment(order=order, amount=5))
            await session.flush()
            payment = (await session.scalars(select(Payment))).one()
        seen.append(payments(database))
        if ctx.retries == 0:
            raise Retry(after=0)
        return payment.amount

    async with working(app):
        assert await within(20, (await pay.enqueue(order=7)).result()) == 5
    assert seen == [[], []], "nobody else sees it before the settlement, and the first execution was rolled back"
    assert payments(database) == [(7, 5)]


async def test_an_error_in_the_session_rolls_it_back(app: Detent, engine: AsyncEngine, database: Database) -> None:
    @app.job("pay", max_retries=0)
    async def pay(ctx: Context, order: int) -> None:
        async with job_session(ctx) as session:
            session.add(Payment(order=order, amount=5))
            await session.flush()
            raise ValueError("declined")

    async with working(app):
        with pytest.raises(JobFailed):
            await within(20, (await pay.enqueue(order=7)).result())
    assert payments(database) == []


async def test_a_step_commits_its_session(app: Detent, engine: AsyncEngine, database: Database) -> None:
    @app.job("pay")
    async def pay(ctx: Context, order: int) -> None:
        async def record() -> int:
            async with job_session(ctx) as session:
                session.add(Payment(order=order, amount=ctx.retries))
            return order

        await ctx.step("record", record)
        if ctx.retries == 0:
            raise Retry(after=0)

    async with working(app):
        await within(20, (await pay.enqueue(order=7)).result())
    assert payments(database) == [(7, 0)]


async def test_jobs_in_sqlite_are_refused() -> None:
    app = Detent("sqlite:///:memory:")

    @app.job("pay", max_retries=0)
    async def pay(ctx: Context) -> None:
        with pytest.raises(DetentError) as caught:
            async with job_session(ctx):
                pass
        assert caught.value.code == "STORE_LACKS_TRANSACTIONS"

    async with app, working(app):
        await within(20, (await pay.enqueue()).result())
