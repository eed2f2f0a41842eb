"""Schedules: list, show, add, edit, remove, pause, resume, preview, backfill."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from detent.core.access import Power
from detent.core.schedule import Schedule
from detent.core.times import iso
from detent.engine.schedules import schedules as acts
from detent.engine.schedules.backfill import backfill
from detent.engine.schedules.request import ScheduleRequest
from detent.engine.schedules.schedules import schedule_view
from detent.engine.submit.submission import MAX_SPAN_MS
from detent.ports.listing import Filter
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schedule_schemas, schemas
from detent.web.routes.jobs.filters import Page, Text

router = Router(tags=["schedules"])
Reference = Annotated[
    str, Path(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$", description="The schedule's name or id.")
]
Line = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[ -~]+$")]


class When(schemas.Asks):
    """One of cron, every and at."""

    cron: Line | None = Field(None, description="Five fields, or six with seconds first, or @daily and the like.")
    every: Line | float | None = Field(None, description="A span like 5m or 1h30m, or seconds.")
    at: Line | None = Field(None, description="Once, at this moment.")
    tz: Line | None = Field(None, description="The zone of cron times, like Europe/Berlin; UTC unless said.")
    starts_at: Line | None = None
    ends_at: Line | None = None
    jitter: float | None = Field(None, ge=0)


class Changes(When):
    job_type: schemas.Name | None = None
    payload: dict[str, Any] | None = None
    contract: schemas.Name | None = None
    queue: schemas.Name | None = None
    priority: int | None = Field(None, ge=-100, le=100)
    max_retries: int | None = Field(None, ge=0, le=1_000)
    timeout_ms: int | None = Field(None, ge=1, le=10**12)
    limit_key: schemas.Name | None = None
    deadline: float | None = Field(None, ge=0.001, le=MAX_SPAN_MS / 1_000, description="Seconds after a job is due.")
    misfire: Literal["skip", "once", "all"] | None = None
    misfire_limit: int | None = Field(None, ge=1, le=100)
    misfire_grace: float | None = Field(None, ge=0)
    overlap: Literal["allow", "skip", "cancel"] | None = None


class Add(Changes):
    name: schemas.Name
    job_type: schemas.Name
    tenant_id: schemas.Name | None = None
    paused: bool = False
    reason: schemas.Prose | None = None


class Edit(Changes):
    version: int | None = Field(None, ge=1, le=2**31 - 1, description="Refuse if it is no longer at this one.")
    reason: schemas.Prose | None = None


class ScheduleFilter(Page):
    queue: schemas.Name | None = None
    contract: schemas.Name | None = None
    tenant: schemas.Name | None = None
    job_type: schemas.Name | None = None
    text: Text | None = None


class Coming(BaseModel):
    model_config = ConfigDict(extra="forbid")
    count: int = Field(10, ge=1, le=acts.MAX_PREVIEW)
    after: Line | None = None


class Range(schemas.Because):
    first: Line
    last: Line
    rate: float | None = Field(None, ge=0.001, le=1_000_000)
    dry_run: bool = True


def _view(asked: ApiRequest, one: Schedule) -> dict[str, Any]:
    shown = schedule_view(one, payloads=asked.caller.payloads)
    return shown if asked.caller.payloads else {**shown, "last_error": None}


def _said(body: BaseModel, *apart: str) -> dict[str, Any]:
    return body.model_dump(exclude_none=True, exclude=set(apart))


@router.route_for("GET", "/schedules", needs=Power.READ, answers={200: schedule_schemas.Schedules})
async def listing(asked: ApiRequest, chosen: Annotated[ScheduleFilter, Query()]) -> Response:
    """Schedules, newest first."""
    wanted = Filter(
        contract=chosen.contract,
        queue=chosen.queue,
        tenant_id=asked.caller.tenant_for(chosen.tenant),
        job_type=chosen.job_type,
        text=chosen.text,
        before=chosen.cursor,
    )
    found = await acts.listed(await asked.engine(), replace(wanted, limit=chosen.limit + 1))
    page = found[: chosen.limit]
    cursor = page[-1].id if len(found) > chosen.limit else None
    return answer({"schedules": [_view(asked, one) for one in page], "next_cursor": cursor})


@router.route_for("POST", "/schedules", needs=Power.OPERATE, answers={201: schedule_schemas.Schedule})
async def add(asked: ApiRequest, body: Add) -> Response:
    """Make a schedule; it fires from now on."""
    told = _said(body, "paused", "reason", "tenant_id")
    tenant = asked.caller.tenant_for(body.tenant_id)
    if tenant is not None:
        told["tenant_id"] = tenant
    made = await acts.add(
        await asked.engine(),
        ScheduleRequest(**told),
        actor=asked.caller.person,
        reason=body.reason,
        paused=body.paused,
        new_id=asked.fresh_id,
    )
    return answer(_view(asked, made), 201)


@router.route_for("POST", "/schedules/preview", needs=Power.READ, answers={200: schedule_schemas.Fires})
async def preview_of(asked: ApiRequest, body: When, coming: Annotated[Coming, Query()]) -> Response:
    """The next fires of a schedule that is only thought of."""
    ask = ScheduleRequest("preview", "preview", **_said(body))
    found = await acts.preview(await asked.engine(), ask, coming.count, after=coming.after)
    return answer({"timezone": body.tz or "UTC", "fires": [_coming(one) for one in found]})


def _coming(one: acts.Preview) -> dict[str, Any]:
    return {"fire_at": iso(one.fire_at), "due_at": iso(one.due_at)}


@router.route_for("GET", "/schedules/{reference}", needs=Power.READ, answers={200: schedule_schemas.ScheduleWithFires})
async def show(asked: ApiRequest, reference: Reference) -> Response:
    """One schedule and its last fires."""
    engine = await asked.engine()
    one = await acts.get(engine, reference, tenant=asked.caller.tenant)
    fires = await acts.fires(engine, one.id, limit=10)
    told = [{"fire_at": iso(fire.fire_at), "job_id": fire.job_id, "made_at": iso(fire.made_at)} for fire in fires]
    return answer({**_view(asked, one), "last_fires": told})


@router.route_for("PATCH", "/schedules/{reference}", needs=Power.OPERATE, answers={200: schedule_schemas.Schedule})
async def edit(asked: ApiRequest, reference: Reference, body: Edit) -> Response:
    """Change what is said and leave the rest; null takes back what was said before."""
    who = asked.caller
    changed = await acts.edit(
        await asked.engine(),
        reference,
        body.model_dump(exclude_unset=True, exclude={"version", "reason"}),
        actor=who.person,
        reason=body.reason,
        tenant=who.tenant,
        version=body.version,
    )
    return answer(_view(asked, changed))


@router.route_for("DELETE", "/schedules/{reference}", needs=Power.OPERATE, answers={200: schedule_schemas.Schedule})
async def remove(asked: ApiRequest, reference: Reference) -> Response:
    """Remove it; its jobs stay."""
    who = asked.caller
    return answer(_view(asked, await acts.remove(await asked.engine(), reference, actor=who.person, tenant=who.tenant)))


@router.route_for("POST", "/schedules/{reference}/pause", needs=Power.OPERATE, answers={200: schedule_schemas.Schedule})
async def pause(
    asked: ApiRequest, reference: Reference, body: Annotated[schemas.Because | None, Body()] = None
) -> Response:
    """No fires until it is resumed."""
    who, reason = asked.caller, body.reason if body else None
    engine = await asked.engine()
    one = await acts.pause(engine, reference, actor=who.person, reason=reason, tenant=who.tenant)
    return answer(_view(asked, one))


@router.route_for(
    "POST", "/schedules/{reference}/resume", needs=Power.OPERATE, answers={200: schedule_schemas.Schedule}
)
async def resume(
    asked: ApiRequest, reference: Reference, body: Annotated[schemas.Because | None, Body()] = None
) -> Response:
    """From now on it fires again."""
    who, reason = asked.caller, body.reason if body else None
    engine = await asked.engine()
    return answer(
        _view(asked, await acts.resume(engine, reference, actor=who.person, reason=reason, tenant=who.tenant))
    )


@router.route_for("GET", "/schedules/{reference}/preview", needs=Power.READ, answers={200: schedule_schemas.Fires})
async def preview(asked: ApiRequest, reference: Reference, coming: Annotated[Coming, Query()]) -> Response:
    """Its next fires, as if it were not paused."""
    engine = await asked.engine()
    one = await acts.get(engine, reference, tenant=asked.caller.tenant)
    found = await acts.preview(engine, one.id, coming.count, after=coming.after)
    return answer({"timezone": one.timezone, "fires": [_coming(fire) for fire in found]})


@router.route_for(
    "POST", "/schedules/{reference}/backfill", needs=Power.OPERATE, answers={200: schedule_schemas.Backfilled}
)
async def fill(asked: ApiRequest, reference: Reference, body: Range) -> Response:
    """Make the jobs of fires that have passed and have none; a dry run, the default, says how many."""
    who = asked.caller
    done = await backfill(
        await asked.engine(),
        reference,
        body.first,
        body.last,
        actor=who.person,
        reason=body.reason,
        tenant=who.tenant,
        rate=body.rate,
        dry_run=body.dry_run,
    )
    return answer({"dry_run": body.dry_run, **done.as_dict(), "job_ids": list(done.job_ids)})
