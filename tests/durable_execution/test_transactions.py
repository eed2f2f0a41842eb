"""ctx.transaction(): the user's writes commit with their step or with the job's success, or are rolled back."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from detent import Context, Detent, Fail, JobFailed, Retry, SyncContext
from detent.core.access import Scope
from detent.core.errors import DetentError, StaleLease, TransactionTooLong
from detent.engine import Engine
from detent.ports.listing import Filter
from detent.stores.sqlite.store import SqliteStore
from detent.testing.crash_points import Effects, crash_everywhere
from detent.testing.single_step_worker import SingleStepWorker
from support.clock import FakeClock
from support.waiting import until, within
from support.worker.running import working

from .conftest import Ledger

pytestmark = pytest.mark.anyio
_ALL = Filter()
INSERT = "INSERT INTO ledger (n, what) VALUES ($1, $2)"


async def result(app: Detent, job: Any, **arguments: Any) -> Any:
    async with working(app):
        handle = await job.enqueue(**arguments)
        return await within(20, handle.result())


async def failed(app: Detent, job: Any, **arguments: Any) -> JobFailed:
    with pytest.raises(JobFailed) as caught:
        await result(app, job, **arguments)
    return caught.value


async def test_writes_commit_with_the_success(app: Detent, ledger: Ledger) -> None:
    seen: list[Any] = []

    @app.job("book")
    async def book(ctx: Context, n: int) -> str:
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, n, "one")
            await connection.executemany(INSERT, [(n + 1, "two"), (n + 2, "three")])
            assert await connection.fetchval("SELECT count(*) FROM ledger") == 3, "own writes are seen"
            row = await connection.fetchrow("SELECT what AS name, n FROM ledger WHERE n = $1", n)
            assert (row["name"], row[1], list(row.keys())) == ("one", n, ["name", "n"])
            assert [r["n"] for r in await connection.fetch("SELECT n FROM ledger ORDER BY n")] == [n, n + 1, n + 2]
            assert await connection.execute("UPDATE ledger SET what = 'x' WHERE n > $1", n) == "UPDATE 2"
            seen.append(ledger.rows())
        seen.append(ledger.rows())
        return "done"

    assert await result(app, book, n=7) == "done"
    assert seen == [[], []], "not visible to others before the settlement"
    assert ledger.rows() == [(7, "one"), (8, "x"), (9, "x")]


async def test_the_same_from_a_thread(app: Detent, ledger: Ledger) -> None:
    @app.job("book")
    def book(ctx: SyncContext, n: int) -> int:
        def step() -> int:
            with ctx.transaction() as connection:
                connection.executemany(INSERT, [(n, "step")])
            return 1

        ctx.step("step", step)
        with ctx.transaction() as connection:
            connection.execute(INSERT, n + 1, "end")
            assert connection.fetchval("SELECT max(n) FROM ledger") == n + 1
            assert connection.fetchrow("SELECT n, what FROM ledger WHERE n = $1", n)["what"] == "step"
            assert len(connection.fetch("SELECT n FROM ledger")) == 2
        if ctx.retries == 0:
            raise Retry(after=0)
        return ctx.execution_no

    assert await result(app, book, n=7) == 2
    assert ledger.rows() == [(7, "step"), (8, "end")]


@pytest.mark.parametrize("place", ["in the block", "after the block"])
async def test_a_failing_handler_leaves_nothing(app: Detent, ledger: Ledger, place: str) -> None:
    @app.job("book", max_retries=0)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, 1, "never")
            if place == "in the block":
                raise Fail("no", code="NO")
        raise Fail("no", code="NO")

    assert (await failed(app, book)).extra["job_code"] == "NO"
    assert ledger.rows() == []


async def test_writes_commit_with_the_step_and_only_once(app: Detent, ledger: Ledger) -> None:
    @app.job("book")
    async def book(ctx: Context) -> list[int]:
        async def write(n: int) -> int:
            async with ctx.transaction() as connection:
                await connection.execute(INSERT, n, "a")
            async with ctx.transaction() as connection:  # the same transaction
                await connection.execute(INSERT, n + 100, "b")
            return n

        results = [
            await ctx.step("write", write, 1),
            await ctx.step("write", write, 2),
            await ctx.once("third", write, 3),
        ]
        if ctx.retries == 0:
            raise Retry(after=0)
        return results

    assert await result(app, book) == [1, 2, 3]
    assert [n for n, _ in ledger.rows()] == [1, 2, 3, 101, 102, 103]


async def test_a_step_that_raises_leaves_nothing_and_runs_again(app: Detent, ledger: Ledger) -> None:
    @app.job("book")
    async def book(ctx: Context) -> int:
        async def write() -> int:
            async with ctx.transaction() as connection:
                await connection.execute(INSERT, ctx.execution_no, "try")
            if ctx.retries == 0:
                raise Retry(after=0)
            return ctx.execution_no

        return await ctx.step("write", write)

    assert await result(app, book) == 2
    assert ledger.rows() == [(2, "try")]


@pytest.mark.parametrize("place", ["step", "end"])
async def test_a_lost_lease_rolls_the_writes_back(app: Detent, ledger: Ledger, place: str) -> None:
    """The job is cancelled while its handler writes. On SQLite, which has one writer, just before it writes."""
    engine = app.engine
    cancelled: list[str] = []

    async def cancel() -> None:
        (job,) = await engine.jobs.list(_ALL)
        await engine.jobs.cancel(job.id, Scope("ann"), force=True)
        cancelled.append(job.id)

    @app.job("book")
    async def book(ctx: Context) -> int:
        async def write() -> int:
            await cancel()
            async with ctx.transaction() as connection:
                await connection.execute(INSERT, 1, "late")
            return 1

        return await ctx.step("write", write) if place == "step" else await write()

    async with working(app):
        handle = await book.enqueue()
        await until(lambda: cancelled)
        await until(lambda: _noted(handle, "step.refused" if place == "step" else "settle.refused"))
    assert ledger.rows() == []


async def _noted(handle: Any, name: str) -> bool:
    return any(event["event"] == name for event in await handle.events())


async def test_steps_and_waits_are_refused_while_one_is_open(app: Detent, ledger: Ledger) -> None:
    codes: list[str] = []

    async def refused(act: Any) -> None:
        try:
            await act
        except DetentError as error:
            codes.append(error.code)

    @app.job("book")
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, 1, "kept")
            await refused(ctx.step("inside", print))
            await ctx.progress(0.5)
        await refused(ctx.step("after", print))
        await refused(ctx.once("after", print))
        await refused(ctx.wait_for("after"))
        await refused(ctx.sleep(1))

    await result(app, book)
    assert codes == ["TRANSACTION_OPEN"] * 5
    assert ledger.rows() == [(1, "kept")]


async def test_many_at_once(app: Detent, ledger: Ledger) -> None:
    @app.job("book")
    async def book(ctx: Context, n: int) -> int:
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, n, "many")
            await asyncio.sleep(0)
        return n

    @app.job("other")
    async def other(n: int) -> int:
        return n

    async with working(app, slots=20):
        handles = await book.enqueue_many([{"n": n} for n in range(40)])
        handles += await other.enqueue_many([{"n": n} for n in range(40)])
        assert [await within(30, handle.result()) for handle in handles] == [*range(40), *range(40)]
    assert [n for n, _ in ledger.rows()] == list(range(40))


async def test_a_violated_constraint_of_the_users_table(app: Detent, ledger: Ledger) -> None:
    """The driver's error is raised in the handler; uncaught it fails the job, and nothing is written."""
    ledger.sql("INSERT INTO ledger VALUES (1, 'first')")

    @app.job("book", max_retries=0)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, 2, "second")
            await connection.execute(INSERT, 1, "twice")

    assert "Error" in str(await failed(app, book))
    assert ledger.rows() == [(1, "first")]


