"""Dead letters: list, show, requeue, discard; many at once, after a dry run that says how many."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Body, Query
from pydantic import Field, StringConstraints
from starlette.responses import Response

from detent.core.access import Power
from detent.engine.control.dead_letters_bulk import dead_letter_history, discard_many, requeue_many
from detent.engine.reads.listing import list_dead_letters
from detent.engine.reads.views import dead_letter_view, submitted_view
from detent.ports.listing import Filter
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schemas

from .filters import DeadLetterId, Page, Text

router = Router(tags=["dead letters"])
Fate = Literal["open", "requeued", "discarded"]


class DeadLetterFilter(Page):
    status: Fate | None = None
    queue: schemas.Name | None = None
    contract: schemas.Name | None = None
    tenant: schemas.Name | None = None
    job_type: schemas.Name | None = None
    error_code: schemas.Name | None = None
    text: Text | None = Field(None, description="Found in ids, error codes and, if you may see them, error texts.")


class Many(schemas.Because):
    """Which open letters, and whether to act: a dry run, which is the default, only says how many."""

    queue: schemas.Name | None = None
    contract: schemas.Name | None = None
    tenant: schemas.Name | None = None
    job_type: schemas.Name | None = None
    error_code: schemas.Name | None = None
    text: Text | None = None
    dry_run: bool = True


class ManyDiscarded(Many):
    reason: Annotated[str, StringConstraints(max_length=2_000, pattern=r"^[^\x00]*[^\x00-\x20\s][^\x00]*$")]


class ManyRequeued(Many):
    rate: float | None = Field(None, ge=0.001, le=1_000_000, description="So many of the new jobs fall due a second.")
    take_steps: bool = False


class RequeueDeadLetter(schemas.Requeue):
    take_steps: bool = False


def _filter(caller: Caller, **chosen: Any) -> Filter:
    text, tenant, before = chosen.pop("text", None), chosen.pop("tenant"), chosen.pop("cursor", None)
    found = Filter(**chosen, tenant_id=caller.tenant_for(tenant), before=before)
    return replace(found, text=text) if caller.payloads else replace(found, text_outside=text)


@router.route_for("GET", "/dlq/items", needs=Power.READ, answers={200: schemas.DeadLetters})
async def listing(asked: ApiRequest, chosen: Annotated[DeadLetterFilter, Query()]) -> Response:
    """Dead letters, newest first. With a filter a page may be short and still have a next_cursor, as of jobs."""
    wanted = _filter(asked.caller, **chosen.model_dump())
    page, cursor = await list_dead_letters(await asked.engine(), wanted)
    shown = [dead_letter_view(item, payloads=asked.caller.payloads) for item in page]
    return answer({"items": shown, "next_cursor": cursor})


@router.route_for("GET", "/dlq/items/{dlq_id}", needs=Power.READ, answers={200: schemas.DeadLetterWithHistory})
async def show(asked: ApiRequest, dlq_id: DeadLetterId) -> Response:
    """One dead letter, with what happened to its job and what people did to it."""
    who = asked.caller
    return answer(await dead_letter_history(await asked.engine(), dlq_id, tenant=who.tenant, payloads=who.payloads))


@router.route_for("POST", "/dlq/items/{dlq_id}/requeue", needs=Power.OPERATE, answers={201: schemas.Submitted})
async def requeue(
    asked: ApiRequest, dlq_id: DeadLetterId, body: Annotated[RequeueDeadLetter | None, Body()] = None
) -> Response:
    """Make a new job of it, repaired if a payload is given: fresh counters, the same effect keys."""
    engine, who, said = await asked.engine(), asked.caller, body or RequeueDeadLetter()
    made = await engine.requeue(
        dlq_id,
        actor=who.person,
        reason=said.reason,
        payload=said.payload,
        tenant=who.tenant,
        new_id=asked.fresh_id,
        take_steps=said.take_steps,
    )
    return answer(submitted_view(engine.contract(made.job.contract), made, payloads=who.payloads), 201)


@router.route_for(
    "POST",
    "/dlq/items/{dlq_id}/discard",
    needs=Power.DISCARD,
    answers={200: schemas.Discarded, 202: schemas.Discarded},
)
async def discard(
    asked: ApiRequest, dlq_id: DeadLetterId, body: Annotated[schemas.Because | None, Body()] = None
) -> Response:
    """Throw it away: 202 proposed, where a second person must confirm; 200 gone."""
    engine, who = await asked.engine(), asked.caller
    done = await engine.discard(dlq_id, person=who.person, reason=body.reason if body else None, tenant=who.tenant)
    view = {"confirmed": done.confirmed, "item": dead_letter_view(done.item, payloads=who.payloads)}
    return answer(view, 200 if done.confirmed else 202)


@router.route_for("POST", "/dlq/requeue", needs=Power.OPERATE, answers={200: schemas.ManyDone})
async def requeue_these(asked: ApiRequest, body: ManyRequeued) -> Response:
    """Requeue all open letters that match; the dry run, which is the default, only says how many."""
    done = await requeue_many(
        await asked.engine(),
        _matching(asked, body),
        actor=asked.caller.person,
        reason=body.reason,
        rate=body.rate,
        take_steps=body.take_steps,
        dry_run=body.dry_run,
    )
    return answer(done.as_dict(dry_run=body.dry_run))


@router.route_for("POST", "/dlq/discard", needs=Power.DISCARD, answers={200: schemas.ManyDone})
async def discard_these(asked: ApiRequest, body: ManyDiscarded) -> Response:
    """Discard all open letters that match, where one person's word is enough; the dry run says how many."""
    done = await discard_many(
        await asked.engine(),
        _matching(asked, body),
        person=asked.caller.person,
        reason=body.reason,
        dry_run=body.dry_run,
    )
    return answer(done.as_dict(dry_run=body.dry_run))


def _matching(asked: ApiRequest, body: Many) -> Filter:
    return _filter(asked.caller, **body.model_dump(include=_CHOICES))


_CHOICES = {"queue", "contract", "tenant", "job_type", "error_code", "text"}
