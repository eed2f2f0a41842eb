"""crash_everywhere: crash-safe handlers pass at every crash point, others are reported with the failing points."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import detent
from detent import Context, Detent, Fail, Retry, SyncContext, WaitTimeout
from detent.core.contract.builtin import CONTRACTS
from detent.core.job import Step
from detent.ports.tx import Tx
from detent.testing.crash_points import CrashReport, Effects, crash_everywhere
from detent.testing.pytest_plugin import CrashTester
from detent.testing.single_step_worker import SingleStepWorker

pytestmark = pytest.mark.anyio
CONFIRMED = {"confirmed": {"user": "ann"}}


def application(effects: Effects) -> Detent:
    app = Detent("sqlite:///:memory:")

    @app.job("order")
    async def order(ctx: Context, number: int) -> dict[str, Any]:
        """Crash-safe: each effect has an effect key."""
        effects.record("charge", ctx.effect_key("charge"))
        await ctx.progress(0.5, "charged")
        answer = await ctx.wait_for("confirmed", timeout=3600)
        await ctx.sleep(120, name="cool down")
        effects.record("ship", ctx.effect_key("ship"))
        return {"number": number, "by": answer["user"]}

    @app.job("order_in_thread")
    def order_in_thread(ctx: SyncContext, number: int) -> dict[str, Any]:
        effects.record("charge", ctx.effect_key("charge"))
        ctx.progress(0.5, "charged")
        answer = ctx.wait_for("confirmed", timeout=3600)
        return {"number": number, "by": answer["user"]}

    @app.job("retries", max_retries=2)
    async def retries(ctx: Context) -> str:
        """Crash-safe: whether the first try has happened is recorded outside, under an effect key."""
        first = effects.record("first try", ctx.effect_key("first"))
        if first:
            raise Retry("the other side is busy", after=60)
        await ctx.progress(0.9)
        return "done"

    @app.job("timed_out")
    async def timed_out(ctx: Context) -> str:
        try:
            await ctx.wait_for("never", timeout=10)
        except WaitTimeout:
            return "timed out"
        return "impossible"

    @app.job("broken", contract="gate-b2")
    async def broken(ctx: Context) -> None:
        raise Fail("no such account", code="NO_ACCOUNT")

    @app.job("unsafe")
    async def unsafe(ctx: Context) -> str:
        """Not crash-safe: the mail is sent again when the handler runs again."""
        await ctx.progress(0.1)
        effects.record("mail")
        return "sent"

    @app.job("forgetful")
    async def forgetful(ctx: Context) -> int:
        """Not crash-safe: the result depends on the number of executions."""
        await ctx.progress(0.1)
        return ctx.execution_no

    @app.job("cleans_up")
    async def cleans_up(ctx: Context) -> str:
        """A process that dies runs no finally blocks."""
        try:
            await ctx.wait_for("confirmed")
            effects.record("charge", ctx.effect_key("charge"))
            return "charged"
        except Exception:
            effects.record("impossible")
            raise
        finally:
            await ctx.progress(1.0)

    return app


async def crash_report(name: str, arguments: dict[str, Any] | None = None, **options: Any) -> CrashReport:
    effects = Effects()
    app = application(effects)
    return await crash_everywhere(app, app.jobs[name], arguments, effects=effects, **options)


@pytest.mark.parametrize("name", ["order", "order_in_thread"])
async def test_a_safe_handler_passes_at_every_point(name: str) -> None:
    report = await crash_report(name, {"number": 7}, signals=CONFIRMED)
    report.check()
    assert report.expected is not None
    assert report.expected.result == '{"number":7,"by":"ann"}'
    assert report.expected.effects["charge"] == 1
    names = [str(point) for point in report.points]
    assert names[:2] == [
        "before call 1 (write: put_progress)",
        "after call 1 (write: put_progress)",
    ]
    assert "after call 2 (read: signal 'confirmed')" in names
    assert "before call 3 (settlement: Waits)" in names
    assert names[-1].endswith("(settlement: Succeeded)")


async def test_waits_sleeps_and_progress_are_all_crash_points() -> None:
    calls = {point.call for point in (await crash_report("order", {"number": 7}, signals=CONFIRMED)).points}
    assert calls == {
        "write: put_progress",
        "read: signal 'confirmed'",
        "read: signal 'cool down'",
        "read: steps",
        "settlement: Waits",
        "settlement: Succeeded",
    }


@pytest.mark.parametrize("name", ["retries", "timed_out", "broken", "cleans_up"])
async def test_retries_timeouts_and_failures_end_the_same_after_a_crash(name: str) -> None:
    report = await crash_report(name, signals=CONFIRMED)
    report.check()
    assert len(report.points) >= 2


async def test_an_effect_that_happens_twice_is_reported_with_its_points() -> None:
    report = await crash_report("unsafe")
    assert [str(finding) for finding in report.findings] == [
        "crash before call 2 (settlement: Succeeded): effect 'mail' happened 2 times instead of 1"
    ]
    with pytest.raises(AssertionError, match=r"not crash-safe at 1 of 4 points(.|\n)*before call 2 \(settlement"):
        report.check()


async def test_another_result_is_reported() -> None:
    report = await crash_report("forgetful")
    assert [str(finding.point) for finding in report.findings] == [
        "before call 1 (write: put_progress)",
        "after call 1 (write: put_progress)",
        "before call 2 (settlement: Succeeded)",
    ]
    assert all(finding.problem == "result is '2' instead of '1'" for finding in report.findings)


async def test_any_store_call_is_a_crash_point() -> None:
    """A handler that records steps through the store directly, as a future context might."""
    effects = Effects()
    app = Detent("sqlite:///:memory:")

    async def step(ctx: Context, name: str) -> None:
        if await ctx._engine.store.read(lambda tx: tx.steps.step(ctx.job_id, name)) is not None:
            return
        effects.record(name, ctx.effect_key(name))

        async def act(tx: Tx) -> None:
            await tx.steps.put_step(Step(ctx.job_id, name, "", "null", True, ctx.execution_no, tx.now))

        await ctx._engine.store.write(act)

    @app.job("steps")
    async def steps(ctx: Context) -> str:
        await step(ctx, "charge")
        await step(ctx, "ship")
        return "done"

    report = await crash_everywhere(app, steps, effects=effects)
    report.check()
    calls = [point.call for point in report.points[::2]]
    assert calls == [
        *("read: step 'charge'", "write: put_step 'charge'", "read: step 'ship'", "write: put_step 'ship'"),
        "settlement: Succeeded",
    ]


async def test_reset_is_called_between_runs() -> None:
    calls: list[int] = []
    app = Detent("sqlite:///:memory:")

    @app.job("counts")
    async def counts() -> int:
        calls.append(1)
        return 1

    report = await crash_everywhere(app, counts, reset=calls.clear)
    report.check()
    assert len(calls) == 1, "the last crash point is after the settlement, so its run has one execution"


async def test_a_wait_without_a_signal_names_the_missing_signal() -> None:
    effects = Effects()
    app = application(effects)
    with pytest.raises(AssertionError, match="waits for 'confirmed' and will not continue; pass this name in signals="):
        await crash_everywhere(app, app.jobs["cleans_up"], effects=effects)


async def test_a_job_with_waits_runs_without_real_time() -> None:
    effects = Effects()
    app = application(effects)
    async with SingleStepWorker(app) as worker:
        job = await worker.submit(app.jobs["order"], number=1)
        ended = await worker.run(job.id, CONFIRMED)
        assert CONTRACTS["standard"].phase(ended.status) == ended.phase
    assert worker.deaths == 0


async def test_the_plugin_in_a_coroutine_test(detent_crashes: CrashTester, detent_effects: Effects) -> None:
    app = application(detent_effects)
    report = await detent_crashes.run(app.jobs["retries"])
    assert report.ok
    with pytest.raises(AssertionError, match="effect 'mail'"):
        await detent_crashes.run(app.jobs["unsafe"])


USER_TEST = """
from detent import Context, Detent

app = Detent("sqlite:///:memory:")
seen = None


@app.job("pay")
async def pay(ctx: Context, order: int) -> int:
    seen.record("pay", ctx.effect_key("pay"))
    return order


@app.job("mail")
def mail() -> None:
    seen.record("mail")


def test_pay(detent_crashes, detent_effects):
    global seen
    seen = detent_effects
    assert len(detent_crashes(pay, {"order": 7}).points) == 2


def test_mail(detent_crashes, detent_effects):
    global seen
    seen = detent_effects
    detent_crashes(mail)
"""


def test_the_plugin_in_a_separate_pytest_run(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(USER_TEST)
    installed = any(entry.value == "detent.testing.pytest_plugin" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "detent.testing.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "test_user.py"]
    source = str(Path(detent.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "crash before call 1 (settlement: Succeeded): effect 'mail' happened 2 times instead of 1" in done.stdout
