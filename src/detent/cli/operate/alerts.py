"""`detent alerts`: lists alerts, rules and deliveries; evaluates the rules; tests a sink."""

import json
from typing import Annotated, Any

import typer

from detent.cli.option_groups import AuditOptions, CommandGroup, ConnectionOptions, expand_option_groups
from detent.cli.options import Limit, option
from detent.cli.output import EXIT_NO, EXIT_OK, list_view, relative_time
from detent.core.alerts import Alert, Delivery, Rule, State
from detent.core.errors import NotFound
from detent.core.job import Micros
from detent.core.times import iso
from detent.engine import Engine
from detent.engine.metrics import alerts as acts
from detent.engine.metrics.alert_kinds import prometheus_rules
from detent.engine.reads import operations
from detent.engine.reads.responses import show
from detent.observability.maintenance import MaintenanceLoop
from detent.observability.settings import load_settings

from .contracts import read_contracts

group = CommandGroup(help="List alerts, rules and deliveries; evaluate rules; test sinks.", invoke_without_command=True)
RuleName = Annotated[str, typer.Argument(metavar="RULE", help="The name of a rule, see `detent alerts rules`.")]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="What the alert is about, as the list shows it.")]
Config = Annotated[str | None, option("The settings file; default: detent.toml in this folder, if it exists.")]


@group.callback()
@expand_option_groups
def alerts(
    context: typer.Context,
    prometheus: Annotated[
        bool, option("Print the rules as a Prometheus rules file instead.", name="--prometheus-rules")
    ] = False,
    config: Config = None,
    *,
    connection: ConnectionOptions,
) -> None:
    """List pending, firing and recently resolved alerts."""
    if context.invoked_subcommand is not None:
        return
    settings = load_settings(config)
    if prometheus:
        text = prometheus_rules(settings.rules, connection.run(read_contracts))
        connection.print_result({"rules_file": text}, text.rstrip())
        return
    now, listed = connection.run_with_time(acts.list_alerts)
    view = list_view(map(acts.alert_view, listed))
    columns = ("rule", "severity", "state", "since", "summary")
    order = [State.FIRING, State.PENDING, State.RESOLVED]
    listed.sort(key=lambda alert: (order.index(State(alert.state)), alert.severity, alert.rule))
    rows = (_row(now, alert) for alert in listed)
    connection.print_list(view, columns, rows, "No alerts. `detent alerts rules` lists the rules.")


def _row(now: Micros, alert: Alert) -> list[str]:
    since = relative_time(now, alert.resolved_at or alert.since)
    return [alert.rule, alert.severity, str(alert.state), since, alert.summary]


@group.command("rules")
def rules(config: Config = None, *, connection: ConnectionOptions) -> None:
    """List the alert rules with their thresholds."""
    settings = load_settings(config)
    source = {"settings": settings.path, "interval_seconds": settings.alert_interval_seconds}
    view = {**source, "rules": [acts.rule_view(rule) for rule in settings.rules]}
    columns = ("rule", "severity", ">threshold", "unit", "for", "meaning")
    connection.print_list(view, columns, map(_rule_row, settings.rules))


def _rule_row(rule: Rule) -> list[str]:
    view = acts.rule_view(rule)
    state = rule.severity if rule.enabled else "off"
    return [rule.name, state, f"{rule.threshold:g}", view["unit"], f"{rule.for_seconds:g} s", view["says"]]


@group.command("evaluate")
def evaluate(config: Config = None, *, connection: ConnectionOptions) -> int:
    """Evaluate all rules now and notify the sinks; exits with 1 if an alert is firing."""
    settings = load_settings(config)

    async def act(engine: Engine) -> list[Alert]:
        maintenance = MaintenanceLoop(engine, settings)
        await maintenance.evaluate()
        await maintenance.deliver()
        return await acts.list_alerts(engine)

    firing = [alert for alert in connection.run(act) if alert.state == State.FIRING]
    lines = [f"{alert.severity} {alert.rule}: {alert.summary}" for alert in firing] or ["No alerts are firing."]
    connection.print_result({"firing": [acts.alert_view(alert) for alert in firing]}, *lines)
    return EXIT_NO if firing else EXIT_OK


