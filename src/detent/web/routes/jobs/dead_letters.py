"""Dead letters: list, get, requeue, discard; also many at once, with a dry run that counts them."""

from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import Body, Query
from pydantic import Field, StringConstraints
from starlette.responses import Response

from detent.core.access import Power
from detent.core.errors import InvalidInput
from detent.core.times import SECOND, from_iso, iso, moment_of_id
from detent.engine.dead_letters import DeadLetterBulkResult
from detent.engine.reads import responses
from detent.engine.reads.responses import JsonObject
from detent.ports.listing import Filter
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas

from .filters import EndedSelection, Page, Searched, Time, check_ids_alone, ids_or_filter, searched

router = Router(tags=["dead letters"])
BulkResponse = responses.answer_of("DeadLetterBulkResponse", DeadLetterBulkResult, dry_run=bool)
_MAX_IDS = 5_000
DeadLetterId = Annotated[str, schemas.in_path("The dead letter's id.")]
DeadLetterIdText = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=schemas.VISIBLE)]


class DeadLetterSelection(EndedSelection):
    error_class: schemas.Name | None = Field(None, description="The class of the exception.")
    error_group: schemas.Name | None = Field(None, description="`group` of a group of /dlq/groups.")
    proposed_by: schemas.Name | None = Field(None, description="Only those that this person proposed to discard.")


class DeadLetterFilter(Page, DeadLetterSelection):
    status: responses.DeadLetterState | None = None
    id: list[DeadLetterIdText] | None = Field(
        None, max_length=100, description="Exactly these; repeat it. Of the other parameters only fields goes with it."
    )


class DeadLetterBulkRequest(schemas.RequestBody, DeadLetterSelection):
    """Applies to all open dead letters that match every given field, or to those with the given ids."""

    model_config = ids_or_filter(*DeadLetterSelection.model_fields)
    ids: list[DeadLetterIdText] | None = Field(None, min_length=1, max_length=_MAX_IDS, description="Exactly these.")
    dry_run: bool = Field(True, description="Only count the dead letters.")

    def filter(self, caller: Caller, **more: Any) -> Filter:
        chosen = super().filter(caller, **more)
        if self.ids is None:
            return chosen
        if self.model_dump(include={*DeadLetterSelection.model_fields}, exclude_none=True):
            raise InvalidInput("send either ids or a filter, not both", code="INPUT_INVALID", field="ids")
        return replace(chosen, ids=tuple(self.ids))


class DeadLetterBulkDiscardRequest(DeadLetterBulkRequest):
    reason: Annotated[str, StringConstraints(max_length=2_000, pattern=r"^[^\x00]*[^\x00-\x20\s][^\x00]*$")]


class DeadLetterBulkRequeueRequest(DeadLetterBulkRequest, schemas.ReasonRequest):
    rate: float | None = Field(None, ge=0.001, le=1_000_000, description="So many of the new jobs are due per second.")
    take_steps: bool = Field(False, description="The new jobs keep the recorded steps and do not run them again.")


class DeadLetterRequeueRequest(schemas.RequeueRequest):
    take_steps: bool = Field(
        default=False, description="The new job keeps the recorded steps and does not run them again."
    )


@router.route_for("GET", "/dlq/items", Power.READ)
async def list_dead_letters(
    request: ApiRequest, query: Annotated[DeadLetterFilter, Query()]
) -> Searched[responses.DeadLetter]:
    """List dead letters, newest first.

    A filtered page may be short or empty: `searched_until` says how far it looked; continue until next_cursor is null.
    """
    if query.id is not None:
        check_ids_alone(query)
        items = await request.engine.dead_letters.get_many(query.id)
        return searched([request.dead_letter_view(item) for item in items], None)
    page, cursor = await request.engine.dead_letters.page(query.filter(request.caller))
    return searched([request.dead_letter_view(item) for item in page], cursor)


class ErrorGroupFilter(schemas.QueryParameters, DeadLetterSelection):
    """Query parameters of the list of errors."""

    status: responses.DeadLetterState | Literal["all"] = "open"
    slots_since: Time | None = Field(None, description="Where the first of the 24 slots begins; default: 24 hours ago.")


