"""`app.queues` and `app.events`: pauses of queues, job types and tenants, and the log of all jobs."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from detent.core.access import Scope
from detent.core.errors import InvalidInput
from detent.engine import Engine
from detent.engine.reads.operations import Queue
from detent.engine.reads.views import event_view
from detent.ports.tail import START, Position, TailEvent, position_from

if TYPE_CHECKING:
    from .app import Detent

ACTOR = "app"
_PAGE = 500
_POLL_SECONDS = 0.5
_FILTERS = ("job_type", "contract", "queue", "tenant_id")


class Queues:
    """`app.queues`: the queues with their numbers; stop and resume claims from them.

    await app.queues.pause("billing", reason="the bank is down")
    """

    def __init__(self, app: "Detent") -> None:
        self._app = app

    async def list(self) -> Sequence[Queue]:
        """The queues with their ready (`due`), scheduled (`later`) and running (`held`) jobs, and their pauses."""
        return (await (await self._app.ready()).stats.queues()).queues_view()["items"]

    async def pause(
        self,
        queue: str | None = None,
        *,
        job_type: str | None = None,
        tenant: str | None = None,
        reason: str | None = None,
        actor: str = ACTOR,
    ) -> None:
        """Stop claiming jobs of a queue, a job type or a tenant, one of them; running jobs continue."""
        kind, name = _target(queue, job_type, tenant)
        await (await self._app.ready()).limits.pause(kind, name, Scope(actor, reason))

    async def resume(
        self,
        queue: str | None = None,
        *,
        job_type: str | None = None,
        tenant: str | None = None,
        actor: str = ACTOR,
    ) -> None:
        """End a pause. Does nothing if there is none."""
        kind, name = _target(queue, job_type, tenant)
        await (await self._app.ready()).limits.resume(kind, name, Scope(actor))


def _target(queue: str | None, job_type: str | None, tenant: str | None) -> tuple[str, str]:
    names = {"queue": queue, "job_type": job_type, "tenant": tenant}
    given = [(kind, name) for kind, name in names.items() if name is not None]
    if len(given) != 1:
        raise InvalidInput("name one of queue, job_type and tenant", code="PAUSE_INVALID")
    return given[0]


async def read_events(
    app: "Detent", after: str | None, follow: bool, filters: dict[str, str | None]
) -> AsyncIterator[dict[str, Any]]:
    """The events of all jobs in commit order; see `Detent.events`."""
    engine = await app.ready()
    watch = engine.store.watch(ends=True)
    wanted = {name: value for name, value in filters.items() if value is not None}
    position = await _start(engine, after, follow)
    while True:
        events, position = await _read(engine, position)
        for tail_event in events:
            view = _view(engine, tail_event)
            if wanted.items() <= view.items():
                yield view
        if not events:
            if not follow:
                return
            await watch.changed(_POLL_SECONDS)


async def _start(engine: Engine, after: str | None, follow: bool) -> Position:
    if after is not None:
        return position_from(after)
    return await engine.store.read(lambda tx: tx.log.tail_end()) if follow else START


async def _read(engine: Engine, position: Position) -> tuple[list[TailEvent], Position]:
    return await engine.store.read(lambda tx: tx.log.tail(position, _PAGE))


def _view(engine: Engine, tail_event: TailEvent) -> dict[str, Any]:
    job, event = tail_event.job, tail_event.event
    names = {name: getattr(job, name) for name in _FILTERS}
    view = event_view(engine.contract(job.contract), job, event)
    return {"position": str(tail_event.position), "job_id": job.id, **names, **view}
