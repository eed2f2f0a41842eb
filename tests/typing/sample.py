"""A sample for type checkers: a line marked `wrong` must be an error, every other line must not."""

from datetime import UTC, datetime
from typing import Any, assert_type

from detent import Context, Decision, Detent, Handle, JobDefinition, SyncContext
from detent.core.schedule import Schedule

app = Detent("sqlite:///:memory:")


@app.job("with-context", queue="mail", max_retries=3, timeout=30)
async def with_context(ctx: Context, order: int, note: str = "") -> dict[str, int]:
    await ctx.progress(0.5)
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


async def right() -> None:
    handle = await with_context.enqueue(7, note="x")
    assert_type(handle, Handle[dict[str, int]])
    assert_type(await handle.result(timeout=10), dict[str, int])
    assert_type(await (await without_context.enqueue(order=7)).result(), str)
    assert_type(await (await plain_with_context.enqueue(order=7)).result(), datetime)
    assert_type(await (await plain.using(delay=5, key="k").enqueue(7, fast=True)).result(), list[int])
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
    await without_context.enqueue_many([without_context.arguments(order="seven")])  # wrong
    await without_context.enqueue_many([nothing.arguments()])  # wrong
    await app.jobs.list(stauts="failed")  # wrong
    plain.using(prioritty=5)  # wrong
    plain.using(delay="soon")  # wrong
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
    ctx.sleep("long")  # wrong
    ctx.wait_for()  # wrong
    ctx.approval("refund", role="lead")  # wrong
