"""`engine.dead_letters`: lists, requeues and discards dead letters, one or all that match a filter."""

import builtins
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from detent.core.access import Scope, Signer, count_people, reason_for_doubt
from detent.core.contract.model import Phase
from detent.core.errors import (
    ApprovalRequired,
    DeadLetterConflict,
    DetentError,
    InvalidInput,
    NotFound,
)
from detent.core.job import DeadLetter, DeadLetterStatus, Job, Micros
from detent.core.options.job_options import KEPT_BY_REQUEUES
from detent.core.times import SECOND, interval_between_jobs, iso
from detent.ports.listing import Filter
from detent.ports.tx import Tx
from detent.system.batcher import batch_then_each

from .reads.error_groups import FoundErrors, read_error_groups
from .reads.listing import read_page
from .reads.responses import DeadLetterWithHistory, Event
from .reads.views import dead_letter_view, read_history
from .refusal import Refused, audit, is_refusal, refuse_move
from .runtime import Runtime, Service, reads, writes
from .submit import quotas
from .submit.prepare import Submitted, prepare, submit_within_quotas
from .submit.submission import Submission

PAGE = 200
MAX_REFUSALS = 100
Check = Callable[[DeadLetter], None]
"""Raises if the handler would refuse the dead letter's payload."""
ProcessItem = Callable[[Tx, DeadLetter, int], Awaitable[str | bool]]
"""Returns the id of the new job; or whether the dead letter is discarded (True) or only proposed to be (False)."""
ALL = Filter()


@dataclass(slots=True)
class DeadLetterBulkResult:
    """How many dead letters matched, were done or proposed, need two people, and were refused."""

    matched: Annotated[int, "Number of open dead letters that matched."] = 0
    done: Annotated[int, "Number that was changed; 0 in a dry run."] = 0
    proposed: Annotated[int, "Number that this call proposed to discard; another person has to confirm."] = 0
    for_two: Annotated[int, "Number of matches whose discard needs two people."] = 0
    to_confirm: Annotated[int, "Number of those that somebody had proposed to discard before this call."] = 0
    refused: Annotated[int, "Number that was refused."] = 0
    refusals: Annotated[list[dict[str, str]], "The first 100 refusals: dlq_id, code, message."] = field(
        default_factory=list
    )
    job_ids: Annotated[list[str], "The new jobs of a requeue."] = field(default_factory=list)

    def refuse(self, dlq_id: str, error: DetentError) -> None:
        self.refused += 1
        if len(self.refusals) < MAX_REFUSALS:
            self.refusals.append({"dlq_id": dlq_id, "code": error.code, "message": error.message})


@dataclass(frozen=True, slots=True)
class Discard:
    """The dead letter, and whether it is discarded (True) or waits for a second person to confirm (False)."""

    item: DeadLetter
    confirmed: bool


