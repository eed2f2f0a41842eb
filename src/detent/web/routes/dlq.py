"""Dead letters: list, show, requeue, discard; many at once, after a dry run that says how many."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Body, Query
from pydantic import Field
from starlette.responses import Response

from ...core.errors import DetentError
from ...core.job import DeadLetter
from ...core.people import Power
from ...engine.views import letter_view, submitted_view
from ...ports import Filter
from .. import shapes
from ..guard import Asked, Router, answer
from ..people import Caller
from .reading import LetterId, Page, Text

router = Router(tags=["dead letters"])
_BATCH = 200
Fate = Literal["open", "requeued", "discarded"]


class LetterFilter(Page):
    status: Fate | None = None
    queue: shapes.Name | None = None
    contract: shapes.Name | None = None
    tenant: shapes.Name | None = None
    job_type: shapes.Name | None = None
    text: Text | None = Field(None, description="Found in ids, error codes and, if you may see them, error texts.")


class Many(shapes.Because):
    """Which open letters, and whether to act: a dry run, which is the default, only says how many."""

    queue: shapes.Name | None = None
    contract: shapes.Name | None = None
    tenant: shapes.Name | None = None
    job_type: shapes.Name | None = None
    limit: int = Field(1_000, ge=1, le=10_000)
    dry_run: bool = True


class RequeueLetter(shapes.Requeue):
    take_steps: bool = False


def _filter(caller: Caller, **chosen: Any) -> Filter:
    text, tenant, before = chosen.pop("text", None), chosen.pop("tenant"), chosen.pop("cursor", None)
    found = Filter(**chosen, tenant_id=caller.tenant_for(tenant), before=before)
    return replace(found, text=text) if caller.payloads else replace(found, text_outside=text)


@router.route_for("GET", "/dlq/items", needs=Power.READ, answers={200: shapes.Letters})
async def listing(asked: Asked, chosen: Annotated[LetterFilter, Query()]) -> Response:
    """Dead letters, newest first."""
    wanted = _filter(asked.caller, **chosen.model_dump())
    found = await (await asked.engine()).dead_letters(replace(wanted, limit=chosen.limit + 1))
    page = found[: chosen.limit]
    shown = [letter_view(item, payloads=asked.caller.payloads) for item in page]
    return answer({"items": shown, "next_cursor": page[-1].id if len(found) > chosen.limit else None})


@router.route_for("GET", "/dlq/items/{dlq_id}", needs=Power.READ, answers={200: shapes.Letter})
async def show(asked: Asked, dlq_id: LetterId) -> Response:
    """One dead letter."""
    item = await (await asked.engine()).dead_letter(dlq_id, tenant=asked.caller.tenant)
    return answer(letter_view(item, payloads=asked.caller.payloads))


@router.route_for("POST", "/dlq/items/{dlq_id}/requeue", needs=Power.OPERATE, answers={201: shapes.Submitted})
async def requeue(asked: Asked, dlq_id: LetterId, body: Annotated[RequeueLetter | None, Body()] = None) -> Response:
    """Make a new job of it, repaired if a payload is given: fresh counters, the same effect keys."""
    engine, who, said = await asked.engine(), asked.caller, body or RequeueLetter()
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
    answers={200: shapes.Discarded, 202: shapes.Discarded},
)
async def discard(asked: Asked, dlq_id: LetterId, body: Annotated[shapes.Because | None, Body()] = None) -> Response:
    """Throw it away: 202 proposed, where a second person must confirm; 200 gone."""
    engine, who = await asked.engine(), asked.caller
    done = await engine.discard(dlq_id, person=who.person, reason=body.reason if body else None, tenant=who.tenant)
    view = {"confirmed": done.confirmed, "item": letter_view(done.item, payloads=who.payloads)}
    return answer(view, 200 if done.confirmed else 202)


@router.route_for("POST", "/dlq/requeue", needs=Power.OPERATE, answers={200: shapes.ManyDone})
async def requeue_many(asked: Asked, body: Many) -> Response:
    """Requeue the open letters that match, each in a commit of its own; the dry run says how many."""
    engine, who = await asked.engine(), asked.caller

    async def act(item: DeadLetter) -> None:
        await engine.requeue(item.id, actor=who.person, reason=body.reason, tenant=who.tenant)

    return await _each(asked, body, act)


@router.route_for("POST", "/dlq/discard", needs=Power.DISCARD, answers={200: shapes.ManyDone})
async def discard_many(asked: Asked, body: Many) -> Response:
    """Propose or confirm the discard of the open letters that match; the dry run says how many."""
    engine, who = await asked.engine(), asked.caller

    async def act(item: DeadLetter) -> None:
        await engine.discard(item.id, person=who.person, reason=body.reason, tenant=who.tenant)

    return await _each(asked, body, act)


async def _each(asked: Asked, body: Many, act: Any) -> Response:
    engine = await asked.engine()
    chosen = body.model_dump(include={"queue", "contract", "tenant", "job_type"})
    wanted = replace(_filter(asked.caller, **chosen), status=_OPEN)
    matched, refused, more = 0, [], True
    while more and matched < body.limit:
        size = min(_BATCH, body.limit - matched)
        found = await engine.dead_letters(replace(wanted, limit=size + 1))
        page, more = found[:size], len(found) > size
        matched += len(page)
        if page:
            wanted = replace(wanted, before=page[-1].id)
        for item in page if not body.dry_run else ():
            try:
                await act(item)
            except DetentError as error:
                if error.http_status >= 500:
                    raise
                refused.append({"dlq_id": item.id, "code": error.code, "detail": error.message})
    done = 0 if body.dry_run else matched - len(refused)
    told = {"dry_run": body.dry_run, "matched": matched, "more": more, "done": done, "refused": refused[:100]}
    return answer(told)


_OPEN: Fate = "open"
