"""The doctor's checks of settings, alerts, sinks, schedules, lost workers and retention. Reads only."""

from collections.abc import Iterator
from functools import partial

from detent.cli.output import pluralize
from detent.core.alerts import Alert, Delivery, State
from detent.core.errors import DetentError
from detent.core.times import SECOND
from detent.engine import Engine
from detent.engine.metrics import alerts
from detent.engine.metrics.alert_kinds import Readings
from detent.engine.metrics.event_counts import EVENTS
from detent.engine.reads import workers
from detent.engine.reads.why import is_live, span
from detent.observability.alert_sinks import WebhookSink
from detent.observability.settings import Settings, load_settings

from .database import Finding

_MANY_EVENTS = 1_000_000
_HOUR = 3_600 * SECOND


async def findings(engine: Engine) -> list[Finding]:
    try:
        settings = load_settings()
    except DetentError as error:
        return [Finding("settings", False, error.message, "fix the file; until then workers do not start")]
    inputs = await engine.store.read(partial(alerts.read_inputs, engine))
    last_passes = await engine.store.read(lambda tx: tx.intervals.last_runs())
    lost = await engine.workers.recoveries(inputs.now - _HOUR)
    return [
        Finding("settings", True, settings.path or "no settings file, using the defaults"),
        *_alerts(await alerts.list_alerts(engine)),
        _evaluation(settings, inputs, last_passes.get("alerts")),
        *_sinks(settings, await alerts.list_deliveries(engine, 1_000)),
        _schedules(inputs),
        _losses(lost),
        _retention(settings, inputs),
    ]


def _alerts(listed: list[Alert]) -> Iterator[Finding]:
    firing = [alert for alert in listed if alert.state == State.FIRING]
    for alert in firing:
        yield Finding("alerts", False, f"{alert.severity} {alert.rule}: {alert.summary}", "see `detent alerts`")
    if not firing:
        yield Finding("alerts", True, "no alert is firing")


def _evaluation(settings: Settings, inputs: Readings, last: int | None) -> Finding:
    if not settings.alerts:
        return Finding("evaluation", True, "alerts are disabled in the settings")
    live = any(is_live(worker, inputs.now) for worker in inputs.workers)
    if last is None or inputs.now - last > 5 * settings.alert_interval_seconds * SECOND:
        message = f"rules last evaluated: {'never' if last is None else f'{span(inputs.now - last)} ago'}"
        return Finding("evaluation", not live, message, "check the log of a worker: workers evaluate" if live else "")
    return Finding("evaluation", True, f"rules evaluated {span(inputs.now - last)} ago")


def _sinks(settings: Settings, deliveries: list[Delivery]) -> Iterator[Finding]:
    failed = [delivery for delivery in deliveries if delivery.due_at is None and delivery.delivered_at is None]
    retrying = [delivery for delivery in deliveries if delivery.due_at is not None and delivery.attempts > 3]
    if failed or retrying:
        worst = (failed or retrying)[0]
        number = pluralize(len(failed), "delivery", "deliveries")
        message = f"{number} failed, {len(retrying)} being retried ({worst.last_error})"
        yield Finding("sinks", False, message, f"fix the sink, then run `detent alerts test {worst.sink}`")
    else:
        yield Finding("sinks", True, f"alerts are sent to: {', '.join(settings.sinks)}")
    for name, sink in settings.sinks.items():
        if isinstance(sink, WebhookSink) and not sink.secret:
            advice = "set its secret or secret_env in the settings"
            yield Finding("sinks", False, f"webhook {name} is not signed", advice)


def _schedules(inputs: Readings) -> Finding:
    late = [missed for missed in inputs.missed if missed.late(inputs.now) > 60 * SECOND]
    if late:
        worst = max(late, key=lambda missed: missed.late(inputs.now))
        delay = span(worst.late(inputs.now))
        message = f"{pluralize(len(late), 'schedule')} did not run on time; {worst.label} is {delay} late"
        return Finding("schedules", False, message, "start a worker: workers run due schedules")
    return Finding("schedules", True, "no schedule is late")


def _losses(lost: list[workers.Recovery]) -> Finding:
    jobs = sum(len(recovery.losses) for recovery in lost)
    if not lost:
        return Finding("losses", True, "no worker was lost in the last hour")
    message = f"{pluralize(len(lost), 'worker')} lost in the last hour, {pluralize(jobs, 'job')} reclaimed"
    return Finding("losses", True, message, "see `detent workers recoveries`")


def _retention(settings: Settings, inputs: Readings) -> Finding:
    if settings.retention:
        export = f", exported to {settings.export_to} before deletion" if settings.export_to else ""
        return Finding("retention", True, f"{pluralize(len(settings.retention), 'rule')}{export}")
    logged = sum(number for (log, _), number in inputs.sums.items() if log == EVENTS)
    if logged > _MANY_EVENTS:
        advice = "add [[retention.rules]] to the settings; without a rule nothing is deleted"
        return Finding("retention", False, f"{logged} events are stored and no rule deletes old ones", advice)
    return Finding("retention", True, "no retention rule, everything is kept")
