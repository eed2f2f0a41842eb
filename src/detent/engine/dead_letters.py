"""`engine.dead_letters`: lists, requeues and discards dead letters, one or all that match a filter."""

import builtins
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from detent.core.access import Scope
from detent.core.errors import DetentError, InvalidInput
from detent.core.job import DeadLetter, DeadLetterStatus, Micros
from detent.core.times import SECOND, iso
from detent.engine.reads.responses import DeadLetterWithHistory, Event
from detent.engine.reads.views import dead_letter_view, history_view
from detent.engine.refusal import is_refusal
from detent.engine.runtime import Service
from detent.engine.schedules.backfill import interval_between_jobs
from detent.ports.access import Audit
from detent.ports.listing import Filter
from detent.ports.tx import Tx
from detent.system.batcher import batch_then_each

from .control import dead_letters as acts
from .reads.listing import read_page
from .submit.prepare import Submitted

PAGE = 200
MAX_REFUSALS = 100
Check = Callable[[DeadLetter], None]
"""Raises if the handler would refuse the dead letter's payload."""
ProcessItem = Callable[[Tx, DeadLetter, int], Awaitable[str | None]]
"""Returns the id of the new job, if there is one."""
ALL = Filter()


@dataclass(slots=True)
class DeadLetterBulkResult:
    """How many dead letters matched, were done, need two people, and were refused."""

    matched: Annotated[int, "Number of open dead letters that matched."] = 0
    done: Annotated[int, "Number that was changed; 0 in a dry run."] = 0
    for_two: Annotated[int, "Number that was skipped because a discard needs two people."] = 0
    refused: Annotated[int, "Number that was refused."] = 0
    refusals: Annotated[list[dict[str, str]], "The first 100 refusals: dlq_id, code, message."] = field(
        default_factory=list
    )
    job_ids: Annotated[list[str], "The new jobs of a requeue."] = field(default_factory=list)

    def refuse(self, dlq_id: str, error: DetentError) -> None:
        self.refused += 1
        if len(self.refusals) < MAX_REFUSALS:
            self.refusals.append({"dlq_id": dlq_id, "code": error.code, "message": error.message})


class DeadLetters(Service):
    """Dead letters: what is kept of jobs that failed, until a person requeues or discards it."""

    async def get(self, dlq_id: str) -> DeadLetter:
        return await self._runtime.store.read(lambda tx: acts.find_dead_letter(tx.dead_letters, dlq_id, self.tenant))

    async def list(self, filter: Filter = ALL) -> builtins.list[DeadLetter]:
        """Dead letters that match, newest first; `page` also returns a cursor and bounds the rows it reads."""
        chosen = self._runtime.within_tenant(filter)
        return await self._runtime.store.read(lambda tx: tx.dead_letters.list_dead_letters(chosen))

    async def page(
        self, filter: Filter = ALL, *, seconds: float = 0.15
    ) -> tuple[builtins.list[DeadLetter], str | None]:
        """Like `Jobs.page`, for dead letters."""
        return await read_page(
            self._runtime, filter, seconds, lambda tx, part, scan: tx.dead_letters.dead_letter_window(part, scan)
        )

    async def history(self, dlq_id: str, *, payloads: bool = True) -> DeadLetterWithHistory:
        """A dead letter with its job's history and the audit entries of the dead letter."""

        async def act(tx: Tx) -> DeadLetterWithHistory:
            item = await acts.find_dead_letter(tx.dead_letters, dlq_id, self.tenant)
            job = (await tx.jobs.lock([item.job_id])).get(item.job_id)
            history: builtins.list[Event] = []
            if job is not None:
                contract = self._runtime.contract(job.contract)
                events, notes = await tx.log.events(job.id), await tx.log.notes(job.id)
                history = history_view(contract, job, events, notes, payloads=payloads)
            entries = [_act_view(at, entry) for _, at, entry in await tx.audit.list_audit(subject=dlq_id)]
            return {**dead_letter_view(item, payloads=payloads), "history": history, "acts": entries[::-1]}

        return await self._runtime.store.read(act)

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
            lambda tx: acts.requeue(self._runtime, tx, dlq_id, scope, take_steps=take_steps, **options)
        )

    async def discard(self, dlq_id: str, scope: Scope) -> acts.Discard:
        """Discard a dead letter; where the contract needs two people, the first call only proposes it."""
        return await self._runtime.run(lambda tx: acts.discard(self._runtime, tx, dlq_id, scope))

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
            submitted = await acts.requeue(self._runtime, tx, item.id, scope, take_steps=take_steps, delay=delay)
            return submitted.job.id

        await self._process_pages(chosen, result, process_item)
        return result

    async def discard_many(self, filter: Filter, scope: Scope, *, dry_run: bool = False) -> DeadLetterBulkResult:
        """Discard all open dead letters that match and whose contract requires one person only."""
        acts.check_discard(scope)
        chosen, result = await self._match_open(filter)
        counts = await self._runtime.store.read(lambda tx: tx.dead_letters.count_dead_letters(chosen))
        discardable = {name for name in counts if self._people_needed(name) == 1}
        result.for_two = sum(number for name, number in counts.items() if name not in discardable)
        if dry_run:
            return result

        async def process_item(tx: Tx, item: DeadLetter, number: int) -> None:
            await acts.discard(self._runtime, tx, item.id, scope)

        for name in sorted(discardable):
            await self._process_pages(replace(chosen, contract=name), result, process_item)
        return result

    def _people_needed(self, contract: str) -> int:
        rule = self._runtime.contract(contract).dead_letters
        return rule.discard_people if rule else 1

    async def _match_open(self, filter: Filter) -> tuple[Filter, DeadLetterBulkResult]:
        """The filter limited to dead letters that are open now, and the number of matches."""
        if filter.status not in (None, DeadLetterStatus.OPEN):
            raise InvalidInput(
                f"only open dead letters can be requeued or discarded, not {filter.status} ones",
                code="FILTER_INVALID",
                field="status",
            )
        within = self._runtime.within_tenant(filter)

        async def read_matches(tx: Tx) -> tuple[Filter, dict[str, int]]:
            until = tx.now if filter.until is None else min(filter.until, tx.now)
            chosen = replace(within, status=DeadLetterStatus.OPEN, until=until, limit=PAGE)
            return chosen, await tx.dead_letters.count_dead_letters(chosen)

        chosen, counts = await self._runtime.store.read(read_matches)
        return chosen, DeadLetterBulkResult(matched=sum(counts.values()))

    async def _process_pages(self, chosen: Filter, result: DeadLetterBulkResult, process_item: ProcessItem) -> None:
        """One transaction per page; if one dead letter of a page is refused, one transaction per dead letter."""

        async def run(page: Sequence[DeadLetter]) -> builtins.list[str | None]:
            async def act(tx: Tx) -> builtins.list[str | None]:
                return [await process_item(tx, item, number) for number, item in enumerate(page, result.done)]

            job_ids = await self._runtime.run(act)
            result.done += len(page)
            result.job_ids += [job_id for job_id in job_ids if job_id is not None]
            return job_ids

        page = await self.list(chosen)
        while page:
            for item, outcome in zip(page, await batch_then_each(page, run, is_refusal), strict=True):
                if isinstance(outcome, DetentError):
                    result.refuse(item.id, outcome)
            page = await self.list(replace(chosen, before=page[-1].id))


def _act_view(at: Micros, entry: Audit) -> dict[str, Any]:
    return {"at": iso(at), "actor": entry.actor, "act": entry.act, "reason": entry.reason, "data": entry.data}
