"""Signals and waits: the first wins, an early one is kept, a repeated one is no news, an ended job takes none."""

import json

import pytest

from detent.core.access import Scope
from detent.core.job import Signal, Wait
from detent.core.outcome import Succeeded, Waits
from detent.core.times import SECOND
from detent.engine import Engine
from detent.proof.verify.verify import verify
from support.acts import (
    ROUTES,
    claim,
    claim_one,
    events_of,
    note_names,
    path_of,
    reach,
    refused_untouched,
    running,
    submit,
)
from support.clock import START, FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
WAITING = [("formal", "Waiting", "Queued"), ("standard", "waiting", "queued")]


async def kept(engine: Engine, job_id: str, name: str = "answer") -> tuple[object, str | None, bool] | None:
    signal = await engine.store.read(lambda tx: tx.signals.signal(job_id, name))
    return signal and (json.loads(signal.data), signal.actor, signal.timed_out)


@pytest.mark.parametrize(("contract", "waiting", "woken"), WAITING)
async def test_a_signal_wakes_the_job_that_waits_for_it(
    engine: Engine, clock: FakeClock, contract: str, waiting: str, woken: str
) -> None:
    job = await reach(engine, clock, contract, waiting)
    after, news = await engine.jobs.signal(job.id, "answer", Scope("ann"), {"n": 1})
    assert (after.status, news) == (woken, True)
    assert (after.wait_name, after.wait_kind, after.due_at) == (None, None, clock.now())
    assert await kept(engine, job.id) == ({"n": 1}, "ann", False)
    event = (await events_of(engine, job.id))[-1]
    assert (event.actor, (event.data or {})["reason"]) == ("ann", "signalled")
    assert "signal.received" in await note_names(engine, job.id)


@pytest.mark.parametrize(("contract", "waiting", "woken"), WAITING)
async def test_an_early_signal_is_kept_and_ends_the_wait_in_its_commit(
    engine: Engine, place: Place, contract: str, waiting: str, woken: str
) -> None:
    job = await submit(engine, contract)
    assert (await engine.jobs.signal(job.id, "answer", Scope("test"), 7))[1]
    held = await claim_one(engine)
    after = await engine.settle(held.id, held.token, Waits(Wait("answer", timeout=1_000_000)))
    assert (after.status, after.due_at) == (woken, START)
    assert (await path_of(engine, job.id))[-2:] == [waiting, woken]
    assert (await claim_one(engine)).id == job.id


async def test_asking_again_for_what_was_answered_does_not_sleep(engine: Engine, clock: FakeClock) -> None:
    job = await reach(engine, clock, "formal", "Waiting")
    await engine.jobs.signal(job.id, "answer", Scope("test"), 1)
    held = await claim_one(engine)
    assert (await engine.settle(held.id, held.token, Waits(Wait("answer")))).status == "Queued"


@pytest.mark.parametrize("contract", ["formal", "standard"])
async def test_the_first_signal_wins_and_the_next_writes_nothing(
    engine: Engine, place: Place, clock: FakeClock, contract: str
) -> None:
    job = await submit(engine, contract)
    await engine.jobs.signal(job.id, "answer", Scope("ann"), "first")
    before = place.dump()
    for _ in range(2):
        after, news = await engine.jobs.signal(job.id, "answer", Scope("bob"), "second")
        assert (after.id, news) == (job.id, False)
    assert place.dump() == before
    assert await kept(engine, job.id) == ("first", "ann", False)


async def test_a_repeated_signal_to_an_ended_job_is_still_no_error(engine: Engine, place: Place) -> None:
    held = await running(engine, "formal")
    await engine.jobs.signal(held.id, "answer", Scope("test"), 1)
    await engine.settle(held.id, held.token, Succeeded())
    before = place.dump()
    assert not (await engine.jobs.signal(held.id, "answer", Scope("test"), 1))[1]
    assert place.dump() == before


