"""The state of all queues: ready, scheduled and running jobs, live workers, pauses and limits."""

from dataclasses import dataclass
from typing import cast

from detent.core.job import Micros
from detent.core.limits import Limit
from detent.core.times import iso
from detent.engine.runtime import Runtime
from detent.ports.limits import Pause
from detent.ports.listing import Backlog, WorkerRow
from detent.ports.tx import Tx

from . import operations
from .responses import show
from .why import is_live, serves


@dataclass(frozen=True, slots=True)
class Queues:
    """The state of all queues, read in one transaction."""

    now: Micros
    backlog: list[Backlog]
    pauses: list[Pause]
    live: list[WorkerRow]
    limits: list[Limit]

    @property
    def paused(self) -> dict[str, Pause]:
        return {pause.name: pause for pause in self.pauses if pause.kind == "queue"}

    def as_dict(self) -> operations.QueueList:
        names = sorted({row.queue for row in self.backlog} | set(self.paused))
        return {
            "queues": [self._queue(name) for name in names],
            "pauses": [show(operations.Pause, pause) for pause in self.pauses],
            "limits": [limit_view(limit) for limit in self.limits],
        }

    def _queue(self, name: str) -> operations.Queue:
        rows = [row for row in self.backlog if row.queue == name]
        pause = self.paused.get(name)
        return {
            "queue": name,
            "due": sum(row.due for row in rows),
            "later": sum(row.later for row in rows),
            "held": sum(row.held for row in rows),
            "oldest_due_at": iso(min((row.oldest_due for row in rows if row.oldest_due is not None), default=None)),
            "job_types": sorted({row.job_type for row in rows}),
            "workers": sum(serves(worker, name) for worker in self.live),
            "paused": show(operations.Pause, pause) if pause else None,
        }


def limit_view(limit: Limit) -> operations.LimitResponse:
    return cast(operations.LimitResponse, limit.as_dict())


async def read_queues(runtime: Runtime) -> Queues:
    async def read(tx: Tx) -> Queues:
        live = [worker for worker in await tx.workers.list_workers() if is_live(worker, tx.now)]
        pauses = await tx.pauses.list_pauses()
        limits = [limit for limit, _ in await tx.limits.list_limits()]
        return Queues(tx.now, await tx.stats.backlog(), pauses, live, limits)

    return await runtime.store.read(read)
