"""Children: enqueued once however often the handler runs, gathered in order, cancelled with their parent."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from detent import ChildFailed, Context, Detent, Fail, JobFailed, Retry, SyncContext, WaitTimeout
from detent.core.access import Scope
from detent.core.contract.model import Phase
from detent.core.errors import DetentError
from detent.proof.verify.verify import verify
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio


async def children_of(app: Detent, job_id: str) -> list[Any]:
    return await app.engine.store.read(lambda tx: tx.children.list_children(job_id, limit=20_000))


async def check_log(app: Detent) -> None:
    report = await verify(app.engine.store, app.engine.contracts)
    assert report.ok, report.violations


async def check_all_processed(app: Detent) -> None:
    """No child event and no awaited child is left in the database."""
    engine = app.engine
    await engine.process_child_events()
    for table in ("family_news", "awaited"):
        rows = await engine.store.read(lambda tx, table=table: tx.queries.query(f"verify_{table}", "true", limit=10))  # type: ignore[misc]
        assert rows == [], table


def declare(app: Detent) -> dict[str, Any]:
    runs: Counter[str] = Counter()

    @app.job("square")
    async def square(n: int) -> int:
        runs[f"square {n}"] += 1
        if n < 0:
            raise Fail(f"{n} is negative", code="NEGATIVE")
        return n * n

    @app.job("sum")
    async def total(ctx: Context, numbers: list[int]) -> int:
        runs["sum"] += 1
        return sum(await ctx.gather(*(ctx.enqueue(square, n=n) for n in numbers)))

    @app.job("sum_in_thread")
    def total_in_thread(ctx: SyncContext, numbers: list[int]) -> int:
        first = ctx.enqueue(square, n=numbers[0])
        rest = ctx.enqueue_many(square, [{"n": n} for n in numbers[1:]])
        return sum(ctx.gather(first, *rest))

    return {"square": square, "sum": total, "thread": total_in_thread, "runs": runs}


async def test_results_come_in_the_order_of_the_calls(app: Detent) -> None:
    jobs = declare(app)

    @app.job("ordered")
    async def ordered(ctx: Context) -> list[int]:
        last = await ctx.enqueue(jobs["square"], 9)
        return await ctx.gather(last, ctx.enqueue(jobs["square"], n=2), ctx.enqueue(jobs["square"], 3), last)

    async with working(app):
        assert await (await ordered.enqueue()).result(30) == [81, 4, 9, 81]
    assert jobs["runs"] == {"square 9": 1, "square 2": 1, "square 3": 1}
    await check_log(app)
    await check_all_processed(app)


async def test_a_child_inherits_tenant_and_trace(app: Detent) -> None:
    jobs = declare(app)
    async with working(app):
        handle = await jobs["sum"].using(tenant="acme", trace_id="t-7").enqueue(numbers=[1, 2])
        assert await handle.result(30) == 5
    children = await children_of(app, handle.id)
    assert {(c.parent_id, c.tenant_id, c.trace_id, c.job_type) for c in children} == {
        (handle.id, "acme", "t-7", "square")
    }
    assert all(child.id[:13] == handle.id[:13] for child in children), (
        "the id of a child begins with the time of its parent"
    )
    note = next(e for e in await handle.events() if e["event"] == "children.enqueued")
    assert note["data"]["count"] == 2
    assert [c["name"] for c in note["data"]["children"]] == ["square", "square#2"]


async def test_a_plain_handler(app: Detent) -> None:
    jobs = declare(app)
    async with working(app):
        assert await (await jobs["thread"].enqueue(numbers=[1, 2, 3])).result(30) == 14


async def test_a_waiting_parent_holds_no_worker(app: Detent) -> None:
    jobs = declare(app)
    handle = await jobs["sum"].enqueue(numbers=[1, 2])
    parent_only = {"handlers": None}
    worker = await app.worker(slots=1)
    worker.handlers = {"sum": worker.handlers["sum"]}
    task = asyncio.create_task(worker.run(handle_signals=False))
    job = await until(lambda: _blocked(handle))
    assert (job.worker, job.wait_kind, job.due_at, parent_only["handlers"]) == (None, "children", None, None)
    worker.stop()
    assert await within(30, task) == 0
    async with working(app):
        assert await handle.result(30) == 5


async def _blocked(handle: Any) -> Any:
    job = await handle.job()
    return job if job.phase is Phase.BLOCKED else None


async def test_a_failed_child_raises_with_its_error(app: Detent) -> None:
    jobs = declare(app)
    caught: list[ChildFailed] = []

    @app.job("catches")
    async def catches(ctx: Context) -> str:
        try:
            await ctx.gather(ctx.enqueue(jobs["square"], n=-3), ctx.enqueue(jobs["square"], n=2))
        except ChildFailed as failed:
            caught.append(failed)
            return f"{failed.error_code}: {failed.error_message}"
        return "impossible"

    async with working(app):
        assert await (await catches.enqueue()).result(30) == "NEGATIVE: -3 is negative"
        assert (caught[-1].name, caught[-1].job_type) == ("square", "square")
        fails = await jobs["sum"].enqueue(numbers=[1, -2, 3])
        with pytest.raises(JobFailed, match="NEGATIVE: -2 is negative") as failed:
            await fails.result(30)
        assert failed.value.extra["job_code"] == "CHILD_FAILED"
        assert (await fails.job()).failures == 1, "a retry would get the same failed child"


async def test_a_failure_wakes_the_parent_before_the_others_have_ended(app: Detent) -> None:
    gate = asyncio.Event()

    @app.job("slow")
    async def slow(ctx: Context) -> int:
        await gate.wait()
        return 1

    jobs = declare(app)

    @app.job("impatient")
    async def impatient(ctx: Context) -> str:
        try:
            await ctx.gather(ctx.enqueue(slow), ctx.enqueue(jobs["square"], n=-1))
        except ChildFailed:
            return "did not wait"
        return "impossible"

    async with working(app):
        assert await (await impatient.enqueue()).result(30) == "did not wait"
        gate.set()


async def test_return_exceptions(app: Detent) -> None:
    jobs = declare(app)

    @app.job("patient")
    async def patient(ctx: Context) -> list[str]:
        calls = [ctx.enqueue(jobs["square"], n=n) for n in (2, -1, 3)]
        results: list[Any] = await ctx.gather(*calls, return_exceptions=True)
        return [value.error_code if isinstance(value, ChildFailed) else str(value) for value in results]

    async with working(app):
        assert await (await patient.enqueue()).result(30) == ["4", "NEGATIVE", "9"]


async def test_a_handler_that_runs_again_gets_the_same_children(app: Detent) -> None:
    jobs = declare(app)
    tries: list[int] = []

    @app.job("stumbles", max_retries=3)
    async def stumbles(ctx: Context) -> int:
        first = await ctx.enqueue(jobs["square"], n=5)
        tries.append(ctx.execution_no)
        if len(tries) < 3:
            raise Retry("again", after=0)
        return (await ctx.gather(first, ctx.enqueue(jobs["square"], n=6)))[1]

    async with working(app):
        handle = await stumbles.enqueue()
        assert await handle.result(30) == 36
    assert len(await children_of(app, handle.id)) == 2
    assert jobs["runs"] == {"square 5": 1, "square 6": 1}


async def test_a_child_with_other_arguments_is_refused(app: Detent) -> None:
    jobs = declare(app)

    @app.job("fickle", max_retries=3)
    async def fickle(ctx: Context) -> None:
        await ctx.enqueue(jobs["square"], n=ctx.execution_no)
        raise Retry("again", after=0)

    async with working(app):
        with pytest.raises(JobFailed) as failed:
            await (await fickle.enqueue()).result(30)
    assert failed.value.extra["job_code"] == "STEP_MISMATCH"


async def test_gather_with_a_timeout(app: Detent) -> None:
    jobs = declare(app)
    await app.engine.limits.pause("job_type", "square", Scope("test"))

    @app.job("hurried")
    async def hurried(ctx: Context) -> str:
        child = await ctx.enqueue(jobs["square"], n=2)
        try:
            await ctx.gather(child, timeout=0.05)
        except WaitTimeout:
            return "too late"
        return "impossible"

    async with working(app):
        assert await (await hurried.enqueue()).result(30) == "too late"
        await app.engine.limits.resume("job_type", "square", Scope("test"))


async def test_keys_other_tenants_and_contracts_without_waits_are_refused(app: Detent) -> None:
    jobs = declare(app)

    @app.job("keyed")
    async def keyed(ctx: Context) -> None:
        await ctx.enqueue(jobs["square"].using(key="k"), n=1)

    @app.job("elsewhere")
    async def elsewhere(ctx: Context) -> None:
        await ctx.enqueue(jobs["square"].using(tenant="other"), n=1)

    @app.job("strict", contract="gate-b2")
    async def strict(ctx: Context) -> None:
        await ctx.gather(ctx.enqueue(jobs["square"], n=1))

    async with working(app):
        for job, code in ((keyed, "CHILD_KEY"), (elsewhere, "CHILD_TENANT"), (strict, "CONTRACT_LACKS_MOVE")):
            handle = await job.enqueue()
            with pytest.raises(JobFailed) as failed:
                await handle.result(30)
            assert failed.value.extra["job_code"] == code


async def test_children_are_cancelled_with_their_parent_however_deep(app: Detent) -> None:
    @app.job("leaf")
    async def leaf(ctx: Context) -> None:
        await ctx.wait_for("never")

    @app.job("branch")
    async def branch(ctx: Context) -> None:
        await ctx.gather(*(ctx.enqueue(leaf) for _ in range(3)))

    @app.job("root")
    async def root(ctx: Context) -> None:
        await ctx.gather(*(ctx.enqueue(branch) for _ in range(2)))

    async with working(app):
        handle = await root.enqueue()

        async def all_leaves_wait() -> bool:
            branches = await children_of(app, handle.id)
            leaves = [leaf for branch in branches for leaf in await children_of(app, branch.id)]
            return len(leaves) == 6 and all(leaf.phase is Phase.BLOCKED for leaf in leaves)

        await until(all_leaves_wait)
        await handle.cancel("enough", actor="ann")

        async def ended() -> bool:
            branches = await children_of(app, handle.id)
            leaves = [leaf for branch in branches for leaf in await children_of(app, branch.id)]
            return all(job.status == "cancelled" for job in (*branches, *leaves))

        await until(ended)
        event = (await (await app.handle((await children_of(app, handle.id))[0].id)).events())[-1]
        assert event["data"]["reason"] == f"its parent {handle.id} was cancelled"
    await check_log(app)
    await check_all_processed(app)


async def test_a_running_child_gets_a_cancel_request(app: Detent) -> None:
    cancel_reasons: list[str | None] = []

    @app.job("busy")
    async def busy(ctx: Context) -> None:
        await until(lambda: ctx.cancelled)
        cancel_reasons.append(ctx.cancel_reason)

    @app.job("boss")
    async def boss(ctx: Context) -> None:
        await ctx.gather(ctx.enqueue(busy))

    async with working(app, lease_seconds=3):
        handle = await boss.enqueue()
        await until(lambda: _child_runs(app, handle.id))
        await handle.cancel()
        await until(lambda: cancel_reasons)
    assert cancel_reasons == [f"its parent {handle.id} was cancelled"]


async def _child_runs(app: Detent, parent: str) -> bool:
    return any(child.phase is Phase.LEASED for child in await children_of(app, parent))


async def test_children_of_an_unfinished_parent_are_not_pruned(app: Detent) -> None:
    jobs = declare(app)

    @app.job("lives")
    async def lives(ctx: Context) -> int:
        (result,) = await ctx.gather(ctx.enqueue(jobs["square"], n=2))
        await ctx.wait_for("go")
        return result

    async with working(app):
        handle = await lives.enqueue()
        await until(lambda: _waits_for(handle, "go"))
        assert (await app.engine.prune(0, lap_seconds=0)).jobs == 0
        await handle.signal("go")
        assert await handle.result(30) == 4
    assert (await app.engine.prune(0, lap_seconds=0)).jobs == 2


async def _waits_for(handle: Any, name: str) -> bool:
    return (await handle.job()).wait_name == name


async def test_a_signal_does_not_end_a_wait_for_children(app: Detent) -> None:
    jobs = declare(app)
    await app.engine.limits.pause("job_type", "square", Scope("test"))
    async with working(app):
        handle = await jobs["sum"].enqueue(numbers=[2])
        job = await until(lambda: _blocked(handle))
        await handle.signal(job.wait_name, {"forged": True})
        assert (await handle.job()).version == job.version
        await app.engine.limits.resume("job_type", "square", Scope("test"))
        assert await handle.result(30) == 4


async def test_a_parent_that_lost_its_lease_cannot_enqueue_children(app: Detent) -> None:
    jobs = declare(app)
    engine = app.engine
    handle = await jobs["sum"].enqueue(numbers=[1])
    (claimed,) = await engine.claim(engine.claim_request("w1", 1, 30))
    context = Context(claimed._replace(token="stale"), engine)
    with pytest.raises(DetentError) as refused:
        await context.enqueue(jobs["square"], n=1)
    assert refused.value.code == "LEASE_STALE"
    assert await children_of(app, handle.id) == []


@pytest.mark.parametrize("number", [1_500, pytest.param(10_000, marks=pytest.mark.drill)])
async def test_many_children_and_few_updates_of_the_parent(app: Detent, number: int) -> None:
    @app.job("tiny")
    async def tiny(n: int) -> int:
        return n

    @app.job("fan")
    async def fan(ctx: Context) -> int:
        children = await ctx.enqueue_many(tiny, [{"n": n} for n in range(number)])
        return sum(await ctx.gather(*children))

    async with working(app, slots=200):
        handle = await fan.enqueue()
        assert await handle.result(120) == sum(range(number))
    job = await handle.job()
    assert job.version <= 7, "created, claimed, parked, woken, claimed, succeeded, and perhaps one more wake"
    await check_all_processed(app)
