"""Webhook subscriptions: which events they match, and which URLs they may have."""

import json
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from urllib.parse import urlsplit

from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput
from detent.core.job import Event, Job, Micros

MAX_URL = 2_000


class WebhookState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"
    """Stopped by Detent because the receiver failed for too long."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A subscription: where to send which events. None, and an empty list, match everything."""

    id: str
    name: str
    url: str
    secret: str
    tenant_id: str | None
    queue: str | None
    job_type: str | None
    contract: str | None
    events: str
    """JSON array of event names, as the log or as the contract publishes them."""
    phases: str
    """JSON array of phases; matches events that lead to one of them."""
    payloads: bool
    """False: events are sent as callers see them who may not see payloads."""
    state: str
    position: str
    """The position in the log up to which events are queued."""
    created_by: str
    created_at: Micros
    failures: int = 0
    """Failed requests in a row."""
    failing_since: Micros | None = None
    retry_at: Micros | None = None
    """After a failure nothing is sent before this time."""
    last_error: str | None = None
    old_secret: str | None = None
    """The secret before the last change; it signs too until `old_secret_until`."""
    old_secret_until: Micros | None = None

    def signing_secrets(self, now: Micros) -> list[str]:
        """The secrets that sign a request, the newest first."""
        if self.old_secret is None or self.old_secret_until is None or now >= self.old_secret_until:
            return [self.secret]
        return [self.secret, self.old_secret]

    def matches(self, contract: Contract, job: Job, event: Event, published_as: str) -> bool:
        expected = (self.tenant_id, self.queue, self.job_type, self.contract)
        values = (job.tenant_id, job.queue, job.job_type, job.contract)
        if any(want not in (None, value) for want, value in zip(expected, values, strict=True)):
            return False
        events, phases = json.loads(self.events), json.loads(self.phases)
        if events and event.event not in events and published_as not in events:
            return False
        return not phases or str(contract.phase(event.target)) in phases


def delivery_id(webhook_id: str, event: Event) -> str:
    """The same for the same event and subscription, so that receivers recognise a repeated one. Sorts by time."""
    digest = blake2b(f"{webhook_id}\0{event.job_id}".encode(), digest_size=8).hexdigest()
    return f"msg_{event.at // 1_000:012x}{event.seq:06x}{digest}"


def check_url(url: str) -> None:
    """Raise InvalidInput (WEBHOOK_URL_INVALID) unless this is a plain http or https URL."""
    try:
        parts = urlsplit(url)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_ok = urlsplit(""), False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok or len(url) > MAX_URL:
        problem = "must be an http:// or https:// URL of at most 2000 characters"
    elif parts.username is not None or parts.password is not None:
        problem = "must not contain a user name or password; the signature proves who sent a request"
    elif parts.fragment or not url.isascii() or any(character <= " " for character in url):
        problem = "must not contain a fragment, spaces or characters outside ASCII"
    else:
        return
    raise InvalidInput(f"url {problem}", code="WEBHOOK_URL_INVALID", field="url")
