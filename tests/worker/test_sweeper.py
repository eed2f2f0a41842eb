"""The sweeper: bounded passes, and the reclaim grace in which it expires no lease."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.errors import StoreUnavailable
from detent.core.job import Signal, Wait
from detent.core.outcome import Waits
from detent.core.times import SECOND, iso
from detent.engine import Engine, Submission
from detent.engine.schedules.request import ScheduleRequest
from detent.handler.lease import Reading
from detent.ports.listing import Filter
from detent.stores.sqlite.store import SqliteStore
from detent.system.clock import SystemClock
from detent.worker.reclaim_grace import ReclaimGrace
from detent.worker.sweeper import BATCH, Sweeper
from support.waiting import until

pytestmark = pytest.mark.anyio
LEASE = 10.0


class TwoClocks:
    """Wall and monotonic clocks that a test can set independently."""

    def __init__(self) -> None:
        self.wall = SystemClock().now()
        self.mono = 100.0

    def now(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def advance(self, seconds: float) -> None:
        self.wall += round(seconds * SECOND)
        self.mono += seconds


@pytest.fixture
def clock() -> TwoClocks:
    return TwoClocks()


@pytest.fixture
async def engine(tmp_path: Path, clock: TwoClocks) -> Any:
    engine = Engine(SqliteStore(str(tmp_path / "jobs.db"), clock=clock, synchronous="OFF"))
    await engine.open()
    yield engine
    await engine.close()


async def leased(engine: Engine, count: int = 1) -> None:
    await engine.jobs.submit_many([Submission("mail") for _ in range(count)])
    assert len(await engine.claim(engine.claim_request("w", count, LEASE))) == count


def advance_in_steps(clock: TwoClocks, sweeper: Sweeper, seconds: float) -> None:
    """Advance the clock while the process runs: each step is shorter than a lease."""
    for _ in range(round(seconds)):
        clock.advance(1.0)
        sweeper.reclaim_grace.check_clocks(Reading(clock.mono, clock.wall))


async def test_expires_in_bounded_passes(engine: Engine, clock: TwoClocks) -> None:
    sweeper = Sweeper(engine, clock, ReclaimGrace(LEASE))
    await leased(engine, 2 * BATCH + 50)
    assert await sweeper.sweep() > 0 and sweeper.expired == 0
    advance_in_steps(clock, sweeper, LEASE + 1)
    assert await sweeper.sweep() == 0.0, "a full pass is repeated at once"
    assert sweeper.expired == BATCH
    assert await sweeper.sweep() == 0.0
    assert await sweeper.sweep() > 0.0
    assert sweeper.expired == 2 * BATCH + 50


async def test_wakes_in_bounded_passes_and_sleeps_until_the_next(engine: Engine, clock: TwoClocks) -> None:
    sweeper = Sweeper(engine, clock, ReclaimGrace(LEASE), interval=0.5)
    await engine.jobs.submit_many([Submission("mail", delay=0.2) for _ in range(BATCH + 1)])
    await engine.jobs.submit_many([Submission("mail", delay=0.7)])
    assert await sweeper.sweep() == pytest.approx(0.2, abs=0.01)
    clock.advance(0.2)
    assert await sweeper.sweep() == 0.0 and sweeper.woken == BATCH
    assert await sweeper.sweep() == pytest.approx(0.5, abs=0.01) and sweeper.woken == BATCH + 1


async def test_sleeps_until_the_next_fire(engine: Engine, clock: TwoClocks) -> None:
    sweeper = Sweeper(engine, clock, ReclaimGrace(LEASE), interval=0.5)
    soon = iso(clock.wall + SECOND // 5)
    await engine.schedules.add(ScheduleRequest("soon", "mail", at=soon), Scope("ann"))
    assert await sweeper.sweep() == pytest.approx(0.2, abs=0.01) and sweeper.fired == 0
    clock.advance(0.2)
    assert await sweeper.sweep() == 0.5 and sweeper.fired == 1


async def test_two_sweepers_share_the_work(engine: Engine, clock: TwoClocks) -> None:
    first, second = Sweeper(engine, clock, ReclaimGrace(LEASE)), Sweeper(engine, clock, ReclaimGrace(LEASE))
    await leased(engine, 300)
    advance_in_steps(clock, first, LEASE + 1)
    second.reclaim_grace = first.reclaim_grace
    await asyncio.gather(*(sweeper.sweep() for sweeper in (first, second) for _ in range(3)))
    assert first.expired + second.expired == 300


@pytest.mark.parametrize("jump", [LEASE * 3, -LEASE * 3], ids=["suspended", "set back"])
async def test_waits_a_lease_after_the_clocks_drift_apart(engine: Engine, clock: TwoClocks, jump: float) -> None:
    sweeper = Sweeper(engine, clock, ReclaimGrace(LEASE))
    await leased(engine)
    advance_in_steps(clock, sweeper, LEASE * 4)
    clock.wall += round(jump * SECOND)
    await sweeper.sweep()
    assert sweeper.expired == 0
    advance_in_steps(clock, sweeper, LEASE - 1)
    await sweeper.sweep()
    assert sweeper.expired == 0, "one lease has not passed"
    advance_in_steps(clock, sweeper, 1)
    await sweeper.sweep()
    assert sweeper.expired == 1


async def test_waits_a_lease_if_the_process_did_not_run_for_one(engine: Engine, clock: TwoClocks) -> None:
    """A stopped process or a paused virtual machine: the holders of the leases may have been stopped too."""
    sweeper = Sweeper(engine, clock, ReclaimGrace(LEASE))
    await leased(engine)
    clock.advance(LEASE * 3)
    await sweeper.sweep()
    assert sweeper.expired == 0
    advance_in_steps(clock, sweeper, LEASE)
    await sweeper.sweep()
    assert sweeper.expired == 1


async def test_small_differences_of_the_clocks_are_ignored(engine: Engine, clock: TwoClocks) -> None:
    sweeper = Sweeper(engine, clock, ReclaimGrace(LEASE))
    await leased(engine)
    advance_in_steps(clock, sweeper, LEASE)
    clock.wall += round(0.9 * SECOND)
    await sweeper.sweep()
    assert sweeper.expired == 1


async def test_waits_a_lease_after_the_start_of_the_database(
    engine: Engine, clock: TwoClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    uptime = LEASE - 1

    async def young() -> float:
        return uptime

    monkeypatch.setattr(engine.store, "uptime", young)
    sweeper = Sweeper(engine, clock, ReclaimGrace(LEASE))
    await sweeper.check_uptime()
    assert sweeper.reclaim_grace.until == clock.mono + LEASE
    uptime = LEASE + 1
    old = Sweeper(engine, clock, ReclaimGrace(LEASE))
    await old.check_uptime()
    assert old.reclaim_grace.over(clock.mono)


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), OSError("gone")])
async def test_waits_a_lease_after_a_store_error_and_continues(
    engine: Engine, clock: TwoClocks, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await leased(engine)
    await engine.jobs.submit(Submission("mail", delay=0.1))
    calls = 0
    honest = engine.expire

    async def failing(limit: int) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise error
        return await honest(limit)

    monkeypatch.setattr(engine, "expire", failing)
    sweeper = Sweeper(engine, clock, ReclaimGrace(LEASE), interval=0.01)
    task = asyncio.create_task(sweeper.run())
    await until(lambda: sweeper.reclaim_grace.until == clock.mono + LEASE)
    clock.wall += 11 * SECOND
    sweeper.reclaim_grace.last = Reading(clock.mono, clock.wall)
    await until(lambda: sweeper.woken == 1)
    assert sweeper.expired == 0 and calls == 1, "jobs are woken, leases are not expired"
    clock.mono += LEASE / 2
    sweeper.reclaim_grace.last = Reading(clock.mono, clock.wall)
    clock.mono += LEASE / 2
    sweeper.reclaim_grace.last = Reading(clock.mono, clock.wall)
    await until(lambda: sweeper.expired == 1)
    task.cancel()


async def test_jobs_that_cannot_be_woken_are_checked_less_and_less_often(engine: Engine, clock: TwoClocks) -> None:
    """A job of a contract that this process lacks stays due; the pause grows with its age."""
    sweeper = Sweeper(engine, clock, ReclaimGrace(LEASE), interval=0.5)
    await engine.jobs.submit(Submission("mail", delay=0.1))
    engine.contracts = {name: c for name, c in engine.contracts.items() if name != "standard"}
    clock.advance(0.2)
    assert 0.05 < await sweeper.sweep() < 0.2
    clock.advance(5)
    assert await sweeper.sweep() == 0.5


async def test_the_grace_starts_when_the_store_answers_again() -> None:
    """However long the outage: other workers reconnect no sooner than this one."""
    reclaim_grace = ReclaimGrace(LEASE)
    reclaim_grace.store_lost()
    assert not reclaim_grace.over(10 * LEASE)
    reclaim_grace.store_answered(10 * LEASE)
    reclaim_grace.store_answered(10 * LEASE)
    assert not reclaim_grace.over(11 * LEASE - 0.1)
    assert reclaim_grace.over(11 * LEASE)


async def test_missed_signals_are_looked_for_once_a_minute(engine: Engine, clock: TwoClocks) -> None:
    """A job that waits although its signal is on record is woken by the first sweep, or a minute after the last."""
    sweeper = Sweeper(engine, clock, ReclaimGrace(LEASE))

    async def missed() -> str:
        await leased(engine)
        (held,) = await engine.jobs.list(Filter(phase="leased"))
        await engine.settle(held.id, str(held.token), Waits(Wait("answer")))
        await engine.store.write(
            lambda tx: tx.signals.add_signal(Signal(held.id, "answer", "null", "ann", clock.now()))
        )
        return held.id

    first = await missed()
    await sweeper.sweep()
    await sweeper.sweep()  # the second one finds the end
    assert (await engine.jobs.get(first)).phase == "claimable"
    await engine.jobs.cancel(first, Scope("ann"))
    second = await missed()
    await sweeper.sweep()
    assert (await engine.jobs.get(second)).phase == "blocked"
    clock.advance(60)
    await sweeper.sweep()
    assert (await engine.jobs.get(second)).phase == "claimable" and sweeper.woken == 2
