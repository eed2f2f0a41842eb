"""Quotas: what a tenant may leave with us, refused with a code when it is more, and never exceeded by a race."""

import asyncio

import pytest

from detent.core.access import Scope
from detent.core.errors import QuotaExceeded
from detent.core.outcome import Succeeded
from detent.engine import Engine, Submission
from support.acts import claim, refused_untouched, submit
from support.clock import FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio


async def test_a_full_backlog_takes_no_more_until_something_ends(engine: Engine, place: Place) -> None:
    await engine.limits.set_quota("acme", Scope("ann"), max_backlog=3)
    await engine.jobs.submit_many([Submission("mail", tenant_id="acme") for _ in range(2)])
    await submit(engine, tenant_id="acme", delay=60.0)
    error = await refused_untouched(place, submit(engine, tenant_id="acme"), "TENANT_BACKLOG_FULL", 429)
    assert error.retryable and error.extra["limit"] == 3
    await submit(engine, tenant_id="rival")
    (held, *_) = await claim(engine, 1)
    await refused_untouched(place, submit(engine, tenant_id="acme"), "TENANT_BACKLOG_FULL", 429)
    await engine.settle(held.id, held.token, Succeeded(None))
    await submit(engine, tenant_id="acme")


async def test_a_batch_is_taken_whole_or_not_at_all(engine: Engine, place: Place) -> None:
    await engine.limits.set_quota("acme", Scope("ann"), max_backlog=3)
    submissions = [Submission("mail", tenant_id="acme") for _ in range(4)]
    await refused_untouched(place, engine.jobs.submit_many(submissions), "TENANT_BACKLOG_FULL", 429)
    await engine.jobs.submit_many(submissions[:3])


async def test_a_hit_is_answered_even_if_nothing_more_fits(engine: Engine) -> None:
    await engine.limits.set_quota("acme", Scope("ann"), max_backlog=1)
    first = await submit(engine, tenant_id="acme", idempotency_key="k")
    again = await engine.jobs.submit(Submission("mail", tenant_id="acme", idempotency_key="k"))
    assert again.hit and again.job.id == first.id


async def test_payloads_have_a_size_of_their_own(engine: Engine, place: Place) -> None:
    await engine.limits.set_quota("acme", Scope("ann"), max_payload=20)
    big = submit(engine, tenant_id="acme", payload={"text": "x" * 30})
    await refused_untouched(place, big, "TENANT_PAYLOAD_TOO_LARGE", 422)
    await submit(engine, tenant_id="acme", payload={"text": "x"})
    await submit(engine, tenant_id="rival", payload={"text": "x" * 30})


async def test_submits_at_the_same_moment_do_not_exceed_it(engine: Engine, place: Place, clock: FakeClock) -> None:
    other = make_engine(place, clock)
    await other.open()
    try:
        await engine.limits.set_quota("acme", Scope("ann"), max_backlog=5)

        async def one(by: Engine) -> bool:
            try:
                await submit(by, tenant_id="acme")
            except QuotaExceeded:
                return False
            return True

        made = await asyncio.gather(*(one(by) for by in (engine, other) * 10))
        assert sum(made) == 5
    finally:
        await other.close()


async def test_another_process_hears_of_a_quota_within_a_second(engine: Engine, place: Place, clock: FakeClock) -> None:
    other = make_engine(place, clock)
    await other.open()
    try:
        await submit(other, tenant_id="acme")
        await engine.limits.set_quota("acme", Scope("ann"), max_backlog=1)
        clock.advance(1)
        await refused_untouched(place, submit(other, tenant_id="acme"), "TENANT_BACKLOG_FULL", 429)
        await engine.limits.remove_quota("acme", Scope("ann"))
        clock.advance(1)
        await submit(other, tenant_id="acme")
    finally:
        await other.close()
