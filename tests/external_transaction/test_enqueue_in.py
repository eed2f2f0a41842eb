"""A job enqueued in the caller's transaction is there if and only if the caller commits."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import asyncpg
import psycopg
import pytest

from detent import Detent, DetentError, JobDefinition
from detent.client.connect import store_from
from detent.engine import Engine
from detent.proof.verify.verify import verify
from support.servers.databases import Database, house, newest

from .callers import CALLERS, Caller

pytestmark = pytest.mark.anyio


@pytest.fixture
def database() -> Iterator[Database]:
    database = house(newest()).database()
    database.sql("CREATE TABLE IF NOT EXISTS orders (number integer PRIMARY KEY)")
    yield database
    database.sql("DROP TABLE orders")
    database.release()


@pytest.fixture
async def app(database: Database) -> AsyncIterator[Detent]:
    app = Detent(database.url)

    @app.job("charge")
    async def charge(order: int, connection: str = "") -> int:
        return order

    @app.job("run", contract="p3c")
    async def run() -> None: ...

    async with app:
        yield app
    app.sync.close()


@pytest.fixture(params=list(CALLERS))
async def caller(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Caller]:
    caller = CALLERS[request.param]()
    await caller.open(database.url)
    yield caller
    await caller.close()


@pytest.fixture
def charge(app: Detent) -> JobDefinition[..., Any]:
    return app.jobs["charge"]


def counted(database: Database) -> dict[str, int]:
    return {name: len(database.rows(name)) for name in ("jobs", "events", "notes", "keys", "orders")}


NOTHING = {"jobs": 0, "events": 0, "notes": 0, "keys": 0, "orders": 0}


async def claimed(engine: Engine) -> list[str]:
    return [one.id for one in await engine.claim(engine.claim_request("w1", 10, 30))]


async def test_a_rollback_leaves_nothing(caller: Caller, charge: Any, database: Database) -> None:
    await caller.begin()
    await caller.order(7)
    await caller.enqueue(charge, order=7)
    await caller.enqueue(charge.using(key="order-7"), order=7)
    assert counted(database) == NOTHING, "nobody sees it before the commit"
    await caller.rollback()
    assert counted(database) == NOTHING


async def test_a_commit_makes_the_job_claimable(caller: Caller, charge: Any, app: Detent, database: Database) -> None:
    await caller.begin()
    await caller.order(7)
    handle = await caller.enqueue(charge.using(key="order-7", priority=5, trace_id="t-1"), order=7, connection="x")
    assert await claimed(app.engine) == []
    await caller.commit()
    assert counted(database) == {"jobs": 1, "events": 1, "notes": 0, "keys": 1, "orders": 1}
    job = await app.engine.jobs.get(handle.id)
    assert (job.payload, job.priority, job.trace_id) == ('{"order":7,"connection":"x"}', 5, "t-1")
    assert await claimed(app.engine) == [handle.id]
    report = await verify(app.engine.store)
    assert (report.violations, report.warnings) == ([], [])


async def test_the_same_row_as_an_ordinary_enqueue_makes(caller: Caller, charge: Any, database: Database) -> None:
    plain = await charge.using(delay=60, trace_id="t").enqueue(order=1)
    await caller.begin()
    made = await caller.enqueue(charge.using(delay=60, trace_id="t"), order=1)
    await caller.commit()
    own = {"id", "created_at", "updated_at", "due_at", "effect_root"}
    for table in ("jobs", "job_list"):
        rows = {row["id"]: row for row in database.named(f"SELECT * FROM detent.{table}")}
        first, second = rows[plain.id], rows[made.id]
        assert {name for name in first if first[name] != second[name]} <= own
    assert len(database.sql("SELECT 1 FROM timers")) == 2, "both are found when their time comes"


async def test_a_known_key_hits_and_nothing_is_written(caller: Caller, charge: Any, database: Database) -> None:
    first = await charge.using(key="order-7").enqueue(order=7)
    await caller.begin()
    again = await caller.enqueue(charge.using(key="order-7"), order=7)
    await caller.commit()
    assert (again.id, again.hit) == (first.id, True)
    assert counted(database)["jobs"] == 1


async def test_a_refused_key_leaves_the_transaction_usable(caller: Caller, charge: Any, database: Database) -> None:
    await charge.using(key="order-7").enqueue(order=7)
    await caller.begin()
    await caller.order(1)
    with pytest.raises(DetentError) as caught:
        await caller.enqueue(charge.using(key="order-7"), order=8)
    assert (caught.value.code, caught.value.http_status) == ("IDEMPOTENCY_CONFLICT", 409)
    await caller.order(2)
    made = await caller.enqueue(charge.using(key="order-8"), order=8)
    await caller.commit()
    assert counted(database) == {"jobs": 2, "events": 2, "notes": 0, "keys": 2, "orders": 2}
    assert made.hit is False


async def test_two_jobs_under_one_key_in_one_transaction_are_one(caller: Caller, charge: Any) -> None:
    await caller.begin()
    first = await caller.enqueue(charge.using(key="k"), order=1)
    second = await caller.enqueue(charge.using(key="k"), order=1)
    await caller.commit()
    assert (second.id, second.hit) == (first.id, True)


async def test_runs_of_a_task_are_numbered(caller: Caller, app: Detent) -> None:
    job = app.jobs["run"].using(task_id="nightly")
    await job.enqueue()
    await caller.begin()
    made = await caller.enqueue(job)
    await caller.commit()
    assert (await app.engine.jobs.get(made.id)).task_attempt == 2
    assert (await verify(app.engine.store)).ok


@pytest.mark.parametrize("name", ["asyncpg", "psycopg"])
async def test_a_key_taken_by_an_open_transaction_is_waited_for(
    name: str, charge: Any, app: Detent, database: Database
) -> None:
    first, second = CALLERS[name](), CALLERS[name]()
    for caller in (first, second):
        await caller.open(database.url)
        await caller.begin()
    made = await first.enqueue(charge.using(key="k"), order=1)
    waiting = asyncio.create_task(second.enqueue(charge.using(key="k"), order=1))
    await until_somebody_waits(database)
    await first.commit()
    again = await waiting
    await second.commit()
    assert (again.id, again.hit) == (made.id, True)
    for caller in (first, second):
        await caller.close()


async def until_somebody_waits(database: Database) -> None:
    text = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with asyncio.timeout(10):
        while not database.sql(text)[0][0]:
            await asyncio.sleep(0)


async def test_a_snapshot_that_cannot_see_the_key_is_told_to_start_again(
    caller: Caller, charge: Any, database: Database
) -> None:
    await caller.begin("repeatable read")
    await caller.order(1)
    await charge.using(key="k").enqueue(order=1)
    with pytest.raises((DetentError, asyncpg.SerializationError, psycopg.errors.SerializationFailure)):
        await caller.enqueue(charge.using(key="k"), order=1)
    await caller.rollback()
    assert counted(database)["orders"] == 0


async def test_a_connection_without_a_transaction_is_refused(charge: Any, app: Detent, database: Database) -> None:
    plain = await asyncpg.connect(database.url)
    theirs = await psycopg.AsyncConnection.connect(database.url, autocommit=True)
    for connection in (plain, theirs):
        with pytest.raises(DetentError) as caught:
            await charge.enqueue_in(connection, order=1)
        assert caught.value.code == "TRANSACTION_REQUIRED"
    async with theirs.transaction():
        await charge.enqueue_in(theirs, order=1)
    assert counted(database)["jobs"] == 1
    with psycopg.connect(database.url, autocommit=True) as blocking, pytest.raises(DetentError) as caught:
        charge.enqueue_in_sync(blocking, order=1)
    assert caught.value.code == "TRANSACTION_REQUIRED"
    await plain.close()
    await theirs.close()


async def test_the_wrong_kind_of_connection_is_refused(charge: Any, database: Database) -> None:
    with psycopg.connect(database.url) as blocking:
        with pytest.raises(DetentError, match="asyncpg or psycopg 3") as caught:
            await charge.enqueue_in(blocking.cursor(), order=1)
        assert caught.value.code == "CONNECTION_UNKNOWN"
    async with await psycopg.AsyncConnection.connect(database.url) as connection:
        with pytest.raises(DetentError, match="await enqueue_in") as caught:
            charge.enqueue_in_sync(connection, order=1)
        assert caught.value.code == "CONNECTION_UNKNOWN"


async def test_arguments_are_checked_before_anything_is_written(caller: Caller, charge: Any) -> None:
    await caller.begin()
    with pytest.raises(DetentError) as caught:
        await caller.enqueue(charge, order="many")
    assert caught.value.code == "PAYLOAD_INVALID"
    await caller.order(1)
    await caller.commit()


async def test_workers_are_notified_of_the_commit_and_not_before(
    caller: Caller, charge: Any, app: Detent, database: Database
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    listener = await asyncpg.connect(database.url)
    await listener.add_listener("detent", lambda *notification: heard.put_nowait(notification[-1]))
    await caller.begin()
    await caller.enqueue(charge, order=1)
    await listener.execute("SELECT 1")
    assert heard.empty()
    await caller.commit()
    async with asyncio.timeout(5):
        assert await heard.get() == ""
    await listener.close()


async def test_sqlite_says_why_it_cannot() -> None:
    app = Detent("sqlite:///:memory:")

    @app.job("charge")
    async def charge(order: int) -> int:
        return order

    async with app:
        with pytest.raises(DetentError, match="two copies") as caught:
            await charge.enqueue_in(object(), order=1)
    assert caught.value.code == "STORE_LACKS_TRANSACTIONS"


@pytest.mark.parametrize("schema", ["detent", "My jobs"])
async def test_the_search_path_of_the_connection_does_not_matter(
    caller: Caller, database: Database, schema: str
) -> None:
    """Not even if it leads to tables of the same names; and it is the same afterwards."""
    database.sql("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.jobs (id integer)")
    url = f"{database.url}?schema={quote(schema)}"
    app = Detent(url)

    @app.job("charge")
    async def charge(order: int) -> int:
        return order

    engine = Engine(store_from(url, may_migrate=True))
    await engine.open()
    try:
        async with app:
            await caller.begin()
            await caller.run("SET search_path = elsewhere")
            made = await caller.enqueue(charge.using(key="k"), order=1)
            await caller.run("INSERT INTO jobs VALUES (7)")
            await caller.commit()
            assert (await engine.jobs.get(made.id)).status == "queued"
            assert database.sql("SELECT * FROM elsewhere.jobs") == [(7,)]
        app.sync.close()
    finally:
        await engine.close()
        database.sql('DROP SCHEMA elsewhere CASCADE; DROP SCHEMA IF EXISTS "My jobs" CASCADE')
