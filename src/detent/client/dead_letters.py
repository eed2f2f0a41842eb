"""Dead letters from an application: `app.dead_letters`, where a repaired payload is checked by its handler."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.core.job import DeadLetter
from detent.engine import Submitted
from detent.engine.control.dead_letters import Discard
from detent.engine.control.dead_letters_bulk import (
    DeadLetterBulkResult,
    dead_letter_history,
    discard_many,
    requeue_many,
)
from detent.ports.listing import Filter

if TYPE_CHECKING:
    from .app import Detent
    from .sync import SyncClient

ACTOR = "app"
OPEN = Filter(status="open")


class DeadLetters:
    """Every act takes a dead letter's id, or a filter."""

    def __init__(self, app: "Detent") -> None:
        self._app = app

    async def list(self, filter: Filter = OPEN) -> Sequence[DeadLetter]:
        return await (await self._app.ready()).dead_letters(filter)

    async def show(self, dlq_id: str, *, tenant: str | None = None) -> dict[str, Any]:
        """The letter with its payload and error, what happened to its job and what people did to it."""
        return await dead_letter_history(await self._app.ready(), dlq_id, tenant=tenant)

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
        """A new job of a dead letter. payload: a repaired one, refused if the handler would not take it."""
        engine = await self._app.ready()
        repaired = None if payload is None else dict(payload)
        if repaired is not None:
            item = await engine.dead_letter(dlq_id, tenant=tenant)
            known = self._app.jobs.get(item.job_type)
            repaired = known.handler.payload((), repaired) if known else repaired
        return await engine.requeue(
            dlq_id, actor=actor, reason=reason, payload=repaired, tenant=tenant, take_steps=take_steps
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
        """All open ones that match, as they are now; those whose payload the handler would refuse are left open."""
        return await requeue_many(
            await self._app.ready(),
            filter,
            actor=actor,
            reason=reason,
            rate=rate,
            take_steps=take_steps,
            dry_run=dry_run,
            check=self.check,
        )

    def check(self, item: DeadLetter) -> None:
        """Refuse a letter whose payload its handler would refuse, as far as this application has the handler."""
        known = self._app.jobs.get(item.job_type)
        if known is not None:
            known.handler.call_arguments(item.payload)

    async def discard(self, dlq_id: str, *, person: str, reason: str, tenant: str | None = None) -> Discard:
        return await (await self._app.ready()).discard(dlq_id, person=person, reason=reason, tenant=tenant)

    async def discard_many(
        self, filter: Filter, *, person: str, reason: str, dry_run: bool = False
    ) -> DeadLetterBulkResult:
        """All open ones that match and that one person may discard."""
        return await discard_many(await self._app.ready(), filter, person=person, reason=reason, dry_run=dry_run)


class SyncDeadLetters:
    """`app.sync.dead_letters`: the same acts, blocking."""

    def __init__(self, client: "SyncClient", dead_letters: DeadLetters) -> None:
        self._client, self._dead_letters = client, dead_letters

    def list(self, filter: Filter = OPEN) -> Sequence[DeadLetter]:
        return self._client.run(self._dead_letters.list(filter))

    def show(self, dlq_id: str, *, tenant: str | None = None) -> dict[str, Any]:
        return self._client.run(self._dead_letters.show(dlq_id, tenant=tenant))

    def requeue(self, dlq_id: str, **options: Any) -> Submitted:
        return self._client.run(self._dead_letters.requeue(dlq_id, **options))

    def requeue_many(self, filter: Filter, **options: Any) -> DeadLetterBulkResult:
        return self._client.run(self._dead_letters.requeue_many(filter, **options))

    def discard(self, dlq_id: str, *, person: str, reason: str, tenant: str | None = None) -> Discard:
        return self._client.run(self._dead_letters.discard(dlq_id, person=person, reason=reason, tenant=tenant))

    def discard_many(self, filter: Filter, **options: Any) -> DeadLetterBulkResult:
        return self._client.run(self._dead_letters.discard_many(filter, **options))
