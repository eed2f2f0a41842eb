"""Limits, weights, priorities in turn and deadlines, over every store: what may begin, and what may not."""

from collections import Counter
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.job import Failure
from detent.core.limits import JobKind
from detent.core.outcome import Failed, Succeeded
from detent.engine import Engine, Submission
from detent.ports.claims import Claimed
from detent.stores.lanes import LOW_PRIORITY_INTERVAL
from support.acts import LEASE_SECONDS, claim, events_of, own_id, refused, refused_untouched, submit
from support.clock import FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio


async def fill(engine: Engine, number: int, **fields: Any) -> None:
    await engine.jobs.submit_many([Submission("mail", **fields) for _ in range(number)])


async def end(engine: Engine, *held: Claimed) -> None:
    for one in held:
        await engine.settle(one.id, one.token, Succeeded(None))


def by(claimed: list[Claimed], field: str) -> dict[str, int]:
    return dict(Counter(getattr(one, field) for one in claimed))


async def test_no_more_run_at_once_than_the_limit_says(engine: Engine) -> None:
    await fill(engine, 20, queue="mail")
    await fill(engine, 20, queue="other")
    await engine.limits.set(Scope("ann"), queue="mail", concurrency=5)
    first = await claim(engine, 30)
    assert by(first, "queue") == {"mail": 5, "other": 20}
    assert await claim(engine, 30) == []
    await end(engine, *[one for one in first if one.queue == "mail"][:2])
    assert by(await claim(engine, 30), "queue") == {"mail": 2}


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ({"queue": "a"}, 3 + 20),
        ({"job_type": "mail"}, 3),
        ({"job_type": "other"}, 40),
        ({"tenant": "x"}, 3 + 20),
        ({"queue": "a", "tenant": "x"}, 3 + 30),
        ({"per": "tenant"}, 3 + 3),
        ({"per": "queue"}, 3 + 3),
        ({"per": "type"}, 3),
        ({"queue": "a", "per": "tenant"}, 3 + 3 + 20),
    ],
    ids=str,
)
async def test_a_limit_counts_what_it_names(engine: Engine, limit: dict[str, Any], expected: int) -> None:
    for queue in ("a", "b"):
        for tenant in ("x", "y"):
            await fill(engine, 10, queue=queue, tenant_id=tenant)
    await engine.limits.set(Scope("ann"), **limit, concurrency=3)
    found = await claim(engine, 100)
    assert len(found) == expected
    per = {"tenant": "tenant_id", "queue": "queue"}.get(limit.get("per", ""), "contract")
    named = {"queue": limit.get("queue"), "tenant_id": limit.get("tenant")}
    bounded = [one for one in found if all(name in (None, getattr(one, key)) for key, name in named.items())]
    if expected < 40:
        assert set(by(bounded, per).values()) == {3}


async def test_keys_are_counted_one_by_one_and_are_a_tenants_own(engine: Engine) -> None:
    for tenant in ("x", "y"):
        for key in ("k1", "k2", ""):
            await fill(engine, 5, tenant_id=tenant, limit_key=key)
    await engine.limits.set(Scope("ann"), per="key", concurrency=2)
    found = await claim(engine, 100)
    assert len(found) == 2 * 2 * 2 + 2 * 5, "two of each key of each tenant, and everything without a key"
    await engine.limits.remove(Scope("ann"), per="key")
    await engine.limits.set(Scope("ann"), key="k1", concurrency=5)
    assert len(await claim(engine, 100)) == 1 + 2 * 3, "k1 has four held by both tenants together, k2 is free"


async def test_no_window_of_the_period_holds_more_than_the_rate(engine: Engine, clock: FakeClock) -> None:
    await fill(engine, 60, queue="mail")
    await engine.limits.set(Scope("ann"), queue="mail", rate=(10, 60))
    moments: list[int] = []
    for step in range(40):
        held = await claim(engine, 3)
        moments += [clock.now()] * len(held)
        await end(engine, *held)
        clock.advance(7 + step % 3)
    assert len(moments) >= 50, "and it is not wasted either"
    for start in moments:
        assert sum(start <= at < start + 60_000_000 for at in moments) <= 10


async def test_the_worker_is_told_when_a_rate_opens(engine: Engine, clock: FakeClock) -> None:
    await fill(engine, 5, queue="mail")
    await engine.limits.set(Scope("ann"), queue="mail", rate=(2, 10))
    began = clock.now()
    assert len(await claim(engine, 5)) == 2
    limits = engine.store.claim_limits
    assert (limits.held_back, limits.opens_at) == (True, began + 10_000_000)
    clock.advance(9.999)
    assert await claim(engine, 5) == []
    clock.advance(0.001)
    assert len(await claim(engine, 5)) == 2


async def test_a_lost_worker_frees_its_slot_when_its_lease_is_over(engine: Engine, clock: FakeClock) -> None:
    await fill(engine, 4, queue="mail")
    await engine.limits.set(Scope("ann"), queue="mail", concurrency=1)
    (lost,) = await claim(engine, 4)
    assert await claim(engine, 4) == []
    clock.advance(LEASE_SECONDS)
    assert await claim(engine, 4) == [], "nobody has taken it from its worker yet"
    assert [job.id for job in await engine.expire()] == [lost.id]
    assert len(await claim(engine, 4)) == 1


