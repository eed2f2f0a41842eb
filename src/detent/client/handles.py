"""Handles: a submitted job, to be asked about later, wherever it was submitted through."""

import asyncio
from typing import Any, Generic, Protocol, TypeVar

from detent.core.contract.model import Contract, Move, Phase
from detent.core.errors import JobFailed
from detent.core.job import Job
from detent.engine.reads.views import history_view, job_view
from detent.handler.approvals import Approvable
from detent.handler.handler import Handler

R = TypeVar("R")


class Home(Protocol):
    """Where a handle asks: an application, or one tenant's part of it."""

    async def ready(self) -> Any:
        """The engine of this event loop, or what stands for it."""
        ...


class Handle(Approvable, Generic[R]):
    """A submitted job, to be asked about later."""

    def __init__(self, app: Home, job_id: str, handler: Handler | None, hit: bool = False) -> None:
        self.id = job_id
        self.hit = hit
        """True: the idempotency key was known, this is the job that was there already."""
        self._app = app
        self._handler = handler

    async def job(self) -> Job:
        found: Job = await (await self._app.ready()).job(self.id)
        return found

    async def status(self) -> str:
        return (await self.job()).status

    async def events(self) -> list[dict[str, Any]]:
        """Status changes and notes, in order."""
        history = await (await self._app.ready()).history(self.id)
        return history_view(history.contract, history.job, history.events, history.notes)

    async def show(self) -> dict[str, Any]:
        engine = await self._app.ready()
        job = await self.job()
        return job_view(engine.contract(job.contract), job)

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the end; the result in its declared type, or JobFailed with the job's own code."""
        engine = await self._app.ready()
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        watch = engine.store.watch()
        while (job := await engine.job(self.id)).phase is not Phase.FINAL:
            left = 1.0 if end is None else end - loop.time()
            if left <= 0:
                told = (
                    f"job {self.id} is {job.status} after {timeout} s; it goes on, `detent jobs why {self.id}` says why"
                )
                raise TimeoutError(told)
            await watch.changed(min(0.1, left))
        if not _succeeded(engine.contract(job.contract), job):
            raise JobFailed(
                f"job {self.id} ended as {job.status}: {job.error_message or 'no result'}",
                job_code=job.error_code,
                status=job.status,
            )
        value: Any = self._handler.result_value(job.result) if self._handler else job.result
        return value  # type: ignore[no-any-return]

    async def cancel(self, reason: str | None = None, *, actor: str = "app") -> Job:
        after: Job = await (await self._app.ready()).cancel(self.id, actor=actor, reason=reason)
        return after

    async def signal(self, name: str, data: Any = None, *, actor: str = "app") -> bool:
        """True: this was the first signal under the name."""
        answer: tuple[Job, bool] = await (await self._app.ready()).signal(self.id, name, data, actor=actor)
        return answer[1]


def _succeeded(contract: Contract, job: Job) -> bool:
    return any(edge.move is Move.SUCCEED and edge.target == job.status for edge in contract.edges)
