"""SQLite has no clock of its own: when the system clock is set back, sleeps and leases keep their length."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from detent.core.outcome import Succeeded
from detent.core.times import SECOND
from detent.engine import Engine
from detent.stores.sqlite.store import SqliteStore
from detent.system.clock import SteadyClock
from support.acts import LEASE_SECONDS, claim, claim_one, refused, submit
from support.clock import START

pytestmark = pytest.mark.anyio
HOUR = 3_600


class Clocks:
    """A wall clock that can be set, beside a monotonic clock that cannot."""

    def __init__(self) -> None:
        self.wall, self.mono = START, 0.0

    def now(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def pass_time(self, seconds: float) -> None:
        self.wall += round(seconds * SECOND)
        self.mono += seconds

    def set_by(self, seconds: float) -> None:
        self.wall += round(seconds * SECOND)


@asynccontextmanager
async def engine_at(path: Path, clocks: Clocks) -> AsyncIterator[Engine]:
    engine = Engine(SqliteStore(str(path), clock=SteadyClock(clocks), inline=True, synchronous="OFF"))
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


def test_the_store_uses_it_by_default(tmp_path: Path) -> None:
    assert isinstance(SqliteStore(str(tmp_path / "jobs.db"))._clock, SteadyClock)


async def test_a_sleep_keeps_its_length(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks()
    async with engine_at(tmp_path / "jobs.db", clocks) as engine:
        sleeping = await submit(engine, delay=10)
        clocks.set_by(-HOUR)
        with caplog.at_level(logging.WARNING, "detent.clock"):
            clocks.pass_time(9.9)
            assert await engine.wake() == []
            clocks.pass_time(1.3)
            assert [job.id for job in await engine.wake()] == [sleeping.id], "after 11.2 s, not after an hour"
        assert caplog.text.count("set back") == 1, "one warning"


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_timeout_is_not_outlasted_by_a_clock_that_is_set(tmp_path: Path, hours: int) -> None:
    clocks = Clocks()
    async with engine_at(tmp_path / "jobs.db", clocks) as engine:
        await submit(engine, timeout_ms=5_000)
        held = await claim_one(engine)
        clocks.set_by(hours * HOUR)
        clocks.pass_time(6)
        await refused(engine.settle(held.id, held.token, Succeeded()), "LEASE_STALE", 409)
        clocks.pass_time(1.2)
        (job,) = await engine.expire()
        assert (job.status, job.error_code) == ("retrying", "JOB_TIMEOUT")


async def test_a_lease_keeps_its_length(tmp_path: Path) -> None:
    clocks = Clocks()
    async with engine_at(tmp_path / "jobs.db", clocks) as engine:
        await submit(engine)
        held = await claim_one(engine)
        clocks.set_by(-HOUR)
        clocks.pass_time(LEASE_SECONDS - 1)
        assert await engine.expire() == []
        clocks.pass_time(LEASE_SECONDS / 6)
        assert [job.id for job in await engine.expire()] == [held.id]


async def test_a_process_that_starts_later_joins_the_others(tmp_path: Path) -> None:
    """Its leases would be over for the others at once, and it would find sleeping jobs due an hour late."""
    clocks = Clocks()
    async with engine_at(tmp_path / "jobs.db", clocks) as old:
        await submit(old, delay=10)
        clocks.set_by(-HOUR)
        async with engine_at(tmp_path / "jobs.db", clocks) as new:
            await submit(new)
            await claim_one(new)
            assert await old.expire() == []
            clocks.pass_time(11.2)
            assert len(await new.wake()) == 1
            assert len(await claim(new)) == 1


def test_it_never_runs_backwards_and_agrees_again() -> None:
    clocks = Clocks()
    clock = SteadyClock(clocks)
    for step in (-0.5, -30, 20, -5):
        before = clock.now()
        clocks.set_by(step)
        assert clock.now() >= before
    clocks.set_by(HOUR)
    assert clock.now() == clocks.now(), "a step forward is followed at once"
    clocks.set_by(-60)
    for _ in range(620):
        clocks.pass_time(1)
        before = clock.now()
    assert clock.now() == clocks.now() >= before


def test_a_time_far_ahead_is_not_adopted() -> None:
    clocks = Clocks()
    clock = SteadyClock(clocks)
    clock.start_from(START + 400 * 24 * HOUR * SECOND)
    assert clock.now() == START
    clock.start_from(START - SECOND)
    assert clock.now() == START