async def test_a_retry_and_a_wait_free_the_slot_too(engine: Engine, clock: FakeClock) -> None:
    await fill(engine, 2, queue="mail")
    await engine.limits.set(Scope("ann"), queue="mail", concurrency=1)
    (one,) = await claim(engine, 2)
    await engine.settle(one.id, one.token, Failed(Failure("BOOM", "again")))
    (other,) = await claim(engine, 2)
    assert other.id != one.id
    clock.advance(60)
    assert await claim(engine, 2) == []


async def test_several_limits_hold_together(engine: Engine) -> None:
    for tenant in ("x", "y"):
        await fill(engine, 20, queue="mail", tenant_id=tenant)
    await engine.limits.set(Scope("ann"), queue="mail", concurrency=7)
    await engine.limits.set(Scope("ann"), per="tenant", concurrency=4)
    await engine.limits.set(Scope("ann"), queue="mail", tenant="x", rate=(3, 60))
    assert by(await claim(engine, 50), "tenant_id") == {"x": 3, "y": 4}


async def test_limits_of_one_process_hold_for_another(engine: Engine, place: Place, clock: FakeClock) -> None:
    other = make_engine(place, clock)
    await other.open()
    try:
        await fill(engine, 10, queue="mail")
        assert len(await claim(other, 1)) == 1
        await engine.limits.set(Scope("ann"), queue="mail", concurrency=3)
        assert len(await claim(other, 10, worker="w2")) == 2
        assert await claim(engine, 10) == []
        await other.limits.set(Scope("bo"), queue="mail", concurrency=6)
        assert len(await claim(engine, 10)) == 3
        await other.limits.remove(Scope("bo"), queue="mail")
        assert len(await claim(engine, 10)) == 4
    finally:
        await other.close()


async def test_higher_priorities_go_first_under_limits_too(engine: Engine) -> None:
    await fill(engine, 5, queue="mail", priority=-5)
    await fill(engine, 5, queue="mail", priority=5)
    await engine.limits.set(Scope("ann"), queue="mail", concurrency=6)
    found = await claim(engine, 10)
    jobs = [await engine.jobs.get(one.id) for one in found]
    assert [job.priority for job in jobs] == [5] * 5 + [-5]


@pytest.mark.parametrize("limited", [False, True], ids=["plain", "limited"])
async def test_no_priority_waits_longer_than_its_turn(engine: Engine, limited: bool) -> None:
    """Whatever comes in above it: after LOW_PRIORITY_INTERVAL claims for each priority in use, a job has begun."""
    priorities = (90, 0, -90)
    low = {(await submit(engine, priority=priority)).id for priority in priorities[1:]}
    if limited:
        await engine.limits.set(Scope("ann"), queue="nobody", concurrency=1)
    for _ in range(LOW_PRIORITY_INTERVAL * len(priorities)):
        await fill(engine, 4, priority=priorities[0])
        low -= {one.id for one in await claim(engine, 4)}
        if not low:
            return
    raise AssertionError(f"{len(low)} jobs of lower priority have not begun")


async def test_tenants_share_a_claim_by_their_weight(engine: Engine) -> None:
    for tenant in ("x", "y", "z"):
        await fill(engine, 100, tenant_id=tenant)
    await engine.limits.set_quota("x", Scope("ann"), weight=6)
    await engine.limits.set_quota("y", Scope("ann"), weight=3)
    assert by(await claim(engine, 50), "tenant_id") == {"x": 30, "y": 15, "z": 5}


async def test_a_big_tenant_delays_another_by_no_more_than_one_batch(engine: Engine) -> None:
    await fill(engine, 500, tenant_id="big")
    for weight in (1, 50):
        await engine.limits.set_quota("big", Scope("ann"), weight=weight)
        await claim(engine, 20)
        small = await submit(engine, tenant_id="small")
        assert small.id in {one.id for one in await claim(engine, 20)}, weight


async def test_a_job_never_begins_after_its_deadline(engine: Engine, clock: FakeClock) -> None:
    late = await submit(engine, deadline=10.0)
    plain = await submit(engine)
    clock.advance(10)
    assert [one.id for one in await claim(engine)] == [plain.id]
    assert [job.id for job in await engine.wake()] == [late.id]
    ended = await engine.jobs.get(late.id)
    assert (ended.status, ended.error_code) == ("cancelled", "DEADLINE_EXCEEDED")
    assert [event.event for event in await events_of(engine, late.id)][-1] == "job.cancelled"


async def test_before_its_deadline_a_job_begins_and_may_take_its_time(engine: Engine, clock: FakeClock) -> None:
    job = await submit(engine, deadline=10.0)
    clock.advance(9.999)
    (held,) = await claim(engine)
    clock.advance(5)
    assert await engine.wake() == []
    await end(engine, held)
    assert (await engine.jobs.get(job.id)).status == "succeeded"