@group.command("deliveries")
def deliveries(limit: Limit = 20, *, connection: ConnectionOptions) -> None:
    """List notifications to sinks: delivered, pending and failed."""
    now, listed = connection.run_with_time(lambda engine: acts.list_deliveries(engine, limit))
    views = [acts.delivery_view(delivery) for delivery in listed]
    columns = ("rule", "event", "sink", "state", ">attempts", "created")
    rows: list[list[str | int]] = [
        [view["rule"], view["news"], view["sink"], view["state"], view["attempts"], relative_time(now, one.created_at)]
        for view, one in zip(views, listed, strict=True)
    ]
    connection.print_list(list_view(views), columns, rows, "No deliveries yet.")


@group.command("acknowledge")
def acknowledge(rule: RuleName, subject: Subject, audit: AuditOptions, connection: ConnectionOptions) -> None:
    """Note that you work on an alert; it lasts until the alert is resolved."""
    alert = connection.run(lambda engine: acts.acknowledge(engine, rule, subject, audit.scope()))
    connection.print_result(acts.alert_view(alert), f"{rule} ({subject}) acknowledged by {alert.acknowledged_by}")


@group.command("silence")
def silence(
    rule: RuleName,
    subject: Annotated[str, typer.Argument(metavar="[SUBJECT]", help="Only this subject; default: all.")] = "",
    minutes: Annotated[float, option("How long, at most 30 days.", min=0.1, max=43_200)] = 60.0,
    *,
    audit: AuditOptions,
    connection: ConnectionOptions,
) -> None:
    """Notify no sink of alerts of a rule for some time; one that still fires then is announced."""
    added = connection.run(lambda engine: acts.silence(engine, rule, subject, minutes * 60, audit.scope()))
    connection.print_result(show(operations.Silence, added), f"{rule} is silenced until {iso(added.until)}")


@group.command("silences")
def silences(connection: ConnectionOptions) -> None:
    """List the silences that last."""
    views = [show(operations.Silence, one) for one in connection.run(acts.list_silences)]
    columns = ("id", "rule", "subject", "until", "by", "reason")
    rows: list[list[str]] = [
        [view["id"], view["rule"], view["subject"] or "all", view["until"], view["actor"], view["reason"] or ""]
        for view in views
    ]
    connection.print_list(list_view(views), columns, rows, "No alerts are silenced.")


@group.command("unsilence")
def unsilence(
    silence_id: Annotated[str, typer.Argument(metavar="SILENCE", help="See `detent alerts silences`.")],
    audit: AuditOptions,
    connection: ConnectionOptions,
) -> int:
    """End a silence now; exits with 1 if there is none with this id."""
    removed = connection.run(lambda engine: acts.end_silence(engine, silence_id, audit.scope()))
    connection.print_result({"id": silence_id, "removed": removed}, "ended" if removed else "no such silence")
    return EXIT_OK if removed else EXIT_NO


@group.command("test")
def send_test_alert(
    sink: Annotated[str, typer.Argument(metavar="SINK", help="The name of a sink in the settings, or log.")],
    config: Config = None,
    *,
    connection: ConnectionOptions,
) -> int:
    """Send one test alert to a sink and report whether it was delivered."""
    settings = load_settings(config)
    target = settings.sinks.get(sink)
    if target is None:
        names = ", ".join(settings.sinks)
        raise NotFound(f"sink {sink!r} is not in the settings; available: {names}", code="SINK_NOT_FOUND")

    async def act(engine: Engine) -> str | None:
        return await target.deliver(_test_delivery(engine), engine.store.now())

    error = connection.run(act)
    message = f"{sink}: delivered" if error is None else f"{sink}: not delivered: {error}"
    connection.print_result({"sink": sink, "arrived": error is None, "error": error}, message)
    return EXIT_OK if error is None else EXIT_NO


def _test_delivery(engine: Engine) -> Delivery:
    now = engine.store.now()
    alert = Alert("test", "all", State.FIRING, "P3", 1.0, "test of this sink", now, now, None, None, now, 1, 1)
    body: dict[str, Any] = {**acts.alert_view(alert), "kind": "test", "labels": {}, "at": iso(now)}
    return Delivery(engine.ids.job(), alert.rule, alert.subject, "test", json.dumps(body), now, now, 1)
