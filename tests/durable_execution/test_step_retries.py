"""`ctx.step(…, retries=, timeout=, backoff=)`: one failed call of a step does not fail the execution."""

import asyncio
import logging
from typing import Any

import pytest

from detent import Context, Detent, Exponential, Fail, JobFailed, SyncContext
from support.waiting import within
from support.worker.running import working

pytestmark = pytest.mark.anyio


class RateLimited(Exception):
    """An answer 429."""


class Service:
    """Fails as often as it is told to, then answers."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.calls = 0
        self._failures = failures
        self._error = error or RateLimited("429")

    def ask(self, question: str) -> str:
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error
        return f"{question}!"

    async def ask_async(self, question: str) -> str:
        return self.ask(question)


@pytest.mark.parametrize("kind", ["async", "async, plain function", "thread", "thread, async function"])
async def test_a_step_is_called_again_within_the_execution(
    app: Detent, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(2)

    @app.job("loop", max_retries=0)
    async def loop(ctx: Context, plain: bool) -> str:
        function: Any = service.ask if plain else service.ask_async
        answer: str = await ctx.step("ask", function, "why", retries=2, backoff=[0.001, 0.002])
        return answer

    @app.job("thread", max_retries=0)
    def thread(ctx: SyncContext, plain: bool) -> str:
        function: Any = service.ask if plain else service.ask_async
        answer: str = ctx.step("ask", function, "why", retries=2, backoff=Exponential(base=0.001))
        return answer

    job = loop if kind.startswith("async") else thread
    with caplog.at_level(logging.WARNING, "detent.handler.steps"):
        async with working(app):
            handle = await job.enqueue(plain=kind in ("async, plain function", "thread"))
            assert await within(20, handle.result()) == "why!"
    assert service.calls == 3 and (await handle.job()).execution_no == 1
    messages = [record.getMessage() for record in caplog.records if record.name == "detent.handler.steps"]
    assert [text.partition(", calling")[0] for text in messages] == [
        "step 'ask' failed, call 1 of 3",
        "step 'ask' failed, call 2 of 3",
    ]


@pytest.mark.parametrize(
    ("error", "calls"), [(RateLimited("429"), 3), (Fail("no", code="NO"), 1), (PermissionError("no"), 1)]
)
async def test_the_last_error_outcomes_and_permanent_errors_are_raised(
    app: Detent, error: Exception, calls: int
) -> None:
    service = Service(9, error)

    @app.job("work", max_retries=0, give_up_on=(PermissionError,))
    async def work(ctx: Context) -> None:
        await ctx.step("ask", service.ask, "why", retries=2, backoff=[0])

    async with working(app):
        with pytest.raises(JobFailed):
            await within(20, (await work.enqueue()).result())
    assert service.calls == calls


async def test_a_call_of_a_step_may_have_a_time_limit(app: Detent) -> None:
    calls: list[int] = []

    async def slow(seconds: float) -> str:
        calls.append(1)
        await asyncio.sleep(seconds if len(calls) == 1 else 0)
        return "done"

    @app.job("work", max_retries=0)
    async def work(ctx: Context) -> str:
        return await ctx.step("slow", slow, 60.0, timeout="0.05s", retries=1, backoff=0)

    @app.job("thread", max_retries=0)
    def thread(ctx: SyncContext) -> str:
        return ctx.step("slow", slow, 60.0, timeout=0.05, retries=1, backoff=0)

    @app.job("alone", max_retries=0)
    async def alone(ctx: Context) -> str:
        return await ctx.step("slow", slow, 60.0, timeout=0.05)

    async with working(app):
        for job in (work, thread):
            calls.clear()
            assert await within(20, (await job.enqueue()).result()) == "done"
            assert len(calls) == 2
        calls.clear()
        handle = await alone.enqueue()
        with pytest.raises(JobFailed, match=r"step .slow. took longer than its timeout of 0\.05 s"):
            await within(20, handle.result())


async def test_arguments_that_the_function_has_parameters_for_are_passed_to_it(app: Detent) -> None:
    def own(url: str, timeout: float) -> list[Any]:
        return [url, timeout]

    def anything(**options: Any) -> dict[str, Any]:
        return options

    @app.job("work", max_retries=0)
    async def work(ctx: Context) -> list[Any]:
        first = await ctx.step("own", own, "u", timeout=5)
        second = await ctx.step("anything", anything, timeout=5, retries="x")
        return [first, second]

    async with working(app):
        result = await within(20, (await work.enqueue()).result())
    assert result == [["u", 5], {"timeout": 5, "retries": "x"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": "3"}, "retries must be a whole number from 0 to 1000, got '3'"),
        ({"retries": -1}, "retries must be a whole number"),
        ({"timeout": "soon"}, "timeout must be a number of seconds"),
        ({"backoff": "soon"}, "backoff must be seconds"),
        ({"timeout": 5}, "a timeout needs an async function"),
    ],
)
async def test_bad_options_are_refused(app: Detent, options: dict[str, Any], message: str) -> None:
    service = Service(0)

    @app.job("work")
    async def work(ctx: Context) -> None:
        await ctx.step("ask", service.ask, "why", **options)

    async with working(app):
        handle = await work.enqueue()
        with pytest.raises(JobFailed, match=message):
            await within(20, handle.result())
    assert (await handle.job()).execution_no == 1


async def test_options_do_not_change_what_a_step_is_recorded_under(app: Detent) -> None:
    """Retries may be added to a step of a job that waits."""
    service = Service(0)

    @app.job("work", backoff=[0])
    async def work(ctx: Context) -> str:
        options: dict[str, Any] = {} if ctx.execution_no == 1 else {"retries": 3}
        answer: str = await ctx.step("ask", service.ask, "why", **options)
        if ctx.execution_no == 1:
            raise RuntimeError("again")
        return answer

    async with working(app):
        assert await within(20, (await work.enqueue()).result()) == "why!"
    assert service.calls == 1


async def test_a_transaction_of_a_failed_call_is_rolled_back_before_the_next(app: Detent) -> None:
    calls: list[int] = []
    async with app.connection() as connection:
        await connection.execute("CREATE TABLE notes (text TEXT)")

    @app.job("work", max_retries=0)
    async def work(ctx: Context) -> None:
        async def write() -> None:
            calls.append(1)
            async with ctx.transaction() as connection:
                await connection.execute("INSERT INTO notes VALUES ('one')")
            if len(calls) == 1:
                raise RateLimited

        await ctx.step("write", write, retries=1, backoff=0)

    async with working(app):
        await within(20, (await work.enqueue()).result())
    async with app.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM notes") == 1
