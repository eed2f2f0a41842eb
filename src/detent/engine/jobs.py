"""`engine.jobs`: submit, read and control jobs, one or many."""

import builtins
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from detent.core.access import Scope
from detent.core.contract.model import Contract, Move, Phase
from detent.core.decide import request_cancel
from detent.core.errors import DetentError, InvalidInput, SignalRefused
from detent.core.job import Change, Facts, Failure, Job, LogLine, Signal, Step, unchanged
from detent.core.outcome import may_retry, retry_delay
from detent.ports.listing import Filter
from detent.ports.tx import Tx
from detent.system.batcher import batch_then_each

from .dead_letters import requeue_job
from .execution.manual_run import INTERNAL, run_manually
from .execution.settle import not_supported, wake_signalled
from .reads import responses
from .reads.listing import check_statuses, read_job_page
from .reads.tree import JobTree, NamedChild, read_children, read_tree
from .reads.views import NEWEST, History, LogCursor, read_history, read_newest_entries
from .reads.why import Why, explain, read_snapshot
from .refusal import Refused, audit, is_refusal, move_job, refuse_move, unwrap
from .runtime import Runtime, Service, affected_parents, changes, reads, writes
from .submit import quotas
from .submit.prepare import Submitted, SubmittedId, prepare, prepare_uniform, submit_prepared
from .submit.submission import Submission, check_name, json_text

ALL = Filter()
MAX_SIGNALS = 100
MAX_SIGNAL_BYTES = 1 << 16
BATCH = 50
MAX_REFUSALS = 20


@dataclass(slots=True)
class BulkResult:
    """How many jobs were done and refused, and the first errors."""

    done: Annotated[int, "Number that was changed; 0 in a dry run."] = 0
    refused: Annotated[int, "Number that was refused."] = 0
    refusals: Annotated[list[dict[str, str]], "The first 20 refusals: job_id, code, detail."] = field(
        default_factory=list
    )

    def refuse(self, job_id: str, error: DetentError) -> None:
        self.refused += 1
        if len(self.refusals) < MAX_REFUSALS:
            self.refusals.append({"job_id": job_id, "code": error.code, "detail": error.message})


