"""Sends the queued events to webhooks: reads new events from the log, and posts due deliveries, in any process."""

import asyncio
import logging

from detent.core.alerts import Delivery
from detent.core.errors import DetentError
from detent.core.times import SECOND
from detent.core.webhooks.signature import WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP, sign
from detent.core.webhooks.subscription import Webhook, WebhookState
from detent.engine import Engine
from detent.engine.metrics import alerts, webhooks

from .http_post import post
from .settings import WebhookSettings

log = logging.getLogger("detent.webhooks")
_TICK_SECONDS = 1.0
_CLEANUP_SECONDS = 60.0
_CONCURRENCY = 4
"""Requests to one webhook at the same time."""


class WebhookSender:
    """One per process. Each webhook has a task of its own while it has due deliveries: a slow one delays no other."""

    def __init__(self, engine: Engine, settings: WebhookSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Run for ever; an error is logged and does not end the loop."""
        try:
            while self._settings.enabled:
                more = False
                try:
                    more = await self.run_once()
                except DetentError as error:
                    log.warning("sending to webhooks failed, trying again in %g s: %s", _TICK_SECONDS, error)
                except Exception:
                    log.exception("sending to webhooks failed, trying again in %g s", _TICK_SECONDS)
                await asyncio.sleep(0 if more else _TICK_SECONDS)
        finally:
            for task in self._tasks.values():
                task.cancel()

    async def run_once(self) -> bool:
        """Queue new events and start to send what is due; True if there are more events to queue."""
        more = await webhooks.queue_events(self._engine, self._settings)
        for webhook in await webhooks.due_webhooks(self._engine):
            if webhook.id not in self._tasks:
                self._tasks[webhook.id] = asyncio.create_task(self._send_due(webhook))
        if await alerts.claim_interval(self._engine, "webhooks", _CLEANUP_SECONDS):
            await webhooks.clean_up(self._engine)
        return more

    async def drain(self) -> None:
        """Queue and send what is due, and return when nothing is left to do now; for tests and the command line."""
        while await self.run_once() or self._tasks:
            await asyncio.gather(*self._tasks.values())

    async def _send_due(self, webhook: Webhook) -> None:
        """Send until nothing is due, or until the receiver fails."""
        try:
            failed = False
            while not failed:
                taken = await alerts.take_deliveries(self._engine, [webhook.id], _CONCURRENCY)
                if not taken:
                    return
                attempts = await asyncio.gather(*(self._send(webhook, delivery) for delivery in taken))
                current = await webhooks.record_attempts(self._engine, webhook, attempts, self._settings)
                if current is None:
                    return
                webhook = current  # with the URL and the secret that it has now
                failed = webhook.state != WebhookState.ACTIVE or any(attempt.blames_receiver for attempt in attempts)
                errors = [attempt.error for attempt in attempts if attempt.error is not None]
                if errors:
                    log.warning("%d requests to webhook %s failed, the last: %s", len(errors), webhook.name, errors[-1])
                if webhook.state == WebhookState.DISABLED:
                    log.error("webhook %s is disabled; resume it when its receiver works again", webhook.name)
        except DetentError as error:
            log.warning("sending to webhook %s failed, trying again later: %s", webhook.name, error)
        finally:
            self._tasks.pop(webhook.id, None)

    async def _send(self, webhook: Webhook, delivery: Delivery) -> webhooks.Attempt:
        text, now = await webhooks.read_body(self._engine, webhook, delivery), self._engine.store.now()
        if text is None:
            return webhooks.Attempt(delivery, "its event was deleted or does not match any more", is_sent=False)
        body, seconds = text.encode(), now // SECOND
        signatures = [sign(secret, delivery.id, seconds, body) for secret in webhook.signing_secrets(now)]
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "detent",
            WEBHOOK_ID: delivery.id,
            WEBHOOK_TIMESTAMP: str(seconds),
            WEBHOOK_SIGNATURE: " ".join(signatures),
        }
        settings = self._settings
        answer = await post(
            webhook.url,
            body,
            headers,
            timeout=settings.timeout_seconds,
            private_addresses=settings.private_addresses,
        )
        return webhooks.Attempt(delivery, answer.error, answer.status, answer.retry_after)
