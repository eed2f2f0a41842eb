"""The option backoff over every store: it decides when a retry is due, unless the contract freezes its retries."""

import asyncio
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.job import Failure
from detent.core.outcome import Failed
from detent.core.times import SECOND
from detent.engine import Engine
from detent.engine.schedules.request import ScheduleRequest
from support.acts import NAMES, PERMANENT, claim_one, refused, refused_noted, refused_untouched, running, submit
from support.clock import FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
FAILURE = Failed(Failure("TASK_EXECUTION_FAILED", "try again", "Boom"))
FREE = [name for name in NAMES if name != "gate-b2"]


async def delays(engine: Engine, clock: FakeClock, retries: int) -> list[float]:
    """Seconds until each retry of the only job is due."""
    waits = []
    for _ in range(retries):
        claimed = await claim_one(engine)
        job = await engine.settle(claimed.id, claimed.token, FAILURE)
        assert job.due_at is not None
        waits.append((job.due_at - clock.now()) / SECOND)
        clock.advance(waits[-1])
        await engine.wake()
    return waits


@pytest.mark.parametrize("contract", FREE)
async def test_a_list_has_one_delay_per_retry(engine: Engine, clock: FakeClock, contract: str) -> None:
    job = await submit(engine, contract, backoff="60,300,900", max_retries=4)
    assert (await engine.jobs.get(job.id)).backoff == "60,300,900"
    assert await delays(engine, clock, 4) == [60, 300, 900, 900], "the last one repeats"


async def test_exponential_delays_grow_to_their_cap(engine: Engine, clock: FakeClock) -> None:
    await submit(engine, backoff="base=0.5,factor=3,cap=10,jitter=0", max_retries=4)
    assert await delays(engine, clock, 4) == [0.5, 1.5, 4.5, 10]


async def test_jitter_is_a_part_of_the_delay(engine: Engine, clock: FakeClock) -> None:
    await submit(engine, backoff="base=100,factor=1,cap=100,jitter=0.1", max_retries=9)
    waits = await delays(engine, clock, 9)
    assert all(100 <= wait <= 110 for wait in waits) and len(set(waits)) > 3


async def test_requeues_and_schedules_keep_it(engine: Engine, clock: FakeClock) -> None:
    job = await running(engine, backoff="7")
    ended = await engine.settle(job.id, job.token, PERMANENT)
    assert ended.dlq_id is not None
    assert (await engine.dead_letters.requeue(ended.dlq_id, Scope("ann"))).job.backoff == "7"
    request = ScheduleRequest("tick", "tock", every="1m", backoff="1,2", contract="men")
    assert (await engine.schedules.add(request, Scope("ann"))).backoff == "1,2"
    clock.advance(61)
    (fired,) = (await engine.schedules.fire_due(10)).jobs
    assert (fired.backoff, fired.contract) == ("1,2", "men")


@pytest.mark.parametrize("value", ["", "-1", "1,", "a", "1e9", "base=1,base=2", "factor=2", "1 ,2", 5, [1, 2]])
async def test_another_form_is_refused(engine: Engine, place: Place, value: Any) -> None:
    await refused_untouched(place, submit(engine, backoff=value), "BACKOFF_INVALID", 422)


async def test_a_frozen_contract_refuses_it(engine: Engine, place: Place) -> None:
    await refused_untouched(place, submit(engine, "gate-b2", backoff="1"), "BACKOFF_FROZEN", 422)
    request = ScheduleRequest("tick", "tock", every="1m", backoff="1", contract="gate-b2")
    await refused_untouched(place, engine.schedules.add(request, Scope("ann")), "BACKOFF_FROZEN", 422)


async def test_a_frozen_contract_refuses_the_delay_of_a_failure(engine: Engine, clock: FakeClock) -> None:
    """The lease stays, so that the worker can settle the failure without the delay."""
    job = await running(engine, "gate-b2")
    for after in (0, 60 * SECOND):
        delayed = Failed(Failure("BOOM", "later", "Boom", True, after=after))
        await refused_noted(
            engine, job.id, engine.settle(job.id, job.token, delayed), "RETRY_DELAY_FROZEN", "settle.refused"
        )
    retried = await engine.settle(job.id, job.token, Failed(Failure("BOOM", "later", "Boom", True)))
    assert retried.status == "retrying" and retried.due_at is not None
    assert 1 * SECOND <= retried.due_at - clock.now() <= 1.3 * SECOND


async def test_one_bad_delay_does_not_hold_up_a_batch(engine: Engine) -> None:
    """Settlements are committed together; the one that is refused is refused alone."""
    jobs = [await running(engine, "gate-b2", job_type=f"mail{n}") for n in range(3)]
    delayed = Failed(Failure("BOOM", "later", "Boom", True, after=1))
    acts = [engine.settle(job.id, job.token, delayed if job is jobs[1] else FAILURE) for job in jobs]
    results = await asyncio.gather(*acts, return_exceptions=True)
    assert [getattr(result, "status", None) for result in results] == ["retrying", None, "retrying"]
    await refused(engine.settle(jobs[1].id, jobs[1].token, delayed), "RETRY_DELAY_FROZEN")
