"""Webhooks: subscriptions to events of jobs; add, edit, remove, pause, resume, deliveries and replay."""

from typing import Annotated

from fastapi import Query
from pydantic import Field, WithJsonSchema

from detent.core.access import Power
from detent.engine.metrics.webhooks import MAX_FILTERS, WebhookRequest, Webhooks, webhook_view
from detent.engine.reads import operations
from detent.engine.reads.responses import PhaseName
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas
from detent.web.routes.jobs.events import POSITION
from detent.web.routes.jobs.filters import Page, Paged

router = Router(tags=["webhooks"])
WebhookId = Annotated[str, schemas.in_path("The id or the name of the webhook.", schemas.PRINTABLE)]
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_URL = {
    "type": "string",
    "maxLength": 2_000,
    "pattern": rf"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:{_PORT})?([/?][!\"$-~]*)?$",
    "description": "http:// or https://, without user name, password and fragment.",
}
_B64 = "[A-Za-z0-9+/]"
_SECRET = f"^(whsec_(({_B64}{{4}}){{8,20}}({_B64}{{2}}==|{_B64}{{3}}=)?|({_B64}{{4}}){{21}}({_B64}{{2}}==)?))?$"
"""whsec_ and the base64 of 24 to 64 bytes."""
Url = Annotated[schemas.Prose, WithJsonSchema(_URL)]
Secret = Annotated[str, Field(max_length=200, json_schema_extra={"pattern": _SECRET})]
Events = Annotated[
    list[schemas.Name], Field(max_length=MAX_FILTERS, description="Names of events, see GET /contracts. Empty: all.")
]
Phases = Annotated[
    list[PhaseName], Field(max_length=4, description="Only events that lead to these. final: it finished.")
]
Payloads = Annotated[bool, Field(description="False: without error texts and other data from handlers.")]


class WebhookFilter(schemas.RequestBody):
    queue: schemas.Name | None = None
    job_type: schemas.Name | None = None
    contract: schemas.Name | None = None


class WebhookCreateRequest(WebhookFilter):
    events: Events = Field([])
    phases: Phases = Field([])
    payloads: Payloads = True
    name: schemas.Name = Field(description="Unique in its tenant.")
    url: Url
    tenant_id: schemas.Name | None = Field(None, description="Only events of this tenant. Null: of all tenants.")
    secret: Secret = Field("", description="whsec_… of your own. Empty: a new one.")


class WebhookUpdateRequest(schemas.ReasonRequest, WebhookFilter):
    events: Events | None = None
    phases: Phases | None = None
    payloads: Payloads | None = None
    name: schemas.Name | None = Field(None, description="Unique in its tenant.")
    url: Url | None = None
    secret: Secret | None = Field(None, description="whsec_… of your own. Empty or null: a new one.")


class ReplayRequest(schemas.ReasonRequest):
    """One of the three."""

    model_config = schemas.one_of_fields("delivery", "since", "after")
    delivery: schemas.Name | None = Field(None, description="Id of one delivery.")
    since: schemas.Timestamp | None = Field(None, description="All deliveries that were created since this time.")
    after: Annotated[str, Field(max_length=80, pattern=POSITION)] | None = Field(
        None, description="All events after this id of /events/stream; 0: from the first event."
    )


class WebhookDeliveryPage(Page):
    cursor: str | None = Field(None, pattern="^msg_[0-9a-f]{1,60}$", description="next_cursor of the previous page")


def _webhooks(request: ApiRequest) -> Webhooks:
    """The webhooks that the caller sees. Raises Forbidden if the token is limited to queues or types."""
    request.caller.require_all_queues("webhooks")
    return request.engine.webhooks


@router.route_for("GET", "/webhooks", Power.OPERATE)
async def list_webhooks(request: ApiRequest) -> list[operations.Webhook]:
    """List the webhooks, without their secrets. A token with a tenant sees only those of its tenant."""
    return await _webhooks(request).list()


