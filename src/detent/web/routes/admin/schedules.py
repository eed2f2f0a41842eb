"""Schedules: list, get, create, update, remove, pause, resume, preview, backfill."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field, StringConstraints

from detent.core.access import Power
from detent.core.errors import InvalidInput
from detent.core.options import schedule_options
from detent.core.options.option import REST, options_of
from detent.core.schedule import ScheduleKind
from detent.engine.reads import responses
from detent.engine.reads.responses import JsonObject, show
from detent.engine.schedules import schedules
from detent.engine.schedules.backfill import Backfill
from detent.engine.schedules.request import ScheduleRequest
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas
from detent.web.routes.jobs.filters import Page, Paged, Selection

router = Router(tags=["schedules"])
Reference = Annotated[str, schemas.in_path("The schedule's name or id.", schemas.PRINTABLE)]
BackfillResponse = responses.answer_of("BackfillResponse", Backfill, dry_run=bool)
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[ -~]+$")]
_ZONE = options_of(schedule_options.ScheduleTiming, REST)["tz"].help
_ONE_TIMING = schemas.one_of_fields("cron", "every", "at")


class ZoneFields(schemas.RequestBody):
    """A time zone, under either of its names."""

    timezone: ShortText | None = Field(None, description=_ZONE)
    tz: ShortText | None = Field(None, description="Another name of timezone.")


@schemas.with_options(schedule_options.ScheduleTiming, without=("tz",))
class ScheduleTiming(ZoneFields):
    """When a schedule runs. Exactly one of cron, every and at is needed."""

    model_config = _ONE_TIMING


@schemas.with_options(schedule_options.ScheduleOptions, without=("tz",))
class ScheduleCreateRequest(schemas.ReasonRequest, ZoneFields):
    model_config = _ONE_TIMING
    name: schemas.Name
    job_type: schemas.Name
    tenant_id: schemas.Name | None = None
    paused: bool = False


@schemas.with_options(schedule_options.ScheduleOptions, without=("tenant_id", "tz"))
class ScheduleUpdateRequest(schemas.ReasonRequest, ZoneFields):
    job_type: schemas.Name | None = None
    version: int | None = Field(
        None, ge=1, le=2**31 - 1, description="409 VERSION_CONFLICT if the schedule has another version now."
    )


class ScheduleFilter(Page, Selection):
    """Query parameters of the list of schedules."""


class PreviewQuery(schemas.QueryParameters):
    count: int = Field(10, ge=1, le=schedules.MAX_PREVIEW, description="Number of runs.")
    after: ShortText | None = Field(None, description="Only runs after this time; default now.")


class BackfillRequest(schemas.ReasonRequest):
    """A range of time in the past, both ends included."""

    first: ShortText
    last: ShortText
    rate: float | None = Field(None, ge=0.001, le=1_000_000, description="So many of the new jobs are due per second.")
    dry_run: bool = Field(True, description="Only count the jobs.")


def _options(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request under the names of the engine, which calls the time zone tz."""
    if "timezone" in values and values.setdefault("tz", values["timezone"]) != values["timezone"]:
        raise InvalidInput("tz is another name of timezone; send one of them", code="INPUT_INVALID", field="tz")
    return {name: value for name, value in values.items() if name != "timezone"}


@contextmanager
def _fields_named_as_sent(body: ZoneFields) -> Iterator[None]:
    """A refusal of the time zone names the field that the caller has sent."""
    try:
        yield
    except InvalidInput as error:
        if error.extra.get("field") == "tz" and body.tz is None:
            error.extra["field"] = "timezone"
        raise


@router.route_for("GET", "/schedules", Power.READ)
async def list_schedules(request: ApiRequest, query: Annotated[ScheduleFilter, Query()]) -> Paged[responses.Schedule]:
    """List schedules, newest first."""
    filter = replace(query.filter(request.caller), limit=query.limit + 1)
    page, last = query.cut(await request.engine.schedules.list(filter))
    return [request.schedule_view(schedule) for schedule in page], last.id if last else None


@router.route_for("POST", "/schedules", Power.OPERATE, status=201)
async def create_schedule(request: ApiRequest, body: ScheduleCreateRequest) -> responses.Schedule:
    """Create a schedule. It runs from now on, unless paused is true.

    The options that workers have declared for the job type apply where the body has none, as for `POST /jobs`. 409
    SCHEDULE_EXISTS if the tenant has one of this name, 422 SCHEDULE_INVALID for an invalid timing, 422 PAYLOAD_INVALID
    for a payload that the declared type does not take.
    """
    fields = _options(body.model_dump(exclude_none=True, exclude={"paused", "reason", "tenant_id"}))
    tenant = request.caller.tenant_for(body.tenant_id)
    if tenant is not None:
        fields["tenant_id"] = tenant
    new, scope = ScheduleRequest(**fields), request.acting(body)
    with _fields_named_as_sent(body):
        added = await request.engine.schedules.add(
            new, scope, paused=body.paused, new_id=request.fresh_id, given=fields
        )
    return request.schedule_view(added)


