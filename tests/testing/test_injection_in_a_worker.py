"""The three injected failures in a real worker, on both databases, and as settings of a staging environment."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent import P3C, Context, Detent, SyncContext
from detent.core.errors import InvalidInput
from detent.testing.failure_injection import FailureInjector
from support.servers.databases import house, newest
from support.waiting import within
from support.worker.running import working

pytestmark = pytest.mark.anyio
FAST = P3C.with_options(retry={"base_ms": 1, "cap_ms": 1})
RETRY, RESTART = ["retryable_error", "retry_due"], ["process_restart", "recovery_resume"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    database = house(newest()).database()
    yield database.url
    database.release()


def application(url: str, injector: FailureInjector) -> Detent:
    app = Detent(url, contracts=[FAST])

    @app.job("loop", contract="p3c")
    async def on_the_loop(ctx: Context) -> int:
        injector.reach("before_charge", ctx.job_id)
        return ctx.execution_no

    @app.job("thread", contract="p3c")
    def in_a_thread(ctx: SyncContext) -> int:
        injector.reach("before_charge", ctx.job_id)
        return ctx.execution_no

    return app


async def test_each_mode_takes_its_edge(url: str) -> None:
    plan = {
        "timeout": {"point": "before_charge", "at_invocation": 1},
        "transient_error": {"point": "before_charge", "at_invocation": 2},
        "process_restart_interrupt": {"point": "before_charge", "at_invocation": 3, "repeat": 2},
    }
    injector = FailureInjector.from_mapping(plan, contract="p3c")
    async with application(url, injector) as app, working(app):
        for name in ("loop", "thread"):
            handle = await app.jobs[name].enqueue()
            assert await within(20, handle.result()) == 5
            events = await handle.events()
            assert [event["event"] for event in events] == [
                *("created", "worker_claim", *RETRY, *RETRY, *RESTART, *RESTART, "completed"),
            ]
            errors = [event["data"].get("error_code") for event in events if event["target"] in INTERRUPTING]
            assert errors == [P3C.code("timeout"), P3C.code("execution_failed"), *["PROCESS_RESTARTED"] * 2]
            job = await handle.job()
            assert (job.failures, job.retries, job.interruptions) == (2, 2, 2)


INTERRUPTING = ("retry_scheduled", "interrupted")


def test_the_environment_injects_only_where_it_is_allowed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    injector = FailureInjector.from_environment()
    injector.reach("x")
    assert (injector.faults, injector.reached) == ((), {"x": 1}), "off by default"
    monkeypatch.setenv("DETENT_INJECT", json.dumps({"timeout": {"point": "x", "repeat": 3}}))
    for allowed in (None, "", "0", "yes"):
        if allowed is not None:
            monkeypatch.setenv("DETENT_ALLOW_INJECTION", allowed)
        with pytest.raises(InvalidInput, match="INJECTION_NOT_ALLOWED"):
            FailureInjector.from_environment()
    monkeypatch.setenv("DETENT_ALLOW_INJECTION", "1")
    (fault,) = FailureInjector.from_environment(contract="men").faults
    assert (fault.mode, fault.point, fault.at_invocation, fault.repeat) == ("timeout", "x", 1, 3)
    assert "failures are injected" in caplog.text


@pytest.mark.parametrize("text", ["{", "[]", '{"flood": {"point": "x"}}', '{"timeout": 3}', '{"timeout": {"at": 1}}'])
def test_a_bad_plan_in_the_environment_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETENT_ALLOW_INJECTION", "1")
    monkeypatch.setenv("DETENT_INJECT", text)
    with pytest.raises(InvalidInput, match="INJECTION_INVALID"):
        FailureInjector.from_environment()