@router.route_for("GET", "/dlq/groups", Power.READ, responses={200: responses.ErrorGroupList})
async def list_error_groups(
    request: ApiRequest, query: Annotated[ErrorGroupFilter, Query()]
) -> responses.ErrorGroupList:
    """Dead letters grouped by error: job type, class, code and pattern of the message; most frequent first.

    Reads the newest 20,000 that match the status; `searched_until` says how far that reaches. first_at of a group also
    counts dead letters that were requeued or deleted since, so that a new error is recognised.
    """
    since = None if query.slots_since is None else from_iso(query.slots_since, field="slots_since")
    chosen = replace(query.filter(request.caller), status=None if query.status == "all" else query.status)
    found = await request.engine.dead_letters.groups(chosen, since=since)
    searched_to = found.searched_to and moment_of_id(found.searched_to)
    return {
        "items": [responses.show(responses.ErrorGroup, group) for group in found.groups],
        "next_cursor": None,
        "more_groups": found.more_groups,
        "slots_since": iso(found.since) or "",
        "slot_seconds": round(found.slot_width / SECOND, 3),
        "searched_until": iso(searched_to) if searched_to else None,
    }


@router.route_for("GET", "/dlq/items/{dlq_id}", Power.READ)
async def get_dead_letter(request: ApiRequest, dlq_id: DeadLetterId) -> responses.DeadLetterWithHistory:
    """A dead letter with the log of its job and the actions of people on it. 404 DLQ_ITEM_NOT_FOUND if unknown."""
    return await request.engine.dead_letters.history(dlq_id)


@router.route_for("POST", "/dlq/items/{dlq_id}/requeue", Power.OPERATE, status=201)
async def requeue_dead_letter(
    request: ApiRequest, dlq_id: DeadLetterId, body: Annotated[DeadLetterRequeueRequest | None, Body()] = None
) -> responses.SubmitResponse:
    """Requeue a dead letter as a new job, with another payload if one is given. Counters start at 0.

    Effect keys stay the same, for services that deduplicate by them. 409 DLQ_REQUEUE_CONFLICT if it is not open.
    """
    options = body or DeadLetterRequeueRequest()
    submitted = await request.engine.dead_letters.requeue(
        dlq_id, request.acting(body), payload=options.payload, new_id=request.fresh_id, take_steps=options.take_steps
    )
    return request.submitted_view(submitted)


@router.route_for(
    "POST",
    "/dlq/items/{dlq_id}/discard",
    Power.DISCARD,
    responses={200: responses.DiscardResponse, 202: responses.DiscardResponse},
)
async def discard_dead_letter(
    request: ApiRequest, dlq_id: DeadLetterId, body: schemas.OptionalReason = None
) -> Response:
    """Discard a dead letter; a reason is needed. 202 if a second person has to confirm, 200 if it is discarded.

    400 APPROVAL_REQUIRED without a reason or if the same person confirms, 409 DLQ_DISCARD_CONFLICT if it is not open.
    """
    result = await request.engine.dead_letters.discard(dlq_id, request.acting(body))
    view = {"confirmed": result.confirmed, "item": request.dead_letter_view(result.item)}
    return json_response(view, 200 if result.confirmed else 202)


@router.route_for("POST", "/dlq/requeue", Power.OPERATE, responses={200: BulkResponse})
async def requeue_dead_letters(request: ApiRequest, body: DeadLetterBulkRequeueRequest) -> JsonObject:
    """Requeue all open dead letters that match. With dry_run, the default, only count them."""
    result = await request.engine.dead_letters.requeue_many(
        body.filter(request.caller),
        request.acting(body),
        rate=body.rate,
        take_steps=body.take_steps,
        dry_run=body.dry_run,
    )
    return {"dry_run": body.dry_run, **asdict(result)}


@router.route_for("POST", "/dlq/discard", Power.DISCARD, responses={200: BulkResponse})
async def discard_dead_letters(request: ApiRequest, body: DeadLetterBulkDiscardRequest) -> JsonObject:
    """Discard all open dead letters that match. With dry_run, the default, only count them.

    Those that need two people are proposed to be discarded; those that another person has proposed are discarded.
    Confirm what a person proposed with the filter proposed_by. A person's own proposals are refused.
    """
    scope = replace(request.acting(), reason=body.reason)
    result = await request.engine.dead_letters.discard_many(body.filter(request.caller), scope, dry_run=body.dry_run)
    return {"dry_run": body.dry_run, **asdict(result)}
