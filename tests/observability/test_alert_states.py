"""`advance`, the state machine of an alert (pending, firing, resolved), and the settings of rules and sinks."""

from dataclasses import replace

import pytest

from detent.core.alerts import Alert, AlertStep, Measurement, Rule, State, advance
from detent.core.errors import InvalidInput
from detent.engine.metrics.alerts import labels_of
from detent.observability.settings_file import settings_from

S = 1_000_000
RULE = Rule("r", "backlog_age", "P2", 10, for_seconds=5, resolve_after_seconds=20, resolve_below=8)


def at(second: int, value: float | None, before: Alert | None = None, rule: Rule = RULE) -> AlertStep:
    measured = None if value is None else Measurement({"queue": "q"}, value, f"value {value}")
    return advance(rule, "queue=q", before, measured, second * S)


def test_a_short_breach_does_not_fire() -> None:
    pending = at(0, 11).after
    assert pending and pending.state == State.PENDING
    assert at(3, 9, pending) == AlertStep(None)


def test_it_fires_once_after_for_seconds() -> None:
    pending = at(0, 11).after
    assert at(4, 11, pending).notify is None
    fired = at(5, 12, pending)
    assert fired.notify == State.FIRING and fired.after and fired.after.fired_at == 5 * S
    assert at(6, 12, fired.after).notify is None


def test_it_keeps_firing_between_the_two_thresholds() -> None:
    fired = at(5, 12, at(0, 11).after).after
    held = at(100, 9, fired)
    assert held.notify is None and held.after and held.after.clear_since is None


def test_a_new_breach_restarts_resolve_after_seconds() -> None:
    fired = at(5, 12, at(0, 11).after).after
    clear = at(10, 1, fired).after
    assert clear and clear.clear_since == 10 * S and clear.state == State.FIRING
    relapsed = at(20, 12, clear).after
    assert relapsed and relapsed.clear_since is None
    clear = at(30, None, relapsed).after
    assert at(49, 1, clear).notify is None
    assert at(50, 1, clear).notify == State.RESOLVED


def test_a_new_breach_after_the_end_is_a_new_episode() -> None:
    fired = at(5, 12, at(0, 11).after).after
    resolved = at(50, 1, at(30, 1, fired).after).after
    assert resolved and resolved.state == State.RESOLVED and resolved.resolved_at == 50 * S
    assert at(55, 1, resolved) == AlertStep(resolved), "nothing changes while the value is below the threshold"
    again = at(60, 11, resolved).after
    assert again and (again.state, again.episode, again.resolved_at) == (State.PENDING, 2, None)
    back = at(61, 1, again).after
    assert back and back.state == State.RESOLVED and at(61, 1, again).notify is None


def test_a_share_of_fewer_than_min_count_is_ignored() -> None:
    rule = replace(RULE, min_count=20, for_seconds=0)
    few = Measurement({}, 99, "", count=19)
    assert advance(rule, "all", None, few, 0) == AlertStep(None)
    assert advance(rule, "all", None, replace(few, count=20), 0).notify == State.FIRING


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alerts": {"rules": {"x": {"kind": "nonsense", "threshold": 1}}}}, "nonsense"),
        ({"alerts": {"rules": {"x": {"threshold": 1}}}}, "alerts.rules.x is a new rule, so kind must be set"),
        ({"alerts": {"rules": {"no_worker": {"treshold": 1}}}}, "alerts.rules.no_worker.treshold is unknown"),
        ({"alerts": {"rules": {"no_worker": {"threshold": "much"}}}}, "no_worker.threshold must be a number"),
        ({"alerts": {"rules": {"no_worker": {"severity": "P9"}}}}, "must be 'P1', 'P2' or 'P3'"),
        ({"alerts": {"rules": {"no_worker": {"window_seconds": 99999}}}}, "window_seconds"),
        ({"alerts": {"sinks": {"x": {"type": "pigeon"}}}}, "alerts.sinks.x.type must be log, webhook or command"),
        (
            {"alerts": {"sinks": {"x": {"type": "webhook", "url": "file:///etc/passwd"}}}},
            "alerts.sinks.x.url must be http",
        ),
        (
            {"alerts": {"sinks": {"x": {"type": "command", "command": ""}}}},
            "alerts.sinks.x.command must name a program",
        ),
        ({"alerts": {"sinks": {"x": {"type": "log", "severities": ["P7"]}}}}, "alerts.sinks.x.severities.0 must be"),
        ({"alerts": {"interval_seconds": -1}}, "alerts.interval_seconds must be"),
        ({"alerts": {"interval_seconds": True}}, "alerts.interval_seconds must be a number"),
        ({"alerts": {"enabled": 1}}, "alerts.enabled must be a boolean"),
        ({"alerts": 3}, "alerts must be a table"),
        (
            {"retention": {"rules": [{"keep_days": 1, "keep_seconds": 1}]}},
            "retention.rules.0 has keep_days and keep_seconds",
        ),
        ({"retention": {"rules": [{"queu": "x"}]}}, "retention.rules.0.queu is unknown"),
        ({"retention": {"batch": 0}}, "retention.batch must be"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings_from(settings)
    assert message in caught.value.message and caught.value.code in ("SETTINGS_INVALID", "ALERT_RULE_INVALID")


def test_settings_change_and_add_rules() -> None:
    settings = settings_from(
        {
            "alerts": {
                "interval_seconds": 5,
                "rules": {
                    "no_worker": {"enabled": False},
                    "billing": {"kind": "backlog_age", "queue": "billing", "threshold": 60, "severity": "P1"},
                },
                "sinks": {"pager": {"type": "webhook", "url": "https://pager.example/x", "severities": ["P1"]}},
            },
            "retention": {"rules": [{"queue": "audit"}, {"status": "failed", "keep_days": 90}, {"keep_days": 7}]},
            "other tool": {},
        }
    )
    rules = {rule.name: rule for rule in settings.rules}
    assert not rules["no_worker"].enabled and rules["billing"].queue == "billing"
    assert set(settings.sinks) == {"log", "pager"}
    assert settings.sinks["pager"].accepts("P1") and not settings.sinks["pager"].accepts("P2")
    assert [rule.keep_seconds for rule in settings.retention] == [None, 90 * 86_400.0, 7 * 86_400.0]


@pytest.mark.parametrize(
    "labels",
    [{}, {"queue": "orders, eu", "job_type": "a=b"}, {"tenant": "Smith, Sons & Co"}, {"contract": "men", "code": "X"}],
)
def test_the_labels_of_a_subject_are_found_again(labels: dict[str, str]) -> None:
    assert labels_of(Measurement(labels, 1.0, "").subject) == labels