async def test_a_crash_at_every_point_writes_once() -> None:
    """The process dies before and after each store call, also before and after the transaction's begin and commit."""
    app = Detent("sqlite:///:memory:")
    effects = Effects()
    counts: list[int] = []

    @app.job("book")
    async def book(ctx: Context) -> int:
        async def write(n: int) -> int:
            async with ctx.transaction() as connection:
                await connection.execute("CREATE TABLE IF NOT EXISTS mine (n)")
                await connection.execute("INSERT INTO mine VALUES (?)", n)
            return n

        await ctx.step("first", write, 1)
        await ctx.wait_for("go")
        await ctx.step("second", write, 2)
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO mine VALUES (3)")
            count: int = await connection.fetchval("SELECT sum(n * n) FROM mine")
        counts.append(count)
        return count

    report = await crash_everywhere(app, book, effects=effects, signals={"go": 1})
    report.check()
    calls = {point.call for point in report.points}
    assert report.expected is not None and report.expected.result == "14"
    assert {"begin: begin", "commit: record_step 'first'", "commit: apply"} <= calls, calls


# SQLite has one writer, so transactions have a time limit there.


async def open_transaction(tmp_path: Path, inline: bool, clock: FakeClock) -> tuple[Engine, Any]:
    path = str(tmp_path / "jobs.db")
    store = SqliteStore(path, inline=inline, synchronous="OFF", transaction_seconds=5, clock=clock)
    engine = Engine(store)
    await engine.open()
    return engine, await store.begin()


