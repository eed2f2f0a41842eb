"""Alerts: rules with defaults, and the pure state transition of an alert."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .job import Micros
from .times import SECOND


class State(StrEnum):
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


SEVERITIES = ("P1", "P2", "P3")


@dataclass(frozen=True, slots=True)
class Rule:
    """When an alert fires: the value is at least `threshold` for `for_seconds`."""

    name: str
    kind: str
    severity: str
    threshold: float
    for_seconds: float = 0.0
    resolve_after_seconds: float = 60.0
    """A firing alert resolves after this time without a breach."""
    resolve_below: float | None = None
    """A firing alert resolves only below this value; None: below the threshold."""
    window_seconds: float = 300.0
    """The time window of rules that count events."""
    min_count: int = 0
    """A share is ignored if it was taken over fewer items than this."""
    contract: str | None = None
    queue: str | None = None
    job_type: str | None = None
    tenant_id: str | None = None
    enabled: bool = True


DEFAULT_RULES = (
    Rule("retrying_share", "retrying_share", "P2", 0.3, for_seconds=60, min_count=20),
    Rule("dlq_arrivals", "dlq_arrivals", "P2", 10, window_seconds=300, resolve_after_seconds=120),
    Rule("illegal_transitions", "illegal_transitions", "P1", 3, window_seconds=300, resolve_after_seconds=300),
    Rule("no_worker", "no_worker", "P2", 30, for_seconds=30, resolve_after_seconds=30),
    Rule("backlog_age", "backlog_age", "P2", 300, for_seconds=60, resolve_below=240),
    Rule("stuck_running", "stuck_running", "P3", 3_600, for_seconds=60),
    Rule("schedule_missed", "schedule_missed", "P2", 120, for_seconds=30),
    Rule("lease_losses", "lease_losses", "P2", 10, window_seconds=600, resolve_after_seconds=120),
    Rule("suspects", "suspects", "P2", 2, resolve_after_seconds=120),
    Rule("webhook_failing", "webhook_failing", "P2", 3_600),
    Rule("error_rate", "error_rate", "P2", 0.5, for_seconds=60, window_seconds=300, min_count=20),
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """The value of a rule for one subject."""

    labels: Mapping[str, str]
    value: float
    summary: str
    count: int | None = None
    """The number of items a share was taken over."""

    @property
    def subject(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.labels.items()) or "all"


@dataclass(frozen=True, slots=True)
class Alert:
    """The state of one rule for one subject. fired_at, resolved_at: of the current or last episode."""

    rule: str
    subject: str
    state: str
    severity: str
    value: float
    summary: str
    since: Micros
    fired_at: Micros | None
    clear_since: Micros | None
    resolved_at: Micros | None
    updated_at: Micros
    episode: int
    version: int
    acknowledged_by: str | None = None
    """Who works on this episode."""
    acknowledged_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    """Sinks are not notified of alerts of this rule until a time. subject: '' for all subjects of the rule."""

    id: str
    rule: str
    subject: str
    until: Micros
    actor: str
    reason: str | None
    created_at: Micros

    def covers(self, rule: str, subject: str, now: Micros) -> bool:
        return self.rule == rule and self.subject in ("", subject) and now < self.until


@dataclass(frozen=True, slots=True)
class Delivery:
    """One notification for one sink. due_at None: delivered, or abandoned if delivered_at is None too."""

    id: str
    rule: str
    subject: str
    sink: str
    body: str
    created_at: Micros
    due_at: Micros | None
    attempts: int = 0
    delivered_at: Micros | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class AlertStep:
    """The result of a transition. after None: the alert is deleted. notify: the new state to send to the sinks."""

    after: Alert | None
    notify: State | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def breached(rule: Rule, measurement: Measurement | None, *, firing: bool) -> bool:
    if measurement is None or (measurement.count is not None and measurement.count < rule.min_count):
        return False
    limit = rule.resolve_below if firing and rule.resolve_below is not None else rule.threshold
    return measurement.value >= limit


def advance(rule: Rule, subject: str, before: Alert | None, measurement: Measurement | None, now: Micros) -> AlertStep:
    """The next state of an alert after a measurement; pure, so that every process decides the same."""
    firing = before is not None and before.state == State.FIRING
    is_breached = breached(rule, measurement, firing=firing)
    if before is None or before.state == State.RESOLVED:
        return _begin(rule, subject, before, measurement, now) if is_breached and measurement else AlertStep(before)
    after = replace(before, updated_at=now, version=before.version + 1)
    if measurement is not None:
        after = replace(after, value=measurement.value, summary=measurement.summary)
    if before.state == State.PENDING:
        if not is_breached:
            return AlertStep(None) if before.episode == 1 else AlertStep(_resolved(after, now))
        return _fire_if_due(rule, after, now)
    if is_breached:
        return AlertStep(replace(after, clear_since=None))
    clear_since = before.clear_since if before.clear_since is not None else now
    if now - clear_since >= rule.resolve_after_seconds * SECOND:
        return AlertStep(_resolved(after, now), State.RESOLVED)
    return AlertStep(replace(after, clear_since=clear_since))


def _begin(rule: Rule, subject: str, before: Alert | None, measurement: Measurement, now: Micros) -> AlertStep:
    alert = Alert(
        rule=rule.name,
        subject=subject,
        state=State.PENDING,
        severity=rule.severity,
        value=measurement.value,
        summary=measurement.summary,
        since=now,
        fired_at=None,
        clear_since=None,
        resolved_at=None,
        updated_at=now,
        episode=before.episode + 1 if before else 1,
        version=before.version + 1 if before else 1,
    )
    return _fire_if_due(rule, alert, now)


def _fire_if_due(rule: Rule, alert: Alert, now: Micros) -> AlertStep:
    if now - alert.since < rule.for_seconds * SECOND:
        return AlertStep(alert)
    return AlertStep(replace(alert, state=State.FIRING, fired_at=now), State.FIRING)


def _resolved(alert: Alert, now: Micros) -> Alert:
    return replace(alert, state=State.RESOLVED, clear_since=None, resolved_at=now)
