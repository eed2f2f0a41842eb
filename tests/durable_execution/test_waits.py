"""Waits in handlers: in loops, until a moment, of each kind, parked; and the delay until a job is woken."""

import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import detent
from detent import Context, Detent, JobFailed, SyncContext, WaitTimeout
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).with_name("waiting_app.py")


async def blocked(handle: Any) -> Any:
    """The job's row, as soon as it waits."""

    async def waits() -> Any:
        job = await handle.job()
        return job if job.wait_name else None

    return await until(waits)


async def test_sleeps_in_a_loop_are_numbered(app: Detent) -> None:
    @app.job("naps")
    async def naps(ctx: Context) -> int:
        for _ in range(3):
            await ctx.sleep(0.01)
        await ctx.sleep(0.01, name="last")
        await ctx.sleep(0)
        return ctx.execution_no

    async with working(app):
        handle = await naps.enqueue()
        assert await within(20, handle.result()) == 6
    waited = [e["data"]["correlation_key"] for e in await handle.events() if e["event"] == "job.waiting"]
    assert waited == ["sleep", "sleep#2", "sleep#3", "last", "sleep#4"]
    assert {e["data"]["wait_type"] for e in await handle.events() if e["event"] == "job.waiting"} == {"timer"}


async def test_wait_until_a_future_and_a_past_moment(app: Detent) -> None:
    def soon() -> str:
        return (datetime.now(UTC) + timedelta(seconds=0.3)).isoformat()

    @app.job("later")
    def later(ctx: SyncContext) -> tuple[int, str]:
        moment = ctx.step("soon", soon)
        ctx.wait_until("2020-01-01T00:00:00Z")
        ctx.wait_until(datetime.fromisoformat(moment))
        ctx.sleep(0.01)
        return ctx.execution_no, moment

    async with working(app):
        handle = await later.enqueue()
        executions, moment = await within(20, handle.result())
    assert executions == 3 and datetime.now(UTC) > datetime.fromisoformat(moment)
    waited = [e["data"]["correlation_key"] for e in await handle.events() if e["event"] == "job.waiting"]
    assert waited == ["until#2", "sleep"]


async def test_invalid_waits_are_refused_in_the_handler(app: Detent) -> None:
    @app.job("waits", max_retries=0)
    async def waits(ctx: Context, how: str) -> None:
        if how == "kind":
            await ctx.wait_for("x", kind="magic")
        elif how == "timeout":
            await ctx.wait_for("x", timeout=-1)
        elif how == "nan":
            await ctx.sleep(float("nan"))
        elif how == "name":
            await ctx.wait_for("")
        else:
            await ctx.wait_until("tomorrow")

    expected = {
        "kind": "WAIT_KIND_UNKNOWN",
        "timeout": "WAIT_INVALID",
        "nan": "WAIT_INVALID",
        "name": "NAME_INVALID",
        "moment": "TIME_INVALID",
    }
    async with working(app):
        for how, code in expected.items():
            with pytest.raises(JobFailed) as failed:
                await within(20, (await waits.enqueue(how=how)).result())
            assert failed.value.extra["job_code"] == code


@pytest.mark.parametrize("kind", ["signal", "webhook", "human", "timer"])
@pytest.mark.parametrize("contract", ["standard", "formal"])
async def test_every_kind_of_wait(app: Detent, contract: str, kind: str) -> None:
    @app.job("waits", contract=contract)
    async def waits(ctx: Context) -> Any:
        return await ctx.wait_for("answer", kind=kind, timeout=30)

    async with working(app):
        handle = await waits.enqueue()
        assert (await blocked(handle)).wait_kind == kind
        assert await handle.signal("answer", {"n": 1})
        assert not await handle.signal("answer", {"n": 2})
        assert await within(20, handle.result()) == {"n": 1}


@pytest.mark.parametrize(("timeout", "parked"), [(5, False), (60, True), (None, True)])
async def test_long_waits_are_parked(app: Detent, timeout: float | None, parked: bool) -> None:
    @app.job("waits", park_seconds=30)
    async def waits(ctx: Context) -> None:
        await ctx.wait_for("answer", timeout=timeout)

    async with working(app):
        handle = await waits.enqueue()
        job = await blocked(handle)
        assert (job.wait_parked, job.status) == (parked, "parked" if parked else "waiting")
        await handle.cancel()


async def test_a_job_overrides_the_settings_of_the_application(database: tuple[str, Any]) -> None:
    app = Detent(database[0], park_seconds=1, strict_steps=True)

    @app.job("plain")
    async def plain() -> None: ...

    @app.job("special", park_seconds=7, strict_steps=False)
    async def special() -> None: ...

    assert (plain.handler.options.park_seconds, plain.handler.options.strict_steps) == (1, True)
    assert (special.handler.options.park_seconds, special.handler.options.strict_steps) == (7, False)


async def test_a_timed_out_wait_times_out_again(app: Detent) -> None:
    @app.job("waits")
    async def waits(ctx: Context) -> list[str]:
        answers = []
        for _ in range(2):
            try:
                await ctx.wait_for("answer", timeout=0.01)
            except WaitTimeout:
                answers.append("timeout")
        await ctx.sleep(0.01)
        return answers

    async with working(app):
        assert await within(20, (await waits.enqueue()).result()) == ["timeout", "timeout"]


async def test_a_short_sleep_ends_in_time(app: Detent) -> None:
    """The sweeper may be idle for longer than the sleep when the job goes to sleep; it must be woken."""

    @app.job("naps")
    async def naps(ctx: Context, n: int) -> None:
        await ctx.sleep(0.02)

    late = []
    async with working(app):
        for n in range(9):
            handle = await naps.enqueue(n=n)
            await within(20, handle.result())
            answers = {e["event"]: e for e in await handle.events()}
            slept = datetime.fromisoformat(answers["job.woken"]["at"]) - datetime.fromisoformat(
                answers["job.waiting"]["at"]
            )
            late.append(slept.total_seconds() - 0.02)
    assert statistics.median(late) < 0.1, late


async def test_a_signal_wakes_a_job_of_another_process_in_fifty_milliseconds(
    app: Detent, database: tuple[str, Any], tmp_path: Path
) -> None:
    from .waiting_app import woken

    remote = woken.submission({})
    environment = os.environ | {
        "DETENT_URL": database[0],
        "PYTHONPATH": str(Path(detent.__file__).parent.parent),
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, str(SCRIPT)], env=environment, stdout=log, stderr=log)
    spans = []
    try:
        for _ in range(15):
            submitted = await app.engine.jobs.submit(remote)
            handle = await app.handle(submitted.job.id)
            await blocked(handle)
            sent = time.time()
            await handle.signal("go")
            spans.append(float(await within(30, handle.result())) - sent)
    finally:
        process.kill()
        process.wait()
    assert statistics.median(spans) < 0.05, sorted(spans)
