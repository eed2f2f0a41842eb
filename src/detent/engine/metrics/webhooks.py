"""Webhooks: subscriptions to events of jobs, the queue of deliveries to them, and what a request's result changes.

Deliveries are stored in the table of alert deliveries. Events are queued from the log by compare-and-set of the
subscription's position: any process may do it, each event is queued once.
"""

import base64
import builtins
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from datetime import datetime
from typing import Any

from detent.core.access import Scope
from detent.core.alerts import Delivery
from detent.core.contract.model import Contract, Phase
from detent.core.errors import InvalidInput, NotFound
from detent.core.job import Micros
from detent.core.times import DAY, SECOND, from_iso, iso
from detent.core.webhooks.signature import PREFIX, secret_bytes
from detent.core.webhooks.subscription import Webhook, WebhookState, check_url, delivery_id
from detent.engine.payload_access import redact_entry, redact_job
from detent.engine.reads import operations
from detent.engine.reads.responses import show
from detent.engine.reads.views import event_view, published
from detent.engine.refusal import audit
from detent.engine.runtime import Runtime, Service, reads, writes
from detent.engine.submit.submission import check_name
from detent.ports.tail import START, TailEvent, position_from, position_within
from detent.ports.tx import Tx
from detent.system.backoff import Backoff
from detent.system.ids import new_secret