async def test_a_retry_does_not_begin_after_the_deadline(engine: Engine, clock: FakeClock) -> None:
    job = await submit(engine, deadline=10.0)
    (held,) = await claim(engine)
    clock.advance(11)
    await engine.settle(held.id, held.token, Failed(Failure("BOOM", "again")))
    clock.advance(60)
    assert await claim(engine) == []
    await engine.wake()
    assert (await engine.jobs.get(job.id)).error_code == "DEADLINE_EXCEEDED"


@pytest.mark.parametrize("contract", ["standard", "p3c", "men"])
async def test_a_scheduled_job_ends_at_its_deadline(engine: Engine, clock: FakeClock, contract: str) -> None:
    job = await submit(engine, contract, delay=3600.0, deadline=10.0)
    clock.advance(10)
    await engine.wake()
    ended = await engine.jobs.get(job.id)
    assert (ended.phase, ended.error_code) == ("final", "DEADLINE_EXCEEDED")


@pytest.mark.parametrize("contract", ["gate-b2", "streams", "formal"])
async def test_contracts_that_cannot_end_it_take_no_deadline(engine: Engine, place: Place, contract: str) -> None:
    await refused_untouched(place, submit(engine, contract, deadline=10.0), "DEADLINE_UNSUPPORTED", 422)


@pytest.mark.parametrize(
    ("deadline", "code"),
    [
        (0, "DEADLINE_INVALID"),
        (-1.0, "DEADLINE_INVALID"),
        (True, "DEADLINE_INVALID"),
        ("soon", "TIME_INVALID"),
        ("2020-01-01T00:00:00Z", "DEADLINE_PASSED"),
    ],
)
async def test_a_bad_deadline_is_refused(engine: Engine, place: Place, deadline: Any, code: str) -> None:
    await refused_untouched(place, submit(engine, deadline=deadline), code, 422)


@pytest.mark.parametrize(
    "limit_options",
    [
        {},
        {"concurrency": 0},
        {"concurrency": -1},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"rate": (0, 60)},
        {"rate": (5, 0)},
        {"rate": 5},
        {"rate": ("a", "b")},
        {"concurrency": 1, "per": "moon"},
        {"concurrency": 1, "queue": " "},
        {"concurrency": 1, "queue": "a\x1fb"},
    ],
    ids=str,
)
async def test_a_bad_limit_is_refused(engine: Engine, place: Place, limit_options: dict[str, Any]) -> None:
    await refused_untouched(place, engine.limits.set(Scope("ann"), **limit_options), "LIMIT_INVALID", 422)


async def test_limits_are_listed_audited_and_removed(engine: Engine) -> None:
    await engine.limits.set(Scope("ann", "slow server"), queue="mail", concurrency=5)
    await engine.limits.set(Scope("bo"), queue="mail", concurrency=7, rate=(2, 1.5))
    (limit,) = await engine.limits.list()
    assert (limit.concurrency, limit.rate, limit.period) == (7, 2, 1_500_000)
    await engine.limits.remove(Scope("cy"), queue="mail")
    assert await engine.limits.list() == []
    entries = [entry for _, _, entry in await engine.audit()]
    acts = [(entry.actor, entry.act) for entry in entries]
    assert acts == [("cy", "limit.remove"), ("bo", "limit.set"), ("ann", "limit.set")]
    assert entries[0].data == limit.as_dict()
    await refused(engine.limits.remove(Scope("cy"), queue="mail"), "NO_LIMIT", 404)


async def test_why_names_the_limit(engine: Engine, clock: FakeClock) -> None:
    first = await submit(engine, queue="mail", id=own_id(1))
    second = await submit(engine, queue="mail", id=own_id(2))
    await engine.limits.set(Scope("ann"), queue="mail", concurrency=1)
    assert [one.id for one in await claim(engine, 1)] == [first.id]
    explanations = [await engine.jobs.why(second.id)]
    sentences = [explanations[0].sentence, *(also["sentence"] for also in explanations[0].details["also"])]
    assert any("queue mail is reached: 1 of 1 run" in sentence for sentence in sentences)


async def test_counts_nobody_asks_for_are_forgotten_and_nothing_is_exceeded(engine: Engine, clock: FakeClock) -> None:
    limit = await engine.limits.set(Scope("ann"), queue="mail", per="key", rate=(1, 3_600))
    await fill(engine, 2, queue="mail", limit_key="k")
    (first,) = await claim(engine, 5)
    await end(engine, first)
    subject = limit.subject(JobKind("mail", "mail", "default", "k"))

    async def counted() -> bool:
        return await engine.store.read(lambda tx: tx.queries.meter(limit, subject)) is not None

    clock.advance(1_800)
    await engine.prune(10**9)
    assert await counted() and await claim(engine, 5) == [], "its hour is not over, so it is remembered"
    clock.advance(3 * 86_400)
    await engine.prune(10**9)
    assert not await counted() and len(await claim(engine, 5)) == 1
