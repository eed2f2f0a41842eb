"""Running jobs of workers that speak HTTP: steps, signals, children, progress and log lines, checked by lease token."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from detent.core.child_ids import child_id
from detent.core.contract.model import Phase
from detent.core.errors import InvalidInput, OnceUnfinished, StaleLease, StepMismatch
from detent.core.job import Job, Micros, Progress, Signal, Step
from detent.core.job import LogLine as Stored
from detent.core.times import SECOND
from detent.engine.refusal import Refused, refuse
from detent.engine.runtime import Service, operators_only, reads, writes
from detent.engine.submit.submission import Submission, check_name
from detent.ports.children import ChildState
from detent.ports.claims import Claimed
from detent.ports.tx import Tx

from . import children
from .settle import MAX_RESULT, sanitize
from .steps import STEP_REFUSED
from .sweep import claimed_of

MAX_LINES = 200
MAX_LINE_BYTES = 32_768
"""Bounds of the log lines that are kept of one execution, the last ones."""


class StepRecord(NamedTuple):
    """A step to record. finished False: it begins now and must never run again, even if its end is not recorded."""

    name: str
    digest: str
    result: str | None
    finished: bool = True
    duration: Micros | None = None
    """How long it ran; not used for a step whose begin was recorded."""


class LogLine(NamedTuple):
    level: str
    message: str
    logger: str


class NamedChild(NamedTuple):
    name: str
    state: ChildState
    succeeded: bool


class Executions(Service):
    """`engine.executions`: what a worker without Detent's library does with a job it holds. Raises StaleLease if the
    token no longer holds the job, or if the job is out of the caller's reach."""

    @operators_only
    @reads
    async def steps(self, tx: Tx, job_id: str, token: str) -> list[Step]:
        """All steps the job has recorded, also in earlier executions."""
        await self._leased(tx, job_id, token)
        return await tx.steps.list_steps(job_id)

    @operators_only
    @writes
    async def record_step(self, tx: Tx, job_id: str, token: str, record: StepRecord) -> Step | Refused:
        """Record a step and return it as it is recorded. Idempotent: a finished step keeps its first result.

        Raises StepMismatch if it was recorded with another digest, and OnceUnfinished if an earlier execution began it
        and did not record its end.
        """
        check_name(record.name, "step name")
        if record.result is not None and len(record.result.encode()) > MAX_RESULT:
            message = f"the result of step {record.name!r} is larger than {MAX_RESULT} bytes; return a reference"
            raise InvalidInput(message, code="STEP_RESULT_TOO_LARGE", limit=MAX_RESULT)
        job = await self._reached(tx, job_id)
        if job is None or not _holds(job, token):
            error = _stale(job_id, f"step {record.name!r} is not recorded")
            return Refused(error) if job is None else await refuse(tx, job, error, STEP_REFUSED, None)
        stored = await tx.steps.step(job_id, record.name)
        if stored is not None:
            _check_recorded(stored, record, job)
        step = Step(job_id, record.name, record.digest, record.result, record.finished, job.execution_no, tx.now)
        if record.duration is not None:
            step = replace(step, started_at=max(tx.now - record.duration, job.updated_at))  # not before its execution
        if stored is None or not stored.finished:
            await tx.steps.record_step(step, token)
            return step
        return stored

    @operators_only
    @reads
    async def signals(self, tx: Tx, job_id: str, token: str) -> list[Signal]:
        """The signals that were sent to the job, and its waits that timed out."""
        await self._leased(tx, job_id, token)
        return await tx.signals.list_signals(job_id)

    @operators_only
    async def enqueue_children(
        self, job_id: str, token: str, submissions: Sequence[tuple[str, Submission]]
    ) -> list[NamedChild]:
        """Enqueue children by name, unless they exist, and return the state of each. Idempotent.

        Raises StepMismatch if a child of this name was enqueued with another type or payload.
        """
        runtime = self._runtime
        parent: Claimed = await runtime.store.read(lambda tx: self._leased(tx, job_id, token))
        requests = [children.child_request(parent, name, submission) for name, submission in submissions]
        await children.enqueue(runtime, parent, requests)
        ids = [child_id(job_id, request.name) for request in requests]
        states = await children.child_states(runtime, job_id, ids)
        ended = [states[each] for each in ids]
        return [
            NamedChild(request.name, state, runtime.contract(state.contract).succeeded(state.status))
            for request, state in zip(requests, ended, strict=True)
        ]

    @operators_only
    async def check_children(self, job_id: str, ids: Sequence[str]) -> None:
        """Raise InvalidInput (CHILD_UNKNOWN) unless all of these are children of the job."""
        await children.child_states(self._runtime, job_id, ids)

    @operators_only
    @writes
    async def progress(self, tx: Tx, job_id: str, token: str, share: float, message: str) -> Claimed:
        """Store how far the job is; at most once a second, calls between are ignored."""
        claimed = await self._leased(tx, job_id, token)
        last = (await tx.output.progress_of([job_id])).get(job_id)
        if last is None or last.execution_no != claimed.execution_no or tx.now - last.at >= SECOND:
            progress = Progress(job_id, claimed.execution_no, share, _text(message), tx.now)
            await tx.output.put_progress(progress, token=token)
        return claimed

    @operators_only
    @writes
    async def add_log_lines(self, tx: Tx, job_id: str, token: str, lines: Sequence[LogLine]) -> int:
        """Store log lines of this execution, of which the last ones are kept; returns how many of these were stored."""
        claimed = await self._leased(tx, job_id, token)
        kept = [
            line
            for line in await tx.output.last_log_lines(job_id, MAX_LINES)
            if line.execution_no == claimed.execution_no
        ]
        count = kept[-1].n if kept else 0
        kept += [
            Stored(claimed.execution_no, n, tx.now, line.level, _text(line.logger), _text(line.message))
            for n, line in enumerate(lines, count + 1)
        ]
        size = sum(len(line.message) for line in kept)
        while len(kept) > MAX_LINES or size > MAX_LINE_BYTES:
            size -= len(kept.pop(0).message)
        new = [line for line in kept if line.n > count]
        if new:
            await tx.output.add_log_lines(job_id, new, token=token)
            await tx.output.trim_log_lines(job_id, claimed.execution_no, kept[0].n)
        return len(new)

    async def _leased(self, tx: Tx, job_id: str, token: str) -> Claimed:
        job = await self._reached(tx, job_id)
        if job is None or not _holds(job, token):
            raise _stale(job_id, "stop working on it")
        return claimed_of(job, token)

    async def _reached(self, tx: Tx, job_id: str) -> Job | None:
        job = (await tx.jobs.lock([job_id])).get(job_id)
        return job if job is not None and self._runtime.sees(job) else None


def _text(text: str) -> str:
    return sanitize(text) or ""


def _holds(job: Job, token: str) -> bool:
    return job.phase is Phase.LEASED and job.token == token


def _stale(job_id: str, advice: str) -> StaleLease:
    return StaleLease(f"the lease on job {job_id} was lost; {advice}", job_id=job_id)


def _check_recorded(stored: Step, record: StepRecord, job: Job) -> None:
    if stored.digest != record.digest:
        message = f"step {record.name!r} of job {job.id} was recorded with another digest of its arguments"
        raise StepMismatch(f"{message}; keep the arguments, or give the changed step another name", step=record.name)
    if not stored.finished and stored.execution_no != job.execution_no:
        message = f"step {record.name!r} was begun in execution {stored.execution_no} and never finished"
        advice = "it must not run again; check whether it happened, then continue, or use another name"
        raise OnceUnfinished(f"{message}; {advice}", step=record.name, execution_no=stored.execution_no)