MAX_WEBHOOKS = 100
"""Of one tenant, or for all tenants."""
MAX_FILTERS = 50
SECRET_OVERLAP: Micros = DAY
"""How long the old secret signs too after a change."""
_PAGE = 500
_UNMATCHED = 100
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_RETRY = 1.0, 300.0, 4 * 3_600.0
_KEPT = 10_000
"""Deliveries of one webhook that are kept after they ended."""
GONE = 410
"""The HTTP status with which a receiver ends its subscription."""


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """How much a webhook may queue, and how long a delivery is tried."""

    max_pending: int = 10_000
    """While so many deliveries of a webhook wait, no further events are read for it; the log keeps them."""
    max_attempts: int = 30
    max_age_seconds: float = 3 * 86_400.0
    """A delivery that is older is given up."""
    disable_after_seconds: float = 3 * 86_400.0
    """A webhook whose requests have failed for so long, without one success, is disabled."""


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """What a person asks for. An empty secret: Detent makes one."""

    name: str
    url: str
    tenant_id: str | None = None
    queue: str | None = None
    job_type: str | None = None
    contract: str | None = None
    events: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    payloads: bool = True
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of one request. error None: it was delivered. status: of the HTTP response, None without one.

    retry_after: seconds for which the receiver asked not to be called. is_sent: False if there was nothing to send.
    """

    delivery: Delivery
    error: str | None = None
    status: int | None = None
    retry_after: int | None = None
    is_sent: bool = True

    @property
    def blames_receiver(self) -> bool:
        """True if other deliveries would fail, too. A refused body (4xx) says nothing about others."""
        status, failed = self.status, self.is_sent and self.error is not None
        return failed and (status is None or status >= 500 or status in (408, 429, GONE))


class Webhooks(Service):
    """`engine.webhooks`: the subscriptions of one tenant, or of all."""

    @reads
    async def list(self, tx: Tx) -> builtins.list[operations.Webhook]:
        return await _views(tx, [webhook for webhook in await tx.webhooks.list_webhooks() if self._sees(webhook)])

    @reads
    async def get(self, tx: Tx, reference: str) -> operations.Webhook:
        return await _view(tx, await self._find(tx, reference))

    @writes
    async def add(self, tx: Tx, request: WebhookRequest, scope: Scope) -> tuple[Webhook, str]:
        """Add a subscription to events from now on; returns it and its secret, which is not shown again."""
        runtime = self._runtime
        tenant = runtime.tenant_for(request.tenant_id, f"webhooks of tenant {request.tenant_id}")
        if tenant is not None:
            check_name(tenant, "tenant_id")
        others = [webhook for webhook in await tx.webhooks.list_webhooks() if webhook.tenant_id == tenant]
        fields = self._checked_fields(request, others)
        if len(others) >= MAX_WEBHOOKS:
            message = f"there are {MAX_WEBHOOKS} webhooks, which is the most; remove one that is not needed"
            raise InvalidInput(message, code="WEBHOOKS_FULL", http_status=409)
        webhook = Webhook(
            id=runtime.ids.job(),
            tenant_id=tenant,
            **fields,
            payloads=request.payloads and runtime.payloads,
            state=WebhookState.ACTIVE,
            position=str(await tx.log.tail_end()),
            created_by=scope.actor,
            created_at=tx.now,
        )
        await tx.webhooks.put_webhook(webhook)
        await self._audit(tx, scope, "webhook.add", webhook, {"url": webhook.url})
        return webhook, webhook.secret

    @writes
    async def edit(
        self, tx: Tx, reference: str, changes: Mapping[str, Any], scope: Scope
    ) -> tuple[operations.Webhook, str | None]:
        """Change fields of a subscription; returns it and its new secret, if that was changed.

        None sets a field to its default; an empty secret: Detent makes a new one, and the old one signs too for
        `SECRET_OVERLAP`. Deliveries that wait are sent with the new URL and secret, at once if the URL is new.
        """
        before = await self._find(tx, reference)
        request = _apply_changes(before, changes)
        others = [
            webhook
            for webhook in await tx.webhooks.list_webhooks()
            if webhook.tenant_id == before.tenant_id and webhook.id != before.id
        ]
        after = replace(before, **self._checked_fields(request, others), payloads=request.payloads)
        if after.secret != before.secret:
            after = replace(after, old_secret=before.secret, old_secret_until=tx.now + SECRET_OVERLAP)
        if after.url != before.url or (request.payloads and not before.payloads):
            after = replace(after, payloads=request.payloads and self._runtime.payloads)
        await tx.webhooks.put_webhook(after)
        if after.url != before.url:
            after = replace(after, failures=0, failing_since=None, retry_at=None, last_error=None)
            await tx.webhooks.change_webhook(after)
            await tx.webhooks.make_due(after.id)
        if before.payloads and not after.payloads:
            await tx.alerts.clear_bodies(after.id)
        changed = [name for name in _EDITABLE if getattr(after, name) != getattr(before, name)]
        values = {name: getattr(after, name) for name in changed if name != "secret"}
        await self._audit(tx, scope, "webhook.edit", after, {"changed": changed, **values})
        return await _view(tx, after), after.secret if "secret" in changed else None

    def _checked_fields(self, request: WebhookRequest, others: Iterable[Webhook]) -> dict[str, Any]:
        """The fields of a webhook that the request determines, but for `tenant_id` and `payloads`."""
        check_name(request.name, "name")
        for field in ("queue", "job_type", "contract"):
            if (value := getattr(request, field)) is not None:
                check_name(value, field)
        check_url(request.url)
        contracts = self._runtime.contracts.values()
        _check_filters(request, contracts if request.contract is None else [self._runtime.contract(request.contract)])
        secret = request.secret or PREFIX + base64.b64encode(new_secret().encode()).decode()
        secret_bytes(secret)
        if request.name in [webhook.name for webhook in others]:
            message = f"the name {request.name!r} is taken; choose another"
            raise InvalidInput(message, code="WEBHOOK_EXISTS", http_status=409, field="name")
        lists = {"events": json.dumps(request.events), "phases": json.dumps(request.phases)}
        names = ("name", "url", "queue", "job_type", "contract")
        return {name: getattr(request, name) for name in names} | lists | {"secret": secret}

    @writes
    async def remove(self, tx: Tx, reference: str, scope: Scope) -> Webhook:
        """Delete a subscription and its deliveries."""
        webhook = await self._find(tx, reference)
        await tx.webhooks.drop_webhook(webhook.id)
        await self._audit(tx, scope, "webhook.remove", webhook)
        return webhook

    @writes
    async def pause(self, tx: Tx, reference: str, scope: Scope) -> operations.Webhook:
        """Send nothing until it is resumed; events are kept in the log meanwhile."""
        webhook = replace(await self._find(tx, reference), state=WebhookState.PAUSED)
        await tx.webhooks.change_webhook(webhook)
        await self._audit(tx, scope, "webhook.pause", webhook)
        return await _view(tx, webhook)

    @writes
    async def resume(self, tx: Tx, reference: str, scope: Scope) -> operations.Webhook:
        """Send again, beginning with what was kept; also after it was disabled."""
        found = await self._find(tx, reference)
        webhook = replace(found, state=WebhookState.ACTIVE, failures=0, failing_since=None, retry_at=None)
        await tx.webhooks.change_webhook(webhook)
        await tx.webhooks.make_due(webhook.id)
        await self._audit(tx, scope, "webhook.resume", webhook)
        return await _view(tx, webhook)

    @writes
    async def replay(
        self,
        tx: Tx,
        reference: str,
        scope: Scope,
        *,
        delivery: str | None = None,
        since: datetime | str | None = None,
        after: str | None = None,
    ) -> operations.WebhookReplay:
        """Send again: one delivery, those created since a time, or all events after a position in the log."""
        webhook = await self._find(tx, reference)
        if sum(value is not None for value in (delivery, since, after)) != 1:
            message = "give one of: delivery (an id), since (a time), after (an event id of /events/stream, or 0)"
            raise InvalidInput(message, code="WEBHOOK_REPLAY_INVALID")
        replayed: int | None = None
        if after is not None:
            position = position_within(after, await tx.log.tail_end())
            await tx.webhooks.move_webhook(webhook.id, str(position))
        elif delivery is not None:
            replayed = await tx.webhooks.replay_deliveries(webhook.id, 0, delivery)
            if not replayed:
                message = f"webhook {webhook.name} has no delivery {delivery!r}; it may be too old"
                raise NotFound(message, code="WEBHOOK_DELIVERY_NOT_FOUND")
        elif since is not None:
            text = since.isoformat() if isinstance(since, datetime) else since
            replayed = await tx.webhooks.replay_deliveries(webhook.id, from_iso(text, field="since"))
        await self._audit(
            tx, scope, "webhook.replay", webhook, {"delivery": delivery, "since": since and str(since), "after": after}
        )
        return {"id": webhook.id, "replayed": replayed}

    @reads
    async def deliveries(
        self, tx: Tx, reference: str, limit: int = 50, before: str | None = None
    ) -> builtins.list[operations.WebhookDelivery]:
        """The deliveries of one webhook, newest first."""
        webhook = await self._find(tx, reference)
        return [_delivery_view(delivery) for delivery in await tx.webhooks.deliveries_to(webhook.id, before, limit)]

    async def _find(self, tx: Tx, reference: str) -> Webhook:
        """The webhook with this id, or the only visible one with this name."""
        visible = [webhook for webhook in await tx.webhooks.list_webhooks() if self._sees(webhook)]
        found = [webhook for webhook in visible if webhook.id == reference]
        found = found or [webhook for webhook in visible if webhook.name == reference]
        if len(found) != 1:
            problem = f"the name {reference!r} is not unique; use the id" if found else f"no webhook {reference!r}"
            raise NotFound(f"{problem}; `detent webhooks list` lists them", code="WEBHOOK_NOT_FOUND")
        return found[0]

    def _sees(self, webhook: Webhook) -> bool:
        return self.tenant in (None, webhook.tenant_id)

    async def _audit(
        self, tx: Tx, scope: Scope, act: str, webhook: Webhook, data: dict[str, Any] | None = None
    ) -> None:
        await audit(tx, scope, act, webhook.id, webhook.tenant_id, {"name": webhook.name, **(data or {})})


_FILTER_INVALID = "WEBHOOK_FILTER_INVALID"
_EDITABLE = tuple(field.name for field in fields(WebhookRequest) if field.name != "tenant_id")
_DEFAULTS = {field.name: field.default for field in fields(WebhookRequest) if field.default is not MISSING}


def _apply_changes(webhook: Webhook, changes: Mapping[str, Any]) -> WebhookRequest:
    """What a person asks for who changes these fields of a webhook."""
    unknown = sorted(set(changes) - set(_EDITABLE))
    if unknown:
        message = f"a webhook's {', '.join(unknown)} cannot be changed; change one of {', '.join(_EDITABLE)}"
        raise InvalidInput(message, code="OPTION_UNKNOWN", field=unknown[0])
    stored = {name: getattr(webhook, name) for name in _EDITABLE}
    stored |= {name: tuple(json.loads(stored[name])) for name in ("events", "phases")}
    given = {name: _DEFAULTS.get(name) if value is None else value for name, value in changes.items()}
    return WebhookRequest(**{**stored, **given, "payloads": bool(given.get("payloads", stored["payloads"]))})


def _check_filters(request: WebhookRequest, contracts: Iterable[Contract]) -> None:
    """Raise InvalidInput (WEBHOOK_FILTER_INVALID) for unknown phases, and for events that no such contract has."""
    events = frozenset[str]().union(*(contract.event_names for contract in contracts))
    valid = {"phases": {str(phase) for phase in Phase}, "events": events}
    for field, names in valid.items():
        given = getattr(request, field)
        if len(given) > MAX_FILTERS:
            raise InvalidInput(f"{field} may have at most {MAX_FILTERS} names", code=_FILTER_INVALID, field=field)
        if unknown := sorted(set(given) - names):
            message = (
                f"{field} has unknown names: {', '.join(map(repr, unknown))}; use some of {', '.join(sorted(names))}"
            )
            raise InvalidInput(message, code=_FILTER_INVALID, field=field)


async def queue_events(runtime: Runtime, limits: WebhookLimits) -> bool:
    """Queue deliveries of new events for all active webhooks; True if there may be more."""

    async def read(tx: Tx) -> tuple[list[Webhook], dict[str, int]]:
        active = [hook for hook in await tx.webhooks.list_webhooks() if hook.state == WebhookState.ACTIVE]
        return active, await tx.webhooks.pending_deliveries([hook.id for hook in active]) if active else {}

    active, pending = await runtime.store.read(read)
    by_position: dict[str, list[Webhook]] = {}
    for webhook in active:
        if pending.get(webhook.id, 0) < limits.max_pending:
            by_position.setdefault(webhook.position, []).append(webhook)
    more = False
    for position, webhooks in by_position.items():
        more |= await _queue_page(runtime, position, webhooks)
    return more


async def _queue_page(runtime: Runtime, position: str, webhooks: Sequence[Webhook]) -> bool:
    """Queue the next page of events for webhooks with the same position."""
    start = position_from(position)
    events, after = await runtime.store.read(lambda tx: tx.log.tail(start, _PAGE))
    if after == start:
        return False
    matching = {webhook.id: list(_deliveries(runtime, webhook, events)) for webhook in webhooks}

    async def act(tx: Tx) -> None:
        present = {webhook.id: _apply_changes(webhook, {}) for webhook in await tx.webhooks.list_webhooks()}
        for webhook in webhooks:
            if present.get(webhook.id) != _apply_changes(webhook, {}):  # it may have lost its payloads
                continue
            if await tx.webhooks.move_webhook(webhook.id, str(after), expected=position):
                await tx.webhooks.queue_deliveries(matching[webhook.id])

    if any(matching.values()) or len(events) >= _UNMATCHED:  # reading a few events again is cheaper than a commit
        await runtime.store.write(act)
    return len(events) >= _PAGE


def _deliveries(runtime: Runtime, webhook: Webhook, events: Iterable[TailEvent]) -> Iterable[Delivery]:
    for each in events:
        job, event = (each.job, each.event) if webhook.payloads else (redact_job(each.job), redact_entry(each.event))
        contract = runtime.contracts.get(job.contract)
        if contract is None:
            continue
        message = published(event_view(contract, job, event), has_envelopes=contract.envelope is not None)
        if message is None or not webhook.matches(contract, job, event, message[0]):
            continue
        names = ("id", "job_type", "contract", "queue", "tenant_id", "error_code", "error_message")
        about = {**{name: getattr(job, name) for name in names}, "status": event.target}
        body = {"type": message[0], "timestamp": iso(event.at), "job": about, "data": message[1]}
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=str)
        yield Delivery(delivery_id(webhook.id, event), message[0], job.id, webhook.id, text, 0, 0)


async def read_body(runtime: Runtime, webhook: Webhook, delivery: Delivery) -> str | None:
    """The body of a delivery. One that was cleared because the webhook lost its payloads is made again from the log;
    None if the event was deleted or does not match the webhook any more."""
    if delivery.body != "null":
        return delivery.body

    async def read(tx: Tx) -> list[TailEvent]:
        jobs = await tx.jobs.lock([delivery.subject])
        events = await tx.log.events(delivery.subject)
        return [TailEvent(START, event, job) for job in jobs.values() for event in events]

    remade = _deliveries(runtime, webhook, await runtime.store.read(read))
    return next((each.body for each in remade if each.id == delivery.id), None)


async def due_webhooks(runtime: Runtime) -> builtins.list[Webhook]:
    """Active webhooks that have due deliveries and do not pause after a failure."""

    async def act(tx: Tx) -> builtins.list[Webhook]:
        active = [hook for hook in await tx.webhooks.list_webhooks() if hook.state == WebhookState.ACTIVE]
        due = set(await tx.webhooks.due_sinks([hook.id for hook in active])) if active else set()
        return [hook for hook in active if hook.id in due and (hook.retry_at is None or hook.retry_at <= tx.now)]

    return await runtime.store.read(act)


async def record_attempts(
    runtime: Runtime, used: Webhook, attempts: Sequence[Attempt], limits: WebhookLimits
) -> Webhook | None:
    """Store the results of requests: deliveries end or are tried later, and the webhook pauses or is disabled.

    used: the webhook as it was when they were sent; failures of a URL that was changed since do not count. Returns the
    webhook as it is now, None if it was removed.
    """

    async def act(tx: Tx) -> Webhook | None:
        webhook = next((hook for hook in await tx.webhooks.list_webhooks() if hook.id == used.id), None)
        if webhook is None:
            return None
        for attempt in attempts:
            due_at = _next_attempt(attempt, limits, tx.now)
            delivered_at = tx.now if attempt.error is None else None
            error = attempt.error and attempt.error[:500]
            await tx.alerts.end_delivery(attempt.delivery, due_at, delivered_at, error)
        if webhook.url != used.url:
            return webhook
        after = _after_attempts(webhook, attempts, limits, tx.now)
        if after != webhook:
            await tx.webhooks.change_webhook(after)
        return after

    return await runtime.store.write(act)


def _next_attempt(attempt: Attempt, limits: WebhookLimits, now: Micros) -> Micros | None:
    delivery = attempt.delivery
    too_old = now - delivery.created_at >= limits.max_age_seconds * SECOND
    if attempt.error is None or not attempt.is_sent or delivery.attempts >= limits.max_attempts or too_old:
        return None
    pause = Backoff(_FIRST_PAUSE, _LONGEST_RETRY, failures=delivery.attempts - 1).seconds
    return now + int(max(pause, _requested_pause([attempt])) * SECOND)


def _requested_pause(attempts: Iterable[Attempt]) -> float:
    return min(max(attempt.retry_after or 0 for attempt in attempts), _LONGEST_RETRY)


def _after_attempts(webhook: Webhook, attempts: Sequence[Attempt], limits: WebhookLimits, now: Micros) -> Webhook:
    """The webhook after these requests: any success ends its pause."""
    sent = [attempt for attempt in attempts if attempt.is_sent]
    bad = [attempt for attempt in sent if attempt.blames_receiver]
    if not sent:
        return webhook
    if len(bad) < len(sent):
        return replace(webhook, failures=0, failing_since=None, retry_at=None, last_error=None)
    since = webhook.failing_since if webhook.failing_since is not None else now
    pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, failures=webhook.failures).seconds
    after = replace(
        webhook,
        failures=webhook.failures + 1,
        failing_since=since,
        retry_at=now + int(max(pause, _requested_pause(bad)) * SECOND),
        last_error=(bad[-1].error or "")[:500],
    )
    gone = any(attempt.status == GONE for attempt in bad)
    if webhook.state == WebhookState.ACTIVE and (gone or now - since >= limits.disable_after_seconds * SECOND):
        return replace(after, state=WebhookState.DISABLED)
    return after


async def clean_up(runtime: Runtime) -> None:
    """Delete old secrets whose time is over, and the oldest ended deliveries beyond the number that is kept."""

    async def act(tx: Tx) -> None:
        for webhook in await tx.webhooks.list_webhooks():
            await tx.webhooks.drop_old_deliveries(webhook.id, _KEPT)
            if webhook.old_secret_until is not None and webhook.old_secret_until <= tx.now:
                await tx.webhooks.put_webhook(replace(webhook, old_secret=None, old_secret_until=None))

    await runtime.store.write(act)


async def _view(tx: Tx, webhook: Webhook) -> operations.Webhook:
    return (await _views(tx, [webhook]))[0]


async def _views(tx: Tx, webhooks: Sequence[Webhook]) -> list[operations.Webhook]:
    pending = await tx.webhooks.pending_deliveries([webhook.id for webhook in webhooks])
    return [webhook_view(webhook, pending.get(webhook.id, 0)) for webhook in webhooks]


def webhook_view(webhook: Webhook, backlog: int = 0) -> operations.Webhook:
    lists = {"events": json.loads(webhook.events), "phases": json.loads(webhook.phases)}
    return show(operations.Webhook, webhook, **lists, payloads=bool(webhook.payloads), backlog=backlog)


def _delivery_view(delivery: Delivery) -> operations.WebhookDelivery:
    state = "delivered" if delivery.delivered_at else "given up" if delivery.due_at is None else "due"
    return show(operations.WebhookDelivery, delivery, event=delivery.rule, job_id=delivery.subject, state=state)
