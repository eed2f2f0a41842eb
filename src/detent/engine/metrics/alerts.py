"""Alerts: any process measures them; a compare-and-set lets one process change a state; delivered at least once."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from detent.core.alerts import DEFAULT_RULES, Alert, AlertStep, Delivery, Measurement, Rule, advance
from detent.core.errors import InvalidInput
from detent.core.job import Loss
from detent.core.times import SECOND, iso
from detent.engine.reads.why import Pause
from detent.engine.runtime import Runtime
from detent.ports.tx import Tx
from detent.system.backoff import Backoff

from .alert_kinds import KINDS, MissedSchedule, Readings
from .event_counts import SLOT, EventCounter, Key, read_groups

MAX_SUBJECTS = 50
"""Most subjects per rule with an alert, the worst first: a thousand broken tenants are one problem."""
_MAX_LOSSES = 10_000
_DELIVERY_LEASE_SECONDS = 60.0
_MAX_BACKOFF_SECONDS = 300.0
MAX_DELIVERY_ATTEMPTS = 20
KEEP_DELIVERIES = 7 * 86_400 * SECOND


async def read_inputs(engine: Runtime, tx: Tx) -> Readings:
    """Read the inputs of rules and metrics; the cost does not grow with the number of finished jobs."""
    groups = await read_groups(tx)
    longest = 2 * 3_600 * SECOND
    losses = [Loss(*row) for row in await tx.query("losses", since=tx.now - longest, limit=_MAX_LOSSES)]
    return Readings(
        now=tx.now,
        contracts=engine.contracts,
        groups=groups,
        tenants={row[0]: row[1] for row in await tx.query("lane_parties")},
        sums={(row[0], Key(*row[1:6])): row[6] for row in await tx.query("tallies")},
        slots=[
            (row[0], row[1], Key(*row[2:7]), row[7])
            for row in await tx.query("tally_slots", since=(tx.now - longest) // SLOT)
        ],
        due=[(groups[row[0]], row[1]) for row in await tx.query("oldest_due", now=tx.now) if row[0] in groups],
        workers=await tx.workers(),
        pauses=[Pause(*row) for row in await tx.pauses()],
        running=[(row[0], row[1], row[2], row[3]) for row in await tx.query("long_held")],
        losses=losses,
        suspects=await tx.suspects(),
        missed=[MissedSchedule(*row) for row in await tx.query("missed_schedules", now=tx.now, since=tx.now - longest)],
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
    stored = {(alert.rule, alert.subject): alert for alert in await _read_alerts(tx)}
    news = []
    for rule, measurements in measured:
        stored_subjects = {subject for name, subject in stored if name == rule.name}
        for subject in dict.fromkeys((*measurements, *stored_subjects)):
            before = stored.get((rule.name, subject))
            step = advance(rule, subject, before, measurements.get(subject), tx.now)
            if await _store_alert(tx, before, step.after) and step.notify and step.after:
                labels = measurements[subject].labels if subject in measurements else _labels(subject)
                await _add_deliveries(engine, tx, rule, step.after, labels, sinks)
                news.append(AlertStep(step.after, step.notify, labels))
    await tx.change("drop_deliveries", before=tx.now - KEEP_DELIVERIES)
    await tx.change("drop_tally_slots", before=(tx.now - 2 * 3_600 * SECOND) // SLOT)
    return news


async def _store_alert(tx: Tx, before: Alert | None, after: Alert | None) -> bool:
    """False if the alert did not change, or another process has changed it first."""
    if after is before:
        return False
    if after is None:
        assert before is not None
        return await tx.change("drop_alert", rule=before.rule, subject=before.subject, version=before.version) == 1
    return await tx.change("add_alert" if before is None else "change_alert", **asdict(after)) == 1


async def _add_deliveries(
    engine: Runtime, tx: Tx, rule: Rule, alert: Alert, labels: Mapping[str, str], sinks: Mapping[str, Any]
) -> None:
    body = json.dumps({**alert_view(alert), "kind": rule.kind, "labels": dict(labels)}, ensure_ascii=False)
    for name, sink in sinks.items():
        if sink.accepts(alert.severity):
            delivery = Delivery(engine.ids.job(), alert.rule, alert.subject, name, body, tx.now, tx.now)
            await tx.change("add_delivery", **asdict(delivery))


def _labels(subject: str) -> dict[str, str]:
    parts = (part.partition("=") for part in subject.split(", "))
    return {name: value for name, mark, value in parts if mark}


async def take_delivery(engine: Runtime, names: Iterable[str]) -> Delivery | None:
    """Claim one due delivery to these sinks for a minute; if this process dies, another one claims it after that."""
    sink_names = set(names)

    async def act(tx: Tx) -> Delivery | None:
        for row in await tx.query("due_deliveries", now=tx.now, limit=100):
            delivery = Delivery(*row)
            until = tx.now + int(_DELIVERY_LEASE_SECONDS * SECOND)
            values = {"id": delivery.id, "attempts": delivery.attempts, "until": until}
            if delivery.sink in sink_names and await tx.change("take_delivery", **values):
                return Delivery(**{**asdict(delivery), "attempts": delivery.attempts + 1})
        return None

    return await engine.store.write(act)


async def any_delivery_due(engine: Runtime) -> bool:
    return bool(await engine.store.read(lambda tx: tx.query("due_deliveries", now=tx.now, limit=1)))


async def finish_delivery(engine: Runtime, delivery: Delivery, error: str | None) -> bool:
    """Store the result of an attempt: delivered, retried later, or given up. True if there is no retry."""
    given_up = error is not None and delivery.attempts >= MAX_DELIVERY_ATTEMPTS
    backoff = Backoff(1.0, _MAX_BACKOFF_SECONDS, failures=delivery.attempts - 1)

    async def act(tx: Tx) -> None:
        due_at = None if error is None or given_up else tx.now + int(backoff.seconds * SECOND)
        done = tx.now if error is None else None
        values = {"id": delivery.id, "attempts": delivery.attempts, "last_error": error and error[:500]}
        await tx.change("end_delivery", due_at=due_at, delivered_at=done, **values)

    await engine.store.write(act)
    return error is None or given_up


async def claim_interval(engine: Runtime, name: str, seconds: float) -> bool:
    """True for one process per `seconds`: that process runs the named periodic task, the others skip it."""
    span = int(seconds * SECOND)

    async def is_due(tx: Tx) -> bool:
        at = {row[0]: row[1] for row in await tx.query("turns")}.get(name, 0)
        return bool(at <= tx.now - span)

    async def act(tx: Tx) -> bool:
        await tx.change("first_turn", name=name)
        return await tx.change("take_turn", name=name, latest=tx.now - span, now=tx.now) == 1

    return await engine.store.read(is_due) and await engine.store.write(act)


async def list_alerts(engine: Runtime) -> list[Alert]:
    """All pending and firing alerts, and those resolved last."""
    return await engine.store.read(_read_alerts)


async def list_deliveries(engine: Runtime, limit: int = 50) -> list[Delivery]:
    """Past and pending deliveries to sinks, newest first."""
    rows = await engine.store.read(lambda tx: tx.query("deliveries", limit=limit))
    return [Delivery(*row) for row in rows]


async def _read_alerts(tx: Tx) -> list[Alert]:
    return [Alert(*row) for row in await tx.query("alerts")]


def alert_view(alert: Alert) -> dict[str, Any]:
    """An alert as the REST API, the command line and the sinks show it."""
    return {
        "rule": alert.rule,
        "subject": alert.subject,
        "state": str(alert.state),
        "severity": alert.severity,
        "value": alert.value,
        "summary": alert.summary,
        "since": iso(alert.since),
        "fired_at": iso(alert.fired_at),
        "resolved_at": iso(alert.resolved_at),
        "updated_at": iso(alert.updated_at),
        "episode": alert.episode,
    }


def delivery_view(delivery: Delivery) -> dict[str, Any]:
    state = "delivered" if delivery.delivered_at else "given up" if delivery.due_at is None else "due"
    return {
        "id": delivery.id,
        "rule": delivery.rule,
        "subject": delivery.subject,
        "sink": delivery.sink,
        "news": json.loads(delivery.body)["state"],
        "state": state,
        "attempts": delivery.attempts,
        "last_error": delivery.last_error,
        "created_at": iso(delivery.created_at),
        "delivered_at": iso(delivery.delivered_at),
    }


def rule_view(rule: Rule) -> dict[str, Any]:
    kind = KINDS[rule.kind]
    return {**asdict(rule), "says": kind.summary, "unit": kind.unit}


def check_rule(rule: Rule) -> Rule:
    """Return the rule, or raise InvalidInput if it cannot be evaluated."""
    if rule.kind not in KINDS:
        raise InvalidInput(
            f"alert rule {rule.name!r}: unknown kind {rule.kind!r}; use one of {', '.join(KINDS)}",
            code="ALERT_RULE_INVALID",
        )
    spans = (rule.for_seconds, rule.resolve_after_seconds, rule.threshold, rule.min_count)
    if min(spans) < 0 or not 10 <= rule.window_seconds <= 7_200:
        raise InvalidInput(
            f"alert rule {rule.name!r}: times and thresholds must be at least 0, window_seconds from 10 to 7200",
            code="ALERT_RULE_INVALID",
        )
    return rule
