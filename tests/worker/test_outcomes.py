"""Outcomes: what a handler returns or raises, and the change the contract makes of it."""

import asyncio
import logging
from datetime import date, timedelta
from typing import Any

import pytest

from detent import Cancel, Context, Detent, Fail, Retry, Snooze, SyncContext
from detent.core.errors import DetentError, InvalidInput, JobFailed, StoreRefused, StoreUnavailable
from detent.core.times import SECOND
from detent.engine import Engine, Submission
from detent.engine.execution.settle import MAX_RESULT
from detent.handler import context
from detent.stores.sqlite.claim import SqliteTx
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio
LACKS = "CONTRACT_LACKS_MOVE"
FROZEN = "RETRY_DELAY_FROZEN"


async def failure_of(handle: Any) -> JobFailed:
    with pytest.raises(JobFailed) as failed:
        await within(20, handle.result())
    return failed.value


async def phase_is(handle: Any, phase: str) -> bool:
    return str((await handle.job()).phase) == phase


async def test_retry_after_its_own_delay(app: Detent) -> None:
    @app.job("work")
    async def work(ctx: Context) -> int:
        if ctx.retries < 2:
            raise Retry("not yet", after=0.01)
        return ctx.execution_no

    async with working(app):
        handle = await work.enqueue()
        assert await within(10, handle.result()) == 3
    retrying = [e for e in await handle.events() if e["event"] == "job.retrying"]
    assert [e["data"]["error_message"] for e in retrying] == ["not yet", "not yet"]


async def test_retry_by_the_contracts_backoff(app: Detent) -> None:
    @app.job("work")
    async def work() -> None:
        raise Retry

    handle = await work.enqueue()
    async with working(app):
        await until(lambda: _retried(handle))
    job = await handle.job()
    assert job.due_at is not None and 1 * SECOND <= job.due_at - job.updated_at <= 1.3 * SECOND


async def test_a_frozen_contract_drops_the_delay_of_a_retry(app: Detent, caplog: pytest.LogCaptureFixture) -> None:
    """The failure is settled by the rules of the contract; the log says what was refused."""
    caplog.set_level(logging.INFO, "detent.worker.worker")

    @app.job("work", contract="gate-b2")
    async def work() -> None:
        raise Retry("rate limited", after=0.01)

    handle = await work.enqueue()
    async with working(app):
        await until(lambda: _retried(handle))
    job = await handle.job()
    assert job.due_at is not None and 1 * SECOND <= job.due_at - job.updated_at <= 1.3 * SECOND
    assert (job.status, job.error_message, job.failures) == ("retrying", "rate limited", 1)
    assert [e["data"]["code"] for e in await handle.events() if e["event"] == "settle.refused"] == [FROZEN]
    assert any(job.id in line and FROZEN in line for line in caplog.messages)


async def _retried(handle: Any) -> bool:
    return bool((await handle.job()).retries)


@pytest.mark.parametrize(("retryable", "executions"), [(False, 1), (True, 2)])
async def test_fail_with_a_code_of_its_own(app: Detent, retryable: bool, executions: int) -> None:
    @app.job("work", max_retries=1)
    async def work() -> None:
        raise Fail("declined", code="CARD_DECLINED", retryable=retryable)

    async with working(app):
        handle = await work.enqueue()
        if retryable:
            await until(lambda: _retried(handle))
            await _due_now(await app.ready(), handle.id)
        error = await failure_of(handle)
    assert error.code == "JOB_FAILED" and error.extra["job_code"] == "CARD_DECLINED"
    job = await handle.job()
    assert job.execution_no == executions and job.dlq_id is not None


@pytest.mark.parametrize(
    ("contract", "own_code", "executions"),
    [
        ("gate-b2", "JOB_EXECUTION_FAILED", 1),
        ("men", "TASK_RETRY_EXHAUSTED", 2),
        ("p3c", "JOB_EXECUTION_FAILED", 1),
        ("standard", "JOB_EXECUTION_FAILED", 1),
    ],
)
async def test_fail_without_a_code_is_the_contracts_own(
    app: Detent, contract: str, own_code: str, executions: int
) -> None:
    """men retries its own code; the others take Fail as final unless it says otherwise."""

    @app.job("work", contract=contract, max_retries=None if contract == "gate-b2" else 1)
    async def work() -> None:
        raise Fail("declined")

    async with working(app):
        handle = await work.enqueue()
        assert (await failure_of(handle)).extra["job_code"] == own_code
    assert (await handle.job()).execution_no == executions