class Jobs(Service):
    """The acts on jobs from outside their executions."""

    async def submit(self, submission: Submission) -> Submitted:
        return (await self.submit_many([submission]))[0]

    async def submit_many(self, submissions: Sequence[Submission]) -> builtins.list[Submitted]:
        """Create all of these jobs or none. Raises InvalidInput before anything is written."""
        runtime = self._runtime
        if runtime.tenant is not None or runtime.reach.is_limited:
            submissions = [await self._within_tenant(submission) for submission in submissions]
        now = runtime.store.now()
        return await submit_prepared(runtime, [prepare(runtime, submission, now) for submission in submissions])

    async def submit_uniform(self, submission: Submission, payloads: Sequence[Any]) -> builtins.list[SubmittedId]:
        """Create one job per payload from the same submission: all or none."""
        if not payloads:
            return []
        runtime = self._runtime
        if runtime.tenant is not None or runtime.reach.is_limited:
            submission = await self._within_tenant(submission)
        now, tenant_quotas = runtime.store.now(), await runtime.quota_cache.quotas()
        batch = None if submission.tenant_id in tenant_quotas else prepare_uniform(runtime, submission, payloads, now)
        if batch is not None:
            if runtime.relay is not None:
                runtime.relay.reserve([batch.first])
            present = await runtime.store.insert(batch)
            if runtime.relay is not None and batch.first.outbox_hold:
                runtime.relay.publish(batch)
            return [SubmittedId(job_id, job_id in present) for job_id in batch.ids]
        prepared = [prepare(runtime, replace(submission, payload=payload), now) for payload in payloads]
        return [SubmittedId(submitted.job.id, submitted.hit) for submitted in await submit_prepared(runtime, prepared)]

    async def _within_tenant(self, submission: Submission) -> Submission:
        """The submission in the runtime's tenant, below a parent that the runtime reaches."""
        tenant = self._runtime.tenant_of_new(submission.tenant_id, "a job")
        if submission.requeued_from is not None or submission.effect_root is not None:
            raise InvalidInput(
                "requeued_from and effect_root cannot be set in a submission; requeue the job instead",
                code="LINK_INVALID",
            )
        if submission.parent_id is not None:
            await self.get(submission.parent_id)
        return replace(submission, tenant_id=tenant)

    @reads
    async def get(self, tx: Tx, job_id: str) -> Job:
        return await self._runtime.find(tx, job_id)

    @reads
    async def get_many(self, tx: Tx, ids: Sequence[str]) -> builtins.list[Job]:
        """The jobs with these ids, newest first; ids that do not exist or are out of reach are left out."""
        jobs = (await tx.jobs.lock(ids)).values()
        return sorted((job for job in jobs if self._runtime.sees(job)), key=lambda job: job.id, reverse=True)

    @reads
    async def list(self, tx: Tx, filter: Filter = ALL) -> builtins.list[Job]:
        """Jobs that match, newest first; `page` also returns a cursor and bounds the rows it reads."""
        return await tx.jobs.list_jobs(self._runtime.visible(filter))

    async def page(self, filter: Filter = ALL, *, seconds: float = 0.15) -> tuple[builtins.list[Job], str | None]:
        """(a page of jobs, the cursor of the next page or None). With a filter, a page that has a next one may be
        shorter than the limit or empty: reading stops when the time for one page is over. Raises InvalidInput
        (STATUS_UNKNOWN) for a status that no contract has."""
        statuses = filter.statuses or (() if filter.status is None else (filter.status,))
        check_statuses(self._runtime.contracts, statuses)
        return await read_job_page(self._runtime, filter, seconds)

    @reads
    async def history(self, tx: Tx, job_id: str) -> History:
        """A job with all its events and notes, read in one snapshot."""
        job = await self._runtime.find(tx, job_id)
        return await read_history(tx, self._runtime.contract(job.contract), job)

    @reads
    async def newest_entries(
        self, tx: Tx, job_id: str, limit: int, below: LogCursor = NEWEST
    ) -> tuple[builtins.list[responses.Event], LogCursor | None]:
        """Events and notes, newest first, and where the next page continues. Recorded steps, progress and captured log
        lines are not among them; they have lists of their own."""
        job = await self._runtime.find(tx, job_id)
        return await read_newest_entries(tx, self._runtime, job, limit, below)

    @reads
    async def steps(
        self, tx: Tx, job_id: str, limit: int, offset: int = 0, *, name: str | None = None, results: bool = True
    ) -> builtins.list[Step]:
        """Recorded steps by the time of their start. The results are left out if the caller may not see payloads."""
        job = await self._runtime.find(tx, job_id)
        results = results and self._runtime.payloads
        return await tx.steps.steps_page(job.id, limit, offset, name=name, results=results)

    @reads
    async def children(
        self, tx: Tx, job_id: str, after: str | None, limit: int, *, phase: str | None = None, status: str | None = None
    ) -> builtins.list[NamedChild]:
        """Children that the caller may see, by id, each with its name, the siblings it runs after and its progress.
        Raises InvalidInput (STATUS_UNKNOWN) for a status that no contract has."""
        check_statuses(self._runtime.contracts, () if status is None else (status,))
        job = await self._runtime.find(tx, job_id)
        return await read_children(tx, self._runtime, job, after, limit, phase=phase, status=status)

    @reads
    async def log_lines(self, tx: Tx, job_id: str, after: tuple[int, int] | None, limit: int) -> builtins.list[LogLine]:
        """Captured log lines, oldest first: those after (execution_no, n), or without a position the newest ones. Their
        messages are empty if the caller may not see payloads."""
        job = await self._runtime.find(tx, job_id)
        lines = await (
            tx.output.last_log_lines(job.id, limit) if after is None else tx.output.log_lines(job.id, after, limit)
        )
        return lines if self._runtime.payloads else [replace(line, message="") for line in lines]

    @reads
    async def why(self, tx: Tx, job_id: str) -> Why:
        """The most important reason why the job is not running; the other reasons are in details["also"]."""
        job = await self._runtime.find(tx, job_id)
        return explain(await read_snapshot(tx, self._runtime, job))

    @reads
    async def tree(self, tx: Tx, job_id: str) -> JobTree:
        """The job with its children and their children."""
        job = await self._runtime.find(tx, job_id)
        return await read_tree(tx, self._runtime, job, job.job_type)

    @writes
    async def signal(self, tx: Tx, job_id: str, name: str, scope: Scope, data: Any = None) -> tuple[Job, bool]:
        """Send a named signal; returns the job, and False if a signal of this name was received before."""
        return await signal_job(self._runtime, tx, job_id, name, scope, data)

    @changes
    async def cancel(self, tx: Tx, job_id: str, scope: Scope, *, force: bool = False) -> Change | Refused:
        """Cancel the job; a running one is only requested to stop, unless force is true."""
        return await cancel_job(self._runtime, tx, job_id, scope, force=force)

    @changes
    async def abort(self, tx: Tx, job_id: str, scope: Scope) -> Change | Refused:
        """Make a job fail that no worker holds."""
        job = await self._runtime.find(tx, job_id, scope)
        contract = self._runtime.contract(job.contract)
        if job.phase is Phase.LEASED:
            return await refuse_move(tx, contract, job, "abort", scope.actor)
        message = job.error_message or scope.reason or f"aborted by {scope.actor}"
        failure, dlq_id = Failure(job.error_code or "ABORTED", message, "Aborted"), self._runtime.ids.job()
        facts = Facts(scope.actor, scope.reason or "aborted", charged=False, failure=failure, dlq_id=dlq_id)
        return await move_job(tx, contract, job, Move.FAIL, facts, "job.abort")

    @changes
    async def reopen(self, tx: Tx, job_id: str, scope: Scope) -> Change | Refused:
        """Make a finished job claimable again, if its contract has such an edge."""
        job = await self._runtime.find(tx, job_id, scope)
        tenant_quotas = await quotas.lock_quotas(tx.quotas, [job.tenant_id])
        facts = Facts(scope.actor, scope.reason)
        result = await move_job(tx, self._runtime.contract(job.contract), job, Move.REOPEN, facts, "job.reopen")
        if isinstance(result, Change):
            await quotas.check_backlogs(tx.quotas, tenant_quotas, [job.tenant_id])
        return result

    @changes
    async def transition(self, tx: Tx, job_id: str, new_status: str, scope: Scope) -> Change | Refused:
        """Take the contract's edge into a status, with its follow-up edges; refused if there is none.

        A worker that holds the job loses it; the event names it as `taken_from`.
        """
        job = await self._runtime.find(tx, job_id, scope)
        contract = self._runtime.contract(job.contract)
        if new_status == job.status and contract.repeat_is_noop:
            return unchanged(job)
        moves = [e.move for e in contract.edges if e.source == job.status and e.target == new_status and e.move]
        if new_status == job.status or not moves:
            return await refuse_move(tx, contract, job, f"-> {new_status}", scope.actor)
        move = moves[0]
        facts = _facts_for_forced_move(self._runtime, contract, job, move, scope.actor)
        if job.worker and not job.worker.startswith(INTERNAL) and (job.lease_until or 0) > tx.now:
            facts = replace(facts, data={"taken_from": job.worker})
        if move is Move.RETRY and facts.failure and not may_retry(contract, job, facts.failure):
            return await refuse_move(tx, contract, job, f"-> {new_status} (no retries left)", scope.actor)
        return await move_job(tx, contract, job, move, facts, "job.transition")

    run_manually = run_manually

    async def requeue(
        self, job_id: str, scope: Scope, *, payload: dict[str, Any] | None = None, new_id: str | None = None
    ) -> Submitted:
        """Create a new job linked to a finished one; if that left an open dead letter, this requeues it."""
        job = new_id or self._runtime.ids.job()
        return unwrap(
            await self._runtime.run(
                lambda tx: requeue_job(self._runtime, tx, job_id, scope, payload=payload, new_id=job)
            )
        )

    async def cancel_many(self, ids: Sequence[str], scope: Scope) -> BulkResult:
        """Cancel these jobs, in batches; the refusal of one does not affect the others."""
        return await self._change_many(ids, lambda tx, job_id: cancel_job(self._runtime, tx, job_id, scope))

    async def requeue_many(self, ids: Sequence[str], scope: Scope) -> BulkResult:
        """Requeue these finished jobs, in batches; the refusal of one does not affect the others."""
        new_ids = {job_id: self._runtime.ids.job() for job_id in ids}
        return await self._change_many(
            ids, lambda tx, job_id: requeue_job(self._runtime, tx, job_id, scope, new_id=new_ids[job_id])
        )

    async def _change_many(self, ids: Sequence[str], change_one: Callable[[Tx, str], Awaitable[Any]]) -> BulkResult:
        """One transaction per batch; if one job of a batch raises an error, one transaction per job."""
        result = BulkResult()

        async def run(batch: Sequence[str]) -> builtins.list[Any]:
            async def act(tx: Tx) -> builtins.list[Any]:
                return [await change_one(tx, job_id) for job_id in batch]

            return await self._runtime.run(act, affected_parents)

        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            for job_id, outcome in zip(batch, await batch_then_each(batch, run, is_refusal), strict=True):
                error = outcome.error if isinstance(outcome, Refused) else outcome
                if isinstance(error, DetentError):
                    result.refuse(job_id, error)
                else:
                    result.done += 1
        return result


