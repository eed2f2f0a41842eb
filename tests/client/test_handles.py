"""The options of `using`, and the methods of a handle."""

import asyncio
from copy import copy
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent import Context, Detent
from detent.client.options import HandlerOptions
from detent.core.errors import DetentError, InvalidInput, JobFailed
from detent.core.options.job_options import UsingOptions
from detent.core.options.option import PYTHON, options_of
from detent.core.options.schedule_options import ScheduleKeywords
from detent.core.times import SECOND
from detent.engine import Submission
from detent.engine.schedules.request import ScheduleRequest
from detent.handler.handler import Options
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio


async def test_using_changes_one_enqueue(app: Detent) -> None:
    @app.job("mail", queue="out", max_retries=5, timeout=30, priority=1)
    async def mail(n: int) -> int:
        return n

    plain = await (await mail.enqueue(n=1)).job()
    assert (plain.queue, plain.max_retries, plain.timeout_ms, plain.priority) == ("out", 5, 30_000, 1)
    at = datetime.now(UTC) + timedelta(hours=1)
    special = mail.using(tenant="acme", priority=9, queue="fast", max_retries=0, timeout=1.5, trace_id="t-1", at=at)
    job = await (await special.enqueue(n=2)).job()
    assert (job.tenant_id, job.priority, job.queue, job.max_retries, job.timeout_ms, job.trace_id) == (
        *("acme", 9, "fast", 0, 1_500, "t-1"),
    )
    assert job.due_at is not None and abs(job.due_at - int(at.timestamp() * SECOND)) < SECOND
    later = await (await special.using(at=None, delay=60).enqueue(n=3)).job()
    assert later.due_at is not None and 55 * SECOND < later.due_at - later.created_at <= 60 * SECOND
    assert later.tenant_id == "acme", "options of several using() calls are combined"
    held = await (await mail.using(hold=True).enqueue(n=4)).job()
    assert held.phase == "blocked"
    again = await (await mail.enqueue(n=5)).job()
    assert again.tenant_id == "default", "the declaration is untouched"
    with pytest.raises(InvalidInput) as refused:
        mail.using(prioritty=1)  # type: ignore[call-arg]
    assert refused.value.code == "OPTION_UNKNOWN"


def test_typed_options_match_the_tables() -> None:
    """`contract` is an option of `@app.job` only: the handler's outcomes depend on it."""
    jobs = {row.name for row in options_of(Submission, PYTHON).values()}
    assert UsingOptions.__annotations__.keys() == jobs - {"contract"}
    schedules = {row.name for row in options_of(ScheduleRequest, PYTHON).values()}
    assert ScheduleKeywords.__annotations__.keys() == schedules
    assert HandlerOptions.__annotations__.keys() == {field.name for field in fields(Options)}


async def test_the_same_key_is_the_same_job(app: Detent) -> None:
    @app.job("mail")
    async def mail(n: int) -> int:
        return n

    first = await mail.using(key="k", scope="s").enqueue(n=1)
    hit = await mail.using(key="k", scope="s").enqueue(n=1)
    assert (first.hit, hit.hit, hit.id == first.id) == (False, True, True)
    assert (await mail.using(key="k", scope="other").enqueue(n=1)).id != first.id
    with pytest.raises(DetentError) as refused:
        await mail.using(key="k", scope="s").enqueue(n=2)
    assert refused.value.code == "IDEMPOTENCY_CONFLICT"


async def test_a_handle_follows_its_job(app: Detent) -> None:
    go = asyncio.Event()

    @app.job("mail")
    async def mail(ctx: Context, n: int) -> dict[str, int]:
        await go.wait()
        return {"n": n}

    handle = await mail.enqueue(n=1)
    assert await handle.status() == "queued" and (await handle.job()).id == handle.id
    async with working(app):
        await until(lambda: _is(handle, "running"))
        with pytest.raises(TimeoutError, match=r"is running after 0\.05 s"):
            await handle.result(timeout=0.05)
        go.set()
        assert await handle.result(timeout=20) == {"n": 1}
    shown = await handle.show()
    assert (shown["status"], shown["result"], shown["job_type"]) == ("succeeded", {"n": 1}, "mail")
    assert [event["seq"] for event in await handle.events()] == [1, 2, 3]


async def _is(handle: Any, status: str) -> bool:
    return bool(await handle.status() == status)


async def test_result_returns_soon_after_the_end(app: Detent) -> None:
    @app.job("mail")
    async def mail() -> int:
        return 1

    async with working(app):
        loop = asyncio.get_running_loop()
        durations = []
        for _ in range(9):
            begun = loop.time()
            await within(20, (await mail.enqueue()).result())
            durations.append(loop.time() - begun)
    assert sorted(durations)[4] < 0.09, "woken by the commit, not by a poll every 0.1 s"


async def test_the_result_of_a_failed_job_raises_its_error(app: Detent) -> None:
    @app.job("mail", max_retries=0)
    async def mail() -> int:
        raise ValueError("no such address")

    async with working(app):
        with pytest.raises(JobFailed) as failed:
            await within(20, (await mail.enqueue()).result())
    error = failed.value
    assert error.code == "JOB_FAILED" and "no such address" in str(error)
    assert (error.error_code, error.error_message) == ("JOB_EXECUTION_FAILED", "ValueError: no such address")
    assert (error.error_class, error.status) == ("ValueError", "failed") and error.job_id in error.message
    copied = copy(error)
    assert (copied.job_id, copied.error_class, str(copied)) == (error.job_id, "ValueError", str(error))


async def test_cancelled_before_it_ran(app: Detent) -> None:
    @app.job("mail")
    async def mail() -> int:
        return 1

    handle = await mail.enqueue()
    assert (await handle.cancel("no need", actor="ann")).status == "cancelled"
    with pytest.raises(JobFailed) as failed:
        await handle.result()
    assert (failed.value.status, failed.value.error_code, failed.value.error_class) == ("cancelled", None, None)
    assert (await handle.events())[-1]["actor"] == "ann"
    with pytest.raises(DetentError) as refused:
        await handle.cancel(actor="ann")
    assert refused.value.http_status == 409


async def test_a_handle_by_id(app: Detent) -> None:
    @app.job("mail")
    async def mail() -> int:
        return 1

    handle = await app.handle((await mail.enqueue()).id)
    assert await handle.status() == "queued"
    with pytest.raises(DetentError) as refused:
        await app.handle("0198b6a0-0000-7000-8000-000000000000")
    assert refused.value.code == "JOB_NOT_FOUND"


async def test_gate_b2_refuses_other_max_retries_and_unknown_contracts_are_refused(app: Detent) -> None:
    @app.job("pay", contract="gate-b2", max_retries=7)
    async def pay() -> None: ...

    @app.job("odd", contract="no-such")
    async def odd() -> None: ...

    with pytest.raises(DetentError):
        await pay.enqueue()
    with pytest.raises(DetentError) as refused:
        await odd.enqueue()
    assert refused.value.code == "CONTRACT_UNKNOWN"
