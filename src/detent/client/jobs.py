"""`app.jobs`: the declared jobs by name, and the operations on the jobs in the database."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from detent.core.access import Scope
from detent.core.job import Job
from detent.core.times import from_datetime, from_iso
from detent.engine.jobs import BulkResult
from detent.engine.reads.listing import check_statuses
from detent.engine.reads.views import job_view
from detent.ports.listing import Filter

from .handles import Handle

if TYPE_CHECKING:
    from .app import Detent
    from .job import JobDefinition

ACTOR = "app"


class JobFilter(TypedDict, total=False):
    """Which jobs a list shows; what is left out matches any."""

    status: str
    phase: str
    queue: str
    contract: str
    tenant: str
    job_type: str
    error_code: str
    task_id: str
    text: str
    """Found in ids, keys, error codes and payloads."""
    since: datetime | str
    """Created at or after this time; `until`: at or before that time."""
    until: datetime | str
    before: str
    """The id of the last job of the previous page."""
    limit: int


class Jobs(dict[str, "JobDefinition[Any, Any]"]):
    """`app.jobs`: `app.jobs["charge"]` is the declared job; the methods act on jobs in the database, by their id.

        for job in await app.jobs.list(status="failed", job_type="charge"):
            await app.jobs.requeue(job.id, reason="the bank is back")

    An unknown id raises NotFound (JOB_NOT_FOUND). `tenant` limits a call to one tenant; `actor` and `reason` are kept
    in the log of the job and in the audit log.
    """

    def __init__(self, app: "Detent") -> None:
        super().__init__()
        self._app = app

    def checked_payload(self, job_type: str, payload: dict[str, Any]) -> dict[str, Any]:
        """The payload as the handler of this job type takes it; as it is if this app does not declare the type.

        Raises InvalidInput (PAYLOAD_INVALID).
        """
        definition = self.get(job_type)
        return definition.handler.payload((), payload) if definition else payload

    async def list(self, **filter: Unpack[JobFilter]) -> Sequence[Job]:
        """Jobs that match, newest first, at most `limit` (50).

        Raises InvalidInput (STATUS_UNKNOWN) for a status that no contract has.
        """
        engine = await self._app.ready()
        row = _filter_of(filter)
        check_statuses(engine.contracts, [row.status] if row.status else [])
        return await engine.jobs.list(row)

    async def handle(self, job_id: str) -> Handle[Any]:
        """The handle of a job: its result, signals, approvals. The same as `app.handle`."""
        return await self._app.handle(job_id)

    async def show(self, job_id: str, *, tenant: str | None = None) -> dict[str, Any]:
        """The job as REST and `detent jobs show --json` show it."""
        engine = (await self._app.ready()).scoped(tenant=tenant)
        job = await engine.jobs.get(job_id)
        return {**job_view(engine.contract(job.contract), job)}

    async def why(self, job_id: str, *, tenant: str | None = None) -> dict[str, Any]:
        """Why the job is not running: `reason`, a stable code, `sentence` and `details`."""
        return asdict(await (await self._app.ready()).scoped(tenant=tenant).jobs.why(job_id))

    async def cancel(
        self, job_id: str, reason: str | None = None, *, tenant: str | None = None, actor: str = ACTOR
    ) -> Job:
        """Cancel a job; see `Handle.cancel`. Returns its row afterwards."""
        return await (await self._app.ready()).jobs.cancel(job_id, Scope(actor, reason, tenant))

    async def abort(
        self, job_id: str, reason: str | None = None, *, tenant: str | None = None, actor: str = ACTOR
    ) -> Job:
        """Make a job fail that no worker holds. Raises IllegalMove while one does."""
        return await (await self._app.ready()).jobs.abort(job_id, Scope(actor, reason, tenant))

    async def requeue(
        self,
        job_id: str,
        *,
        payload: Mapping[str, Any] | None = None,
        reason: str | None = None,
        tenant: str | None = None,
        actor: str = ACTOR,
    ) -> Handle[Any]:
        """Make a new job of a finished one, linked to it, and return its handle.

        payload: instead of that of the old job; checked by the handler where this app declares the job.
        Raises IllegalMove if the job has not finished.
        """
        engine = await self._app.ready()
        checked = None
        if payload is not None:
            job = await engine.scoped(tenant=tenant).jobs.get(job_id)
            checked = self.checked_payload(job.job_type, dict(payload))
        submitted = await engine.jobs.requeue(job_id, Scope(actor, reason, tenant), payload=checked)
        return await self._app.handle(submitted.job.id)

    async def reopen(
        self, job_id: str, reason: str | None = None, *, tenant: str | None = None, actor: str = ACTOR
    ) -> Job:
        """Make a finished job claimable again, where its contract has such an edge (formal)."""
        return await (await self._app.ready()).jobs.reopen(job_id, Scope(actor, reason, tenant))

    async def cancel_many(
        self, job_ids: Sequence[str], reason: str | None = None, *, tenant: str | None = None, actor: str = ACTOR
    ) -> BulkResult:
        """Cancel these jobs; the refusal of one does not affect the others. Returns how many were done and refused."""
        return await (await self._app.ready()).jobs.cancel_many(job_ids, Scope(actor, reason, tenant))

    async def requeue_many(
        self, job_ids: Sequence[str], reason: str | None = None, *, tenant: str | None = None, actor: str = ACTOR
    ) -> BulkResult:
        """Requeue these finished jobs; the refusal of one does not affect the others."""
        return await (await self._app.ready()).jobs.requeue_many(job_ids, Scope(actor, reason, tenant))


def _filter_of(filter: JobFilter) -> Filter:
    fields: dict[str, Any] = {**filter}
    if "tenant" in fields:
        fields["tenant_id"] = fields.pop("tenant")
    for name in fields.keys() & {"since", "until"}:
        moment = fields[name]
        fields[name] = from_datetime(moment) if isinstance(moment, datetime) else from_iso(moment, field=name)
    return Filter(**fields)
