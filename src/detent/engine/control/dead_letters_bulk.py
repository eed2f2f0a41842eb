"""Dead letters by the hundred: requeued or discarded by a filter, in pages, each letter as if it were the only one."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from detent.core.decide import OPEN
from detent.core.errors import ApprovalRequired, DetentError, InvalidInput, StoreUnavailable
from detent.core.job import DeadLetter, Micros
from detent.core.times import SECOND, iso
from detent.engine.reads.views import dead_letter_view, history_view
from detent.engine.schedules.backfill import apart
from detent.ports.access import Audit
from detent.ports.listing import Filter
from detent.ports.tx import Tx

from . import dead_letters

if TYPE_CHECKING:
    from detent.engine.engine import Engine

PAGE = 200
TOLD_AT_MOST = 100
Check = Callable[[DeadLetter], None]
"""Raises if the letter's payload is none its handler would take."""


@dataclass(slots=True)
class DeadLetterBulkResult:
    """How many letters matched, were done, were left to two people, and were refused one by one."""

    matched: int = 0
    done: int = 0
    for_two: int = 0
    """Under contracts that ask two people for a discard: left alone."""
    refused: int = 0
    refusals: list[dict[str, str]] = field(default_factory=list)
    """The first of them: dlq_id, code, message."""
    job_ids: list[str] = field(default_factory=list)

    def as_dict(self, *, dry_run: bool) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("matched", "done", "for_two", "refused", "refusals", "job_ids")}
        return {"dry_run": dry_run, **told}

    def refuse(self, dlq_id: str, error: DetentError) -> None:
        self.refused += 1
        if len(self.refusals) < TOLD_AT_MOST:
            self.refusals.append({"dlq_id": dlq_id, "code": error.code, "message": error.message})


async def requeue_many(
    engine: "Engine",
    filter: Filter,
    *,
    actor: str,
    reason: str | None = None,
    rate: float | None = None,
    take_steps: bool = False,
    dry_run: bool = False,
    check: Check = lambda item: None,
) -> DeadLetterBulkResult:
    """Requeue every open letter that matches now. rate: so many of the new jobs fall due a second.

    Letters that come while this runs are left alone, or a job that fails at once would be requeued for ever.
    """
    step = apart(rate)
    chosen, found = await _chosen(engine, filter)
    if dry_run:
        return found

    async def one(tx: Tx, item: DeadLetter, number: int) -> None:
        check(item)
        delay = number * step / SECOND
        made = await dead_letters.requeue(engine, tx, item.id, actor, reason, None, None, None, take_steps, delay)
        found.job_ids.append(made.job.id)

    await _each(engine, chosen, found, one)
    return found


async def discard_many(
    engine: "Engine", filter: Filter, *, person: str, reason: str | None, dry_run: bool = False
) -> DeadLetterBulkResult:
    """Discard every open letter that matches, where one person's word is enough."""
    if not (person or "").strip() or not (reason or "").strip():
        raise ApprovalRequired("a discard needs a named person and a reason")
    chosen, found = await _chosen(engine, filter)
    counts = await engine.store.read(lambda tx: tx.count_dead_letters(chosen))
    alone = {name for name in counts if _people(engine, name) == 1}
    found.for_two = sum(number for name, number in counts.items() if name not in alone)
    if dry_run:
        return found

    async def one(tx: Tx, item: DeadLetter, number: int) -> None:
        await dead_letters.discard(engine, tx, item.id, person, reason, None)

    for name in sorted(alone):
        await _each(engine, replace(chosen, contract=name), found, one)
    return found


def _people(engine: "Engine", contract: str) -> int:
    rule = engine.contract(contract).dead_letters
    return rule.discard_people if rule else 1


async def _chosen(engine: "Engine", filter: Filter) -> tuple[Filter, DeadLetterBulkResult]:
    """The open letters among those asked for, as they are now, and how many they are."""
    if filter.status not in (None, OPEN):
        told = f"only open dead letters can be requeued or discarded, not {filter.status} ones"
        raise InvalidInput(told, code="FILTER_INVALID", field="status")

    async def look(tx: Tx) -> tuple[Filter, dict[str, int]]:
        until = tx.now if filter.until is None else min(filter.until, tx.now)
        chosen = replace(filter, status=OPEN, until=until, limit=PAGE)
        return chosen, await tx.count_dead_letters(chosen)

    chosen, counts = await engine.store.read(look)
    return chosen, DeadLetterBulkResult(matched=sum(counts.values()))


async def _each(
    engine: "Engine", chosen: Filter, found: DeadLetterBulkResult, one: Callable[[Tx, DeadLetter, int], Any]
) -> None:
    """Page by page; a page in which one is refused is done again, each letter for itself."""
    page = await engine.dead_letters(chosen)
    while page:
        try:
            await _together(engine, page, found, one)
        except StoreUnavailable:
            raise
        except DetentError:
            for item in page:
                try:
                    await _together(engine, [item], found, one)
                except StoreUnavailable:
                    raise
                except DetentError as error:
                    found.refuse(item.id, error)
        page = await engine.dead_letters(replace(chosen, before=page[-1].id))


async def _together(
    engine: "Engine", page: list[DeadLetter], found: DeadLetterBulkResult, one: Callable[[Tx, DeadLetter, int], Any]
) -> None:
    known = len(found.job_ids)

    async def act(tx: Tx) -> None:
        del found.job_ids[known:]  # an act that lost a race is repeated from its beginning
        for number, item in enumerate(page, found.done):
            await one(tx, item, number)

    try:
        await engine._again(act)
    except BaseException:
        del found.job_ids[known:]
        raise
    found.done += len(page)


async def dead_letter_history(
    engine: "Engine", dlq_id: str, *, tenant: str | None = None, payloads: bool = True
) -> dict[str, Any]:
    """A dead letter with what happened to its job, and what people did to the letter."""

    async def act(tx: Tx) -> dict[str, Any]:
        item = await dead_letters.find_dead_letter(tx, dlq_id, tenant)
        job = (await tx.lock([item.job_id])).get(item.job_id)
        history: list[dict[str, Any]] = []
        if job is not None:
            contract = engine.contract(job.contract)
            history = history_view(contract, job, await tx.events(job.id), await tx.notes(job.id), payloads=payloads)
        acts = [_act_view(at, entry) for _, at, entry in await tx.audit_of(dlq_id)]
        return {**dead_letter_view(item, payloads=payloads), "history": history, "acts": acts[::-1]}

    return await engine.store.read(act)


def _act_view(at: Micros, entry: Audit) -> dict[str, Any]:
    return {"at": iso(at), "actor": entry.actor, "act": entry.act, "reason": entry.reason, "data": entry.data}
