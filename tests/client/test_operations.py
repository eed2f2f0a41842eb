"""app.jobs, app.queues, app.events and their blocking versions: filters, refusals, following."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent import Detent
from detent.core.errors import DetentError, IllegalMove, InvalidInput, NotFound
from support.waiting import within
from support.worker.running import working

pytestmark = pytest.mark.anyio


@pytest.fixture
def mail(app: Detent) -> Any:
    @app.job("mail", queue="post")
    async def mail(n: int) -> int:
        return n

    return mail


async def test_lists_are_filtered(app: Detent, mail: Any) -> None:
    handles = await mail.enqueue_many([{"n": n} for n in range(3)])
    await mail.using(tenant="acme", queue="other").enqueue(n=3)
    assert [job.id for job in await app.jobs.list(queue="post")] == [handle.id for handle in reversed(handles)]
    assert [job.payload for job in await app.jobs.list(tenant="acme")] == ['{"n":3}']
    assert len(await app.jobs.list(limit=2)) == 2
    assert len(await app.jobs.list(before=handles[1].id)) == 1
    now = datetime.now(UTC)
    assert await app.jobs.list(since=now + timedelta(hours=1)) == []
    assert len(await app.jobs.list(until=(now + timedelta(hours=1)).isoformat())) == 4
    with pytest.raises(InvalidInput) as refused:
        await app.jobs.list(status="quewed")
    assert refused.value.code == "STATUS_UNKNOWN" and "queued" in refused.value.message


async def test_acts_on_jobs(app: Detent, mail: Any) -> None:
    handle = await mail.enqueue(n=1)
    assert (await app.jobs.show(handle.id))["payload"] == {"n": 1}
    assert (await app.jobs.why(handle.id))["reason"] == "NO_WORKER"
    with pytest.raises(IllegalMove):
        await app.jobs.requeue(handle.id)
    assert (await app.jobs.cancel(handle.id, "no need", actor="ann")).status == "cancelled"
    with pytest.raises(InvalidInput, match="argument m is not known"):
        await app.jobs.requeue(handle.id, payload={"m": 1})
    again = await app.jobs.requeue(handle.id, payload={"n": 2})
    assert (await again.job()).requeued_from == handle.id
    assert (await app.jobs.cancel_many([again.id, handle.id])).done == 1
    assert (await app.jobs.requeue_many([again.id])).done == 1
    with pytest.raises(DetentError) as foreign:
        await app.jobs.show(handle.id, tenant="acme")
    assert foreign.value.code == "JOB_NOT_FOUND"
    with pytest.raises(NotFound):
        await app.jobs.handle("01900000-0000-7000-8000-000000000000")


async def test_pauses(app: Detent, mail: Any) -> None:
    await mail.enqueue(n=1)
    await app.queues.pause("post", reason="strike")
    await app.queues.pause(job_type="mail")
    (queue,) = await app.queues.list()
    assert queue["queue"] == "post" and queue["paused"]
    assert (await app.jobs.why((await app.jobs.list())[0].id))["reason"] == "PAUSED"
    await app.queues.resume("post")
    await app.queues.resume(job_type="mail")
    assert not (await app.queues.list())[0]["paused"]
    with pytest.raises(InvalidInput) as refused:
        await app.queues.pause("post", tenant="acme")
    assert refused.value.code == "PAUSE_INVALID"


async def test_events_are_followed_from_a_position(app: Detent, mail: Any) -> None:
    await mail.enqueue(n=0)
    seen: list[dict[str, Any]] = []
    began = asyncio.Event()

    async def follow() -> None:
        async with aclosing(app.events(job_type="mail")) as events:  # type: ignore[type-var]
            began.set()
            async for event in events:
                seen.append(event)
                if event["target"] == "succeeded":
                    return

    follower = asyncio.create_task(follow())
    await began.wait()
    await app.jobs.list()
    handle = await mail.enqueue(n=1)
    async with working(app):
        await within(30, follower)
    assert {event["job_id"] for event in seen} >= {handle.id}
    everything = [event async for event in app.events(follow=False)]
    later = [event async for event in app.events(follow=False, after=everything[1]["position"])]
    assert later == everything[2:]
    with pytest.raises(InvalidInput) as refused:
        await anext(app.events(after="yesterday"))
    assert refused.value.code == "POSITION_INVALID"


async def test_many_are_checked_with_their_index(app: Detent, mail: Any) -> None:
    with pytest.raises(InvalidInput, match="item 1: mail: n: ") as refused:
        await mail.enqueue_many([{"n": 1}, {"n": "many"}])
    assert (refused.value.code, refused.value.extra["index"]) == ("PAYLOAD_INVALID", 1)
    with pytest.raises(InvalidInput, match="mail: n: "):
        mail.arguments("many")
    assert await app.jobs.list() == []
    assert len(await mail.enqueue_many([mail.arguments(1), {"n": 2}])) == 2


def test_blocking(plain: Detent) -> None:
    @plain.job("mail")
    async def mail(n: int) -> int:
        return n

    handle = plain.sync.enqueue(mail, 1)
    assert plain.sync.jobs.handle(handle.id).status() == plain.sync.handle(handle.id).status() == "queued"
    plain.sync.queues.pause("default")
    assert plain.sync.jobs.why(handle.id)["reason"] == "PAUSED"
    assert plain.sync.jobs.cancel(handle.id).status == "cancelled"
    again = plain.sync.jobs.requeue(handle.id, reason="after all")
    assert [job.id for job in plain.sync.jobs.list(limit=1)] == [again.id]
    assert plain.sync.approvals() == []
    events = plain.sync.events(follow=False)
    assert next(events)["job_id"] == handle.id
    events.close()  # type: ignore[attr-defined]
