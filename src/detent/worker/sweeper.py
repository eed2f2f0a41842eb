"""The sweeper: expires leases, wakes blocked jobs, fires schedules, in bounded passes. Any number may run at once."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from detent.core.errors import DetentError
from detent.core.job import Micros, SignalKey
from detent.core.outcome import Outcome, Waits
from detent.core.times import SECOND
from detent.engine import Engine
from detent.handler.lease import Reading
from detent.ports.clock import Clock
from detent.system.tasks import wait_for_event

from .reclaim_grace import ReclaimGrace
from .state import seconds_until_due

T = TypeVar("T")
log = logging.getLogger("detent.worker.sweeper")
BATCH = 200
FIRE_BATCH = 500
"""Schedules fired in one transaction: few enough that other writers of a SQLite file wait for about 0.1 s."""
_SIGNALS = 1_000
_SIGNAL_CHECK_INTERVAL: Micros = 60 * SECOND
"""All signals are checked at the start and from then on once a minute, at most 1000 in a sweep."""


class Sweeper:
    """Runs sweeps until cancelled. Leases are expired only while no `ReclaimGrace` is in force."""

    def __init__(self, engine: Engine, clock: Clock, reclaim_grace: ReclaimGrace, interval: float = 0.5) -> None:
        self._engine = engine
        self._clock = clock
        self.reclaim_grace = reclaim_grace
        self._interval = interval
        self._next_sweep_at = float("inf")
        self._sweep_earlier = asyncio.Event()
        self.expired = 0
        self.woken = 0
        self.fired = 0
        self._signal_check_at: Micros = 0
        self._last_signal: SignalKey | None = None
        reclaim_grace.check_clocks(Reading.of(clock))

    async def check_uptime(self) -> None:
        """To be called at the start: the grace begins if the database has just started or does not answer."""
        try:
            self.reclaim_grace.check_uptime(self._clock.monotonic(), await self._engine.store.uptime())
        except DetentError:
            self.reclaim_grace.store_lost()

    async def run(self) -> None:
        while True:
            pause, self._next_sweep_at = self._interval, float("inf")
            try:
                pause = await self.sweep()
            except DetentError as error:
                log.debug("the store did not answer (%s), trying again in %g s", error.code, self._interval)
            except Exception:
                log.exception("a sweep failed, trying again in %g s", self._interval)
            await self._sleep(pause)

    def expect_timeouts(self, outcomes: Iterable[Outcome]) -> None:
        """Sweep earlier if a wait among these outcomes, just settled, times out before the next sweep."""
        timeouts = [o.wait.timeout for o in outcomes if isinstance(o, Waits) and o.wait.timeout is not None]
        if timeouts:
            soonest = asyncio.get_running_loop().time() + min(timeouts) / SECOND
            self._next_sweep_at = min(self._next_sweep_at, soonest)
            self._sweep_earlier.set()

    async def _sleep(self, pause: float) -> None:
        loop = asyncio.get_running_loop()
        self._next_sweep_at = min(self._next_sweep_at, loop.time() + pause)
        while (left := self._next_sweep_at - loop.time()) > 0:
            self._sweep_earlier.clear()
            await wait_for_event(self._sweep_earlier, left)

    async def sweep(self) -> float:
        """One sweep; returns the seconds until the next one is due."""
        try:
            return await self._sweep()
        except Exception:
            self.reclaim_grace.store_lost()
            raise

    async def _sweep(self) -> float:
        at = Reading.of(self._clock)
        self.reclaim_grace.check_clocks(at)
        full = False
        if self.reclaim_grace.over(at.monotonic):
            began = self._engine.store.now()
            lost = await self._timed(self._engine.expire(BATCH))
            self.expired += len(lost)
            if lost:
                for recovery in await self._engine.workers.recoveries(began):
                    log.warning("%s", recovery.sentence())
            full |= len(lost) == BATCH
        woken = await self._timed(self._engine.wake(BATCH))
        self.woken += len(woken)
        full |= len(woken) == BATCH
        full |= len(await self._engine.process_child_events(BATCH)) == BATCH
        await self._wake_missed_signals()
        fired = await self._engine.schedules.fire_due(FIRE_BATCH)
        self.fired += len(fired.jobs)
        full |= fired.handled >= FIRE_BATCH
        return 0.0 if full else await self._seconds_until_due(fired.next)

    async def _timed(self, call: Awaitable[T]) -> T:
        began = self._clock.monotonic()
        result = await call
        now = self._clock.monotonic()
        self.reclaim_grace.store_answered(now, now - began)
        return result

    async def _wake_missed_signals(self) -> None:
        now = self._engine.store.now()
        if now < self._signal_check_at:
            return
        woken, self._last_signal = await self._engine.wake_missed_signals(self._last_signal, _SIGNALS)
        if self._last_signal is None:
            self._signal_check_at = now + _SIGNAL_CHECK_INTERVAL
        self.woken += len(woken)
        for job in woken:
            log.warning("job %s waited although its signal is on record; it was woken", job.id)

    async def _seconds_until_due(self, next_fire: Micros | None) -> float:
        next_wake: Micros | None = await self._engine.store.read(lambda tx: tx.due.next_wake())
        return seconds_until_due((next_wake, next_fire), self._engine.store.now(), self._interval)