class DeadLetters(Service):
    """Dead letters: what is kept of jobs that failed, until a person requeues or discards it."""

    @reads
    async def get(self, tx: Tx, dlq_id: str) -> DeadLetter:
        return await _find(self._runtime, tx, dlq_id)

    @reads
    async def list(self, tx: Tx, filter: Filter = ALL) -> builtins.list[DeadLetter]:
        """Dead letters that match, newest first; `page` also returns a cursor and bounds the rows it reads."""
        return await tx.dead_letters.list_dead_letters(self._runtime.visible(filter))

    async def page(
        self, filter: Filter = ALL, *, seconds: float = 0.15
    ) -> tuple[builtins.list[DeadLetter], str | None]:
        """Like `Jobs.page`, for dead letters."""
        return await read_page(
            self._runtime, filter, seconds, lambda tx, *window: tx.dead_letters.dead_letter_window(*window)
        )

    @reads
    async def get_many(self, tx: Tx, ids: Sequence[str]) -> builtins.list[DeadLetter]:
        """The dead letters with these ids, newest first; ids that do not exist or are out of reach are left out."""
        return [item for item in await tx.dead_letters.dead_letters_by_id(ids) if self._runtime.sees(item)]

    async def groups(self, filter: Filter = ALL, *, since: Micros | None = None) -> FoundErrors:
        """The errors of the newest dead letters that match, most frequent first; see `reads.error_groups`."""
        return await read_error_groups(self._runtime, filter, since)

    @reads
    async def history(self, tx: Tx, dlq_id: str) -> DeadLetterWithHistory:
        """A dead letter with its job's history and the audit entries of the dead letter."""
        item = await _find(self._runtime, tx, dlq_id)
        job = (await tx.jobs.lock([item.job_id])).get(item.job_id)
        history: builtins.list[Event] = []
        if job is not None:
            log = await read_history(tx, self._runtime.contract(job.contract), job)
            history = log.entries(payloads=self._runtime.payloads)
        acts = [
            {"at": iso(at), "actor": entry.actor, "act": entry.act, "reason": entry.reason, "data": entry.data}
            for _, at, entry in reversed(await self._runtime.audit_entries(tx, subject=dlq_id))
        ]
        return {**dead_letter_view(item, payloads=self._runtime.payloads), "history": history, "acts": acts}

    async def requeue(
        self,
        dlq_id: str,
        scope: Scope,
        *,
        payload: dict[str, Any] | None = None,
        new_id: str | None = None,
        take_steps: bool = False,
    ) -> Submitted:
        """Create a new job from an open dead letter. take_steps: copy the recorded steps of the old job."""
        options: dict[str, Any] = {"payload": payload, "new_id": new_id or self._runtime.ids.job()}
        return await self._runtime.run(
            lambda tx: requeue_dead_letter(self._runtime, tx, dlq_id, scope, take_steps=take_steps, **options)
        )

    @writes
    async def discard(self, tx: Tx, dlq_id: str, scope: Scope) -> Discard:
        """Discard a dead letter; where the contract needs two people, the first call only proposes it.

        Someone whose name is not proven (`scope.shared_with` is None) may propose, but not confirm, and the next person
        who proves theirs becomes the one who proposes.
        """
        return await discard_dead_letter(self._runtime, tx, dlq_id, scope)

    async def requeue_many(
        self,
        filter: Filter,
        scope: Scope,
        *,
        rate: float | None = None,
        take_steps: bool = False,
        dry_run: bool = False,
        check: Check = lambda item: None,
    ) -> DeadLetterBulkResult:
        """Requeue all open dead letters that match now. rate: how many of the new jobs fall due per second.

        Dead letters created while this runs are ignored; otherwise a job that fails at once would be requeued forever.
        """
        interval = interval_between_jobs(rate)
        chosen, result = await self._match_open(filter)
        if dry_run:
            return result

        async def process_item(tx: Tx, item: DeadLetter, number: int) -> str:
            check(item)
            delay = number * interval / SECOND
            submitted = await requeue_dead_letter(self._runtime, tx, item.id, scope, take_steps=take_steps, delay=delay)
            return submitted.job.id

        await self._process_pages(chosen, result, process_item)
        return result

    async def discard_many(self, filter: Filter, scope: Scope, *, dry_run: bool = False) -> DeadLetterBulkResult:
        """Discard all open dead letters that match now.

        Those whose contract requires two people are proposed to be discarded, and discarded if another person has
        proposed them: `filter.proposed_by` selects what a person proposed. Proposals of the same person are refused.
        """
        _check_discard(scope)
        chosen, result = await self._match_open(filter)
        if dry_run:
            return result

        async def process_item(tx: Tx, item: DeadLetter, number: int) -> bool:
            return (await discard_dead_letter(self._runtime, tx, item.id, scope)).confirmed

        await self._process_pages(chosen, result, process_item)
        return result

    async def _match_open(self, filter: Filter) -> tuple[Filter, DeadLetterBulkResult]:
        """The filter limited to dead letters that are open now, and the number of matches."""
        if filter.status not in (None, DeadLetterStatus.OPEN):
            message = f"only open dead letters can be requeued or discarded, not {filter.status} ones"
            raise InvalidInput(message, code="FILTER_INVALID", field="status")
        within = self._runtime.visible(filter)

        async def read_matches(tx: Tx) -> tuple[Filter, dict[str, tuple[int, int]]]:
            until = tx.now if filter.until is None else min(filter.until, tx.now)
            chosen = replace(within, status=DeadLetterStatus.OPEN, until=until, limit=PAGE)
            if chosen.ids is None:
                return chosen, await tx.dead_letters.count_dead_letters(chosen)
            items = self._open_items(await tx.dead_letters.dead_letters_by_id(chosen.ids))
            names = {item.contract: [one for one in items if one.contract == item.contract] for item in items}
            return chosen, {
                name: (len(some), sum(item.proposed_by is not None for item in some)) for name, some in names.items()
            }

        chosen, counts = await self._runtime.store.read(read_matches)
        for_two = [count for name, count in counts.items() if self._runtime.contract(name).discard_people > 1]
        return chosen, DeadLetterBulkResult(
            matched=sum(number for number, _ in counts.values()),
            for_two=sum(number for number, _ in for_two),
            to_confirm=sum(proposed for _, proposed in for_two),
        )

    def _open_items(self, items: builtins.list[DeadLetter]) -> builtins.list[DeadLetter]:
        return [item for item in items if item.status == DeadLetterStatus.OPEN and self._runtime.sees(item)]

    async def _pages(self, chosen: Filter) -> AsyncIterator[builtins.list[DeadLetter]]:
        """The open dead letters that match, page by page: those with the ids of the filter, if it has some."""
        for start in range(0, len(chosen.ids or ()), PAGE):
            part = (chosen.ids or ())[start : start + PAGE]
            yield self._open_items(
                await self._runtime.store.read(lambda tx: tx.dead_letters.dead_letters_by_id(part))  # noqa: B023
            )
        page = await self.list(chosen) if chosen.ids is None else []
        while page:
            yield page
            page = await self.list(replace(chosen, before=page[-1].id))

    async def _process_pages(self, chosen: Filter, result: DeadLetterBulkResult, process_item: ProcessItem) -> None:
        """One transaction per page; if one dead letter of a page is refused, one transaction per dead letter."""

        async def run(page: Sequence[DeadLetter]) -> builtins.list[str | bool]:
            async def act(tx: Tx) -> builtins.list[str | bool]:
                return [await process_item(tx, item, number) for number, item in enumerate(page, result.done)]

            outcomes = await self._runtime.run(act)
            proposed = sum(outcome is False for outcome in outcomes)
            result.done += len(page) - proposed
            result.proposed += proposed
            result.job_ids += [outcome for outcome in outcomes if isinstance(outcome, str)]
            return outcomes

        async for page in self._pages(chosen):
            for item, outcome in zip(page, await batch_then_each(page, run, is_refusal), strict=True):
                if isinstance(outcome, DetentError):
                    result.refuse(item.id, outcome)


