"""New code and old recorded steps: steps that it still calls are reused, others are noted, shown, or refused."""

from dataclasses import asdict
from typing import Any

import pytest

from detent import Context, Detent, JobFailed, Retry
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio


def deploy(app: Detent, function: Any, **options: Any) -> Any:
    """Declare the job with this version of its handler."""
    app.jobs.pop("order", None)
    return app.job("order", **options)(function)


async def old(ctx: Context) -> str:
    await ctx.step("charge", lambda: 1)
    await ctx.step("mail", lambda: 2)
    await ctx.wait_for("go")
    return "old"


async def waiting_with_old_code(app: Detent, **options: Any) -> Any:
    job = deploy(app, old, **options)
    async with working(app):
        handle = await job.enqueue()
        await until(lambda: _waits(handle))
    return handle


async def _waits(handle: Any) -> bool:
    return (await handle.job()).wait_name == "go"


async def continue_with(app: Detent, handle: Any, function: Any, **options: Any) -> Any:
    deploy(app, function, **options)
    async with working(app):
        await handle.signal("go")
        return await within(20, (await app.handle(handle.id)).result())


async def orphans(handle: Any) -> list[str]:
    return [e["data"]["name"] for e in await handle.events() if e["event"] == "step.orphaned"]


@pytest.mark.parametrize("strict", [False, True])
async def test_a_job_continues_if_its_steps_are_still_called(app: Detent, strict: bool) -> None:
    handle = await waiting_with_old_code(app)

    async def new(ctx: Context) -> list[int]:
        mail = await ctx.step("mail", lambda: 20)
        charge = await ctx.step("charge", lambda: 10)
        await ctx.wait_for("go")
        return [mail, charge, await ctx.step("ship", lambda: 30)]

    assert await continue_with(app, handle, new, strict_steps=strict) == [2, 1, 30]
    assert await orphans(handle) == []


async def test_a_step_that_is_no_longer_called_is_noted_and_shown(app: Detent) -> None:
    handle = await waiting_with_old_code(app)

    async def new(ctx: Context) -> str:
        await ctx.step("charge", lambda: 10)
        await ctx.wait_for("go")
        if ctx.retries == 0:
            raise Retry(after=0)
        return "new"

    assert await continue_with(app, handle, new) == "new"
    assert await orphans(handle) == ["mail"], "noted once"
    explanation = asdict(await app.engine.jobs.why(handle.id))
    assert [also["reason"] for also in explanation["details"]["also"]] == ["STEP_ORPHANED"]
    assert "'mail'" in explanation["details"]["also"][0]["sentence"]


async def test_orphaned_steps_are_noted_at_a_wait_of_code_without_steps(app: Detent) -> None:
    handle = await waiting_with_old_code(app)

    async def new(ctx: Context) -> str:
        await ctx.wait_for("go")
        await ctx.wait_for("more")
        return "new"

    deploy(app, new)
    async with working(app):
        await handle.signal("go")
        await until(lambda: _has(handle, 2))
        assert (await handle.job()).phase != "final"
        await handle.signal("more")
        assert await within(20, handle.result()) == "new"
    assert await orphans(handle) == ["charge", "mail"]


async def _has(handle: Any, number: int) -> bool:
    return len(await orphans(handle)) == number


@pytest.mark.parametrize("end", ["step", "once", "wait", "return", "transaction"])
async def test_strict_steps_refuse_before_a_new_step_runs(app: Detent, end: str) -> None:
    handle = await waiting_with_old_code(app)
    done: list[str] = []

    async def new(ctx: Context) -> str:
        await ctx.step("mail", lambda: 20)
        await ctx.wait_for("go")
        if end == "step":
            await ctx.step("ship", done.append, "shipped")
        if end == "once":
            await ctx.once("ship", done.append, "shipped")
        if end == "wait":
            await ctx.wait_for("more")
        if end == "transaction":
            async with ctx.transaction() as connection:
                await connection.fetchval("SELECT 1")
        return "new"

    with pytest.raises(JobFailed) as failed:
        await continue_with(app, handle, new, strict_steps=True)
    assert failed.value.extra["job_code"] == "STEP_ORPHANED" and "'charge'" in str(failed.value)
    assert not done


async def test_other_arguments_fail_the_job_for_good(app: Detent) -> None:
    handle = await waiting_with_old_code(app)

    async def new(ctx: Context) -> None:
        await ctx.step("charge", lambda amount: amount, 5)

    with pytest.raises(JobFailed) as failed:
        await continue_with(app, handle, new)
    assert failed.value.extra["job_code"] == "STEP_MISMATCH"
