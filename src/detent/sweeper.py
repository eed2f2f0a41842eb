"""The sweeper: expired leases, moments that came and fires, in bounded passes; any number may run at once."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from .core.errors import DetentError
from .core.job import Micros
from .core.outcome import Outcome, Waits
from .core.times import SECOND
from .engine import Engine
from .engine.firing import fire_due
from .engine.fleet import recoveries
from .ports import Clock

log = logging.getLogger("detent.sweeper")
BATCH = 200
_APART_SECONDS = 1.0


class Sweeper:
    """Cautious with leases after a suspend or a lost database: it waits one lease before it expires anyone."""

    def __init__(self, engine: Engine, clock: Clock, lease_seconds: float, interval: float = 0.5) -> None:
        self._engine = engine
        self._clock = clock
        self._lease = lease_seconds
        self._interval = interval
        self._wall, self._mono = clock.now(), clock.monotonic()
        self._cautious_until = float("-inf")
        self._next = float("inf")
        self._sooner = asyncio.Event()
        self.expired = 0
        self.woken = 0
        self.fired = 0

    def be_cautious(self, why: str) -> None:
        self._cautious_until = self._clock.monotonic() + self._lease
        log.info("%s: no lease is expired for the next %g s", why, self._lease)

    async def run(self) -> None:
        await self._notice_young_database()
        while True:
            pause, self._next = self._interval, float("inf")
            try:
                pause = await self.sweep()
            except DetentError as error:
                self.be_cautious(f"the store did not answer ({error.code})")
            except Exception:
                log.exception("a sweep failed, trying again in %g s", self._interval)
                self.be_cautious("a sweep failed")
            await self._rest(pause)

    def expect(self, outcomes: Iterable[Outcome]) -> None:
        """These were just settled: a wait among them may end before we would look again."""
        ends = [o.wait.timeout for o in outcomes if isinstance(o, Waits) and o.wait.timeout is not None]
        if ends:
            self._next = min(self._next, asyncio.get_running_loop().time() + min(ends) / SECOND)
            self._sooner.set()

    async def _rest(self, pause: float) -> None:
        loop = asyncio.get_running_loop()
        self._next = min(self._next, loop.time() + pause)
        while (left := self._next - loop.time()) > 0:
            self._sooner.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._sooner.wait()

    async def _notice_young_database(self) -> None:
        """Workers of a database that has just started may not have come back to it yet."""
        try:
            if await self._engine.store.uptime() < self._lease:
                self.be_cautious("the database has just started")
        except DetentError as error:
            self.be_cautious(f"the store did not answer ({error.code})")

    async def sweep(self) -> float:
        """One round; returns how long to sleep until the next one is due."""
        self._notice_suspend()
        full = False
        if self._clock.monotonic() >= self._cautious_until:
            began = self._engine.store.now()
            lost = await self._engine.expire(BATCH)
            self.expired += len(lost)
            if lost:
                for recovery in await recoveries(self._engine, began):
                    log.warning("%s", recovery.sentence())
            full |= len(lost) == BATCH
        woken = await self._engine.wake(BATCH)
        self.woken += len(woken)
        full |= len(woken) == BATCH
        full |= len(await self._engine.tend(BATCH)) == BATCH
        fired = await fire_due(self._engine, BATCH)
        self.fired += len(fired.jobs)
        return 0.0 if full else await self._until_due(fired.next)

    def _notice_suspend(self) -> None:
        """Wall and monotonic time part when the machine slept or the clock was set.

        If both ran on without us for a lease (a stopped process, a paused virtual machine), others may have been
        stopped with us: their heartbeats go first.
        """
        wall, mono = self._clock.now(), self._clock.monotonic()
        away = mono - self._mono
        apart = abs((wall - self._wall) / 1_000_000 - away)
        self._wall, self._mono = wall, mono
        if apart > _APART_SECONDS:
            self.be_cautious(f"wall and monotonic clock are {apart:.1f} s apart")
        elif away >= max(self._lease, 4 * self._interval):
            self.be_cautious(f"nothing was swept for {away:.1f} s")

    async def _until_due(self, next_fire: Micros | None) -> float:
        next_wake: Micros | None = await self._engine.store.read(lambda tx: tx.next_wake())
        now = self._engine.store.now()
        # What is overdue and was not woken is beyond us: the longer it is, the more rarely we look.
        pauses = [abs(moment - now) / 1_000_000 for moment in (next_wake, next_fire) if moment is not None]
        return max(0.001, min([self._interval, *pauses])) if pauses else self._interval