@pytest.mark.parametrize(
    ("contract", "status"),
    [
        (c, s)
        for c in ("formal", "standard")
        for s in ROUTES[c]
        if s.lower() in ("completed", "succeeded", "failed", "cancelled")
    ],
)
async def test_an_ended_job_takes_no_new_signal(
    engine: Engine, place: Place, clock: FakeClock, contract: str, status: str
) -> None:
    job = await reach(engine, clock, contract, status)
    await refused_untouched(place, engine.jobs.signal(job.id, "answer", Scope("test")), "JOB_FINAL", 409)


async def test_formal_refuses_another_key_while_blocked(engine: Engine, place: Place, clock: FakeClock) -> None:
    job = await reach(engine, clock, "formal", "Waiting")
    error = await refused_untouched(
        place, engine.jobs.signal(job.id, "other", Scope("test")), "SIGNAL_KEY_MISMATCH", 400
    )
    assert "answer" in error.message


async def test_standard_keeps_another_key_while_blocked(engine: Engine, clock: FakeClock) -> None:
    job = await reach(engine, clock, "standard", "waiting")
    after, news = await engine.jobs.signal(job.id, "other", Scope("test"), 5)
    assert (after.status, news) == ("waiting", True)
    assert await kept(engine, job.id, "other") == (5, "test", False)


@pytest.mark.parametrize("status", ["Queued", "Running"])
async def test_formal_takes_any_key_while_not_blocked(engine: Engine, clock: FakeClock, status: str) -> None:
    job = await reach(engine, clock, "formal", status)
    assert (await engine.jobs.signal(job.id, "other", Scope("test")))[1]
    assert (await engine.jobs.get(job.id)).status == status


@pytest.mark.parametrize("contract", ["gate-b2", "men", "p3c", "streams"])
async def test_a_contract_without_waits_takes_no_signal(engine: Engine, place: Place, contract: str) -> None:
    job = await submit(engine, contract)
    await refused_untouched(place, engine.jobs.signal(job.id, "answer", Scope("test")), "CONTRACT_LACKS_MOVE", 422)


async def test_kept_signals_are_bounded(engine: Engine, place: Place) -> None:
    job = await submit(engine)
    for number in range(100):
        await engine.jobs.signal(job.id, f"s{number}", Scope("test"))
    await refused_untouched(place, engine.jobs.signal(job.id, "one more", Scope("test")), "SIGNAL_LIMIT", 409)
    assert not (await engine.jobs.signal(job.id, "s0", Scope("test")))[1]


@pytest.mark.parametrize(("contract", "waiting", "woken"), WAITING)
async def test_a_full_box_does_not_keep_a_waiting_job_asleep(
    engine: Engine, contract: str, waiting: str, woken: str
) -> None:
    """The limit is there against floods; the one signal the job waits for must still get through."""
    held = await running(engine, contract)
    for number in range(100):
        await engine.jobs.signal(held.id, f"s{number}", Scope("test"))
    await engine.settle(held.id, held.token, Waits(Wait("answer")))
    assert (await engine.jobs.signal(held.id, "answer", Scope("test")))[0].status == woken


@pytest.mark.parametrize(("contract", "waiting", "woken"), WAITING)
async def test_what_a_job_waits_for_stands_on_row_and_event(
    engine: Engine, contract: str, waiting: str, woken: str
) -> None:
    held = await running(engine, contract)
    job = await engine.settle(held.id, held.token, Waits(Wait("order-7", "webhook", 60_000_000)))
    assert (job.wait_name, job.wait_kind, job.due_at) == ("order-7", "webhook", START + 60_000_000)
    data = (await events_of(engine, job.id))[-1].data or {}
    assert (data["correlation_key"], data["wait_type"], data["park"]) == ("order-7", "webhook", False)


async def test_formal_shows_a_long_wait_as_parked(engine: Engine) -> None:
    held = await running(engine, "formal")
    job = await engine.settle(held.id, held.token, Waits(Wait("answer", park=True)))
    assert (job.status, engine.contract("formal").view(job)["state"]) == ("Waiting", "Parked")
    assert ((await events_of(engine, job.id))[-1].data or {})["park"] is True
    woken, _ = await engine.jobs.signal(job.id, "answer", Scope("test"))
    assert (woken.status, engine.contract("formal").view(woken)["state"]) == ("Queued", "Queued")