async def requeue_dead_letter(
    runtime: Runtime,
    tx: Tx,
    dlq_id: str,
    scope: Scope,
    *,
    payload: dict[str, Any] | None = None,
    new_id: str | None = None,
    take_steps: bool = False,
    delay: float = 0.0,
) -> Submitted:
    """Create a new job with reset counters, linked to the dead letter and with the same effect keys."""
    item = await _find(runtime, tx, dlq_id, scope)
    contract = runtime.contract(item.contract)
    if new_id is not None and item.requeued_as == new_id:  # the same call committed before and its reply was lost
        return Submitted((await tx.jobs.lock([new_id]))[new_id])
    if item.status != DeadLetterStatus.OPEN:
        message = f"dead letter {dlq_id} is {item.status}, only an open one can be requeued"
        raise DeadLetterConflict(message, code=contract.code("dlq_requeue_conflict"), status=item.status)
    await quotas.lock_quotas(tx.quotas, [item.tenant_id])
    origin = (await tx.jobs.lock([item.job_id])).get(item.job_id)
    submitted = await _submit_copy(runtime, tx, item, origin, scope, payload, new_id, delay)
    if take_steps:
        for step in await tx.steps.list_steps(item.job_id):
            await tx.steps.put_step(replace(step, job_id=submitted.job.id))
    await tx.dead_letters.put_dead_letter(
        replace(item, status=DeadLetterStatus.REQUEUED, updated_at=tx.now, requeued_as=submitted.job.id)
    )
    return submitted


async def requeue_job(
    runtime: Runtime, tx: Tx, job_id: str, scope: Scope, *, new_id: str, payload: dict[str, Any] | None = None
) -> Submitted | Refused:
    """Create a new job from any finished job; through its dead letter if it has one."""
    job = await runtime.find(tx, job_id, scope)
    contract = runtime.contract(job.contract)
    if job.phase is not Phase.FINAL:
        return await refuse_move(tx, contract, job, "requeue", scope.actor)
    item = await tx.dead_letters.dead_letter(job.dlq_id) if job.dlq_id else None
    if item is not None:
        return await requeue_dead_letter(runtime, tx, item.id, scope, payload=payload, new_id=new_id)
    return await _submit_copy(runtime, tx, job, job, scope, payload, new_id)


