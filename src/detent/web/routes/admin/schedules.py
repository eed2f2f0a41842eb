"""Schedules: list, get, create, update, remove, pause, resume, preview, backfill."""

from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from detent.core.access import Power, Scope
from detent.core.options import schedule_options
from detent.core.schedule import Schedule
from detent.engine.reads import responses
from detent.engine.schedules import schedules
from detent.engine.schedules.backfill import Backfill
from detent.engine.schedules.request import ScheduleRequest
from detent.engine.schedules.schedules import schedule_view
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas
from detent.web.routes.jobs.filters import Page, Selection

router = Router(tags=["schedules"])
Reference = Annotated[
    str, Path(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$", description="The schedule's name or id.")
]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[ -~]+$")]


@schemas.with_options(schedule_options.ScheduleTiming)
class ScheduleTiming(schemas.RequestBody):
    """When a schedule runs. Exactly one of cron, every and at is needed."""


@schemas.with_options(schedule_options.ScheduleOptions)
class ScheduleCreateRequest(schemas.RequestBody):
    name: schemas.Name
    job_type: schemas.Name
    tenant_id: schemas.Name | None = None
    paused: bool = False
    reason: schemas.Prose | None = None


@schemas.with_options(schedule_options.ScheduleOptions, without=("tenant_id",))
class ScheduleUpdateRequest(schemas.RequestBody):
    job_type: schemas.Name | None = None
    version: int | None = Field(
        None, ge=1, le=2**31 - 1, description="409 VERSION_CONFLICT if the schedule has another version now."
    )
    reason: schemas.Prose | None = None


class ScheduleFilter(Page, Selection):
    """Query parameters of the list of schedules."""


class PreviewQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")
    count: int = Field(10, ge=1, le=schedules.MAX_PREVIEW, description="Number of runs.")
    after: ShortText | None = Field(None, description="Only runs after this time; default now.")


class BackfillRequest(schemas.ReasonRequest):
    """A range of time in the past, both ends included."""

    first: ShortText
    last: ShortText
    rate: float | None = Field(None, ge=0.001, le=1_000_000, description="So many of the new jobs are due per second.")
    dry_run: bool = Field(True, description="Only count the jobs.")


def _view(request: ApiRequest, schedule: Schedule) -> responses.Schedule:
    return schedule_view(schedule, payloads=request.caller.payloads)


def _given_fields(body: BaseModel, *excluded: str) -> dict[str, Any]:
    return body.model_dump(exclude_none=True, exclude=set(excluded))


@router.route_for("GET", "/schedules", needs=Power.READ, responses={200: responses.ScheduleList})
async def list_schedules(request: ApiRequest, query: Annotated[ScheduleFilter, Query()]) -> Response:
    """List schedules, newest first."""
    filter = replace(query.filter(request.caller), text=query.text, limit=query.limit + 1)
    rows = await (await request.engine()).schedules.list(filter)
    page = rows[: query.limit]
    cursor = page[-1].id if len(rows) > query.limit else None
    return json_response({"schedules": [_view(request, schedule) for schedule in page], "next_cursor": cursor})


@router.route_for("POST", "/schedules", needs=Power.OPERATE, responses={201: responses.Schedule})
async def create_schedule(request: ApiRequest, body: ScheduleCreateRequest) -> Response:
    """Create a schedule. It runs from now on, unless paused is true.

    409 SCHEDULE_EXISTS if the tenant has one of this name, 422 SCHEDULE_INVALID for an invalid timing.
    """
    fields = _given_fields(body, "paused", "reason", "tenant_id")
    tenant = request.caller.tenant_for(body.tenant_id)
    if tenant is not None:
        fields["tenant_id"] = tenant
    schedule = await (await request.engine()).schedules.add(
        ScheduleRequest(**fields),
        Scope(request.caller.person, body.reason),
        paused=body.paused,
        new_id=request.fresh_id,
    )
    return json_response(_view(request, schedule), 201)


@router.route_for("POST", "/schedules/preview", needs=Power.READ, responses={200: responses.SchedulePreview})
async def preview_timing(
    request: ApiRequest, body: ScheduleTiming, query: Annotated[PreviewQuery, Query()]
) -> Response:
    """The next runs that a schedule with this timing would have. Creates nothing."""
    draft = ScheduleRequest("preview", "preview", **_given_fields(body))
    runs = await (await request.engine()).schedules.preview(draft, query.count, after=query.after)
    return json_response(
        {"timezone": draft.tz or "UTC", "fires": [responses.show(responses.PlannedRun, run) for run in runs]}
    )


@router.route_for("GET", "/schedules/{reference}", needs=Power.READ, responses={200: responses.ScheduleWithRuns})
async def get_schedule(request: ApiRequest, reference: Reference) -> Response:
    """A schedule and its last 10 runs. 404 SCHEDULE_NOT_FOUND if it does not exist."""
    engine = await request.engine()
    schedule = await engine.schedules.get(reference)
    runs = await engine.schedules.fires(schedule.id, limit=10)
    last_fires = [responses.show(responses.ScheduleRun, run) for run in runs]
    return json_response({**_view(request, schedule), "last_fires": last_fires})


@router.route_for("PATCH", "/schedules/{reference}", needs=Power.OPERATE, responses={200: responses.Schedule})
async def update_schedule(request: ApiRequest, reference: Reference, body: ScheduleUpdateRequest) -> Response:
    """Change the given fields of a schedule; null resets a field to its default. Missing fields stay unchanged.

    409 VERSION_CONFLICT if `version` is given and the schedule has changed since.
    """
    caller = request.caller
    schedule = await (await request.engine()).schedules.edit(
        reference,
        body.model_dump(exclude_unset=True, exclude={"version", "reason"}),
        Scope(caller.person, body.reason),
        version=body.version,
    )
    return json_response(_view(request, schedule))


@router.route_for("DELETE", "/schedules/{reference}", needs=Power.OPERATE, responses={200: responses.Schedule})
async def remove_schedule(request: ApiRequest, reference: Reference) -> Response:
    """Remove a schedule; the jobs it created stay."""
    engine, caller = await request.engine(), request.caller
    schedule = await engine.schedules.remove(reference, Scope(caller.person))
    return json_response(_view(request, schedule))


@router.route_for("POST", "/schedules/{reference}/pause", needs=Power.OPERATE, responses={200: responses.Schedule})
async def pause_schedule(
    request: ApiRequest, reference: Reference, body: Annotated[schemas.ReasonRequest | None, Body()] = None
) -> Response:
    """Pause a schedule: it does not run until it is resumed."""
    engine, caller, reason = await request.engine(), request.caller, body.reason if body else None
    schedule = await engine.schedules.pause(reference, Scope(caller.person, reason))
    return json_response(_view(request, schedule))


@router.route_for("POST", "/schedules/{reference}/resume", needs=Power.OPERATE, responses={200: responses.Schedule})
async def resume_schedule(
    request: ApiRequest, reference: Reference, body: Annotated[schemas.ReasonRequest | None, Body()] = None
) -> Response:
    """Resume a paused schedule. Runs that fell into the pause are not made up for."""
    engine, caller, reason = await request.engine(), request.caller, body.reason if body else None
    schedule = await engine.schedules.resume(reference, Scope(caller.person, reason))
    return json_response(_view(request, schedule))


@router.route_for("GET", "/schedules/{reference}/preview", needs=Power.READ, responses={200: responses.SchedulePreview})
async def preview_schedule(
    request: ApiRequest, reference: Reference, query: Annotated[PreviewQuery, Query()]
) -> Response:
    """The next runs of a schedule; those of a paused one as if it were not paused."""
    engine = await request.engine()
    schedule = await engine.schedules.get(reference)
    runs = await engine.schedules.preview(schedule.id, query.count, after=query.after)
    return json_response(
        {"timezone": schedule.timezone, "fires": [responses.show(responses.PlannedRun, run) for run in runs]}
    )


@router.route_for(
    "POST",
    "/schedules/{reference}/backfill",
    needs=Power.OPERATE,
    responses={200: responses.answer_of("BackfillResponse", Backfill, dry_run=bool)},
)
async def backfill_schedule(request: ApiRequest, reference: Reference, body: BackfillRequest) -> Response:
    """Create the jobs of runs in the past that have none. With dry_run, the default, only count them.

    422 BACKFILL_TOO_LARGE for more than 10,000 runs, BACKFILL_FORGOTTEN if the records of the range were pruned.
    """
    caller = request.caller
    result = await (await request.engine()).schedules.backfill(
        reference,
        body.first,
        body.last,
        Scope(caller.person, body.reason),
        rate=body.rate,
        dry_run=body.dry_run,
    )
    return json_response({"dry_run": body.dry_run, **asdict(result)})
