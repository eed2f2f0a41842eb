"""Requeues or discards all dead letters that match a filter, page by page; one refusal does not affect the others."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from detent.core.decide import OPEN
from detent.core.errors import ApprovalRequired, DetentError, InvalidInput, StoreUnavailable
from detent.core.job import DeadLetter, Micros
from detent.core.times import SECOND, iso
from detent.engine.reads.views import dead_letter_view, history_view
from detent.engine.schedules.backfill import interval_between_jobs
from detent.ports.access import Audit
from detent.ports.listing import Filter
from detent.ports.tx import Tx

from . import dead_letters

if TYPE_CHECKING:
    from detent.engine.engine import Engine

PAGE = 200
MAX_REFUSALS = 100
Check = Callable[[DeadLetter], None]
"""Raises if the handler would refuse the dead letter's payload."""


@dataclass(slots=True)
class DeadLetterBulkResult:
    """How many dead letters matched, were done, need two people, and were refused."""

    matched: int = 0
    done: int = 0
    for_two: int = 0
    """Left unchanged, because their contract requires two people for a discard."""
    refused: int = 0
    refusals: list[dict[str, str]] = field(default_factory=list)
    """The first MAX_REFUSALS of them: dlq_id, code, message."""
    job_ids: list[str] = field(default_factory=list)

    def as_dict(self, *, dry_run: bool) -> dict[str, Any]:
        names = ("matched", "done", "for_two", "refused", "refusals", "job_ids")
        return {"dry_run": dry_run, **{name: getattr(self, name) for name in names}}

    def refuse(self, dlq_id: str, error: DetentError) -> None:
        self.refused += 1
        if len(self.refusals) < MAX_REFUSALS:
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
    """Requeue all open dead letters that match now. rate: how many of the new jobs fall due per second.

    Dead letters created while this runs are ignored; otherwise a job that fails at once would be requeued forever.
    """
    interval = interval_between_jobs(rate)
    chosen, result = await _match_open(engine, filter)
    if dry_run:
        return result

    async def process_item(tx: Tx, item: DeadLetter, number: int) -> None:
        check(item)
        delay = number * interval / SECOND
        submitted = await dead_letters.requeue(engine, tx, item.id, actor, reason, None, None, None, take_steps, delay)
        result.job_ids.append(submitted.job.id)

    await _process_pages(engine, chosen, result, process_item)
    return result


async def discard_many(
    engine: "Engine", filter: Filter, *, person: str, reason: str | None, dry_run: bool = False
) -> DeadLetterBulkResult:
    """Discard all open dead letters that match and whose contract requires one person only."""
    if not (person or "").strip() or not (reason or "").strip():
        raise ApprovalRequired("a discard needs a named person and a reason")
    chosen, result = await _match_open(engine, filter)
    counts = await engine.store.read(lambda tx: tx.dead_letters.count_dead_letters(chosen))
    discardable = {name for name in counts if _people_needed(engine, name) == 1}
    result.for_two = sum(number for name, number in counts.items() if name not in discardable)
    if dry_run:
        return result

    async def process_item(tx: Tx, item: DeadLetter, number: int) -> None:
        await dead_letters.discard(engine, tx, item.id, person, reason, None)

    for name in sorted(discardable):
        await _process_pages(engine, replace(chosen, contract=name), result, process_item)
    return result


def _people_needed(engine: "Engine", contract: str) -> int:
    rule = engine.contract(contract).dead_letters
    return rule.discard_people if rule else 1


async def _match_open(engine: "Engine", filter: Filter) -> tuple[Filter, DeadLetterBulkResult]:
    """The filter limited to dead letters that are open now, and the number of matches."""
    if filter.status not in (None, OPEN):
        raise InvalidInput(
            f"only open dead letters can be requeued or discarded, not {filter.status} ones",
            code="FILTER_INVALID",
            field="status",
        )

    async def read_matches(tx: Tx) -> tuple[Filter, dict[str, int]]:
        until = tx.now if filter.until is None else min(filter.until, tx.now)
        chosen = replace(filter, status=OPEN, until=until, limit=PAGE)
        return chosen, await tx.dead_letters.count_dead_letters(chosen)

    chosen, counts = await engine.store.read(read_matches)
    return chosen, DeadLetterBulkResult(matched=sum(counts.values()))


async def _process_pages(
    engine: "Engine", chosen: Filter, result: DeadLetterBulkResult, process_item: Callable[[Tx, DeadLetter, int], Any]
) -> None:
    """One transaction per page; if one dead letter of a page is refused, one transaction per dead letter."""
    page = await engine.dead_letters(chosen)
    while page:
        try:
            await _process_page(engine, page, result, process_item)
        except StoreUnavailable:
            raise
        except DetentError:
            for item in page:
                try:
                    await _process_page(engine, [item], result, process_item)
                except StoreUnavailable:
                    raise
                except DetentError as error:
                    result.refuse(item.id, error)
        page = await engine.dead_letters(replace(chosen, before=page[-1].id))


async def _process_page(
    engine: "Engine",
    page: list[DeadLetter],
    result: DeadLetterBulkResult,
    process_item: Callable[[Tx, DeadLetter, int], Any],
) -> None:
    job_count = len(result.job_ids)

    async def act(tx: Tx) -> None:
        del result.job_ids[job_count:]  # the transaction may run again after a conflict
        for number, item in enumerate(page, result.done):
            await process_item(tx, item, number)

    try:
        await engine._retry_on_conflict(act)
    except BaseException:
        del result.job_ids[job_count:]
        raise
    result.done += len(page)


async def dead_letter_history(
    engine: "Engine", dlq_id: str, *, tenant: str | None = None, payloads: bool = True
) -> dict[str, Any]:
    """A dead letter with its job's history and the audit entries of the dead letter."""

    async def act(tx: Tx) -> dict[str, Any]:
        item = await dead_letters.find_dead_letter(tx.dead_letters, dlq_id, tenant)
        job = (await tx.jobs.lock([item.job_id])).get(item.job_id)
        history: list[dict[str, Any]] = []
        if job is not None:
            contract = engine.contract(job.contract)
            history = history_view(
                contract, job, await tx.log.events(job.id), await tx.log.notes(job.id), payloads=payloads
            )
        acts = [_act_view(at, entry) for _, at, entry in await tx.audit.list_audit(subject=dlq_id)]
        return {**dead_letter_view(item, payloads=payloads), "history": history, "acts": acts[::-1]}

    return await engine.store.read(act)


def _act_view(at: Micros, entry: Audit) -> dict[str, Any]:
    return {"at": iso(at), "actor": entry.actor, "act": entry.act, "reason": entry.reason, "data": entry.data}
