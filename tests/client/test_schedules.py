"""@app.schedule and app.schedules."""

import asyncio
from datetime import timedelta

import pytest

from detent import Context, Detent, DetentError
from detent.ports.listing import Filter

pytestmark = pytest.mark.anyio


async def test_declared_above_a_job(app: Detent) -> None:
    @app.schedule(cron="30 2 * * *", tz="Europe/Berlin", payload={"day": "today"}, overlap="skip")
    @app.schedule(
        name="often", every=timedelta(minutes=5), payload={"day": "now"}, priority=7, tenant="acme", timeout=2
    )
    @app.job("report", queue="slow", max_retries=1, timeout=30, contract="formal")
    async def report(ctx: Context, day: str) -> None: ...

    assert report.name == "report" and await app.schedules.list() == []
    await app.worker()
    nightly, often = await app.schedules.get("report"), await app.schedules.get("often")
    assert (nightly.kind, nightly.expression, nightly.timezone) == ("cron", "30 2 * * *", "Europe/Berlin")
    assert (nightly.job_type, nightly.queue, nightly.contract, nightly.max_retries) == ("report", "slow", "formal", 1)
    assert (nightly.timeout_ms, nightly.payload, nightly.overlap) == (30_000, '{"day":"today"}', "skip")
    assert (often.kind, often.expression, often.priority, often.tenant_id) == ("every", "5m", 7, "acme")
    assert often.timeout_ms == 2_000
    await app.worker()
    assert await app.schedules.get("report") == nightly, "the next worker does not change it"


async def test_invalid_declarations_are_refused(app: Detent) -> None:
    @app.job("report")
    async def report(day: str) -> None: ...

    async def plain() -> None: ...

    for wrong, code in (
        (lambda: app.schedule(cron="nonsense", payload={"day": "x"})(report), "SCHEDULE_INVALID"),
        (lambda: app.schedule(cron="@daily", tz="Mars/Base", payload={"day": "x"})(report), "SCHEDULE_INVALID"),
        (lambda: app.schedule(payload={"day": "x"})(report), "SCHEDULE_INVALID"),
        (lambda: app.schedule(cron="@daily", overlap="x", payload={"day": "x"})(report), "SCHEDULE_INVALID"),
        (lambda: app.schedule(cron="@daily")(report), "PAYLOAD_INVALID"),
        (lambda: app.schedule(cron="@daily", payload={"day": 5})(report), "PAYLOAD_INVALID"),
        (lambda: app.schedule(cron="@daily")(plain), "HANDLER_INVALID"),  # type: ignore[type-var]
        (lambda: app.schedule(cron="@daily", colour="red", payload={"day": "x"})(report), "OPTION_UNKNOWN"),  # type: ignore[call-arg]
    ):
        with pytest.raises(DetentError) as caught:
            wrong()
        assert caught.value.code == code
    app.schedule(cron="@daily", payload={"day": "x"})(report)
    with pytest.raises(DetentError, match="declared twice"):
        app.schedule(cron="@hourly", payload={"day": "x"})(report)


async def test_a_payload_is_checked_by_the_handler(app: Detent) -> None:
    @app.job("report")
    async def report(day: int) -> None: ...

    with pytest.raises(DetentError) as caught:
        await app.schedules.add("r", "report", {"day": "monday"}, every="5m")
    assert caught.value.code == "PAYLOAD_INVALID"
    schedule = await app.schedules.add("r", report, {"day": 1}, every="5m")
    with pytest.raises(DetentError) as caught:
        await app.schedules.edit("r", payload={"day": "monday"})
    assert caught.value.code == "PAYLOAD_INVALID"
    assert (await app.schedules.edit("r", payload={"day": 2}, version=schedule.version)).payload == '{"day":2}'
    assert (await app.schedules.add("other", "unknown-here", {"x": 1}, cron="@daily")).job_type == "unknown-here"


async def test_every_operation(app: Detent) -> None:
    await app.schedules.add("r", "report", every="1h", reason="request 7")
    assert (await app.schedules.pause("r", actor="ann")).paused_at is not None
    assert (await app.schedules.resume("r", actor="ann")).next_fire_at is not None
    assert len(await app.schedules.preview("r", 3)) == 3
    assert (await app.schedules.backfill("r", "2026-01-01T00:00:00Z", "2026-01-01T03:00:00Z")).made == 3
    assert len(await app.schedules.fires("r")) == 3
    assert [schedule.name for schedule in await app.schedules.list(Filter(text="report"))] == ["r"]
    await app.schedules.remove("r")
    assert await app.schedules.list() == []


def test_without_an_event_loop(plain: Detent) -> None:
    schedules = plain.sync.schedules
    schedule = schedules.add("r", "report", {"x": 1}, every="1h")
    assert schedules.get("r") == schedule and schedules.list() == [schedule]
    assert schedules.edit("r", priority=3, timeout=2, version=1).timeout_ms == 2_000
    assert schedules.pause("r").paused_at and not schedules.resume("r").paused_at
    assert len(schedules.preview("r", 2)) == 2
    assert schedules.backfill("r", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", dry_run=True).made == 1
    assert schedules.fires("r") == []
    assert schedules.remove("r").id == schedule.id


async def test_a_worker_fires_on_time(app: Detent) -> None:
    """In real time: a job starts within half a second of its run; on a busy machine at least one does."""
    started: list[float] = []

    @app.schedule(every="1s")
    @app.job("tick")
    async def tick(ctx: Context) -> None:
        started.append(app.engine.store.now() / 1_000_000)
        if len(started) == 2:
            worker.stop()

    worker = await app.worker()
    async with asyncio.timeout(20):
        await worker.run(handle_signals=False)
    fires = sorted(fire.fire_at / 1_000_000 for fire in await app.schedules.fires("tick"))
    late = [begun - due for begun, due in zip(started, fires, strict=False)]
    assert len(started) == 2 and 0 <= min(late) < 0.5, late
