"""`engine.jobs`: submit, read and control jobs."""

import builtins
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from detent.core.access import Scope
from detent.core.errors import InvalidInput
from detent.core.job import Job
from detent.ports.listing import Filter
from detent.ports.tx import Tx

from .control import dead_letters, job_control, jobs_bulk
from .execution import manual_run
from .reads.listing import read_page
from .reads.tree import JobTree, read_tree
from .reads.views import History
from .reads.why import Why, why
from .refusal import unwrap
from .runtime import Service
from .submit.prepare import Submitted, SubmittedId, prepare, prepare_uniform
from .submit.submission import Submission
from .submit.submit import submit_prepared

ALL = Filter()


class Jobs(Service):
    """The acts on jobs from outside their executions."""

    async def submit(self, submission: Submission) -> Submitted:
        return (await self.submit_many([submission]))[0]

    async def submit_many(self, submissions: Sequence[Submission]) -> builtins.list[Submitted]:
        """Create all of these jobs or none. Raises InvalidInput before anything is written."""
        runtime = self._runtime
        if runtime.tenant is not None:
            submissions = [await self._within_tenant(submission) for submission in submissions]
        now = runtime.store.now()
        return await submit_prepared(runtime, [prepare(runtime, submission, now) for submission in submissions])

    async def submit_uniform(self, submission: Submission, payloads: Sequence[Any]) -> builtins.list[SubmittedId]:
        """Create one job per payload from the same submission: all or none."""
        if not payloads:
            return []
        runtime = self._runtime
        if runtime.tenant is not None:
            submission = await self._within_tenant(submission)
        now, tenant_quotas = runtime.store.now(), await runtime.quota_cache.quotas()
        batch = None if submission.tenant_id in tenant_quotas else prepare_uniform(runtime, submission, payloads, now)
        if batch is not None:
            present = await runtime.store.insert(batch)
            return [SubmittedId(job_id, job_id in present) for job_id in batch.ids]
        prepared = [prepare(runtime, replace(submission, payload=payload), now) for payload in payloads]
        return [SubmittedId(submitted.job.id, submitted.hit) for submitted in await submit_prepared(runtime, prepared)]

    async def _within_tenant(self, submission: Submission) -> Submission:
        tenant = self._runtime.tenant_of_new(submission.tenant_id, "a job")
        if submission.requeued_from is not None or submission.effect_root is not None:
            raise InvalidInput(
                "requeued_from and effect_root cannot be set in a submission; requeue the job instead",
                code="LINK_INVALID",
            )
        if submission.parent_id is not None:
            await self.get(submission.parent_id)
        return replace(submission, tenant_id=tenant)

    async def get(self, job_id: str) -> Job:
        return await self._runtime.store.read(lambda tx: self._runtime.find(tx, job_id))

    async def list(self, filter: Filter = ALL) -> builtins.list[Job]:
        """Jobs that match, newest first; `page` also returns a cursor and bounds the rows it reads."""
        chosen = self._runtime.within_tenant(filter)
        return await self._runtime.store.read(lambda tx: tx.jobs.list_jobs(chosen))

    async def page(self, filter: Filter = ALL, *, seconds: float = 0.15) -> tuple[builtins.list[Job], str | None]:
        """(a page of jobs, the cursor of the next page or None). With a filter, a page that has a next one may be
        shorter than the limit or empty: reading stops when the time for one page is over."""
        return await read_page(self._runtime, filter, seconds, lambda tx, part, scan: tx.jobs.job_window(part, scan))

    async def history(self, job_id: str) -> History:
        """A job with all its events and notes, read in one snapshot."""

        async def act(tx: Tx) -> History:
            job = await self._runtime.find(tx, job_id)
            return History(
                self._runtime.contract(job.contract), job, await tx.log.events(job_id), await tx.log.notes(job_id)
            )

        return await self._runtime.store.read(act)

    async def why(self, job_id: str, *, payloads: bool = True) -> Why:
        """The most important reason why the job is not running; the other reasons are in details["also"]."""
        return await why(self._runtime, job_id, payloads=payloads)

    async def tree(self, job_id: str) -> JobTree:
        """The job with its children and their children."""
        return await read_tree(self._runtime, job_id)

    async def signal(self, job_id: str, name: str, scope: Scope, data: Any = None) -> tuple[Job, bool]:
        """Send a named signal; returns the job, and False if a signal of this name was received before."""
        return await self._runtime.run(lambda tx: job_control.signal(self._runtime, tx, job_id, name, scope, data))

    async def cancel(self, job_id: str, scope: Scope, *, force: bool = False) -> Job:
        """Cancel the job; a running one is only requested to stop, unless force is true."""
        return await self._runtime.change(lambda tx: job_control.cancel(self._runtime, tx, job_id, scope, force=force))

    async def abort(self, job_id: str, scope: Scope) -> Job:
        """Make a job fail that no worker holds."""
        return await self._runtime.change(lambda tx: job_control.abort(self._runtime, tx, job_id, scope))

    async def reopen(self, job_id: str, scope: Scope) -> Job:
        """Make a finished job claimable again, if its contract has such an edge."""
        return await self._runtime.change(lambda tx: job_control.reopen(self._runtime, tx, job_id, scope))

    async def transition(self, job_id: str, new_status: str, scope: Scope) -> Job:
        """Move the job to a status along an edge of its contract; refused if there is no such edge."""
        return await self._runtime.change(
            lambda tx: job_control.transition(self._runtime, tx, job_id, new_status, scope)
        )

    async def run_manually(self, job_id: str, how: manual_run.ManualRun, scope: Scope) -> manual_run.ManualRunResult:
        """Run one execution without a handler, even if the job is not due yet; see `ManualRun`."""
        return await manual_run.run_manually(self._runtime, job_id, how, scope)

    async def requeue(
        self, job_id: str, scope: Scope, *, payload: dict[str, Any] | None = None, new_id: str | None = None
    ) -> Submitted:
        """Create a new job linked to a finished one; if that left an open dead letter, this requeues it."""
        job = new_id or self._runtime.ids.job()
        return unwrap(
            await self._runtime.run(
                lambda tx: dead_letters.requeue_job(self._runtime, tx, job_id, scope, payload=payload, new_id=job)
            )
        )

    async def cancel_many(self, ids: Sequence[str], scope: Scope) -> jobs_bulk.BulkResult:
        """Cancel these jobs, in batches; the refusal of one does not affect the others."""
        return await jobs_bulk.cancel_many(self._runtime, ids, scope)

    async def requeue_many(self, ids: Sequence[str], scope: Scope) -> jobs_bulk.BulkResult:
        """Requeue these finished jobs, in batches; the refusal of one does not affect the others."""
        return await jobs_bulk.requeue_many(self._runtime, ids, scope)