@pytest.mark.parametrize("inline", [True, False])
async def test_a_transaction_over_the_time_limit_is_rolled_back(tmp_path: Path, inline: bool) -> None:
    clock = FakeClock()
    engine, transaction = await open_transaction(tmp_path, inline, clock)
    await transaction.connection.execute("CREATE TABLE mine (n)")
    clock.advance(4.9)
    await transaction.connection.execute("INSERT INTO mine VALUES (0)")
    clock.advance(0.2)
    with pytest.raises(TransactionTooLong, match=r"more than 5 s; it was rolled back") as caught:
        await transaction.connection.execute("INSERT INTO mine VALUES (1)")
    assert caught.value.retryable
    with pytest.raises(TransactionTooLong):
        await transaction.commit(_nothing)
    await transaction.rollback()
    assert await engine.jobs.list(_ALL) == [], "the writer is free again"
    assert await engine.store.write(_tables) == 0
    await engine.close()


async def _nothing(tx: Any) -> None:
    return None


async def _tables(tx: Any) -> int:
    count: int = tx.queries.connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'mine'").fetchall()[0][
        0
    ]
    return count


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("statement", ["COMMIT", " rollback", "BEGIN", "end;"])
async def test_sql_cannot_end_the_transaction(tmp_path: Path, inline: bool, statement: str) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), inline=inline, synchronous="OFF")
    engine = Engine(store)
    await engine.open()
    transaction = await store.begin()
    with pytest.raises(DetentError, match="do not run BEGIN, COMMIT or ROLLBACK"):
        await transaction.connection.execute(statement)
    await transaction.connection.execute("CREATE TABLE mine (n)")
    with pytest.raises(DetentError, match="user code ended it"):
        await transaction.connection.execute("SELECT 1; COMMIT")
    with pytest.raises(DetentError, match="is over"):
        await transaction.connection.fetch("SELECT 1")
    await engine.close()


async def test_a_death_inside_a_transaction_leaves_the_writer_free() -> None:
    from detent.testing.single_step_worker import ProcessDied

    app = Detent("sqlite:///:memory:")

    @app.job("book")
    async def book(ctx: Context) -> int:
        async with ctx.transaction() as connection:
            await connection.execute("CREATE TABLE mine (n)")
            if ctx.execution_no == 1:
                raise ProcessDied
        return ctx.execution_no

    async with SingleStepWorker(app) as worker:
        job = await worker.submit(book)
        assert (await worker.run(job.id)).result == "2" and worker.deaths == 1


async def test_a_stale_settlement_is_refused_as_stale(tmp_path: Path) -> None:
    from detent.core.outcome import Succeeded
    from detent.engine import Settlement, Submission
    from detent.engine.execution.settle import settle_or_raise

    engine = Engine(SqliteStore(str(tmp_path / "jobs.db"), synchronous="OFF"))
    await engine.open()
    await engine.jobs.submit(Submission("mail"))
    (held,) = await engine.claim(engine.claim_request("w", 1))
    transaction = await engine.store.begin()
    settlement = Settlement(held.id, "another token", held.contract, Succeeded())
    with pytest.raises(StaleLease):
        await transaction.commit(lambda tx: settle_or_raise(engine, tx, settlement, []))
    await engine.close()
