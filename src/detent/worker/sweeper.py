"""The sweeper: expired leases, moments that came and fires, in bounded passes; any number may run at once."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from detent.core.errors import DetentError
from detent.core.job import Micros
from detent.core.outcome import Outcome, Waits
from detent.core.times import SECOND
from detent.engine import Engine
from detent.engine.reads.workers import recoveries
from detent.engine.schedules.firing import fire_due

from .reclaim_grace import ReclaimGrace

log = logging.getLogger("detent.sweeper")
BATCH = 200


class Sweeper:
    """Cautious with leases after a suspend or a lost database: it waits one lease before it expires anyone."""

    def __init__(self, engine: Engine, reclaim_grace: ReclaimGrace, interval: float = 0.5) -> None:
        self._engine = engine
        self.reclaim_grace = reclaim_grace
        self._interval = interval
        self._next = float("inf")
        self._sooner = asyncio.Event()
        self.expired = 0
        self.woken = 0
        self.fired = 0

    async def run(self) -> None:
        while True:
            pause, self._next = self._interval, float("inf")
            try:
                pause = await self.sweep()
            except DetentError as error:
                log.debug("the store did not answer (%s), trying again in %g s", error.code, self._interval)
                self.reclaim_grace.lost()
            except Exception:
                log.exception("a sweep failed, trying again in %g s", self._interval)
                self.reclaim_grace.lost()
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

    async def sweep(self) -> float:
        """One round; returns how long to sleep until the next one is due."""
        self.reclaim_grace.look()
        full = False
        if self.reclaim_grace.over:
            began = self._engine.store.now()
            lost = await self._engine.expire(BATCH)
            self.expired += len(lost)
            if lost:
                for recovery in await recoveries(self._engine, began):
                    log.warning("%s", recovery.sentence())
            full |= len(lost) == BATCH
        woken = await self._engine.wake(BATCH)
        self.reclaim_grace.back()
        self.woken += len(woken)
        full |= len(woken) == BATCH
        full |= len(await self._engine.process_child_events(BATCH)) == BATCH
        fired = await fire_due(self._engine, BATCH)
        self.fired += len(fired.jobs)
        return 0.0 if full else await self._until_due(fired.next)

    async def _until_due(self, next_fire: Micros | None) -> float:
        next_wake: Micros | None = await self._engine.store.read(lambda tx: tx.next_wake())
        now = self._engine.store.now()
        # What is overdue and was not woken is beyond us: the longer it is, the more rarely we look.
        pauses = [abs(moment - now) / 1_000_000 for moment in (next_wake, next_fire) if moment is not None]
        return max(0.001, min([self._interval, *pauses])) if pauses else self._interval
