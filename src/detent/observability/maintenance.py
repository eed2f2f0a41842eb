"""The maintenance loop: counts events, evaluates and delivers alerts, prunes, adds partitions; one process a time."""

import asyncio
import logging

from detent.core.alerts import AlertStep
from detent.core.errors import DetentError
from detent.engine import Engine
from detent.engine.metrics import alerts
from detent.engine.metrics.event_counts import EventCounter
from detent.engine.pruning import add_partitions

from .retention import Pruner
from .settings import Settings
from .webhook_sender import WebhookSender

log = logging.getLogger("detent.maintenance")
_TICK_SECONDS = 1.0
_MAX_DELIVERIES = 20
_CLEANUP_SECONDS = 600.0


class MaintenanceLoop:
    """One per process that works or serves. For each task a process claims the interval in the database."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.event_counter = EventCounter(engine)
        self.settings = settings
        self._engine = engine
        self._pruner = Pruner(engine, settings)
        self._webhooks = WebhookSender(engine, settings.webhooks)

    async def run(self) -> None:
        """Run for ever; an error is logged and does not end the loop."""
        await asyncio.gather(self._run(), self._webhooks.run())

    async def _run(self) -> None:
        tick = min(_TICK_SECONDS, self.settings.alert_interval_seconds)
        while True:
            await asyncio.sleep(tick)
            try:
                await self.run_once()
            except DetentError as error:
                log.warning("maintenance failed, trying again in %g s: %s", tick, error)
            except Exception:
                log.exception("maintenance failed, trying again in %g s", tick)

    async def run_once(self) -> None:
        """Do each task whose interval has passed and is not claimed by another process."""
        if self.settings.alerts:
            if await alerts.claim_interval(self._engine, "alerts", self.settings.alert_interval_seconds):
                await self.evaluate()
            await self.deliver()
        await self._pruner.run_once()
        if await alerts.claim_interval(self._engine, "tidy", _CLEANUP_SECONDS):
            await add_partitions(self._engine)
            await self._engine.workers.delete_old_rows()

    async def evaluate(self) -> list[AlertStep]:
        """Evaluate all rules; returns the alerts that fired or resolved."""
        return await alerts.evaluate(self._engine, self.event_counter, self.settings.rules, self.settings.sinks)

    async def deliver(self) -> int:
        """Deliver due alerts to their sinks; returns the number of attempts.

        A delivery is stored before it is sent and marked afterwards: each is delivered at least once.
        """
        attempts, sinks, store = 0, self.settings.sinks, self._engine.store
        names = list(sinks)
        while attempts < _MAX_DELIVERIES and any(await store.read(lambda tx: tx.alerts.due_deliveries(names, 1))):
            taken = await alerts.take_deliveries(self._engine, names, 1)
            if not taken:
                break
            (delivery,) = taken
            error = await sinks[delivery.sink].deliver(delivery, store.now())
            was_last = await alerts.finish_delivery(self._engine, delivery, error)
            if error is not None:
                then = "giving up" if was_last else "trying again later"
                log.warning("alert %s was not delivered to %s, %s: %s", delivery.rule, delivery.sink, then, error)
            attempts += 1
        return attempts