async def test_men_gives_a_payload_that_does_not_fit_its_own_code(app: Detent) -> None:
    @app.job("work", contract="men")
    async def work(n: int) -> int:
        return n

    engine = await app.ready()
    async with working(app):
        job = (await engine.jobs.submit(Submission("work", {"n": "many"}, contract="men"))).job
        await until(lambda: _ended(engine, job.id))
    job = await engine.jobs.get(job.id)
    assert (job.error_code, job.execution_no) == ("TASK_EXECUTION_FAILED", 1), "another try would not help"
    assert "PAYLOAD_INVALID" in (job.error_message or "")


async def _ended(engine: Engine, job_id: str) -> bool:
    return (await engine.jobs.get(job_id)).finished_at is not None


async def test_a_code_that_is_not_text_is_stored_as_text(app: Detent) -> None:
    @app.job("work")
    async def work() -> None:
        raise Fail("no such page", code=404)  # type: ignore[arg-type]

    async with working(app):
        assert (await failure_of(await work.enqueue())).extra["job_code"] == "404"


@pytest.mark.parametrize("contract", ["standard", "formal"])
async def test_snooze_is_not_charged(app: Detent, contract: str) -> None:
    @app.job("work", contract=contract)
    async def work(ctx: Context) -> int:
        if ctx.execution_no < 3:
            raise Snooze(0.05)
        return ctx.retries

    async with working(app):
        handle = await work.enqueue()
        assert await within(10, handle.result()) == 0
    job = await handle.job()
    assert (job.execution_no, job.failures) == (3, 0)


async def test_cancel_from_within(app: Detent) -> None:
    @app.job("work")
    async def work() -> None:
        raise Cancel("not needed")

    async with working(app):
        handle = await work.enqueue()
        assert (await failure_of(handle)).extra["status"] == "cancelled"
    assert (await handle.events())[-1]["data"]["reason"] == "not needed"


async def _wait(ctx: Context) -> None:
    await ctx.wait_for("answer", timeout=60)


async def _sleep(ctx: Context) -> None:
    await ctx.sleep(60)


async def _snooze(ctx: Context) -> None:
    raise Snooze(1)


async def _cancel(ctx: Context) -> None:
    raise Cancel("no")


@pytest.mark.parametrize(
    ("contract", "handler"),
    [
        *((name, handler) for name in ("gate-b2", "men", "p3c", "streams") for handler in (_wait, _sleep, _snooze)),
        ("gate-b2", _cancel),
        ("streams", _cancel),
    ],
)
async def test_an_outcome_without_a_status_in_the_contract_fails_for_good(
    app: Detent, contract: str, handler: Any
) -> None:
    app.job("work", contract=contract)(handler)
    async with working(app) as worker:
        handle = await app.jobs["work"].enqueue()
        error = await failure_of(handle)
        assert error.extra["job_code"] == LACKS
        assert worker.state.free == worker.state.slots
    job = await handle.job()
    assert (job.execution_no, job.failures) == (1, 1), "failed once, not retried"
    assert contract in (job.error_message or "")


async def test_a_wait_in_a_thread_is_refused_the_same_way(app: Detent) -> None:
    @app.job("work", contract="gate-b2")
    def work(ctx: SyncContext) -> None:
        ctx.wait_for("answer")

    async with working(app):
        assert (await failure_of(await work.enqueue())).extra["job_code"] == LACKS


async def test_waiting_leaves_the_worker_and_comes_back_with_the_answer(app: Detent) -> None:
    @app.job("work")
    async def work(ctx: Context) -> str:
        try:
            answer = await ctx.wait_for("confirmed", timeout=60)
        except Exception:  # must not catch the suspension
            return "caught"
        return f"{answer['by']} in execution {ctx.execution_no}"

    @app.job("plain")
    def plain(ctx: SyncContext) -> str:
        answer = ctx.wait_for("confirmed")
        return f"{answer['by']} in execution {ctx.execution_no}"

    async with working(app, slots=1) as worker:
        for job in (work, plain):
            handle = await job.enqueue()
            await until(lambda handle=handle: phase_is(handle, "blocked"))
            assert worker.state.free == 1
            assert await handle.signal("confirmed", {"by": "ana"}) is True
            assert await within(10, handle.result()) == "ana in execution 2"
            assert await handle.signal("confirmed", {"by": "bob"}) is False, "the first one counts"
            with pytest.raises(DetentError) as refused:
                await handle.signal("another")
            assert refused.value.http_status == 409


async def test_sleep_and_a_wait_that_times_out(app: Detent) -> None:
    from detent import WaitTimeout

    @app.job("work")
    async def work(ctx: Context) -> int:
        await ctx.sleep(0.05)
        try:
            await ctx.wait_for("never", timeout=0.05)
        except WaitTimeout:
            return ctx.execution_no
        return 0

    async with working(app):
        assert await within(10, (await work.enqueue()).result()) == 3


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


async def _unreadable() -> None:
    raise Unreadable