@router.route_for("POST", "/webhooks", Power.ADMIN, status=201)
async def add_webhook(request: ApiRequest, body: WebhookCreateRequest) -> operations.NewWebhook:
    """Subscribe a URL to events of jobs from now on. Its secret is in this response only.

    Requests are signed as Standard Webhooks describe. Events show payloads only if the caller's token does. 409
    WEBHOOK_EXISTS if the name is taken; 422 WEBHOOK_URL_INVALID, WEBHOOK_FILTER_INVALID for an unknown event.
    """
    fields = body.model_dump(exclude={"tenant_id", "events", "phases"})
    tenant, events, phases = request.caller.tenant_for(body.tenant_id), tuple(body.events), tuple(body.phases)
    wanted = WebhookRequest(**fields, tenant_id=tenant, events=events, phases=phases)
    webhook, secret = await _webhooks(request).add(wanted, request.acting())
    return {**webhook_view(webhook), "secret": secret}


@router.route_for("GET", "/webhooks/{webhook_id}", Power.OPERATE)
async def get_webhook(request: ApiRequest, webhook_id: WebhookId) -> operations.Webhook:
    """Get a webhook, without its secret. 404 WEBHOOK_NOT_FOUND."""
    return await _webhooks(request).get(webhook_id)


@router.route_for("PATCH", "/webhooks/{webhook_id}", Power.ADMIN)
async def update_webhook(
    request: ApiRequest, webhook_id: WebhookId, body: WebhookUpdateRequest
) -> operations.EditedWebhook:
    """Change the given fields of a webhook; null resets a field to its default. Missing fields stay unchanged.

    The secret stays unless `secret` is given; a new one is in this response only, and the old one signs too until
    old_secret_until, a day later. Deliveries that wait are sent to the new URL. A token without payloads that changes
    the URL turns `payloads` off. 404 WEBHOOK_NOT_FOUND, 409 WEBHOOK_EXISTS, 422 WEBHOOK_URL_INVALID,
    WEBHOOK_FILTER_INVALID for an unknown event.
    """
    changes = body.model_dump(exclude_unset=True, exclude={"reason"})
    lists = {name: tuple(changes[name]) for name in ("events", "phases") if changes.get(name) is not None}
    webhook, secret = await _webhooks(request).edit(webhook_id, {**changes, **lists}, request.acting(body))
    return {**webhook, "secret": secret}


@router.route_for("DELETE", "/webhooks/{webhook_id}", Power.ADMIN)
async def remove_webhook(request: ApiRequest, webhook_id: WebhookId) -> operations.Webhook:
    """Delete a webhook and its deliveries. 404 WEBHOOK_NOT_FOUND."""
    return webhook_view(await _webhooks(request).remove(webhook_id, request.acting()))


@router.route_for("POST", "/webhooks/{webhook_id}/pause", Power.OPERATE)
async def pause_webhook(
    request: ApiRequest, webhook_id: WebhookId, body: schemas.OptionalReason = None
) -> operations.Webhook:
    """Send nothing until it is resumed. Events stay in the log and are sent then."""
    return await _webhooks(request).pause(webhook_id, request.acting(body))


@router.route_for("POST", "/webhooks/{webhook_id}/resume", Power.OPERATE)
async def resume_webhook(
    request: ApiRequest, webhook_id: WebhookId, body: schemas.OptionalReason = None
) -> operations.Webhook:
    """Send again, also after Detent has disabled it."""
    return await _webhooks(request).resume(webhook_id, request.acting(body))


@router.route_for("POST", "/webhooks/{webhook_id}/replay", Power.OPERATE)
async def replay_webhook(request: ApiRequest, webhook_id: WebhookId, body: ReplayRequest) -> operations.WebhookReplay:
    """Send again under the same webhook-id: one delivery, those since a time, or all events after a position."""
    choice = body.model_dump(exclude={"reason"})
    return await _webhooks(request).replay(webhook_id, request.acting(body), **choice)


@router.route_for("GET", "/webhooks/{webhook_id}/deliveries", Power.OPERATE)
async def list_webhook_deliveries(
    request: ApiRequest, webhook_id: WebhookId, query: Annotated[WebhookDeliveryPage, Query()]
) -> Paged[operations.WebhookDelivery]:
    """List the deliveries of a webhook, newest first, with their retries and errors. The newest 10,000 are kept."""
    rows = await _webhooks(request).deliveries(webhook_id, query.limit + 1, query.cursor)
    page, last = query.cut(rows)
    return page, last["id"] if last else None
