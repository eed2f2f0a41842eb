"""Alerts: any process measures them; a compare-and-set lets one process change a state; delivered at least once."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from detent.core.access import Scope
from detent.core.alerts import DEFAULT_RULES, Alert, AlertStep, Delivery, Measurement, Rule, Silence, State, advance
from detent.core.errors import InvalidInput, NotFound, VersionConflict, check_number
from detent.core.job import Micros
from detent.core.times import SECOND, iso
from detent.engine.reads import operations
from detent.engine.reads.responses import show
from detent.engine.refusal import audit
from detent.engine.runtime import Runtime
from detent.engine.submit.submission import check_name
from detent.ports.metrics import AlertTable
from detent.ports.tx import Tx
from detent.system.backoff import Backoff

from .alert_kinds import KINDS, Readings
from .event_counts import SLOT, EventCounter, read_groups

MAX_SUBJECTS = 50
"""Most subjects per rule with an alert, the worst first: a thousand broken tenants are one problem."""
_MAX_LOSSES = 10_000
_DELIVERY_LEASE_SECONDS = 60.0
_MAX_BACKOFF_SECONDS = 300.0
MAX_DELIVERY_ATTEMPTS = 20
KEEP_DELIVERIES = 7 * 86_400 * SECOND
KEEP_SILENCES = 86_400 * SECOND
MAX_SILENCE_SECONDS = 30 * 86_400


async def read_inputs(engine: Runtime, tx: Tx) -> Readings:
    """Read the inputs of rules and metrics; the cost does not grow with the number of finished jobs."""
    groups = await read_groups(tx.event_counts)
    longest = 2 * 3_600 * SECOND
    oldest_due = await tx.due.oldest_due()
    return Readings(
        now=tx.now,
        contracts=engine.contracts,
        groups=groups,
        tenants=await tx.event_counts.party_tenants(),
        sums=await tx.event_counts.event_totals(),
        slots=await tx.event_counts.recent_counts((tx.now - longest) // SLOT),
        due=[(groups[group], since) for group, since in oldest_due.items() if group in groups],
        workers=await tx.workers.list_workers(),
        pauses=await tx.pauses.list_pauses(),
        running=await tx.claims.held_by_type(),
        losses=await tx.workers.losses(tx.now - longest, _MAX_LOSSES),
        suspects=await tx.claims.suspects(),
        missed=await tx.schedules.missed_schedules(tx.now - longest),
        webhooks=await tx.webhooks.list_webhooks(),
    )


async def evaluate(
    engine: Runtime,
    counter: EventCounter,
    rules: Sequence[Rule] = DEFAULT_RULES,
    sinks: Mapping[str, Any] | None = None,
) -> list[AlertStep]:
    """Measure all rules, store the new alert states and queue deliveries; returns the steps to report.

    sinks: objects with `accepts(severity)`, by name.
    """
    await counter.catch_up()
    inputs = await engine.store.read(partial(read_inputs, engine))
    active = [rule for rule in rules if rule.enabled]
    measured = [(rule, _worst(KINDS[rule.kind].measure(rule, inputs))) for rule in active]
    return await engine.store.write(partial(_decide, engine, measured, sinks or {}))


def _worst(measurements: Iterable[Measurement]) -> dict[str, Measurement]:
    ordered = sorted(measurements, key=lambda measurement: -measurement.value)
    return {measurement.subject: measurement for measurement in ordered[:MAX_SUBJECTS]}


async def _decide(
    engine: Runtime, measured: list[tuple[Rule, dict[str, Measurement]]], sinks: Mapping[str, Any], tx: Tx
) -> list[AlertStep]:
    stored = {(alert.rule, alert.subject): alert for alert in await tx.alerts.list_alerts()}
    silences = await tx.silences.list_silences()
    news = []
    for rule, measurements in measured:
        stored_subjects = {subject for name, subject in stored if name == rule.name}
        for subject in dict.fromkeys((*measurements, *stored_subjects)):
            before = stored.get((rule.name, subject))
            step = advance(rule, subject, before, measurements.get(subject), tx.now)
            notify = step.notify or _after_silence(silences, before, step.after, tx.now)
            if await _store_alert(tx.alerts, before, step.after) and notify and step.after:
                labels = measurements[subject].labels if subject in measurements else labels_of(subject)
                if not any(silence.covers(rule.name, subject, tx.now) for silence in silences):
                    await _add_deliveries(engine, tx, rule, step.after, labels, sinks)
                news.append(AlertStep(step.after, notify, labels))
    await tx.silences.drop_silences(tx.now - KEEP_SILENCES)
    await tx.alerts.drop_deliveries(tx.now - KEEP_DELIVERIES)
    await tx.event_counts.drop_recent_counts((tx.now - 2 * 3_600 * SECOND) // SLOT)
    return news


async def _store_alert(alerts: AlertTable, before: Alert | None, after: Alert | None) -> bool:
    """False if the alert did not change, or another process has changed it first."""
    if after is before:
        return False
    if after is None:
        assert before is not None
        return await alerts.drop_alert(before)
    return await (alerts.add_alert(after) if before is None else alerts.change_alert(after))


async def _add_deliveries(
    engine: Runtime, tx: Tx, rule: Rule, alert: Alert, labels: Mapping[str, str], sinks: Mapping[str, Any]
) -> None:
    body = json.dumps({**alert_view(alert), "kind": rule.kind, "labels": dict(labels)}, ensure_ascii=False)
    for name, sink in sinks.items():
        if sink.accepts(alert.severity):
            delivery = Delivery(engine.ids.job(), alert.rule, alert.subject, name, body, tx.now, tx.now)
            await tx.alerts.add_delivery(delivery)


def _after_silence(silences: Sequence[Silence], before: Alert | None, after: Alert | None, now: Micros) -> State | None:
    """The news that an alert still fires after a silence has ended since it was evaluated last."""
    if before is None or after is None or not before.state == after.state == State.FIRING:
        return None
    ended = [silence for silence in silences if before.updated_at < silence.until <= now]
    return State.FIRING if any(one.covers(after.rule, after.subject, before.updated_at) for one in ended) else None


_LABEL = re.compile("(?:^|, )(contract|code|queue|job_type|tenant|schedule|webhook)=")
"""A label in a subject. Names of queues may contain a comma."""


def labels_of(subject: str) -> dict[str, str]:
    """What an alert is about, by kind of thing: {"queue": "billing"}."""
    _, *parts = _LABEL.split(subject)
    return dict(zip(parts[::2], parts[1::2], strict=True))


async def take_deliveries(engine: Runtime, sinks: Sequence[str], limit: int) -> list[Delivery]:
    """Claim due deliveries to these sinks for a minute, one of each subject and sink; if this process dies, another
    one claims them after that."""

    async def act(tx: Tx) -> list[Delivery]:
        until = tx.now + int(_DELIVERY_LEASE_SECONDS * SECOND)
        due = await tx.alerts.due_deliveries(sinks, limit)
        taken = [delivery for delivery in due if await tx.alerts.take_delivery(delivery, until)]
        return [replace(delivery, attempts=delivery.attempts + 1) for delivery in taken]

    return await engine.store.write(act)


async def finish_delivery(engine: Runtime, delivery: Delivery, error: str | None) -> bool:
    """Store the result of an attempt: delivered, retried later, or given up. True if there is no retry."""
    given_up = error is not None and delivery.attempts >= MAX_DELIVERY_ATTEMPTS
    backoff = Backoff(1.0, _MAX_BACKOFF_SECONDS, failures=delivery.attempts - 1)

    async def act(tx: Tx) -> None:
        due_at = None if error is None or given_up else tx.now + int(backoff.seconds * SECOND)
        done = tx.now if error is None else None
        await tx.alerts.end_delivery(delivery, due_at, done, error and error[:500])

    await engine.store.write(act)
    return error is None or given_up


async def claim_interval(engine: Runtime, name: str, seconds: float) -> bool:
    """True for one process per `seconds`: that process runs the named periodic task, the others skip it."""
    span = int(seconds * SECOND)

    async def is_due(tx: Tx) -> bool:
        return (await tx.intervals.last_runs()).get(name, 0) <= tx.now - span

    return await engine.store.read(is_due) and await engine.store.write(
        lambda tx: tx.intervals.take_interval(name, tx.now - span)
    )


async def acknowledge(engine: Runtime, rule: str, subject: str, scope: Scope) -> Alert:
    """Note who works on an alert that is pending or firing. Raises NotFound for any other."""

    async def act(tx: Tx) -> Alert:
        open_alerts = [alert for alert in await tx.alerts.list_alerts() if alert.state != State.RESOLVED]
        alert = next((each for each in open_alerts if (each.rule, each.subject) == (rule, subject)), None)
        if alert is None:
            message = f"no alert of rule {rule!r} about {subject!r} is pending or firing; list them again"
            raise NotFound(message, code="ALERT_NOT_FOUND")
        after = replace(alert, version=alert.version + 1, acknowledged_by=scope.actor, acknowledged_at=tx.now)
        if not await tx.alerts.change_alert(after):
            raise VersionConflict("the alert has just changed; try again")
        await audit(tx, scope, "alert.acknowledge", f"{rule} {subject}")
        return after

    return await engine.store.write(act)


async def silence(engine: Runtime, rule: str, subject: str, seconds: float, scope: Scope) -> Silence:
    """Do not notify sinks of alerts of this rule about this subject ('': about any) for some time."""
    check_name(rule, "rule")
    check_number(seconds, "seconds", 1, MAX_SILENCE_SECONDS, "SILENCE_INVALID", whole=False)

    async def act(tx: Tx) -> Silence:
        until = tx.now + int(seconds * SECOND)
        added = Silence(engine.ids.job(), rule, subject, until, scope.actor, scope.reason, tx.now)
        await tx.silences.add_silence(added)
        await audit(tx, scope, "alert.silence", f"{rule} {subject}".strip(), data={"until": iso(until)})
        return added

    return await engine.store.write(act)


async def end_silence(engine: Runtime, silence_id: str, scope: Scope) -> bool:
    """End a silence before its time; False if there is none with this id."""

    async def act(tx: Tx) -> bool:
        removed = await tx.silences.drop_silence(silence_id)
        if removed:
            await audit(tx, scope, "alert.unsilence", silence_id)
        return removed

    return await engine.store.write(act)


async def list_silences(engine: Runtime) -> list[Silence]:
    """The active silences, the next to end first."""

    async def act(tx: Tx) -> list[Silence]:
        return [silence for silence in await tx.silences.list_silences() if tx.now < silence.until]

    return await engine.store.read(act)


async def list_alerts(engine: Runtime) -> list[Alert]:
    """All pending and firing alerts, and those resolved last."""
    return await engine.store.read(lambda tx: tx.alerts.list_alerts())


async def list_deliveries(engine: Runtime, limit: int = 50) -> list[Delivery]:
    """Past and pending deliveries to sinks, newest first."""
    return await engine.store.read(lambda tx: tx.alerts.list_deliveries(limit))


def alert_view(alert: Alert) -> operations.Alert:
    """An alert as the REST API, the command line and the sinks show it."""
    return show(operations.Alert, alert)


def listed_view(
    alert: Alert, silences: Iterable[Silence], rules: Iterable[Rule], now: Micros
) -> operations.ListedAlert:
    """An alert with the kind of its rule, its labels, and until when it is silenced."""
    kinds = {rule.name: rule.kind for rule in rules}
    ends = [each.until for each in silences if each.covers(alert.rule, alert.subject, now)]
    until = iso(max(ends, default=None))
    return show(
        operations.ListedAlert, alert, kind=kinds.get(alert.rule), labels=labels_of(alert.subject), silenced_until=until
    )


def delivery_view(delivery: Delivery, *, errors: bool = True) -> operations.AlertDelivery:
    """errors False: the error is hidden, for callers who are no administrators. It contains what a command printed."""
    if not errors and delivery.last_error is not None:
        delivery = replace(delivery, last_error="failed; administrators see the error")
    state = "delivered" if delivery.delivered_at else "given up" if delivery.due_at is None else "due"
    return show(operations.AlertDelivery, delivery, news=json.loads(delivery.body)["state"], state=state)


def rule_view(rule: Rule) -> dict[str, Any]:
    kind = KINDS[rule.kind]
    return {**asdict(rule), "says": kind.summary, "unit": kind.unit}


def check_rule(rule: Rule) -> Rule:
    """Return the rule, or raise InvalidInput if it cannot be evaluated."""
    spans = (rule.for_seconds, rule.resolve_after_seconds, rule.threshold, rule.min_count)
    if rule.kind not in KINDS:
        problem = f"unknown kind {rule.kind!r}; use one of {', '.join(KINDS)}"
    elif min(spans) < 0 or not 10 <= rule.window_seconds <= 7_200:
        problem = "times and thresholds must be at least 0, window_seconds from 10 to 7200"
    else:
        return rule
    raise InvalidInput(f"alert rule {rule.name!r}: {problem}", code="ALERT_RULE_INVALID")