async def _retry_never() -> None:
    raise Retry(after=float("nan"))


async def _retry_far() -> None:
    raise Retry(after=1e300)


async def _snooze_text() -> None:
    raise Snooze("soon")  # type: ignore[arg-type]


async def _snooze_back() -> None:
    raise Snooze(-5)


async def _bad_name(ctx: Context) -> None:
    await ctx.wait_for("")


async def _surrogate() -> Any:
    return "\ud800"


async def _exit() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("handler", "code"),
    [
        (_unreadable, "JOB_EXECUTION_FAILED"),
        (_retry_never, "RETRY_DELAY_INVALID"),
        (_retry_far, "RETRY_DELAY_INVALID"),
        (_snooze_text, "SNOOZE_INVALID"),
        (_snooze_back, "SNOOZE_INVALID"),
        (_bad_name, "NAME_INVALID"),
        (_surrogate, "RESULT_INVALID"),
        (_exit, "JOB_EXECUTION_FAILED"),
    ],
)
async def test_invalid_outcomes_lose_neither_the_slot_nor_the_worker(app: Detent, handler: Any, code: str) -> None:
    app.job("odd", max_retries=1 if handler is _retry_far else 0)(handler)

    both_run = asyncio.Barrier(2)

    @app.job("fine")
    async def fine(n: int) -> int:
        return n

    @app.job("pair")
    async def pair() -> None:
        await both_run.wait()

    async with working(app, slots=2) as worker:
        handle = await app.jobs["odd"].enqueue()
        others = await fine.enqueue_many([{"n": n} for n in range(5)])
        assert [await within(20, other.result()) for other in others] == [0, 1, 2, 3, 4]
        assert (await failure_of(handle)).extra["job_code"] == code
        await until(lambda: worker.state.free == 2)
        for other in await pair.enqueue_many([{}, {}]):
            await within(10, other.result())


