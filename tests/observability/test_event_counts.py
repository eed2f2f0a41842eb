"""EventCounter: its sums equal the log, whichever process counts, however often, and after deletions."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.engine.metrics.alerts import read_inputs
from detent.engine.metrics.event_counts import EVENTS, NOTES, EventCounter
from detent.ports.listing import Filter
from support.acts import LONG, NAMES, PERMANENT, claim, refused, retryable, submit
from support.clock import FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio


async def run_many_jobs(engine: Engine, clock: FakeClock, jobs: int = 3) -> None:
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
    await refused(engine.jobs.transition(job.id, "succeeded", Scope("ann")), "WF_STATE_TRANSITION_INVALID")


async def logged(engine: Engine) -> Counter[tuple[str, ...]]:
    """Counts read from the log itself, without the counter."""

    jobs = await _all_jobs(engine)

    async def act(tx: Any) -> Counter[tuple[str, ...]]:
        counts: Counter[tuple[str, ...]] = Counter()
        for job in jobs:
            for event in await tx.log.events(job.id):
                counts[job.contract, job.queue, job.job_type, event.source or "", event.event, event.target] += 1
            for note in await tx.log.notes(job.id):
                counts["", "", "", "", note.name, ""] += 1
        return counts

    return await engine.store.read(act)


async def _all_jobs(engine: Engine) -> list[Any]:
    return await engine.jobs.list(Filter(limit=10_000))


async def counted(engine: Engine) -> Counter[tuple[str, ...]]:
    readings = await engine.store.read(lambda tx: read_inputs(engine, tx))
    sums: Counter[tuple[str, ...]] = Counter()
    for (log, key), number in readings.sums.items():
        if log == EVENTS:
            sums[(*readings.group(key), key.source, key.event, key.target)] += number
        elif log == NOTES:
            sums["", "", "", "", key.event, ""] += number
    return sums


async def test_the_sums_equal_the_log(engine: Engine, clock: FakeClock) -> None:
    await run_many_jobs(engine, clock)
    event_counter = EventCounter(engine)
    assert await event_counter.catch_up()
    assert await counted(engine) == await logged(engine)
    await run_many_jobs(engine, clock)
    assert await event_counter.catch_up()
    assert await event_counter.catch_up()
    assert await counted(engine) == await logged(engine)


async def test_after_a_restart_counting_continues(place: Place, clock: FakeClock, engine: Engine) -> None:
    await run_many_jobs(engine, clock)
    await EventCounter(engine).catch_up(1)
    await run_many_jobs(engine, clock)
    other = make_engine(place, clock)
    await other.open()
    try:
        assert await EventCounter(other).catch_up()
        assert await counted(other) == await logged(other)
    finally:
        await other.close()


async def test_concurrent_counters_count_once(place: Place, clock: FakeClock, engine: Engine) -> None:
    others = [make_engine(place, clock) for _ in range(3)]
    for other in others:
        await other.open()
    try:
        for _ in range(3):
            await run_many_jobs(engine, clock, 1)
            await asyncio.gather(*(EventCounter(process).catch_up() for process in (engine, *others)))
        await EventCounter(engine).catch_up()
        assert await counted(engine) == await logged(engine)
    finally:
        for other in others:
            await other.close()


async def test_events_are_counted_before_they_are_deleted(engine: Engine, clock: FakeClock) -> None:
    await run_many_jobs(engine, clock)
    await EventCounter(engine).catch_up()
    await run_many_jobs(engine, clock)
    before = await logged(engine)
    clock.advance(LONG)
    assert (await engine.prune(0)).jobs > 0
    left = await logged(engine)
    await EventCounter(engine).catch_up()
    assert await counted(engine) == before
    assert sum(left.values()) < sum(before.values())


async def test_a_log_that_was_emptied_is_counted_from_its_new_start(engine: Engine, clock: FakeClock) -> None:
    """SQLite reuses a rowid when the last rows were deleted."""
    for _ in range(2):
        job = await submit(engine)
        held = (await claim(engine))[0]
        await engine.settle(job.id, held.token, Succeeded(None))
        await EventCounter(engine).catch_up()
        clock.advance(LONG)
        assert (await engine.prune(0, lap_seconds=0)).jobs == 1
    job = await submit(engine)
    await EventCounter(engine).catch_up()
    sums = await counted(engine)
    assert {event: n for (_, _, _, _, event, _), n in sums.items()} == {
        "job.created": 3,
        "job.claimed": 2,
        "job.succeeded": 2,
    }


async def test_jobs_by_status_equals_the_rows(engine: Engine, clock: FakeClock) -> None:
    await run_many_jobs(engine, clock)
    await EventCounter(engine).catch_up()
    readings = await engine.store.read(lambda tx: read_inputs(engine, tx))
    rows = Counter(
        ((job.contract, job.queue, job.job_type), job.status)
        for job in await _all_jobs(engine)
        if job.finished_at is None
    )
    assert {key: n for key, n in readings.jobs_by_status().items() if n} == rows


async def test_old_moments_are_not_kept(engine: Engine, clock: FakeClock) -> None:
    await run_many_jobs(engine, clock)
    clock.advance(LONG)
    await EventCounter(engine).catch_up()
    assert not await engine.store.read(lambda tx: tx.event_counts.recent_counts(0))


async def test_frequent_kinds_are_counted_without_sorting(engine: Engine, clock: FakeClock) -> None:
    event_counter = EventCounter(engine)
    for number in range(4):
        for _ in range(5):
            await submit(engine)
        for job in await claim(engine, 5):
            await engine.settle(job.id, job.token, Succeeded(None))
        if number == 2:
            await submit(engine, "gate-b2", "rare")  # a kind that was not counted before
        await event_counter.catch_up()
        assert await counted(engine) == await logged(engine)
    slow = event_counter._frequent
    await submit(engine)
    await event_counter.catch_up()
    assert event_counter._frequent is slow, "no new kind, so the list of frequent kinds is kept"
    assert await counted(engine) == await logged(engine)