async def cancel_job(runtime: Runtime, tx: Tx, job_id: str, scope: Scope, *, force: bool = False) -> Change | Refused:
    """Cancel now, or request it from the worker that holds the job, as the contract defines for this status."""
    job = await runtime.find(tx, job_id, scope)
    contract = runtime.contract(job.contract)
    if job.status in contract.cancel_requests and not force:
        change = request_cancel(job, tx.now, scope.actor, scope.reason)
        if change.notes:
            await tx.jobs.apply([change])
            await audit(tx, scope, "job.cancel", job.id, job.tenant_id)
        return change
    return await move_job(tx, contract, job, Move.CANCEL, Facts(scope.actor, scope.reason), "job.cancel")


def _facts_for_forced_move(runtime: Runtime, contract: Contract, job: Job, move: Move, actor: str) -> Facts:
    """The facts that a worker, a failure or a lost lease would have passed to decide."""
    failure, delay = None, 0
    if move in (Move.RETRY, Move.FAIL):
        failure = Failure(contract.code("execution_failed"), f"set by {actor}", "Transition")
    if move is Move.RETRY:
        delay = retry_delay(contract, job, runtime.jitter)
    if move is Move.EXPIRE:
        failure = Failure(contract.code("lost"), f"set by {actor}", "Transition")
    return Facts(
        actor=actor,
        worker=f"{INTERNAL}{actor}",
        token=runtime.ids.token(),
        lease=int(contract.lease_seconds * 1_000_000),
        charged=contract.loss.charged if move is Move.EXPIRE else True,
        failure=failure,
        delay=delay,
        dlq_id=runtime.ids.job(),
    )


