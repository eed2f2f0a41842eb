"""Waking: scheduled jobs at their moment, in bounded passes, whoever runs them."""

import pytest

from detent.core.contract.model import Phase
from detent.core.job import Wait
from detent.core.outcome import Waits
from detent.engine import Engine, Submission
from detent.ports.listing import Filter
from support.acts import claim, claim_one, events_of, path_of, running, submit
from support.clock import START, FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
SCHEDULED = [
    ("men", "pending", "ready", "task.ready"),
    ("standard", "scheduled", "queued", "job.due"),
]


@pytest.mark.parametrize(("contract", "blocked", "woken", "event"), SCHEDULED)
async def test_a_scheduled_job_wakes_at_its_moment(
    engine: Engine, clock: FakeClock, contract: str, blocked: str, woken: str, event: str
) -> None:
    job = await submit(engine, contract, scheduled_at="2026-02-25T12:01:00Z")
    assert (job.status, job.phase, job.due_at) == (blocked, Phase.BLOCKED, START + 60_000_000)
    clock.advance(59.999_999)
    assert await engine.wake() == []
    assert await claim(engine) == []
    clock.advance(0.000_001)
    assert await claim(engine) == [], "only a wake makes it claimable"
    (after,) = await engine.wake()
    assert (after.id, after.status, after.due_at) == (job.id, woken, clock.now())
    assert (await events_of(engine, job.id))[-1].event == event
    assert (await claim_one(engine)).id == job.id
    assert await engine.wake() == []


async def test_men_is_created_and_woken_in_one_commit_if_due(engine: Engine) -> None:
    job = await submit(engine, "men", scheduled_at="2026-02-25T12:00:00Z")
    assert await path_of(engine, job.id) == ["pending", "ready"]
    assert await engine.wake() == []


async def test_a_pass_is_bounded_and_takes_the_earliest(engine: Engine, clock: FakeClock) -> None:
    submitted = await engine.jobs.submit_many([Submission("mail", delay=60 - n) for n in range(5)])
    clock.advance(60)
    woken = [[job.id for job in await engine.wake(limit=2)] for _ in range(4)]
    ids = [m.job.id for m in reversed(submitted)]
    assert [set(w) for w in woken] == [set(ids[:2]), set(ids[2:4]), set(ids[4:]), set()]


async def test_jobs_held_for_approval_are_not_woken_by_time(engine: Engine, clock: FakeClock) -> None:
    await submit(engine, "standard", hold=True)
    await submit(engine, "streams", hold=True)
    clock.advance(10**9)
    assert await engine.wake() == []


async def test_waking_nothing_writes_nothing(engine: Engine, place: Place) -> None:
    await submit(engine, delay=60)
    before = place.dump()
    assert await engine.wake() == []
    assert await engine.expire() == []
    assert place.dump() == before


async def test_the_store_knows_when_something_comes_due(engine: Engine) -> None:
    async def next_due() -> int | None:
        return await engine.store.read(lambda tx: tx.due.next_due())

    assert await next_due() is None
    await submit(engine, "standard", delay=90)
    assert await next_due() == START + 90_000_000
    await submit(engine, "p3c", delay=60)
    assert await next_due() == START + 60_000_000


async def test_the_status_that_a_long_wait_is_shown_as_can_be_listed(engine: Engine) -> None:
    short, long = [await running(engine, "formal") for _ in range(2)]
    for job, park in ((short, False), (long, True)):
        await engine.settle(job.id, job.token, Waits(Wait("answer", park=park)))
    for filter, expected in (
        (Filter(status="Parked"), [long.id]),
        (Filter(status="Parked", contract="formal"), [long.id]),
        (Filter(status="Parked", contract="standard"), []),
        (Filter(status="Waiting"), [long.id, short.id]),
    ):
        page, _ = await engine.jobs.page(filter)
        assert [job.id for job in page] == [job.id for job in await engine.jobs.list(filter)] == expected
