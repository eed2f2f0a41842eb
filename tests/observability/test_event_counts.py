"""What the logs add up to: equal to the log's own numbers, whoever counts, however often, whatever is deleted."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from engine.acts import LONG, NAMES, PERMANENT, claim, refused, retryable, submit
from engine.clock import FakeClock
from engine.stores import Place, make_engine

from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.engine.metrics.alerts import readings
from detent.engine.metrics.event_counts import EVENTS, NOTES, Follower
from detent.ports.listing import Filter

pytestmark = pytest.mark.anyio


async def busy(engine: Engine, clock: FakeClock, jobs: int = 3) -> None:
    """Jobs of every contract that succeed, fail, are retried, refused and lost."""
    for contract in NAMES:
        for number in range(jobs):
            await submit(engine, contract, f"type-{number % 2}", queue=f"q-{number % 2}", tenant_id=f"t{number}")
    for outcome in (Succeeded("1"), PERMANENT, None):
        clock.advance(LONG / 10)
        for job in await claim(engine, jobs * 2):
            if outcome is not None:
                await engine.settle(job.id, job.token, outcome if outcome is PERMANENT else retryable(job.contract))
    clock.advance(LONG)
    await engine.expire()
    job = await submit(engine, "gate-b2")
    await refused(engine.transition(job.id, "succeeded", actor="ann"), "WF_STATE_TRANSITION_INVALID")


async def logged(engine: Engine) -> Counter[tuple[str, ...]]:
    """The log's own numbers, read past the tally."""

    jobs = await _all_jobs(engine)

    async def act(tx: Any) -> Counter[tuple[str, ...]]:
        found: Counter[tuple[str, ...]] = Counter()
        for job in jobs:
            for event in await tx.events(job.id):
                found[job.contract, job.queue, job.job_type, event.source or "", event.event, event.target] += 1
            for note in await tx.notes(job.id):
                found["", "", "", "", note.name, ""] += 1
        return found

    return await engine.store.read(act)


async def _all_jobs(engine: Engine) -> list[Any]:
    return await engine.jobs(Filter(limit=10_000))


async def counted(engine: Engine) -> Counter[tuple[str, ...]]:
    found = await engine.store.read(lambda tx: readings(engine, tx))
    sums: Counter[tuple[str, ...]] = Counter()
    for (log, key), number in found.sums.items():
        if log == EVENTS:
            sums[(*found.group(key), key.source, key.event, key.target)] += number
        elif log == NOTES:
            sums["", "", "", "", key.event, ""] += number
    return sums


async def test_the_sums_are_the_logs(engine: Engine, clock: FakeClock) -> None:
    await busy(engine, clock)
    follower = Follower(engine)
    assert await follower.catch_up()
    assert await counted(engine) == await logged(engine)
    await busy(engine, clock)
    assert await follower.catch_up()
    assert await follower.catch_up()
    assert await counted(engine) == await logged(engine)


async def test_after_a_restart_they_go_on_where_they_were(place: Place, clock: FakeClock, engine: Engine) -> None:
    await busy(engine, clock)
    await Follower(engine).catch_up(1)
    await busy(engine, clock)
    other = make_engine(place, clock)
    await other.open()
    try:
        assert await Follower(other).catch_up()
        assert await counted(other) == await logged(other)
    finally:
        await other.close()


async def test_several_who_count_at_once_count_once(place: Place, clock: FakeClock, engine: Engine) -> None:
    others = [make_engine(place, clock) for _ in range(3)]
    for other in others:
        await other.open()
    try:
        for _ in range(3):
            await busy(engine, clock, 1)
            await asyncio.gather(*(Follower(one).catch_up() for one in (engine, *others)))
        await Follower(engine).catch_up()
        assert await counted(engine) == await logged(engine)
    finally:
        for other in others:
            await other.close()


async def test_what_is_deleted_before_it_was_counted_is_counted_as_it_goes(engine: Engine, clock: FakeClock) -> None:
    await busy(engine, clock)
    await Follower(engine).catch_up()
    await busy(engine, clock)
    before = await logged(engine)
    clock.advance(LONG)
    assert (await engine.prune(0)).jobs > 0
    left = await logged(engine)
    await Follower(engine).catch_up()
    assert await counted(engine) == before
    assert sum(left.values()) < sum(before.values())


async def test_a_log_that_was_emptied_is_counted_from_its_new_start(engine: Engine, clock: FakeClock) -> None:
    """SQLite gives a rowid again when the last rows are gone."""
    for _ in range(2):
        job = await submit(engine)
        held = (await claim(engine))[0]
        await engine.settle(job.id, held.token, Succeeded(None))
        await Follower(engine).catch_up()
        clock.advance(LONG)
        assert (await engine.prune(0, lap_seconds=0)).jobs == 1
    job = await submit(engine)
    await Follower(engine).catch_up()
    sums = await counted(engine)
    assert {event: n for (_, _, _, _, event, _), n in sums.items()} == {
        "job.created": 3,
        "job.claimed": 2,
        "job.succeeded": 2,
    }


async def test_standing_is_what_the_rows_say(engine: Engine, clock: FakeClock) -> None:
    await busy(engine, clock)
    await Follower(engine).catch_up()
    found = await engine.store.read(lambda tx: readings(engine, tx))
    rows = Counter(
        ((job.contract, job.queue, job.job_type), job.status)
        for job in await _all_jobs(engine)
        if job.finished_at is None
    )
    assert {key: n for key, n in found.standing().items() if n} == rows


async def test_old_moments_are_not_kept(engine: Engine, clock: FakeClock) -> None:
    await busy(engine, clock)
    clock.advance(LONG)
    await Follower(engine).catch_up()
    assert not await engine.store.read(lambda tx: tx.query("tally_slots", since=0))


async def test_the_few_kinds_of_a_full_load_are_counted_without_sorting(engine: Engine, clock: FakeClock) -> None:
    follower = Follower(engine)
    for number in range(4):
        for _ in range(5):
            await submit(engine)
        for job in await claim(engine, 5):
            await engine.settle(job.id, job.token, Succeeded(None))
        if number == 2:
            await submit(engine, "gate-b2", "rare")  # a kind nobody has seen yet
        await follower.catch_up()
        assert await counted(engine) == await logged(engine)
    slow = follower._hot
    await submit(engine)
    await follower.catch_up()
    assert follower._hot is slow, "what was known already needed no other look"
    assert await counted(engine) == await logged(engine)