async def signal_job(runtime: Runtime, tx: Tx, job_id: str, name: str, scope: Scope, data: Any) -> tuple[Job, bool]:
    """(the job, True if this is the first signal of this name). The first wins; early signals are kept for the wait."""
    check_name(name, "signal name")
    text = json_text(data, "SIGNAL_NOT_JSON", "the signal's data")
    if len(text.encode()) > MAX_SIGNAL_BYTES:
        raise InvalidInput(
            f"the signal's data exceeds {MAX_SIGNAL_BYTES} bytes; pass a reference", code="SIGNAL_TOO_LARGE"
        )
    job = await runtime.find(tx, job_id, scope)
    contract = runtime.contract(job.contract)
    if not contract.has(Move.WAIT):
        raise not_supported(contract, "a wait, so its jobs take no signals")
    waiting = job.phase is Phase.BLOCKED
    awaited = job.awaited_signal == name
    if await tx.signals.signal(job.id, name):
        return (await wake_signalled(contract, tx, job, scope.actor)).after if awaited else job, False
    if job.phase is Phase.FINAL:
        raise SignalRefused(
            f"job {job.id} has finished, it cannot receive {name!r}", code="JOB_FINAL", status=job.status
        )
    if contract.strict_signals and waiting and job.wait_name != name:
        raise SignalRefused(
            f"job {job.id} waits for {job.wait_name!r}, not {name!r}", code="SIGNAL_KEY_MISMATCH", http_status=400
        )
    if not awaited and await tx.signals.count_signals(job.id) >= MAX_SIGNALS:
        raise SignalRefused(f"job {job.id} already has {MAX_SIGNALS} signals, the maximum", code="SIGNAL_LIMIT")
    note = job.note("signal.received", tx.now, scope.actor, {"name": name})
    await tx.signals.add_signal(Signal(job.id, name, text, scope.actor, note.at))
    await tx.log.add_notes([note])
    return (await wake_signalled(contract, tx, job, scope.actor)).after if awaited else job, True
