"""Settings of a running system: alert rules, sinks, retention. From Python, or from a TOML file all processes share."""

import os
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from detent.core.alerts import DEFAULT_RULES, SEVERITIES, Rule
from detent.core.errors import InvalidInput
from detent.engine.metrics.alerts import check_rule
from detent.engine.pruning import Retention

from .alert_sinks import CommandSink, LogSink, Sink, WebhookSink

DEFAULT_FILE = "detent.toml"
_DAY = 86_400.0


def _log_sink() -> dict[str, Sink]:
    return {"log": LogSink()}


@dataclass(frozen=True, slots=True)
class Settings:
    """Every process that runs a worker should be given the same ones: any of them may be the one that evaluates."""

    alerts: bool = True
    alert_interval_seconds: float = 15.0
    rules: tuple[Rule, ...] = DEFAULT_RULES
    sinks: Mapping[str, Sink] = field(default_factory=_log_sink)
    retention: tuple[Retention, ...] = ()
    retention_interval_seconds: float = 10.0
    retention_batch: int = 500
    """Jobs looked at in one transaction; one transaction in an interval, more while there is something to delete."""
    export_to: str | None = None
    """A folder; jobs are written there as JSON lines before they are deleted."""
    where: str | None = None
    """The file they were read from."""


def load_settings(path: str | None = None) -> Settings:
    """From this file, or $DETENT_CONFIG, or detent.toml where we are; without a file the defaults hold."""
    asked = path or os.environ.get("DETENT_CONFIG")
    if not asked and not Path(DEFAULT_FILE).exists():
        return Settings()
    file = Path(asked or DEFAULT_FILE)
    try:
        told = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise _invalid(f"{file} cannot be read: {error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _invalid(f"{file} is not TOML: {error}") from None
    return replace(settings_from(told), where=str(file))


def settings_from(told: Mapping[str, Any]) -> Settings:
    """What a TOML file says, checked key by key; other tools' sections are left alone."""
    made = Settings()
    if "alerts" in told:
        made = _with_alerts(made, _table(told["alerts"], "alerts"))
    if "retention" in told:
        made = _with_retention(made, _table(told["retention"], "retention"))
    return made


def _with_alerts(made: Settings, told: Mapping[str, Any]) -> Settings:
    _only(told, "alerts", {"enabled", "interval_seconds", "rules", "sinks"})
    rules = {rule.name: rule for rule in DEFAULT_RULES}
    for name, its in _table(told.get("rules", {}), "alerts.rules").items():
        rules[name] = _rule(name, rules.get(name), _table(its, f"alerts.rules.{name}"))
    sinks = {name: _sink(name, its) for name, its in _table(told.get("sinks", {}), "alerts.sinks").items()}
    return replace(
        made,
        alerts=bool(told.get("enabled", True)),
        alert_interval_seconds=_seconds(told.get("interval_seconds", made.alert_interval_seconds), "interval_seconds"),
        rules=tuple(check_rule(rule) for rule in rules.values()),
        sinks={**_log_sink(), **sinks},
    )


def _rule(name: str, known: Rule | None, told: Mapping[str, Any]) -> Rule:
    allowed = {f.name for f in fields(Rule)} - {"name"}
    _only(told, f"alerts.rules.{name}", allowed)
    if told.get("severity", SEVERITIES[0]) not in SEVERITIES:
        raise _invalid(f"alerts.rules.{name}: severity is one of {', '.join(SEVERITIES)}")
    for key in ("threshold", "for_seconds", "resolve_after_seconds", "window_seconds", "min_count", "resolve_below"):
        if key in told and (isinstance(told[key], bool) or not isinstance(told[key], int | float)):
            raise _invalid(f"alerts.rules.{name}: {key} must be a number")
    if known is not None:
        return replace(known, **told)
    if "kind" not in told or "threshold" not in told:
        raise _invalid(f"alerts.rules.{name} is a new rule: it needs at least kind and threshold")
    return Rule(name=name, **{"severity": "P2", **told})


def _sink(name: str, told: Any) -> Sink:
    table = dict(_table(told, f"alerts.sinks.{name}"))
    kind = table.pop("type", None)
    severities = tuple(table.pop("severities", SEVERITIES))
    if not set(severities) <= set(SEVERITIES):
        raise _invalid(f"alerts.sinks.{name}: severities are some of {', '.join(SEVERITIES)}")
    if kind == "log":
        _only(table, f"alerts.sinks.{name}", set())
        return LogSink(severities)
    if kind == "webhook":
        _only(table, f"alerts.sinks.{name}", {"url", "secret", "secret_env", "timeout_seconds"})
        secret = table.get("secret") or os.environ.get(str(table.get("secret_env", "")), "")
        timeout = _seconds(table.get("timeout_seconds", 5.0), "timeout_seconds")
        return WebhookSink(str(table.get("url", "")), secret, timeout, severities).checked(name)
    if kind == "command":
        _only(table, f"alerts.sinks.{name}", {"command", "timeout_seconds"})
        command = table.get("command", "")
        words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
        timeout = _seconds(table.get("timeout_seconds", 10.0), "timeout_seconds")
        return CommandSink(tuple(words), timeout, severities).checked(name)
    raise _invalid(f"alerts.sinks.{name}: type is log, webhook or command, not {kind!r}")


def _with_retention(made: Settings, told: Mapping[str, Any]) -> Settings:
    _only(told, "retention", {"interval_seconds", "batch", "export_to", "rules"})
    rules = []
    for number, its in enumerate(told.get("rules", ()), 1):
        table = dict(_table(its, f"retention.rules {number}"))
        where = f"retention rule {number}"
        _only(table, where, {"contract", "queue", "job_type", "status", "keep_days", "keep_seconds"})
        if "keep_days" in table and "keep_seconds" in table:
            raise _invalid(f"{where}: keep_days or keep_seconds, not both")
        keep = None
        if "keep_days" in table:
            keep = _seconds(table.pop("keep_days"), "keep_days") * _DAY
        elif "keep_seconds" in table:
            keep = _seconds(table.pop("keep_seconds"), "keep_seconds")
        rules.append(Retention(keep, **{name: str(value) for name, value in table.items()}))
    batch = told.get("batch", made.retention_batch)
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= 10_000:
        raise _invalid("retention.batch must be a whole number from 1 to 10000")
    every = _seconds(told.get("interval_seconds", made.retention_interval_seconds), "interval_seconds")
    return replace(
        made,
        retention=tuple(rules),
        retention_batch=batch,
        retention_interval_seconds=every,
        export_to=told.get("export_to"),
    )


def _seconds(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise _invalid(f"{name} must be a number of at least 0")
    return float(value)


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _invalid(f"{where} must be a table")
    return value


def _only(told: Mapping[str, Any], where: str, allowed: set[str]) -> None:
    unknown = sorted(set(told) - allowed)
    if unknown:
        known = ", ".join(sorted(allowed)) or "nothing more"
        raise _invalid(f"{where}: {', '.join(unknown)} is not known; it takes {known}")


def _invalid(sentence: str) -> InvalidInput:
    return InvalidInput(sentence, code="SETTINGS_INVALID")
