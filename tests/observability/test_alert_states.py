"""The states of an alert, decided by a pure function: pending, firing, resolved, with patience both ways."""

from dataclasses import replace

import pytest

from detent.core.alerts import Alert, Measured, Rule, State, Step, advance
from detent.core.errors import InvalidInput
from detent.observability.settings import settings_from

S = 1_000_000
RULE = Rule("r", "backlog_age", "P2", 10, for_seconds=5, resolve_after_seconds=20, resolve_below=8)


def at(second: int, value: float | None, before: Alert | None = None, rule: Rule = RULE) -> Step:
    found = None if value is None else Measured({"queue": "q"}, value, f"value {value}")
    return advance(rule, "queue=q", before, found, second * S)


def test_a_short_excess_is_forgotten() -> None:
    pending = at(0, 11).after
    assert pending and pending.state == State.PENDING
    assert at(3, 9, pending) == Step(None)


def test_it_fires_after_its_patience_and_once() -> None:
    pending = at(0, 11).after
    assert at(4, 11, pending).news is None
    fired = at(5, 12, pending)
    assert fired.news == State.FIRING and fired.after and fired.after.fired_at == 5 * S
    assert at(6, 12, fired.after).news is None


def test_between_the_two_thresholds_it_holds() -> None:
    fired = at(5, 12, at(0, 11).after).after
    held = at(100, 9, fired)
    assert held.news is None and held.after and held.after.clear_since is None


def test_a_relapse_starts_the_patience_anew() -> None:
    fired = at(5, 12, at(0, 11).after).after
    clear = at(10, 1, fired).after
    assert clear and clear.clear_since == 10 * S and clear.state == State.FIRING
    relapsed = at(20, 12, clear).after
    assert relapsed and relapsed.clear_since is None
    clear = at(30, None, relapsed).after
    assert at(49, 1, clear).news is None
    assert at(50, 1, clear).news == State.RESOLVED


def test_a_new_episode_counts_up() -> None:
    fired = at(5, 12, at(0, 11).after).after
    resolved = at(50, 1, at(30, 1, fired).after).after
    assert resolved and resolved.state == State.RESOLVED and resolved.resolved_at == 50 * S
    assert at(55, 1, resolved) == Step(resolved), "nothing is written while all is well"
    again = at(60, 11, resolved).after
    assert again and (again.state, again.episode, again.resolved_at) == (State.PENDING, 2, None)
    back = at(61, 1, again).after
    assert back and back.state == State.RESOLVED and at(61, 1, again).news is None


def test_shares_of_too_few_mean_nothing() -> None:
    rule = replace(RULE, min_count=20, for_seconds=0)
    few = Measured({}, 99, "", count=19)
    assert advance(rule, "all", None, few, 0) == Step(None)
    assert advance(rule, "all", None, replace(few, count=20), 0).news == State.FIRING


@pytest.mark.parametrize(
    ("told", "word"),
    [
        ({"alerts": {"rules": {"x": {"kind": "nonsense", "threshold": 1}}}}, "nonsense"),
        ({"alerts": {"rules": {"x": {"threshold": 1}}}}, "needs at least kind"),
        ({"alerts": {"rules": {"no_worker": {"treshold": 1}}}}, "treshold"),
        ({"alerts": {"rules": {"no_worker": {"threshold": "much"}}}}, "number"),
        ({"alerts": {"rules": {"no_worker": {"severity": "P9"}}}}, "P1, P2, P3"),
        ({"alerts": {"rules": {"no_worker": {"window_seconds": 99999}}}}, "window_seconds"),
        ({"alerts": {"sinks": {"x": {"type": "pigeon"}}}}, "pigeon"),
        ({"alerts": {"sinks": {"x": {"type": "webhook", "url": "file:///etc/passwd"}}}}, "http"),
        ({"alerts": {"sinks": {"x": {"type": "command", "command": ""}}}}, "no program"),
        ({"alerts": {"sinks": {"x": {"type": "log", "severities": ["P7"]}}}}, "P1"),
        ({"alerts": {"interval_seconds": -1}}, "interval_seconds"),
        ({"alerts": 3}, "table"),
        ({"retention": {"rules": [{"keep_days": 1, "keep_seconds": 1}]}}, "not both"),
        ({"retention": {"rules": [{"queu": "x"}]}}, "queu"),
        ({"retention": {"batch": 0}}, "batch"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(told: dict[str, object], word: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings_from(told)
    assert word in caught.value.message and caught.value.code in ("SETTINGS_INVALID", "ALERT_RULE_INVALID")


def test_settings_change_and_add_rules() -> None:
    made = settings_from(
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
    rules = {rule.name: rule for rule in made.rules}
    assert not rules["no_worker"].enabled and rules["billing"].queue == "billing"
    assert set(made.sinks) == {"log", "pager"}
    assert made.sinks["pager"].wants("P1") and not made.sinks["pager"].wants("P2")
    assert [rule.keep_seconds for rule in made.retention] == [None, 90 * 86_400.0, 7 * 86_400.0]