@pytest.mark.parametrize(("contract", "waiting", "woken"), WAITING)
async def test_a_wait_ends_at_its_timeout(
    engine: Engine, place: Place, clock: FakeClock, contract: str, waiting: str, woken: str
) -> None:
    held = await running(engine, contract)
    await engine.settle(held.id, held.token, Waits(Wait("answer", timeout=60_000_000)))
    clock.advance(59.9)
    assert await engine.wake() == []
    clock.advance(0.1)
    (job,) = await engine.wake()
    assert (job.status, job.failures) == (woken, 0)
    assert ((await events_of(engine, job.id))[-1].data or {})["reason"] == "timeout"
    assert await kept(engine, job.id) == (None, "detent", True)
    before = place.dump()
    assert not (await engine.jobs.signal(job.id, "answer", Scope("test"), "late"))[1]
    assert place.dump() == before


@pytest.mark.parametrize(("contract", "waiting", "woken"), WAITING)
async def test_a_wait_without_a_timeout_lasts(
    engine: Engine, clock: FakeClock, contract: str, waiting: str, woken: str
) -> None:
    await reach(engine, clock, contract, waiting)
    clock.advance(10**9)
    assert await engine.wake() == []
    assert await engine.expire() == []
    assert await claim(engine, reclaim=True) == []


async def missed(engine: Engine, clock: FakeClock, contract: str, waiting: str, timeout: int | None = None) -> str:
    """A job that waits although its signal is on record, as no act of the engine leaves one."""
    if timeout is None:
        job = await reach(engine, clock, contract, waiting)
    else:
        held = await running(engine, contract)
        job = await engine.settle(held.id, held.token, Waits(Wait("answer", timeout=timeout)))
    signal = Signal(job.id, "answer", '{"n": 1}', "ann", clock.now())
    await engine.store.write(lambda tx: tx.signals.add_signal(signal))
    return job.id


@pytest.mark.parametrize(("contract", "waiting", "woken"), WAITING)
async def test_a_sweep_wakes_a_job_whose_signal_is_on_record(
    engine: Engine, clock: FakeClock, contract: str, waiting: str, woken: str
) -> None:
    jobs = sorted([await missed(engine, clock, contract, waiting) for _ in range(3)])
    other = await reach(engine, clock, contract, waiting)
    early = await submit(engine, contract)
    await engine.jobs.signal(early.id, "answer", Scope("test"))
    found = (await verify(engine.store)).violations
    assert [(finding.rule, finding.job_id) for finding in found] == [("signal-missed", job_id) for job_id in jobs]
    first, position = await engine.wake_missed_signals(None, 2)
    rest, position = await engine.wake_missed_signals(position, 2)
    assert [job.id for job in (*first, *rest)] == jobs and {job.status for job in first} == {woken}
    assert await engine.wake_missed_signals(position, 2) == ([], None)
    assert (await verify(engine.store)).ok
    assert (await engine.jobs.get(other.id)).status == waiting and (await engine.jobs.get(early.id)).version == 1


async def test_the_same_signal_again_wakes_a_job_that_missed_it(engine: Engine, clock: FakeClock) -> None:
    job_id = await missed(engine, clock, "standard", "waiting")
    job, first = await engine.jobs.signal(job_id, "answer", Scope("bob"), {"n": 2})
    assert (job.status, first) == ("queued", False)
    assert await kept(engine, job_id) == ({"n": 1}, "ann", False), "the first signal wins"


async def test_a_timeout_does_not_replace_a_signal_on_record(engine: Engine, clock: FakeClock) -> None:
    job_id = await missed(engine, clock, "standard", "waiting", timeout=5 * SECOND)
    clock.advance(6)
    assert [job.id for job in await engine.wake()] == [job_id]
    assert await kept(engine, job_id) == ({"n": 1}, "ann", False)
    assert ((await events_of(engine, job_id))[-1].data or {})["reason"] == "signalled"
