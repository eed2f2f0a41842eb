"""Alerts: the list, acknowledging, silences, the rules of this server, and notifications to channels."""

from typing import Annotated

from fastapi import Query
from pydantic import Field

from detent.core.access import Power
from detent.core.errors import InvalidInput
from detent.engine.metrics import alerts
from detent.engine.reads import operations
from detent.engine.reads.responses import show
from detent.observability.settings import load_settings
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

router = Router(tags=["alerts"])
SilenceId = Annotated[str, schemas.in_path("The id of the silence.")]


class DeliveryQuery(schemas.QueryParameters):
    limit: int = Field(50, ge=1, le=500)


class AlertRequest(schemas.ReasonRequest):
    """An alert: its rule and its subject."""

    rule: schemas.Name
    subject: schemas.Prose


class SilenceRequest(schemas.ReasonRequest):
    rule: schemas.Name
    subject: schemas.Prose = Field("", description="Empty: all subjects of the rule.")
    seconds: float = Field(ge=1, le=alerts.MAX_SILENCE_SECONDS, description="How long; at most 30 days.")


@router.route_for("GET", "/alerts", Power.READ, shared="alerts")
async def list_alerts(request: ApiRequest) -> list[operations.ListedAlert]:
    """List the alerts that are pending or firing, and those resolved last."""
    engine, rules = request.engine, load_settings().rules
    listed, silences = await alerts.list_alerts(engine), await alerts.list_silences(engine)
    return [alerts.listed_view(alert, silences, rules, engine.store.now()) for alert in listed]


@router.route_for("POST", "/alerts/acknowledge", Power.OPERATE, shared="alerts")
async def acknowledge_alert(request: ApiRequest, body: AlertRequest) -> operations.Alert:
    """Note that the caller works on an alert. It lasts until the alert is resolved. 404 ALERT_NOT_FOUND."""
    alert = await alerts.acknowledge(request.engine, body.rule, body.subject, request.acting(body))
    return alerts.alert_view(alert)


@router.route_for("GET", "/alerts/rules", Power.READ, shared="alerts")
async def list_alert_rules(request: ApiRequest) -> list[operations.AlertRule]:
    """List the rules in the settings of this server, with their thresholds."""
    rules = [(rule, alerts.rule_view(rule)) for rule in load_settings().rules]
    return [show(operations.AlertRule, rule, unit=view["unit"], meaning=view["says"]) for rule, view in rules]


@router.route_for("GET", "/alerts/silences", Power.READ, shared="alerts")
async def list_silences(request: ApiRequest) -> list[operations.Silence]:
    """List the active silences, the next to end first."""
    return [show(operations.Silence, silence) for silence in await alerts.list_silences(request.engine)]


@router.route_for("POST", "/alerts/silences", Power.OPERATE, status=201, shared="alerts")
async def silence_alerts(request: ApiRequest, body: SilenceRequest) -> operations.Silence:
    """Silence a rule, or one of its subjects: no channel is notified of its alerts for some time.

    The alerts are still evaluated and listed. One that still fires when the silence ends is announced then. 422
    SILENCE_INVALID if neither the settings of this server nor the list of alerts has the rule.
    """
    names = {rule.name for rule in load_settings().rules}
    if body.rule not in names | {alert.rule for alert in await alerts.list_alerts(request.engine)}:
        message = f"there is no rule {body.rule!r}; the rules are {', '.join(sorted(names))}"
        raise InvalidInput(message, code="SILENCE_INVALID", field="rule")
    silence = await alerts.silence(request.engine, body.rule, body.subject, body.seconds, request.acting(body))
    return show(operations.Silence, silence)


@router.route_for("DELETE", "/alerts/silences/{silence_id}", Power.OPERATE, shared="alerts")
async def end_silence(request: ApiRequest, silence_id: SilenceId) -> operations.SilenceRemoved:
    """End a silence now."""
    removed = await alerts.end_silence(request.engine, silence_id, request.acting())
    return {"id": silence_id, "removed": removed}


@router.route_for("GET", "/alerts/deliveries", Power.READ, shared="alerts")
async def list_alert_deliveries(
    request: ApiRequest, query: Annotated[DeliveryQuery, Query()]
) -> list[operations.AlertDelivery]:
    """List the notifications to alert channels, newest first, with their retries and errors."""
    rows = await alerts.list_deliveries(request.engine, query.limit)
    errors = request.caller.may(Power.ADMIN)
    return [alerts.delivery_view(delivery, errors=errors) for delivery in rows]
