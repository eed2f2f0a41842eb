"""Settings of workers, alerts, retention and contracts: from Python, or from a TOML file that all processes share."""

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from detent.core.alerts import DEFAULT_RULES, Rule
from detent.core.errors import InvalidInput, check_number
from detent.engine.metrics.webhooks import WebhookLimits
from detent.engine.pruning import Retention

from .alert_sinks import LogSink, Sink

DEFAULT_FILE = "detent.toml"
INVALID = "SETTINGS_INVALID"
MAX_TIMEOUT_SECONDS = 50
"""Of a request to a webhook: less than the minute for which its process has taken the delivery."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How long a worker waits for handlers, and the limits of processes for handlers with `run_in="process"`."""

    grace_seconds: float = 25.0
    """How long running jobs may go on after SIGTERM; then they are handed back."""
    cancel_grace_seconds: float = 30.0
    """How long a handler may go on after a cancel was requested."""
    handler_processes: int | None = None
    """The most processes for handlers; None: one per CPU."""
    max_jobs_per_process: int | None = None
    """A process is replaced after so many jobs; None: never."""
    max_memory_mb: int | None = None
    """A process with more resident memory is killed, and its job fails (HANDLER_MEMORY_EXCEEDED). Needs Linux."""

    def __post_init__(self) -> None:
        for name in ("grace_seconds", "cancel_grace_seconds"):
            check_number(getattr(self, name), name, 0, 1e9, INVALID, whole=False)
        for name in ("handler_processes", "max_jobs_per_process", "max_memory_mb"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name, 1, 10**9, INVALID)
        if self.max_memory_mb is not None and not Path("/proc/self/statm").exists():
            raise InvalidInput("max_memory_mb needs the /proc filesystem of Linux; leave it out", code=INVALID)

    def changed(self, values: Mapping[str, Any]) -> "WorkerSettings":
        """These settings with other values; None keeps a value. Raises InvalidInput (OPTION_UNKNOWN)."""
        try:
            return replace(self, **{name: value for name, value in values.items() if value is not None})
        except TypeError:
            unknown = ", ".join(sorted(values.keys() - {row.name for row in fields(self)}))
            raise InvalidInput(f"a worker has no option {unknown}", code="OPTION_UNKNOWN") from None


@dataclass(frozen=True, slots=True)
class WebhookSettings(WebhookLimits):
    """How requests to webhooks are sent, and the limits of their queue."""

    enabled: bool = True
    """False: this process sends none."""
    private_addresses: bool = True
    """False: a webhook whose host has a private, loopback or link-local address is refused."""
    timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("max_pending", "max_attempts"):
            check_number(getattr(self, name), name, 1, 10**6, INVALID)
        for name in ("max_age_seconds", "disable_after_seconds"):
            check_number(getattr(self, name), name, 0.1, 1e9, INVALID, whole=False)
        check_number(self.timeout_seconds, "timeout_seconds", 0.1, MAX_TIMEOUT_SECONDS, INVALID, whole=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """Alert rules, alert sinks and retention. Give all workers the same: any of them may evaluate and prune."""

    alerts: bool = True
    """False: no alerts are evaluated or delivered."""
    alert_interval_seconds: float = 15.0
    rules: tuple[Rule, ...] = DEFAULT_RULES
    sinks: Mapping[str, Sink] = field(default_factory=lambda: {"log": LogSink()})
    retention: tuple[Retention, ...] = ()
    """The first rule that matches a finished job decides how long it is kept; without rules nothing is deleted."""
    retention_interval_seconds: float = 10.0
    retention_batch: int = 500
    """Jobs examined in one transaction: one transaction per interval, more while there is something to delete."""
    export_to: str | None = None
    """A folder; jobs are written there as JSON lines before they are deleted."""
    contracts: Mapping[str, Any] = field(default_factory=dict)
    """Contract -> options that differ from its declaration, as `Contract.with_options` takes them."""
    worker: WorkerSettings = WorkerSettings()
    webhooks: WebhookSettings = WebhookSettings()
    path: str | None = None
    """The file they were read from."""


def load_settings(path: str | None = None) -> Settings:
    """Settings from this TOML file, else from $DETENT_CONFIG, else from detent.toml in the working directory.

    Without a file the defaults. Raises InvalidInput (SETTINGS_INVALID, ALERT_RULE_INVALID), and SETTINGS_UNSAFE for a
    detent.toml in the working directory that another user owns or can write: it may name commands to run.
    """
    named_file = path or os.environ.get("DETENT_CONFIG")
    if not named_file and not Path(DEFAULT_FILE).exists():
        return Settings()
    file = Path(named_file or DEFAULT_FILE)
    try:
        with file.open("rb") as opened:
            if not named_file:
                _check_owner(file, os.fstat(opened.fileno()))
            table = tomllib.loads(opened.read().decode("utf-8"))
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error}", code=INVALID) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} is not TOML: {error}", code=INVALID) from None
    from .settings_file import settings_from  # pydantic models, slow to build, needed with a file only

    return replace(settings_from(table), path=str(file))


def _check_owner(file: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidInput(
            f"{file.absolute()} is not loaded, because another user owns it or can write it; run `chmod go-w` and"
            f" `chown` on it, or name it in $DETENT_CONFIG",
            code="SETTINGS_UNSAFE",
        )
