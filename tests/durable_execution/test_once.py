"""`ctx.once` under crashes: the function is called at most once, and OnceUnfinished is raised if its end is unknown."""

import pytest

from detent import Context, Detent, OnceUnfinished, SyncContext
from detent.testing.crash_points import CrashPoint, Effects, crash_everywhere
from detent.testing.single_step_worker import ProcessDied, SingleStepWorker

pytestmark = pytest.mark.anyio


def application(effects: Effects) -> Detent:
    app = Detent("sqlite:///:memory:")

    def transfer() -> str:
        effects.record("transfer")
        return "transferred"

    @app.job("async")
    async def on_the_loop(ctx: Context) -> str:
        try:
            return await ctx.once("transfer", transfer)
        except OnceUnfinished:
            return "unknown"

    @app.job("thread")
    def in_a_thread(ctx: SyncContext) -> str:
        try:
            return ctx.once("transfer", transfer)
        except OnceUnfinished:
            return "unknown"

    return app


@pytest.mark.parametrize("name", ["async", "thread"])
async def test_at_every_crash_point_it_happens_at_most_once(name: str) -> None:
    effects = Effects()
    app = application(effects)
    report = await crash_everywhere(app, app.jobs[name], effects=effects)
    assert [point.call for point in report.points[::2]] == [
        "write: record_step 'transfer' begun",
        "write: record_step 'transfer'",
        "settlement: Succeeded",
    ]
    problems = {(str(finding.point).partition(" (")[0], finding.problem) for finding in report.findings}
    unknown = "result is '\"unknown\"' instead of '\"transferred\"'"
    assert problems == {
        ("after call 1", unknown),
        ("after call 1", "effect 'transfer' happened 0 times instead of 1"),
        ("before call 2", unknown),
    }, "begun and not recorded: OnceUnfinished instead of a second call"
    assert CrashPoint("after", 2, "write: record_step 'transfer'") in report.points


async def test_a_process_death_during_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    app = Detent("sqlite:///:memory:")

    @app.job("dies")
    async def dies(ctx: Context) -> str:
        def transfer() -> None:
            calls.append(ctx.execution_no)
            raise ProcessDied

        await ctx.once("transfer", transfer)
        return "never"

    async with SingleStepWorker(app) as worker:
        job = await worker.submit(dies)
        ended = await worker.run(job.id)
    assert (ended.error_code, calls, worker.deaths) == ("ONCE_UNFINISHED", [1], 1)
    assert "is not run again" in (ended.error_message or "")
