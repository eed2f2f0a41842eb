"""`detent alerts`: lists alerts, rules and deliveries; evaluates the rules; tests a sink."""

import json
from typing import Annotated, Any

import typer

from detent.cli.connection import on_engine
from detent.cli.options import AsJson, Limit, Url, option
from detent.cli.output import EXIT_NO, EXIT_OK, print_json, print_line, print_result, print_table, relative_time
from detent.core.alerts import Alert, Delivery, Rule, State
from detent.core.errors import NotFound
from detent.core.job import Micros
from detent.core.times import iso
from detent.engine import Engine
from detent.engine.metrics import alerts as acts
from detent.engine.metrics.alert_export import prometheus_rules
from detent.observability.maintenance import MaintenanceLoop
from detent.observability.settings import Settings, load_settings

group = typer.Typer(help="List alerts, rules and deliveries; evaluate rules; test sinks.", invoke_without_command=True)
Config = Annotated[
    str | None, option("--config", "The settings file; default: detent.toml in this folder, if it exists.")
]


@group.callback()
def alerts(
    context: typer.Context,
    prometheus: Annotated[
        bool, option("--prometheus-rules", "Print the rules as a Prometheus rules file instead.")
    ] = False,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List pending, firing and recently resolved alerts."""
    if context.invoked_subcommand is not None:
        return
    settings = load_settings(config)
    if prometheus:
        text = on_engine(url, lambda engine: _rules_file(engine, settings))
        print_result(as_json, {"rules_file": text}, text.rstrip())
        return
    now, listed = on_engine(url, _read_alerts)
    if as_json:
        print_json({"alerts": [acts.alert_view(alert) for alert in listed]})
    elif not listed:
        print_line("No alerts. `detent alerts rules` lists the rules.")
    else:
        _print_alerts(now, listed)


async def _rules_file(engine: Engine, settings: Settings) -> str:
    return prometheus_rules(settings.rules, engine.contracts)


async def _read_alerts(engine: Engine) -> tuple[Micros, list[Alert]]:
    return engine.store.now(), await acts.list_alerts(engine)


def _print_alerts(now: Micros, listed: list[Alert]) -> None:
    order = {State.FIRING: 0, State.PENDING: 1, State.RESOLVED: 2}
    rows = [
        [
            alert.rule,
            alert.severity,
            str(alert.state),
            relative_time(now, alert.resolved_at or alert.since),
            alert.summary,
        ]
        for alert in sorted(listed, key=lambda alert: (order[State(alert.state)], alert.severity, alert.rule))
    ]
    print_table(("rule", "severity", "state", "since", "summary"), rows)


@group.command("rules")
def rules(config: Config = None, url: Url = None, as_json: AsJson = False) -> None:
    """List the alert rules with their thresholds."""
    settings = load_settings(config)
    if as_json:
        source = {"settings": settings.path, "interval_seconds": settings.alert_interval_seconds}
        print_json({**source, "rules": [acts.rule_view(rule) for rule in settings.rules]})
        return
    print_table(
        ("rule", "severity", ">threshold", "unit", "for", "meaning"), [_rule_row(rule) for rule in settings.rules]
    )


def _rule_row(rule: Rule) -> list[str]:
    view = acts.rule_view(rule)
    state = rule.severity if rule.enabled else "off"
    return [rule.name, state, f"{rule.threshold:g}", view["unit"], f"{rule.for_seconds:g} s", view["says"]]


@group.command("evaluate")
def evaluate(config: Config = None, url: Url = None, as_json: AsJson = False) -> int:
    """Evaluate all rules now and notify the sinks; exits with 1 if an alert is firing."""
    settings = load_settings(config)

    async def act(engine: Engine) -> list[Alert]:
        maintenance = MaintenanceLoop(engine, settings)
        await maintenance.evaluate()
        await maintenance.deliver()
        return await acts.list_alerts(engine)

    firing = [alert for alert in on_engine(url, act) if alert.state == State.FIRING]
    lines = [f"{alert.severity} {alert.rule}: {alert.summary}" for alert in firing] or ["No alerts are firing."]
    print_result(as_json, {"firing": [acts.alert_view(alert) for alert in firing]}, *lines)
    return EXIT_NO if firing else EXIT_OK


@group.command("deliveries")
def deliveries(limit: Limit = 20, url: Url = None, as_json: AsJson = False) -> None:
    """List notifications to sinks: delivered, pending and failed."""

    async def act(engine: Engine) -> tuple[Micros, list[Delivery]]:
        return engine.store.now(), await acts.list_deliveries(engine, limit)

    now, listed = on_engine(url, act)
    views = [acts.delivery_view(delivery) for delivery in listed]
    if as_json:
        print_json({"deliveries": views})
        return
    if not views:
        print_line("No deliveries yet.")
        return
    rows = [
        [
            *(view[name] for name in ("rule", "news", "sink", "state", "attempts")),
            relative_time(now, delivery.created_at),
        ]
        for view, delivery in zip(views, listed, strict=True)
    ]
    print_table(("rule", "event", "sink", "state", ">attempts", "created"), rows)


@group.command("test")
def send_test_alert(
    sink: Annotated[str, typer.Argument(metavar="SINK", help="The name of a sink in the settings, or log.")],
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """Send one test alert to a sink and report whether it was delivered."""
    settings = load_settings(config)
    target = settings.sinks.get(sink)
    if target is None:
        names = ", ".join(settings.sinks)
        raise NotFound(f"sink {sink!r} is not in the settings; available: {names}", code="SINK_NOT_FOUND")

    async def act(engine: Engine) -> str | None:
        return await target.deliver(_test_delivery(engine), engine.store.now())

    error = on_engine(url, act)
    message = f"{sink}: delivered" if error is None else f"{sink}: not delivered: {error}"
    print_result(as_json, {"sink": sink, "arrived": error is None, "error": error}, message)
    return EXIT_OK if error is None else EXIT_NO


def _test_delivery(engine: Engine) -> Delivery:
    now = engine.store.now()
    alert = Alert("test", "all", State.FIRING, "P3", 1.0, "test of this sink", now, now, None, None, now, 1, 1)
    body: dict[str, Any] = {**acts.alert_view(alert), "kind": "test", "labels": {}, "at": iso(now)}
    return Delivery(engine.ids.job(), alert.rule, alert.subject, "test", json.dumps(body), now, now, 1)
