"""The lookout counts the log, evaluates alerts, tells sinks, keeps retention; each is done once, by whoever comes."""

import asyncio
import logging

from detent.core.alerts import Step
from detent.core.errors import DetentError
from detent.engine import Engine
from detent.engine.metrics import alerts
from detent.engine.metrics.event_counts import Follower
from detent.engine.reads import workers

from .retention import Retainer
from .settings import Settings

log = logging.getLogger("detent.lookout")
_TICK_SECONDS = 1.0
_SENT_AT_ONCE = 20
_TIDY_SECONDS = 600.0


class MaintenanceLoop:
    """One per process that works or serves; they take turns by the database."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.follower = Follower(engine)
        self.settings = settings
        self._engine = engine
        self._retainer = Retainer(engine, settings)

    async def run(self) -> None:
        tick = min(_TICK_SECONDS, self.settings.alert_interval_seconds)
        while True:
            await asyncio.sleep(tick)
            try:
                await self.round()
            except DetentError as error:
                log.warning("cannot look after alerts now: %s", error)
            except Exception:  # a lookout that fell asleep would be missed when it is needed
                log.exception("looking after alerts failed, trying again in %g s", tick)

    async def round(self) -> None:
        """One look at everything that may be due."""
        if self.settings.alerts:
            if await alerts.take_turn(self._engine, "alerts", self.settings.alert_interval_seconds):
                await self.evaluate()
            await self.deliver()
        await self._retainer.round()
        if await alerts.take_turn(self._engine, "tidy", _TIDY_SECONDS):
            await workers.tidy(self._engine)

    async def evaluate(self) -> list[Step]:
        return await alerts.evaluate(self._engine, self.follower, self.settings.rules, self.settings.sinks)

    async def deliver(self) -> int:
        """Tell sinks what is due; how many tries were made. Stored first, marked after: told at least once."""
        tried = 0
        sinks = self.settings.sinks
        while tried < _SENT_AT_ONCE and await alerts.any_due(self._engine):
            told = await alerts.take_delivery(self._engine, sinks)
            if told is None:
                break
            error = await sinks[told.sink].tell(told, self._engine.store.now())
            over = await alerts.end_delivery(self._engine, told, error)
            if error is not None:
                then = "given up" if over else "trying again later"
                log.warning("alert %s was not told to %s, %s: %s", told.rule, told.sink, then, error)
            tried += 1
        return tried
