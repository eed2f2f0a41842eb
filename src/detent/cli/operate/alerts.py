"""`detent alerts`: what fires, the rules, what was told to whom, and a test of a sink."""

import json
from typing import Annotated, Any

import typer

from detent.cli.connection import on_engine
from detent.cli.options import AsJson, Limit, Url, option
from detent.cli.output import FINE, NO, say, say_json, show_table, tell, when
from detent.core.alerts import Alert, Delivery, Rule, State
from detent.core.errors import NotFound
from detent.core.job import Micros
from detent.core.times import iso
from detent.engine import Engine
from detent.engine.metrics import alerts as acts
from detent.engine.metrics.alert_export import prometheus_rules
from detent.observability.maintenance import MaintenanceLoop
from detent.observability.settings import Settings, load_settings

group = typer.Typer(help="See what fires, the rules and the sinks.", invoke_without_command=True)
Config = Annotated[str | None, option("--config", "The settings file; default: detent.toml here, if there is one.")]


@group.callback()
def alerts(
    context: typer.Context,
    prometheus: Annotated[
        bool, option("--prometheus-rules", "Print the rules as a rules file for Prometheus instead.")
    ] = False,
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List alerts: pending, firing, and what was resolved last."""
    if context.invoked_subcommand is not None:
        return
    settings = load_settings(config)
    if prometheus:
        text = on_engine(url, lambda engine: _rules_file(engine, settings))
        tell(as_json, {"rules_file": text}, text.rstrip())
        return
    now, found = on_engine(url, _listing)
    if as_json:
        say_json({"alerts": [acts.alert_view(alert) for alert in found]})
    elif not found:
        say("nothing fires; `detent alerts rules` shows what would")
    else:
        _show(now, found)


async def _rules_file(engine: Engine, settings: Settings) -> str:
    return prometheus_rules(settings.rules, engine.contracts)


async def _listing(engine: Engine) -> tuple[Micros, list[Alert]]:
    return engine.store.now(), await acts.listing(engine)


def _show(now: Micros, found: list[Alert]) -> None:
    order = {State.FIRING: 0, State.PENDING: 1, State.RESOLVED: 2}
    rows = [
        [alert.rule, alert.severity, str(alert.state), when(now, alert.resolved_at or alert.since), alert.summary]
        for alert in sorted(found, key=lambda one: (order[State(one.state)], one.severity, one.rule))
    ]
    show_table(("rule", "", "state", "since", "summary"), rows)


@group.command("rules")
def rules(config: Config = None, url: Url = None, as_json: AsJson = False) -> None:
    """List the rules with their thresholds."""
    settings = load_settings(config)
    if as_json:
        told = {"settings": settings.where, "interval_seconds": settings.alert_interval_seconds}
        say_json({**told, "rules": [acts.rule_view(rule) for rule in settings.rules]})
        return
    show_table(("rule", "", ">threshold", "unit", "for", "what it says"), [_rule_row(rule) for rule in settings.rules])


def _rule_row(rule: Rule) -> list[str]:
    view = acts.rule_view(rule)
    state = rule.severity if rule.enabled else "off"
    return [rule.name, state, f"{rule.threshold:g}", view["unit"], f"{rule.for_seconds:g} s", view["says"]]


@group.command("evaluate")
def evaluate(config: Config = None, url: Url = None, as_json: AsJson = False) -> int:
    """Evaluate every rule now and tell the sinks; exits with 1 while something fires."""
    settings = load_settings(config)

    async def act(engine: Engine) -> list[Alert]:
        maintenance = MaintenanceLoop(engine, settings)
        await maintenance.evaluate()
        await maintenance.deliver()
        return await acts.listing(engine)

    firing = [alert for alert in on_engine(url, act) if alert.state == State.FIRING]
    said = [f"{alert.severity} {alert.rule}: {alert.summary}" for alert in firing] or ["nothing fires"]
    tell(as_json, {"firing": [acts.alert_view(alert) for alert in firing]}, *said)
    return NO if firing else FINE


@group.command("deliveries")
def deliveries(limit: Limit = 20, url: Url = None, as_json: AsJson = False) -> None:
    """List what was told to sinks and what is still to be told."""

    async def act(engine: Engine) -> tuple[Micros, list[Delivery]]:
        return engine.store.now(), await acts.deliveries(engine, limit)

    now, found = on_engine(url, act)
    views = [acts.delivery_view(told) for told in found]
    if as_json:
        say_json({"deliveries": views})
        return
    if not views:
        say("nothing was told to anyone yet")
        return
    rows = [
        [one["rule"], one["news"], one["sink"], one["state"], one["attempts"], when(now, told.created_at)]
        for one, told in zip(views, found, strict=True)
    ]
    show_table(("rule", "news", "sink", "state", ">tries", "made"), rows)


@group.command("test")
def try_sink(
    sink: Annotated[str, typer.Argument(metavar="SINK", help="A sink of the settings; log is always there.")],
    config: Config = None,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """Send a made-up alert to one sink, once, and tell whether it arrived."""
    settings = load_settings(config)
    found = settings.sinks.get(sink)
    if found is None:
        known = ", ".join(settings.sinks)
        raise NotFound(f"there is no sink {sink!r} in the settings; known are {known}", code="SINK_NOT_FOUND")

    async def act(engine: Engine) -> str | None:
        return await found.tell(_made_up(engine), engine.store.now())

    error = on_engine(url, act)
    said = f"{sink}: it arrived" if error is None else f"{sink}: it did not arrive: {error}"
    tell(as_json, {"sink": sink, "arrived": error is None, "error": error}, said)
    return FINE if error is None else NO


def _made_up(engine: Engine) -> Delivery:
    now = engine.store.now()
    alert = Alert("test", "all", State.FIRING, "P3", 1.0, "a test of this sink", now, now, None, None, now, 1, 1)
    body: dict[str, Any] = {**acts.alert_view(alert), "kind": "test", "labels": {}, "at": iso(now)}
    return Delivery(engine.ids.job(), alert.rule, alert.subject, "test", json.dumps(body), now, now, 1)
