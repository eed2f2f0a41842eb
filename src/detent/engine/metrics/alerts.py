"""Alerts: measured by any process, decided once by compare-and-set, told at least once."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from detent.core.alerts import DEFAULT_RULES, Alert, Delivery, Measured, Rule, Step, advance
from detent.core.errors import InvalidInput
from detent.core.job import Loss
from detent.core.times import SECOND, iso
from detent.engine.reads.why import Pause
from detent.ports.tx import Tx

from .alert_kinds import KINDS, MissedSchedule, Readings
from .event_counts import SLOT, Follower, Key, groups

if TYPE_CHECKING:
    from detent.engine.engine import Engine

SUBJECTS_AT_MOST = 50
"""Alerts one rule may raise: a thousand broken tenants are one problem."""
_LOSSES_AT_MOST = 10_000
_TRY_SECONDS = 60.0
_LONGEST_BACKOFF = 300.0
GIVE_UP_AFTER = 20
KEEP_DELIVERIES = 7 * 86_400 * SECOND


async def readings(engine: "Engine", tx: Tx) -> Readings:
    """One look at everything rules and metrics rest on; costs nothing that grows with finished jobs."""
    known = await groups(tx)
    longest = 2 * 3_600 * SECOND
    losses = [Loss(*row) for row in await tx.query("losses", since=tx.now - longest, limit=_LOSSES_AT_MOST)]
    return Readings(
        now=tx.now,
        contracts=engine.contracts,
        groups=known,
        tenants={row[0]: row[1] for row in await tx.query("lane_parties")},
        sums={(row[0], Key(*row[1:6])): row[6] for row in await tx.query("tallies")},
        slots=[
            (row[0], row[1], Key(*row[2:7]), row[7])
            for row in await tx.query("tally_slots", since=(tx.now - longest) // SLOT)
        ],
        due=[(known[row[0]], row[1]) for row in await tx.query("oldest_due", now=tx.now) if row[0] in known],
        workers=await tx.workers(),
        pauses=[Pause(*row) for row in await tx.pauses()],
        running=[(row[0], row[1], row[2], row[3]) for row in await tx.query("long_held")],
        losses=losses,
        missed=[MissedSchedule(*row) for row in await tx.query("missed_schedules", now=tx.now, since=tx.now - longest)],
    )


async def evaluate(
    engine: "Engine", follower: Follower, rules: Sequence[Rule] = DEFAULT_RULES, sinks: Mapping[str, Any] | None = None
) -> list[Step]:
    """Measure, decide and store; returns what is news. sinks: name -> what has `wants(severity)`."""
    await follower.catch_up()
    found = await engine.store.read(partial(readings, engine))
    active = [rule for rule in rules if rule.enabled]
    measured = [(rule, _worst(KINDS[rule.kind].measure(rule, found))) for rule in active]
    return await engine.store.write(partial(_decide, engine, measured, sinks or {}))


def _worst(found: Iterable[Measured]) -> dict[str, Measured]:
    ordered = sorted(found, key=lambda one: -one.value)
    return {one.subject: one for one in ordered[:SUBJECTS_AT_MOST]}


async def _decide(
    engine: "Engine", measured: list[tuple[Rule, dict[str, Measured]]], sinks: Mapping[str, Any], tx: Tx
) -> list[Step]:
    stored = {(alert.rule, alert.subject): alert for alert in await _alerts(tx)}
    news = []
    for rule, found in measured:
        known = {subject for name, subject in stored if name == rule.name}
        for subject in dict.fromkeys((*found, *known)):
            before = stored.get((rule.name, subject))
            step = advance(rule, subject, before, found.get(subject), tx.now)
            if await _put(tx, before, step.after) and step.news and step.after:
                labels = found[subject].labels if subject in found else _labels(subject)
                await _announce(engine, tx, rule, step.after, labels, sinks)
                news.append(Step(step.after, step.news, labels))
    await tx.change("drop_deliveries", before=tx.now - KEEP_DELIVERIES)
    await tx.change("drop_tally_slots", before=(tx.now - 2 * 3_600 * SECOND) // SLOT)
    return news


async def _put(tx: Tx, before: Alert | None, after: Alert | None) -> bool:
    """False: nothing to store, or another process was faster."""
    if after is before:
        return False
    if after is None:
        assert before is not None
        return await tx.change("drop_alert", rule=before.rule, subject=before.subject, version=before.version) == 1
    return await tx.change("add_alert" if before is None else "change_alert", **asdict(after)) == 1


async def _announce(
    engine: "Engine", tx: Tx, rule: Rule, alert: Alert, labels: Mapping[str, str], sinks: Mapping[str, Any]
) -> None:
    body = json.dumps({**alert_view(alert), "kind": rule.kind, "labels": dict(labels)}, ensure_ascii=False)
    for name, sink in sinks.items():
        if sink.wants(alert.severity):
            told = Delivery(engine.ids.job(), alert.rule, alert.subject, name, body, tx.now, tx.now)
            await tx.change("add_delivery", **asdict(told))


def _labels(subject: str) -> dict[str, str]:
    parts = (part.partition("=") for part in subject.split(", "))
    return {name: value for name, mark, value in parts if mark}


async def take_delivery(engine: "Engine", names: Iterable[str]) -> Delivery | None:
    """One that is due and nobody else tries now. If we die with it, another takes it after a minute."""
    known = set(names)

    async def act(tx: Tx) -> Delivery | None:
        for row in await tx.query("due_deliveries", now=tx.now, limit=100):
            told = Delivery(*row)
            until = tx.now + int(_TRY_SECONDS * SECOND)
            values = {"id": told.id, "attempts": told.attempts, "until": until}
            if told.sink in known and await tx.change("take_delivery", **values):
                return Delivery(**{**asdict(told), "attempts": told.attempts + 1})
        return None

    return await engine.store.write(act)


async def any_due(engine: "Engine") -> bool:
    return bool(await engine.store.read(lambda tx: tx.query("due_deliveries", now=tx.now, limit=1)))


async def end_delivery(engine: "Engine", told: Delivery, error: str | None) -> bool:
    """Delivered, or to be tried again later, or given up; True if it is not tried again."""
    gave_up = error is not None and told.attempts >= GIVE_UP_AFTER
    backoff = int(min(2.0 ** (told.attempts - 1), _LONGEST_BACKOFF) * SECOND)

    async def act(tx: Tx) -> None:
        due_at = None if error is None or gave_up else tx.now + backoff
        done = tx.now if error is None else None
        values = {"id": told.id, "attempts": told.attempts, "last_error": error and error[:500]}
        await tx.change("end_delivery", due_at=due_at, delivered_at=done, **values)

    await engine.store.write(act)
    return error is None or gave_up


async def take_turn(engine: "Engine", name: str, seconds: float) -> bool:
    """True for one process in so many seconds: it does what need not be done by all."""
    span = int(seconds * SECOND)

    async def look(tx: Tx) -> bool:
        at = {row[0]: row[1] for row in await tx.query("turns")}.get(name, 0)
        return bool(at <= tx.now - span)

    async def act(tx: Tx) -> bool:
        await tx.change("first_turn", name=name)
        return await tx.change("take_turn", name=name, latest=tx.now - span, now=tx.now) == 1

    return await engine.store.read(look) and await engine.store.write(act)


async def listing(engine: "Engine") -> list[Alert]:
    """What is pending, firing or was resolved last."""
    return await engine.store.read(_alerts)


async def deliveries(engine: "Engine", limit: int = 50) -> list[Delivery]:
    """What was told to sinks or is still to be told, the newest first."""
    rows = await engine.store.read(lambda tx: tx.query("deliveries", limit=limit))
    return [Delivery(*row) for row in rows]


async def _alerts(tx: Tx) -> list[Alert]:
    return [Alert(*row) for row in await tx.query("alerts")]


def alert_view(alert: Alert) -> dict[str, Any]:
    """An alert as REST, command line and sinks show it."""
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


def delivery_view(told: Delivery) -> dict[str, Any]:
    state = "delivered" if told.delivered_at else "given up" if told.due_at is None else "due"
    return {
        "id": told.id,
        "rule": told.rule,
        "subject": told.subject,
        "sink": told.sink,
        "news": json.loads(told.body)["state"],
        "state": state,
        "attempts": told.attempts,
        "last_error": told.last_error,
        "created_at": iso(told.created_at),
        "delivered_at": iso(told.delivered_at),
    }


def rule_view(rule: Rule) -> dict[str, Any]:
    kind = KINDS[rule.kind]
    return {**asdict(rule), "says": kind.says, "unit": kind.unit}


def check_rule(rule: Rule) -> Rule:
    """Refuse a rule that could never be evaluated."""
    if rule.kind not in KINDS:
        raise InvalidInput(
            f"alert rule {rule.name!r}: there is no kind {rule.kind!r}; known are {', '.join(KINDS)}",
            code="ALERT_RULE_INVALID",
        )
    spans = (rule.for_seconds, rule.resolve_after_seconds, rule.threshold, rule.min_count)
    if min(spans) < 0 or not 10 <= rule.window_seconds <= 7_200:
        raise InvalidInput(
            f"alert rule {rule.name!r}: spans and thresholds are at least 0, window_seconds is from 10 to 7200",
            code="ALERT_RULE_INVALID",
        )
    return rule