@pytest.mark.parametrize("error", [OverflowError("too big"), StoreRefused("a check failed"), TypeError("no text")])
async def test_one_outcome_that_cannot_be_stored_does_not_stall_the_others(
    app: Detent, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The store fails on the result of one job, whatever else is in the batch."""

    @app.job("work")
    async def work(n: int) -> int:
        return n

    honest_succeed, honest_apply = SqliteTx.succeed, SqliteTx.apply

    async def succeed(self: SqliteTx, successes: Any) -> Any:
        if any(success.result == "3" for success in successes):
            raise error
        return await honest_succeed(self, successes)

    async def apply(self: SqliteTx, changes: Any) -> None:
        if any(change.after.result == "3" for change in changes):
            raise error
        await honest_apply(self, changes)

    monkeypatch.setattr(SqliteTx, "succeed", succeed)
    monkeypatch.setattr(SqliteTx, "apply", apply)
    handles = await work.enqueue_many([{"n": n} for n in range(6)])
    async with working(app):
        for n, handle in enumerate(handles):
            if n == 3:
                expected = "STORE_CONSTRAINT" if isinstance(error, StoreRefused) else "OUTCOME_INVALID"
                assert (await failure_of(handle)).extra["job_code"] == expected
            else:
                assert await within(10, handle.result()) == n


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), OSError("gone")])
async def test_an_unreachable_store_loses_no_result(
    app: Detent, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    executions = []

    @app.job("work")
    async def work(n: int) -> int:
        executions.append(n)
        return n

    honest, failures = Engine.settle_and_claim, 0

    async def settle_and_claim(self: Engine, settled: Any, request: Any) -> Any:
        nonlocal failures
        if settled and failures < 3:
            failures += 1
            raise error
        return await honest(self, settled, request)

    monkeypatch.setattr(Engine, "settle_and_claim", settle_and_claim)
    handles = await work.enqueue_many([{"n": n} for n in range(4)])
    async with working(app):
        assert [await within(20, handle.result()) for handle in handles] == [0, 1, 2, 3]
    assert failures == 3 and sorted(executions) == [0, 1, 2, 3]


@pytest.mark.parametrize("settled_in", ["batch", "transaction"])
async def test_a_result_that_is_too_large_fails_for_good(app: Detent, settled_in: str) -> None:
    @app.job("work")
    async def work(ctx: Context) -> str:
        if settled_in == "batch":
            return "x" * MAX_RESULT
        async with ctx.transaction():
            return "x" * MAX_RESULT

    async with working(app):
        handle = await work.enqueue()
        failed = await failure_of(handle)
    assert failed.error_code == "RESULT_TOO_LARGE" and "return a reference" in (failed.error_message or "")
    assert (await handle.job()).execution_no == 1


async def test_a_signal_in_the_type_that_the_handler_names(app: Detent) -> None:
    @app.job("work")
    async def work(ctx: Context) -> str:
        day = await ctx.wait_for("day", type=date)
        try:
            await ctx.wait_for("number", type=int)
        except InvalidInput as error:
            return f"{day:%A} {error.code}"
        return "not refused"

    async with working(app):
        handle = await work.enqueue()
        await handle.signal("day", "2026-02-25")
        await handle.signal("number", "many")
        assert await within(20, handle.result()) == "Wednesday SIGNAL_INVALID"


async def test_invalid_payloads_fail_for_good_when_run(app: Detent) -> None:
    @app.job("work", hand_back_seconds=0)
    async def work(n: int, since: timedelta | None = None) -> int:
        return n

    engine = await app.ready()
    bad = [{"n": "many"}, {}, {"n": 1, "m": 2}, {"n": 1, "since": "yesterday"}]
    async with working(app):
        for payload in bad:
            job = (await engine.jobs.submit(Submission("work", payload))).job
            handle = await app.handle(job.id)
            assert (await failure_of(handle)).extra["job_code"] == "PAYLOAD_INVALID"
            assert "PAYLOAD_INVALID" not in ((await handle.job()).error_message or ""), (
                "the message does not repeat the code"
            )
            assert (await handle.job()).execution_no == 1


async def test_errors_can_be_declared_permanent_or_retryable(app: Detent) -> None:
    @app.job("work", give_up_on=KeyError, max_retries=3)
    async def work() -> None:
        raise KeyError("x")

    async with working(app):
        handle = await work.enqueue()
        assert (await failure_of(handle)).extra["job_code"] == "JOB_EXECUTION_FAILED"
    job = await handle.job()
    assert job.execution_no == 1
    data = next(e for e in await handle.events() if e["event"] == "job.failing")["data"]
    assert data["error_class"] == "KeyError" and "Traceback" in data["traceback"]


async def test_a_store_error_inside_a_handler_is_retried(app: Detent) -> None:
    """A temporary database error in the handler is retryable."""

    @app.job("work", max_retries=1)
    async def work(ctx: Context) -> int:
        if not ctx.retries:
            raise StoreUnavailable("gone for a moment")
        return ctx.execution_no

    engine = await app.ready()
    handle = await work.enqueue()
    async with working(app):
        await until(lambda: _retried(handle))
        await _due_now(engine, handle.id)
        assert await within(10, handle.result()) == 2


async def _due_now(engine: Engine, job_id: str) -> None:
    async def act(tx: Any) -> None:
        sql = "UPDATE detent_jobs SET due_at = updated_at, next_retry_at = iif(next_retry_at IS NULL, NULL, updated_at)"
        tx.queries.connection.execute(f"{sql} WHERE id = ?", (job_id,))

    await engine.store.write(act)


async def test_the_context_has_ids_and_keys_of_the_job(app: Detent) -> None:
    seen: dict[str, Any] = {}

    @app.job("work")
    async def work(ctx: Context) -> None:
        seen[ctx.execution_key] = ctx.effect_key("charge")
        await ctx.progress(0.5, "half")
        await asyncio.sleep(0)
        if ctx.execution_no == 1:
            raise Retry(after=0.0)
        seen.update(id=ctx.job_id, type=ctx.job_type, tenant=ctx.tenant_id, key=ctx.idempotency_key, trace=ctx.trace_id)

    async with working(app):
        handle = await work.using(tenant="acme", key="k-1", trace_id="t-1").enqueue()
        await within(10, handle.result())
    first, second = f"{handle.id}+0", f"{handle.id}+1"
    assert seen[first] == seen[second] == f"{handle.id}:charge"
    assert (seen["id"], seen["type"], seen["tenant"], seen["key"], seen["trace"]) == (
        *(handle.id, "work", "acme", "k-1", "t-1"),
    )
    progress = [e for e in await handle.events() if e["event"] == "progress"]
    assert progress and progress[0]["data"] == {"share": 0.5, "message": "half"} and progress[0]["note"]


async def test_the_last_of_several_reports_of_progress_is_written(app: Detent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of reports within a second: the page would show the first one for as long as the handler reports nothing else."""
    monkeypatch.setattr(context, "_PROGRESS_SECONDS", 0.05)
    shown: list[float] = []

    @app.job("work")
    async def work(ctx: Context, ends_at_once: bool) -> None:
        for share in (0.25, 0.5, 0.75):
            await ctx.progress(share)
        if not ends_at_once:
            await asyncio.sleep(0.2)

    async with working(app):
        for ends_at_once in (False, True):
            handle = await work.enqueue(ends_at_once=ends_at_once)
            await within(10, handle.result())
            await asyncio.sleep(0.1)
            shown += [e["data"]["share"] for e in await handle.events() if e["event"] == "progress"]
    assert shown == [0.75, 0.25], "nothing is written after the end"
