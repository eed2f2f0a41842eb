"""The tables of the settings file (TOML): checked by pydantic models and turned into Settings."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from detent.core.alerts import DEFAULT_RULES, SEVERITIES, Rule
from detent.core.errors import InvalidInput, invalid_value
from detent.engine.metrics.alerts import check_rule
from detent.engine.pruning import Retention

from .alert_sinks import CommandSink, LogSink, Sink, WebhookSink
from .settings import INVALID, Settings, WebhookSettings, WorkerSettings

_DAY = 86_400.0


def settings_from(table: Mapping[str, Any]) -> Settings:
    """Settings from the tables of a file, see `Settings`. Raises what load_settings raises."""
    alerts = _parse(_AlertsTable, table.get("alerts", {}), "alerts")
    retention = _parse(_RetentionTable, table.get("retention", {}), "retention")
    rules = {rule.name: rule for rule in DEFAULT_RULES}
    for name, row in alerts.rules.items():
        rules[name] = _rule(name, rules.get(name), row)
    return Settings(
        alerts=alerts.enabled,
        alert_interval_seconds=alerts.interval_seconds,
        rules=tuple(check_rule(rule) for rule in rules.values()),
        sinks={**_DEFAULTS.sinks, **{name: _sink(name, row) for name, row in alerts.sinks.items()}},
        retention=tuple(rule.retention() for rule in retention.rules),
        retention_interval_seconds=retention.interval_seconds,
        retention_batch=retention.batch,
        export_to=retention.export_to,
        contracts=_parse(_ContractsTable, table.get("contracts", {}), "contracts").root,
        worker=WorkerSettings(**_parse(_WorkerTable, table.get("worker", {}), "worker").model_dump(exclude_unset=True)),
        webhooks=WebhookSettings(
            **_parse(_WebhooksTable, table.get("webhooks", {}), "webhooks").model_dump(exclude_unset=True)
        ),
    )


_DEFAULTS = Settings()
_Seconds = Annotated[float, Field(ge=0, lt=1e9)]


class _Table(BaseModel):
    """Strict: a number is not text, a boolean is not a number, and an unknown key is an error."""

    model_config = ConfigDict(strict=True, extra="forbid")


def _table_of(settings: Any, without: str = "", **types: Any) -> type[_Table]:
    """A table with the fields of a dataclass but one, all optional. types: of the fields that have another one here."""
    types = {field.name: field.type for field in fields(settings) if field.name != without} | types
    optional: dict[str, Any] = {name: (kind, None) for name, kind in types.items()}
    return create_model(settings.__name__, __base__=_Table, **optional)


_WorkerTable, _WebhooksTable = _table_of(WorkerSettings), _table_of(WebhookSettings)


class _AlertsTable(_Table):
    enabled: bool = _DEFAULTS.alerts
    interval_seconds: _Seconds = _DEFAULTS.alert_interval_seconds
    rules: dict[str, dict[str, Any]] = {}
    sinks: dict[str, dict[str, Any]] = {}


_Severity = Literal["P1", "P2", "P3"]
assert get_args(_Severity) == SEVERITIES
_RuleTable = _table_of(Rule, "name", severity=_Severity)


def _rule(name: str, default: Rule | None, row: Mapping[str, Any]) -> Rule:
    """The default rule of this name with changes, or a new rule."""
    path = f"alerts.rules.{name}"
    values = _parse(_RuleTable, row, path).model_dump(exclude_unset=True)
    if default is not None:
        return replace(default, **values)
    missing = [key for key in ("kind", "threshold") if key not in values]
    if missing:
        raise InvalidInput(f"{path} is a new rule, so {' and '.join(missing)} must be set", code=INVALID)
    return Rule(name=name, **{"severity": "P2", **values})


class _SinkTable(_Table):
    severities: list[_Severity] = list(get_args(_Severity))


class _LogTable(_SinkTable):
    type: Literal["log"]

    def sink(self) -> Sink:
        return LogSink(severities=tuple(self.severities))


class _WebhookTable(_SinkTable):
    type: Literal["webhook"]
    url: str
    secret: str = ""
    secret_env: str = ""
    """The environment variable that holds the secret."""
    timeout_seconds: _Seconds = 5.0

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be http://… or https://…")
        return url

    def sink(self) -> Sink:
        secret = self.secret or os.environ.get(self.secret_env, "")
        return WebhookSink(self.url, secret, self.timeout_seconds, severities=tuple(self.severities))


class _CommandTable(_SinkTable):
    type: Literal["command"]
    command: list[str]
    timeout_seconds: _Seconds = 10.0

    @field_validator("command", mode="before")
    @classmethod
    def _split(cls, command: Any) -> Any:
        arguments = shlex.split(command) if isinstance(command, str) else command
        if not arguments:
            raise ValueError("must name a program")
        return arguments

    def sink(self) -> Sink:
        return CommandSink(tuple(self.command), self.timeout_seconds, severities=tuple(self.severities))


_SINK_TABLES: dict[Any, type[_LogTable | _WebhookTable | _CommandTable]] = {
    "log": _LogTable,
    "webhook": _WebhookTable,
    "command": _CommandTable,
}


def _sink(name: str, row: Mapping[str, Any]) -> Sink:
    path, kind = f"alerts.sinks.{name}", row.get("type")
    if not isinstance(kind, str) or kind not in _SINK_TABLES:
        raise InvalidInput(f"{path}.type must be log, webhook or command, got {kind!r}", code=INVALID)
    return _parse(_SINK_TABLES[kind], row, path).sink()


class _RetentionRuleTable(_Table):
    contract: str | None = None
    queue: str | None = None
    job_type: str | None = None
    status: str | None = None
    keep_days: _Seconds | None = None
    keep_seconds: _Seconds | None = None

    @model_validator(mode="after")
    def _keeps_days_or_seconds(self) -> "_RetentionRuleTable":
        if self.keep_days is not None and self.keep_seconds is not None:
            raise ValueError("has keep_days and keep_seconds; set one of them, not both")
        return self

    def retention(self) -> Retention:
        keep = self.keep_seconds if self.keep_days is None else self.keep_days * _DAY
        return Retention(keep, self.contract, self.queue, self.job_type, self.status)


class _RetentionTable(_Table):
    interval_seconds: _Seconds = _DEFAULTS.retention_interval_seconds
    batch: Annotated[int, Field(ge=1, le=10_000)] = _DEFAULTS.retention_batch
    export_to: str | None = None
    rules: list[_RetentionRuleTable] = []


class _ContractsTable(RootModel[dict[str, dict[str, Any]]]):
    """Contract -> its options; the contract checks them."""


_T = TypeVar("_T", bound=BaseModel)


def _parse(model: type[_T], table: Any, path: str) -> _T:
    try:
        return model.model_validate(table)
    except ValidationError as error:
        raise invalid_value(error, path, code=INVALID) from None
