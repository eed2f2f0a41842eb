"""Recorded steps are notes of the log: in Python, in exports and in REST, read from their table."""

from typing import Any

import httpx
import pytest

from detent import Context, Detent, Retry
from detent.web.app import create_app
from detent.web.http.settings import Settings
from support.waiting import within
from support.web.api import BASE
from support.worker.running import working

pytestmark = pytest.mark.anyio


def declare(app: Detent) -> Any:
    def refused() -> None:
        raise ValueError("no such tool")

    @app.job("agent", contract="formal")
    async def agent(ctx: Context) -> str:
        await ctx.step("plan", lambda: "a plan")
        if ctx.execution_no == 1:
            raise Retry(after=0)
        await ctx.step("charge", lambda: 7)
        with pytest.raises(ValueError, match="no such tool"):
            await ctx.once("tool", refused)
        return "done"

    return agent


async def finished(app: Detent) -> Any:
    agent = declare(app)
    async with working(app):
        handle = await agent.enqueue()
        assert await within(20, handle.result()) == "done"
    return handle


EXPECTED: list[tuple[str, bool, int, Any]] = [
    ("job_created", False, 0, None),
    ("job_running", False, 1, None),
    ("step.finished", True, 1, {"name": "plan"}),
    ("job_requeued", False, 1, None),
    ("job_running", False, 2, None),
    ("step.finished", True, 2, {"name": "charge"}),
    ("step.started", True, 2, {"name": "tool", "error": "ValueError: no such tool"}),
    ("job_completed", False, 2, None),
]


def entries(log: list[dict[str, Any]]) -> list[tuple[str, bool, int, Any]]:
    """Event, note, execution and data of a note; the time at which a step began differs from run to run."""
    return [(e["event"], e["note"], e["execution_no"], _without_times(e["data"]) if e["note"] else None) for e in log]


def _without_times(data: dict[str, Any]) -> dict[str, Any]:
    assert data["started_at"].endswith("Z")
    return {name: value for name, value in data.items() if name != "started_at"}


async def test_steps_follow_the_claim_of_their_execution(app: Detent) -> None:
    handle = await finished(app)
    log = await handle.events()
    assert entries(log) == EXPECTED
    claims = {entry["execution_no"]: entry for entry in log if entry["event"] == "job_running"}
    for entry in log:
        if entry["note"]:
            assert (entry["seq"], entry["actor"]) == (claims[entry["execution_no"]]["seq"], claims[1]["actor"])
    engine = await app.ready()
    assert await engine.store.read(lambda tx: tx.log.notes(handle.id)) == [], "nothing is written a second time"
    assert (await engine.jobs.history(handle.id)).as_dict()["events"] == log, "what `jobs export` writes"
    web = httpx.ASGITransport(create_app(engine, Settings(open_without_tokens=True)))
    async with httpx.AsyncClient(transport=web, base_url=BASE) as client:
        answer = (await client.get(f"/api/v1/jobs/{handle.id}/events")).json()
    assert answer["items"] == log


async def test_a_requeued_job_shows_the_steps_that_it_took_over(app: Detent) -> None:
    @app.job("parcel", max_retries=0)
    async def parcel(ctx: Context) -> str:
        await ctx.step("weigh", lambda: 3)
        if ctx.effect_key("weigh").startswith(ctx.job_id):
            raise ValueError("the label is missing")
        return "sent"

    async with working(app):
        handle = await parcel.enqueue()
        with pytest.raises(Exception, match="label"):
            await within(20, handle.result())
        job = await handle.job()
        assert job.dlq_id is not None
        submitted = await app.dead_letters.requeue(job.dlq_id, take_steps=True)
        again = await app.handle(submitted.job.id)
        assert await within(20, again.result()) == "sent"
    log = await again.events()
    assert [(entry["event"], entry["seq"]) for entry in log][:2] == [("job.created", 1), ("step.finished", 1)]
