"""Handle: an enqueued job, to wait for its result, look at it, cancel it, or send it a signal or a decision."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from detent.core.access import Scope
from detent.core.job import Job
from detent.engine.reads.views import job_view
from detent.handler.handler import Handler

if TYPE_CHECKING:
    from .app import Detent

R = TypeVar("R")


class Handle(Generic[R]):
    """An enqueued job, returned by `enqueue` and `app.handle(job_id)`. Each call reads the job from the database.

        handle = await charge.enqueue(order_id=7, amount=100)
        print(handle.id, await handle.status(), await handle.result(timeout=10))

    `id` is the job's id. `hit` is True if the idempotency key existed before, so that this is the earlier job.
    Every call raises NotFound (JOB_NOT_FOUND) if the job was deleted by retention.
    """

    def __init__(self, app: "Detent", job_id: str, handler: Handler | None, hit: bool = False) -> None:
        """handler: converts the result to its annotated type; without it the result is the stored JSON text."""
        self.id = job_id
        self.hit = hit
        self._app = app
        self._handler = handler

    async def job(self) -> Job:
        """The job's row as it is now: status, payload, result, counters, times (in microseconds since 1970)."""
        return await (await self._app.ready()).jobs.get(self.id)

    async def status(self) -> str:
        """The name of the job's status in its contract, for example "queued" or "succeeded"."""
        return (await self.job()).status

    async def events(self) -> list[dict[str, Any]]:
        """The job's log in order: its status changes, and notes (progress, refused moves) with `note: True`."""
        history = await (await self._app.ready()).jobs.history(self.id)
        return [{**entry} for entry in history.entries()]

    async def show(self) -> dict[str, Any]:
        """The job as REST and `detent jobs show --json` show it: a dict with ISO-8601 times."""
        engine = await self._app.ready()
        job = await self.job()
        return {**job_view(engine.contract(job.contract), job)}

    async def result(self, timeout: float | None = None) -> R:
        """Wait until the job has ended and return its result, in the type of the handler's return annotation.

        Raises TimeoutError after `timeout` seconds (the job continues), and JobFailed if it failed, was cancelled or
        was rejected: its `error_code`, `error_message` and `error_class` say why. The end is noticed by notification;
        all waiters of an application share one watch and one query.
        """
        engine = await self._app.ready()
        job = await engine.results.wait(self.id, timeout)
        if not engine.contract(job.contract).succeeded(job.status):
            raise await engine.results.failure(job)
        value: Any = self._handler.result_value(job.result) if self._handler else job.result
        return value  # type: ignore[no-any-return]

    async def cancel(self, reason: str | None = None, *, actor: str = "app", force: bool = False) -> Job:
        """Cancel the job; returns its row afterwards. `actor` and `reason` are kept in its log.

        Under "standard" a running job gets a request (CancelRequested, `ctx.cancelled`) and is cancelled when it ends
        or its grace time is over. force: True does not wait: the job is cancelled now, and what its handler still
        returns is refused. The worker stops the handler within a second.

        Raises IllegalMove if it has ended or its contract has no cancel.
        """
        return await (await self._app.ready()).jobs.cancel(self.id, Scope(actor, reason), force=force)

    async def signal(self, name: str, data: Any = None, *, actor: str = "app") -> bool:
        """Send a signal, which `ctx.wait_for(name)` returns. True if it was the first under this name.

        Later signals of the same name are ignored; one that comes before the wait is kept, up to 100 for one job.
        data: JSON, at most 64 KiB.

        Raises SignalRefused (JOB_FINAL, SIGNAL_LIMIT, SIGNAL_KEY_MISMATCH), InvalidInput (SIGNAL_NOT_JSON,
        SIGNAL_TOO_LARGE), NotSupported if the contract has no waiting status.
        """
        _, is_first = await (await self._app.ready()).jobs.signal(self.id, name, Scope(actor), data)
        return is_first

    async def approve(
        self, *, by: str, reason: str | None = None, roles: Sequence[str] | None = None, digest: str | None = None
    ) -> Job:
        """Approve what the job waits for: the vote of one person. Returns the job's row afterwards.

        by: the name of the person. roles: the roles the person has; None: not known, so not checked.
        digest: of what the person saw (`app.approvals()`); raises APPROVAL_CHANGED if this has changed.

        Raises ApprovalRequired (APPROVAL_REQUIRED if this person has approved before, APPROVAL_ROLE_REQUIRED,
        APPROVAL_CHANGED), IllegalMove if the job does not wait for an approval.
        """
        approvals = (await self._app.ready()).approvals
        return await approvals.approve(self.id, Scope(by, reason), roles=roles, digest=digest)

    async def reject(
        self, *, by: str, reason: str | None = None, roles: Sequence[str] | None = None, digest: str | None = None
    ) -> Job:
        """Reject what the job waits for; one rejection decides. Arguments and errors are those of `approve`.

        A job that was held before its first execution ends as rejected; a running one gets the Decision.
        """
        approvals = (await self._app.ready()).approvals
        return await approvals.reject(self.id, Scope(by, reason), roles=roles, digest=digest)
