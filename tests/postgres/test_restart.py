"""Thread handlers work again after a restart of Postgres; connections stay within the numbers of postgres.md."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psycopg
import pytest

from detent import Context, Detent, SyncContext
from support.servers.databases import Database, migrated
from support.servers.postgres import running
from support.waiting import until_now
from support.worker.running import working

ROOT = Path(__file__).parents[2]
SLOTS = 6
TABLE = "CREATE TABLE shop_orders (id bigint PRIMARY KEY, paid boolean NOT NULL)"
COUNT = """SELECT count(*) FILTER (WHERE application_name = 'orders'), count(*) FILTER (WHERE application_name = '')
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"""


def documented(row: str) -> int:
    """The number of connections of a worker process in the table of docs/operate/postgres.md."""
    page = (ROOT / "docs" / "operate" / "postgres.md").read_text("utf-8")
    line = next(line for line in page.splitlines() if line.startswith(f"| {row}"))
    return int(re.findall(r"\d+", line)[-1 if "more" in line else 0])


@pytest.mark.parametrize("example", ["django_orm.py", "sqlalchemy_orm.py"])
def test_the_page_shows_the_examples(example: str) -> None:
    page = (ROOT / "docs" / "operate" / "postgres.md").read_text("utf-8")
    block = page.partition(f"examples/{example}](")[2].partition("```python\n")[2].partition("```")[0]
    assert len(block) > 100 and block in (ROOT / "examples" / example).read_text("utf-8")


class Peak:
    """The most connections that were open at once: of the handlers, and of Detent."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, application_name="test")
        self.handlers = self.detent = 0

    def look(self) -> None:
        ((handlers, detent),) = self._connection.execute(COUNT).fetchall()
        self.handlers, self.detent = max(self.handlers, handlers), max(self.detent, detent)


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[Peak]:
    peak, done = Peak(url), asyncio.Event()

    async def look() -> None:
        while not done.is_set():
            await asyncio.to_thread(peak.look)
            await asyncio.sleep(0.002)

    task = asyncio.create_task(look())
    try:
        yield peak
    finally:
        done.set()
        await task
        peak._connection.close()


@pytest.mark.anyio
async def test_a_worker_opens_no_more_connections_than_documented(database: Database) -> None:
    """Handlers in threads and on the loop that do everything that uses the database, more than there are slots."""
    app = Detent(database.url)

    @app.job("small")
    async def small() -> None: ...

    @app.job("thread")
    def thread(ctx: SyncContext) -> int:
        ctx.progress(0.5)
        child = ctx.enqueue(small)
        ctx.step("one", int)
        return ctx.step("two", len, [child.id])

    @app.job("loop")
    async def loop(ctx: Context) -> int:
        await ctx.progress(0.5)
        await ctx.enqueue(small)
        return await ctx.step("one", int)

    @app.job("transaction")
    async def transaction(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("SELECT 1")

    async def drain(*jobs: str) -> None:
        handles = [await app.jobs[name].enqueue_many([{}] * 60) for name in jobs]
        await asyncio.gather(*(handle.result(timeout=30) for batch in handles for handle in batch))

    of_the_fixture = 1
    async with app, working(app, slots=64), watched(database.url) as peak:
        await drain("thread", "loop")
        without_transactions = peak.detent - of_the_fixture
        await drain("transaction", "thread")
    assert 8 < without_transactions <= documented("**together**")
    assert without_transactions < peak.detent - of_the_fixture <= documented("pool for `ctx.transaction()`")


@contextmanager
def worker(example: str, url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "DETENT_URL": url}
    command = [sys.executable, "-m", "detent", "worker", str(ROOT / "examples" / example), "--slots", str(SLOTS)]
    with log.open("wb") as output:
        started = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield started
            started.terminate()
            assert started.wait(30) == 0, log.read_text()
        finally:
            started.kill()
            started.wait()


async def pay(url: str, orders: range) -> list[int]:
    """Enqueue a job per order, and wait for the results. The jobs have no retries."""
    app = Detent(url)

    @app.job("pay", max_retries=0)
    def pay(order: int) -> int:
        raise AssertionError("the worker has the handler")

    async with app:
        handles = await pay.enqueue_many([{"order": order} for order in orders])
        return [await handle.result(timeout=60) for handle in handles]


@pytest.mark.drill
@pytest.mark.parametrize(("example", "connections"), [("django_orm.py", SLOTS), ("sqlalchemy_orm.py", 4)])
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_thread_handlers_after_a_restart(example: str, connections: int, mode: str, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def run(url: str, orders: range) -> Peak:
        async with watched(url) as peak:
            assert await pay(url, orders) == [1] * len(orders)
        return peak

    with running() as server:
        url = server.url()
        asyncio.run(migrated(url))
        with psycopg.connect(url) as connection:
            connection.execute(TABLE)
        with worker(example, url, log):
            before = asyncio.run(run(url, range(200)))
            assert before.handlers == connections, "each slot, or the whole pool, had a connection"
            server.stop(mode)
            until_now(lambda: "trying again" in log.read_text())
            server.start()
            after = asyncio.run(run(url, range(200, 400)))
            assert 0 < after.handlers <= connections
            for peak in (before, after):  # the client of this test has connections, too
                assert peak.detent <= documented("**together**") + 11
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM shop_orders WHERE paid").fetchall() == [(400,)]