async def _submit_copy(
    runtime: Runtime,
    tx: Tx,
    source: DeadLetter | Job,
    origin: Job | None,
    scope: Scope,
    payload: dict[str, Any] | None,
    new_id: str | None,
    delay: float = 0.0,
) -> Submitted:
    """Submit with reset counters, but with the origin's options and effect keys; the contract may keep its key."""
    root, act = (source.job_id, "dlq.requeue") if isinstance(source, DeadLetter) else (source.id, "job.requeue")
    content = json.loads(source.payload) if payload is None else payload
    submission = Submission(source.job_type, content, source.contract, source.queue, source.tenant_id, delay=delay)
    submission = replace(submission, actor=scope.actor, id=new_id, requeued_from=source.id, effect_root=root)
    if origin is not None:
        submission = replace(
            submission,
            **{name: getattr(origin, name) for name in KEPT_BY_REQUEUES},
            max_retries=origin.max_retries,
            effect_root=origin.effect_root or root,
            idempotency_key=origin.idempotency_key if runtime.contract(origin.contract).keys.kept_by_requeue else None,
        )
    (submitted,) = await submit_within_quotas(tx, [prepare(runtime, submission, tx.now)])
    data = {"requeued_as": submitted.job.id, "repaired": payload is not None}
    await audit(tx, scope, act, source.id, source.tenant_id, data)
    return submitted


async def discard_dead_letter(runtime: Runtime, tx: Tx, dlq_id: str, scope: Scope) -> Discard:
    """Discard at once, or propose and then confirm by another person, as the contract requires."""
    item = await _find(runtime, tx, dlq_id, scope)
    contract = runtime.contract(item.contract)
    required = contract.code("approval_required")
    if item.status != DeadLetterStatus.OPEN:
        message = f"dead letter {dlq_id} is {item.status}, only an open one can be discarded"
        raise DeadLetterConflict(message, code=contract.code("dlq_discard_conflict"), status=item.status)
    _check_discard(scope, required)
    person, reason, second = scope.actor.strip(), scope.reason, scope.signer
    first = _proposer(item) if contract.discard_people > 1 else None
    if contract.discard_people > 1 and (first is None or second.is_surer_than(first)):
        item = replace(item, proposed_by=person, proposed_reason=reason, updated_at=tx.now)
        item = replace(item, proposed_with=json.dumps(scope.shared_with, ensure_ascii=False))
        await tx.dead_letters.put_dead_letter(item)
        await audit(tx, Scope(person, reason), "dlq.discard.propose", dlq_id, item.tenant_id)
        return Discard(item, confirmed=False)
    if first is not None and count_people((first, second)) < contract.discard_people:
        message = f"{first.person} proposed this discard; another person must confirm it"
        raise ApprovalRequired(f"{message}: {reason_for_doubt(first, second)}", code=required)
    item = replace(item, status=DeadLetterStatus.DISCARDED, updated_at=tx.now)
    await tx.dead_letters.put_dead_letter(item)
    data = {"proposed_by": item.proposed_by, "proposed_reason": item.proposed_reason}
    await audit(tx, Scope(person, reason), "dlq.discard", dlq_id, item.tenant_id, data)
    return Discard(item, confirmed=True)


def _check_discard(scope: Scope, code: str | None = None) -> None:
    """Raise ApprovalRequired unless the scope names a person and a reason."""
    if not (scope.actor or "").strip() or not (scope.reason or "").strip():
        raise ApprovalRequired("a discard needs a named person and a reason", code=code)


def _proposer(item: DeadLetter) -> Signer | None:
    """Who proposed the discard; None: nobody."""
    shared_with = json.loads(item.proposed_with or "[]")
    names = None if shared_with is None else tuple(shared_with)
    return None if item.proposed_by is None else Signer(item.proposed_by, names)


async def _find(runtime: Runtime, tx: Tx, dlq_id: str, scope: Scope | None = None) -> DeadLetter:
    item = await tx.dead_letters.dead_letter(dlq_id)
    if item is None or not runtime.sees(item):
        raise NotFound(f"dead letter {dlq_id!r} does not exist", code="DLQ_ITEM_NOT_FOUND", dlq_id=dlq_id)
    runtime.require_tenant(item.tenant_id, scope, f"dead letter {dlq_id}", dlq_id=dlq_id)
    return item
