"""The doctor's checks of what watches: settings, alerts, sinks, schedules, lost workers, retention. Reads only."""

from collections.abc import Iterator
from functools import partial

from detent.cli.output import counted
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

from .finding import Finding

_MANY = 1_000_000
_HOUR = 3_600 * SECOND


async def findings(engine: Engine) -> list[Finding]:
    """What can be said of how the system is looked after."""
    try:
        settings = load_settings()
    except DetentError as error:
        return [Finding("settings", False, error.message, "mend the file; until then workers do not start")]
    found = await engine.store.read(partial(alerts.readings, engine))
    turns = {row[0]: row[1] for row in await engine.store.read(lambda tx: tx.query("turns"))}
    lost = await workers.recoveries(engine, found.now - _HOUR)
    return [
        Finding("settings", True, settings.where or "no file: the defaults hold"),
        *_alerts(await alerts.listing(engine)),
        _evaluation(settings, found, turns.get("alerts")),
        *_sinks(settings, await alerts.deliveries(engine, 1_000)),
        _schedules(found),
        _losses(lost),
        _retention(settings, found),
    ]


def _alerts(listed: list[Alert]) -> Iterator[Finding]:
    firing = [alert for alert in listed if alert.state == State.FIRING]
    for alert in firing:
        yield Finding("alerts", False, f"{alert.severity} {alert.rule}: {alert.summary}", "see `detent alerts`")
    if not firing:
        yield Finding("alerts", True, "nothing fires")


def _evaluation(settings: Settings, found: Readings, last: int | None) -> Finding:
    if not settings.alerts:
        return Finding("evaluation", True, "alerts are switched off in the settings")
    live = any(is_live(worker, found.now) for worker in found.workers)
    if last is None or found.now - last > 5 * settings.alert_interval_seconds * SECOND:
        says = "never" if last is None else f"{span(found.now - last)} ago"
        told = f"the rules were last evaluated: {says}"
        return Finding("evaluation", not live, told, "see the log of a worker: each one evaluates" if live else "")
    return Finding("evaluation", True, f"the rules were evaluated {span(found.now - last)} ago")


def _sinks(settings: Settings, told: list[Delivery]) -> Iterator[Finding]:
    given_up = [one for one in told if one.due_at is None and one.delivered_at is None]
    waiting = [one for one in told if one.due_at is not None and one.attempts > 3]
    if given_up or waiting:
        worst = (given_up or waiting)[0]
        says = f"{len(given_up)} deliveries were given up, {len(waiting)} are tried again ({worst.last_error})"
        yield Finding("sinks", False, says, f"mend it, then `detent alerts test {worst.sink}`")
    else:
        yield Finding("sinks", True, f"news goes to {', '.join(settings.sinks)}")
    for name, sink in settings.sinks.items():
        if isinstance(sink, WebhookSink) and not sink.secret:
            yield Finding("sinks", False, f"{name} is not signed", "give it a secret, or secret_env, in the settings")


def _schedules(found: Readings) -> Finding:
    late = [one for one in found.missed if one.late(found.now) > 60 * SECOND]
    if late:
        worst = max(late, key=lambda one: one.late(found.now))
        says = f"{counted(len(late), 'schedule')} did not fire, {worst.called} for {span(worst.late(found.now))}"
        return Finding("schedules", False, says, "start a worker: each one fires what is due")
    return Finding("schedules", True, "none is late")


def _losses(lost: list[workers.Recovery]) -> Finding:
    jobs = sum(len(recovery.losses) for recovery in lost)
    if not lost:
        return Finding("losses", True, "no worker was lost within the last hour")
    says = f"{counted(len(lost), 'worker')} lost within the last hour, {counted(jobs, 'job')} taken back"
    return Finding("losses", True, says, "`detent workers recoveries` tells more")


def _retention(settings: Settings, found: Readings) -> Finding:
    if settings.retention:
        export = f", written to {settings.export_to} first" if settings.export_to else ""
        return Finding("retention", True, f"{counted(len(settings.retention), 'rule')}{export}")
    logged = sum(number for (log, _), number in found.sums.items() if log == EVENTS)
    if logged > _MANY:
        do = "add [[retention.rules]] to the settings, or nothing ever goes"
        return Finding("retention", False, f"{logged} events were logged and no rule says how long they are kept", do)
    return Finding("retention", True, "no rule: everything is kept")
