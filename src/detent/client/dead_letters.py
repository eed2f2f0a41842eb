"""`app.dead_letters`: list, requeue and discard dead letters; new payloads are checked by the job's handler."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.core.access import Scope
from detent.core.job import DeadLetter, DeadLetterStatus
from detent.engine import Submitted
from detent.engine.dead_letters import DeadLetterBulkResult, Discard
from detent.ports.listing import Filter

if TYPE_CHECKING:
    from .app import Detent

ACTOR = "app"
OPEN = Filter(status=DeadLetterStatus.OPEN)


class DeadLetters:
    """`app.dead_letters`: what is kept of jobs that failed for good, until a person requeues or discards it.

        for letter in await app.dead_letters.list():
            await app.dead_letters.requeue(letter.id, reason="the bank is back")

    A single one is named by its id (`dlq_id`), many by a `Filter` (from detent.ports.listing). Unknown ids raise
    NotFound (DLQ_ITEM_NOT_FOUND). `tenant` limits a call to one tenant.
    """

    def __init__(self, app: "Detent") -> None:
        self._app = app

    async def list(self, filter: Filter = OPEN) -> Sequence[DeadLetter]:
        """Dead letters that match the filter, newest first, at most `filter.limit` (50). Default: the open ones."""
        return await (await self._app.ready()).dead_letters.list(filter)

    async def show(self, dlq_id: str, *, tenant: str | None = None) -> dict[str, Any]:
        """One dead letter as a dict: payload, error, the log of its job, and the acts of people on it."""
        return {**await (await self._app.ready()).scoped(tenant=tenant).dead_letters.history(dlq_id)}

    async def requeue(
        self,
        dlq_id: str,
        *,
        payload: Mapping[str, Any] | None = None,
        take_steps: bool = False,
        tenant: str | None = None,
        actor: str = ACTOR,
        reason: str | None = None,
    ) -> Submitted:
        """Make a new job of an open dead letter: fresh retries, the same effect keys, linked to the old job.

        payload: a corrected payload instead of the stored one; checked by the handler where this app declares the job.
        take_steps: True copies the recorded steps, so that they are not run again.
        actor, reason: kept in the audit log.

        Raises DeadLetterConflict if it was requeued or discarded before, InvalidInput (PAYLOAD_INVALID), QuotaExceeded.
        """
        engine = await self._app.ready()
        checked = None
        if payload is not None:
            item = await engine.scoped(tenant=tenant).dead_letters.get(dlq_id)
            checked = self._app.jobs.checked_payload(item.job_type, dict(payload))
        return await engine.dead_letters.requeue(
            dlq_id, Scope(actor, reason, tenant), payload=checked, take_steps=take_steps
        )

    async def requeue_many(
        self,
        filter: Filter,
        *,
        rate: float | None = None,
        take_steps: bool = False,
        dry_run: bool = False,
        actor: str = ACTOR,
        reason: str | None = None,
    ) -> DeadLetterBulkResult:
        """Requeue all open dead letters that match now. Returns how many matched, were requeued and were refused.

        rate: how many of the new jobs become due per second; None: all at once. dry_run: only count.
        Dead letters whose payload the handler refuses stay open and are listed in `refusals`; the others go on.
        """
        return await (await self._app.ready()).dead_letters.requeue_many(
            filter, Scope(actor, reason), rate=rate, take_steps=take_steps, dry_run=dry_run, check=self.check
        )

    def check(self, item: DeadLetter) -> None:
        """Raise InvalidInput (PAYLOAD_INVALID) if the handler would refuse this payload.

        Does nothing for jobs that this application does not declare.
        """
        definition = self._app.jobs.get(item.job_type)
        if definition is not None:
            definition.handler.call_arguments(item.payload)

    async def discard(self, dlq_id: str, *, person: str, reason: str, tenant: str | None = None) -> Discard:
        """Discard a dead letter. Some contracts need two people: the first call proposes, another person confirms.

        `confirmed` of the result is True if it is discarded now. Raises ApprovalRequired without a person or a reason
        or if the same person tries to confirm, DeadLetterConflict if it is not open.
        """
        return await (await self._app.ready()).dead_letters.discard(dlq_id, Scope(person, reason, tenant))

    async def discard_many(
        self, filter: Filter, *, person: str, reason: str, dry_run: bool = False
    ) -> DeadLetterBulkResult:
        """Discard all open dead letters that match. dry_run: only count.

        Those that need two people are proposed to be discarded (`proposed`); those that another person has proposed
        are discarded.
        """
        return await (await self._app.ready()).dead_letters.discard_many(filter, Scope(person, reason), dry_run=dry_run)