@router.route_for("POST", "/schedules/preview", Power.READ)
async def preview_timing(
    request: ApiRequest, body: ScheduleTiming, query: Annotated[PreviewQuery, Query()]
) -> responses.SchedulePreview:
    """The next runs that a schedule with this timing would have. Creates nothing."""
    draft = ScheduleRequest("preview", "preview", **_options(body.model_dump(exclude_none=True)))
    with _fields_named_as_sent(body):
        return await _preview(request, draft, draft.tz or "UTC", draft.cron, query)


@router.route_for("GET", "/schedules/{reference}", Power.READ)
async def get_schedule(request: ApiRequest, reference: Reference) -> responses.ScheduleWithRuns:
    """A schedule and its last 10 runs. 404 SCHEDULE_NOT_FOUND if it does not exist."""
    schedule = await request.engine.schedules.get(reference)
    runs = await request.engine.schedules.fires(schedule.id, limit=10)
    return {**request.schedule_view(schedule), "last_fires": [show(responses.ScheduleRun, run) for run in runs]}


@router.route_for("PATCH", "/schedules/{reference}", Power.OPERATE)
async def update_schedule(request: ApiRequest, reference: Reference, body: ScheduleUpdateRequest) -> responses.Schedule:
    """Change the given fields of a schedule; null resets a field to its default. Missing fields stay unchanged.

    409 VERSION_CONFLICT if `version` is given and the schedule has changed since.
    """
    changes = _options(body.model_dump(exclude_unset=True, exclude={"version", "reason"}))
    with _fields_named_as_sent(body):
        edited = await request.engine.schedules.edit(reference, changes, request.acting(body), version=body.version)
    return request.schedule_view(edited)


@router.route_for("DELETE", "/schedules/{reference}", Power.OPERATE)
async def remove_schedule(request: ApiRequest, reference: Reference) -> responses.Schedule:
    """Remove a schedule; the jobs it created stay."""
    return request.schedule_view(await request.engine.schedules.remove(reference, request.acting()))


@router.route_for("POST", "/schedules/{reference}/pause", Power.OPERATE)
async def pause_schedule(
    request: ApiRequest, reference: Reference, body: schemas.OptionalReason = None
) -> responses.Schedule:
    """Pause a schedule: it does not run until it is resumed."""
    return request.schedule_view(await request.engine.schedules.pause(reference, request.acting(body)))


@router.route_for("POST", "/schedules/{reference}/resume", Power.OPERATE)
async def resume_schedule(
    request: ApiRequest, reference: Reference, body: schemas.OptionalReason = None
) -> responses.Schedule:
    """Resume a paused schedule. Runs that fell into the pause are not made up for."""
    return request.schedule_view(await request.engine.schedules.resume(reference, request.acting(body)))


@router.route_for("POST", "/schedules/{reference}/run", Power.OPERATE, status=201)
async def run_schedule(request: ApiRequest, reference: Reference, body: schemas.OptionalReason = None) -> responses.Job:
    """Create the job of a run now, also if the schedule is paused. Its later runs stay as they are."""
    return request.job_view(await request.engine.schedules.run_now(reference, request.acting(body)))


@router.route_for("GET", "/schedules/{reference}/preview", Power.READ)
async def preview_schedule(
    request: ApiRequest, reference: Reference, query: Annotated[PreviewQuery, Query()]
) -> responses.SchedulePreview:
    """The next runs of a schedule; those of a paused one as if it were not paused."""
    schedule = await request.engine.schedules.get(reference)
    cron = schedule.expression if schedule.kind == ScheduleKind.CRON else None
    return await _preview(request, schedule.id, schedule.timezone, cron, query)


async def _preview(
    request: ApiRequest, schedule: str | ScheduleRequest, timezone: str, cron: str | None, query: PreviewQuery
) -> responses.SchedulePreview:
    runs = await request.engine.schedules.preview(schedule, query.count, after=query.after)
    return {
        "timezone": timezone,
        "in_words": schedules.in_words(cron),
        "items": [show(responses.PlannedRun, run) for run in runs],
        "next_cursor": None,
    }


@router.route_for("POST", "/schedules/{reference}/backfill", Power.OPERATE, responses={200: BackfillResponse})
async def backfill_schedule(request: ApiRequest, reference: Reference, body: BackfillRequest) -> JsonObject:
    """Create the jobs of runs in the past that have none. With dry_run, the default, only count them.

    422 BACKFILL_TOO_LARGE for more than 10,000 runs, BACKFILL_FORGOTTEN if the records of the range were pruned.
    """
    result = await request.engine.schedules.backfill(
        reference, body.first, body.last, request.acting(body), rate=body.rate, dry_run=body.dry_run
    )
    return {"dry_run": body.dry_run, **asdict(result)}
