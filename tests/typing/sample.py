"""A sample for type checkers: a line marked `wrong` must be an error, every other line must not."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from detent import Context, Decision, Detent, EndedExecution, Handle, JobDefinition, SyncContext
from detent.core.schedule import Schedule

app = Detent("sqlite:///:memory:")


async def pay(order: int, amount: float) -> str:
    return f"{order}: {amount}"


@app.job("with-context", queue="mail", max_retries=3, timeout="30s", soft_timeout=20, give_up_on=ValueError)
async def with_context(ctx: Context, order: int, note: str = "") -> dict[str, int]:
    await ctx.progress(0.5)
    assert_type(await ctx.step("pay", pay, order, amount=2.5), str)
    assert_type(await ctx.step("pay", pay, order, 2.5, retries=3, timeout=30, backoff=[1, 5]), str)
    assert_type(await ctx.step("pay", pay, order, 2.5, timeout=timedelta(seconds=30)), str)
    await ctx.step("pay", pay, order, amount="2.5")  # wrong
    await ctx.step("pay", pay, order, 2.5, retries="3")  # wrong
    answer = await ctx.wait_for("confirmed", timeout=60)
    assert_type(await ctx.wait_for("day", type=datetime), datetime)
    size, text, none = await ctx.gather(
        ctx.enqueue(plain, 7), ctx.enqueue(without_context, order=7), ctx.enqueue(nothing), timeout=5
    )
    assert_type((size, text, none), tuple[list[int], str, None])
    return {"order": order, "answer": answer}


@app.job("without-context")
async def without_context(order: int) -> str:
    return str(order)


@app.job("plain-with-context", contract="p3c")
def plain_with_context(ctx: SyncContext, order: int) -> datetime:
    ctx.progress(0.5)
    assert_type(ctx.step("pay", pay, order, 2.5, retries=3, timeout=30), str)
    assert_type(ctx.step("plain", str, order, retries=3), str)
    children = ctx.enqueue_many(plain, [{"order": order}])
    assert_type(ctx.gather(*children, timeout=60), list[list[int]])
    mixed = ctx.gather(ctx.enqueue(plain, 7), ctx.enqueue(without_context, order=7))
    assert_type(mixed, tuple[list[int], str])
    assert_type(ctx.wait_for("paid", type=datetime), datetime)
    assert_type(ctx.approval("refund", roles=["lead"]), Decision)
    with ctx.transaction() as connection:
        assert_type(connection.fetch("SELECT 1"), list[Any])
    return datetime.now(UTC)


@app.job("plain")
def plain(order: int, *, fast: bool = False) -> list[int]:
    return [order]


@app.job("nothing")
async def nothing() -> None: ...


@app.job
async def bare(ctx: Context, order: int) -> str:
    return str(order)


@app.job(queue="mail")
def named_like_its_function(order: int) -> str:
    return str(order)


async def right() -> None:
    handle = await with_context.enqueue(7, note="x")
    assert_type(handle, Handle[dict[str, int]])
    assert_type(await handle.result(timeout=10), dict[str, int])
    assert_type(await (await without_context.enqueue(order=7)).result(), str)
    assert_type(await (await plain_with_context.enqueue(order=7)).result(), datetime)
    assert_type(await (await plain.using(delay=5, key="k").enqueue(7, fast=True)).result(), list[int])
    assert_type(await (await bare.enqueue(order=7)).result(), str)
    assert_type(await (await named_like_its_function.enqueue(order=7)).result(), str)
    await nothing.enqueue()
    many = await without_context.enqueue_many([{"order": 1}, {"order": 2}])
    assert_type(many, list[Handle[str]])
    many = await without_context.enqueue_many([without_context.arguments(order=1), without_context.arguments(2)])
    assert_type(many, list[Handle[str]])
    blocking = app.sync.enqueue(plain, 7, fast=True)
    assert_type(blocking.result(timeout=10), list[int])
    assert_type(blocking.signal("confirmed", {"by": "ana"}), bool)
    assert_type(app.sync.schedules.add("daily", plain, {"order": 7}, cron="0 0 * * *"), Schedule)
    assert_type(app.sync.dead_letters.requeue("id", payload={"order": 7}, reason="fixed").hit, bool)
    definition: JobDefinition[Any, Any] = with_context
    await definition.using(at=datetime.now(UTC), tenant="acme", priority=5).enqueue(anything="goes")
    await handle.signal("confirmed", {"by": "ana"})
    assert_type(await handle.status(), str)
    async with app:
        await app.run_worker(queues=["mail"], slots=4)


async def wrong_calls() -> None:
    await with_context.enqueue("seven")  # wrong
    await with_context.enqueue()  # wrong
    await with_context.enqueue(7, nota="x")  # wrong
    await with_context.enqueue(7, "x", "y")  # wrong
    await with_context.enqueue(order=7, note=5)  # wrong
    await without_context.enqueue(order="seven")  # wrong
    await without_context.enqueue(7, ctx=None)  # wrong
    await plain_with_context.enqueue("seven")  # wrong
    await plain_with_context.enqueue()  # wrong
    await plain.enqueue(7, fast="yes")  # wrong
    await plain.enqueue(7, True)  # wrong
    await plain.using(delay=5).enqueue("seven")  # wrong
    await nothing.enqueue(1)  # wrong
    await bare.enqueue("seven")  # wrong
    Detent(max_paylod=5)  # wrong
    await without_context.enqueue_many([without_context.arguments(order="seven")])  # wrong
    await without_context.enqueue_many([nothing.arguments()])  # wrong
    await app.jobs.list(stauts="failed")  # wrong
    plain.using(prioritty=5)  # wrong
    plain.using(delay=[5])  # wrong
    app.job("x", max_retires=3)  # wrong
    app.job("x", queue=5)  # wrong
    app.sync.enqueue(plain, "seven")  # wrong
    app.sync.enqueue(without_context, order="seven")  # wrong
    app.sync.enqueue(plain, 7).result("soon")  # wrong
    app.sync.enqueue(plain, 7).approve(reason="no name")  # wrong
    app.sync.schedules.add("daily", plain, {"order": 7}, corn="0 0 * * *")  # wrong
    app.sync.dead_letters.requeue("id", paylod={"order": 7})  # wrong
    number: int = await (await without_context.enqueue(7)).result()  # wrong
    text: str = app.sync.enqueue(plain, 7).result()  # wrong
    print(number, text)


def wrong_blocking_calls(ctx: SyncContext) -> None:
    size: tuple[int, int] = ctx.gather(ctx.enqueue(plain, 7), ctx.enqueue(plain, 7))  # wrong
    day: datetime = ctx.wait_for("day", type=int)  # wrong
    print(size, day)
    ctx.sleep(None)  # wrong
    ctx.wait_for()  # wrong
    ctx.approval("refund", role="lead")  # wrong


@app.on_failure
async def report(ended: EndedExecution) -> None:
    assert_type(ended.retry_in, float | None)
    assert_type(ended.exception, BaseException | None)


@app.on_success
def count(ended: EndedExecution) -> None: ...


@app.on_worker_stop
async def stop() -> None: ...


@app.middleware
async def around(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    ctx.state["session"] = 7
    return await call_next()


@app.middleware
def around_plain(ctx: SyncContext, call_next: Callable[[], Any]) -> Any:
    return call_next()


async def hooks_stay_functions(ended: EndedExecution, ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> None:
    assert_type(await report(ended), None)
    await around(ctx, call_next)


def wrong_hooks(text: str) -> None: ...


app.on_failure(wrong_hooks)  # wrong
app.on_worker_start(wrong_hooks)  # wrong
app.middleware(wrong_hooks)  # wrong
