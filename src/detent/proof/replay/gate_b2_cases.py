"""`replay gate-b2`: runs the five acceptance cases of the gate-b2 specification through the engine on a real store."""

from dataclasses import dataclass, field
from typing import Any

from detent.core.access import Scope
from detent.core.contract.gate_b2 import GATE_B2
from detent.core.contract.model import Move
from detent.core.errors import DetentError
from detent.core.job import Failure, Job
from detent.core.outcome import Failed, Succeeded
from detent.core.retry import Backoff
from detent.engine import Engine, Submission
from detent.proof.verify.verify import Scope as VerifyScope
from detent.proof.verify.verify import verify

TRANSIENT = Failed(Failure("TRANSIENT", "a transient fault, injected by the replay", "Transient", retryable=True))
DONE = Succeeded('{"replayed":true}')
LEASE_SECONDS = 30.0
ACTOR = "replay"
_BASE_MS, _CAP_MS, _JITTER_MS = 1_000, 30_000, 300
"""The numbers of the specification, not those of the contract in use, which may have been changed by options."""


@dataclass(frozen=True, slots=True)
class Case:
    """One acceptance case. The job's statuses are compared with `path` from its first status on."""

    id: str
    failures: int
    path: str
    retry_count: int
    dead_letter: bool = False
    """The job must end with a dead letter."""
    end_again: bool = False
    """Transitions out of the final status must be refused."""


_RETRIED = "running -> retrying -> "
CASES = (
    Case("RP-001", 0, "queued -> running -> succeeded", 0),
    Case("RP-002", 1, "running -> retrying -> running -> succeeded", 1),
    Case("RP-003", 3, _RETRIED * 3 + "running -> succeeded", 3),
    Case("RP-004", 4, _RETRIED * 3 + "running -> dlq_pending -> dlq_recorded -> failed", 3, dead_letter=True),
    Case("RP-005", 0, "queued -> running -> succeeded", 0, end_again=True),
)


@dataclass(slots=True)
class CaseResult:
    """The result of one case: its recorded transitions, and every difference from the specification."""

    id: str
    path: str = ""
    """The statuses the job went through, and the transitions that were refused."""
    records: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"id": self.id, "ok": self.ok, "records": self.records}
        return fields if self.ok else {**fields, "problems": self.problems}


async def run_gate_b2_cases(engine: Engine) -> list[CaseResult]:
    """Run all cases, one job each, in a new queue that no other worker reads."""
    queue = f"replay-{engine.ids.token()}"
    return [await _run_case(engine, queue, case) for case in CASES]


async def _run_case(engine: Engine, queue: str, case: Case) -> CaseResult:
    result = CaseResult(case.id)
    try:
        job = await _execute(engine, queue, case, result)
        await _check(engine, job, case, result)
    except DetentError as error:
        result.problems.append(f"refused: {error}")
    return result


async def _execute(engine: Engine, queue: str, case: Case, result: CaseResult) -> Job:
    submission = Submission("detent.replay", {"case": case.id}, GATE_B2.name, queue, actor=ACTOR)
    job = (await engine.jobs.submit(submission)).job
    request = engine.claim_request(ACTOR, 1, LEASE_SECONDS, queues=frozenset({queue}))
    claimed = await engine.claim(request)
    if [claim.id for claim in claimed] != [job.id]:
        result.problems.append("the job was not claimed by the worker that requested it")
        return job
    if case.failures:
        _check_policy(engine.contract(GATE_B2.name).retry.backoff, job, result)
    for retry_no in range(1, case.failures + 1):
        job = await _settle(engine, job.id, TRANSIENT)
        claim = GATE_B2.edge(job.status, Move.CLAIM)
        if claim is None:
            return job
        _check_delay(job, retry_no, result)
        job = await engine.jobs.transition(job.id, claim.target, Scope(ACTOR))  # does not wait for the delay
    return await _settle(engine, job.id, DONE)


async def _settle(engine: Engine, job_id: str, outcome: Succeeded | Failed) -> Job:
    held = await engine.jobs.get(job_id)
    return await engine.settle(job_id, held.token or "", outcome)


def _lowest_delay_ms(retry_no: int) -> int:
    return min(_CAP_MS, _BASE_MS << (retry_no - 1))


def _check_delay(job: Job, retry_no: int, result: CaseResult) -> None:
    """The delay of a retry is a whole number of milliseconds in the range of the specification."""
    actual = ((job.next_retry_at or 0) - job.updated_at) / 1_000
    lowest = _lowest_delay_ms(retry_no)
    if actual not in range(lowest, lowest + _JITTER_MS + 1):
        expected = f"{lowest} to {lowest + _JITTER_MS} ms"
        result.problems.append(f"retry {retry_no} is due after {actual:g} ms, the specification gives {expected}")


def _check_policy(backoff: Backoff, job: Job, result: CaseResult) -> None:
    """Both ends of the range, also of retries that are never made: the cap shows in the sixth delay only."""
    for retry_no in range(1, 8):
        ends = [backoff.delay_ms(job.id, retry_no, jitter) for jitter in (lambda *_: 0, lambda *call: int(call[2]))]
        lowest = _lowest_delay_ms(retry_no)
        if ends != [lowest, lowest + _JITTER_MS]:
            expected = f"{lowest} to {lowest + _JITTER_MS} ms"
            result.problems.append(f"delay {retry_no} is {ends[0]} to {ends[1]} ms, the specification gives {expected}")


async def _check(engine: Engine, job: Job, case: Case, result: CaseResult) -> None:
    """Collect the recorded transitions and compare them with the case."""
    history = await engine.jobs.history(job.id)
    result.records += [event["data"] for event in history.published()]
    statuses = [event.target for event in history.events]
    result.path = " -> ".join(statuses)
    expected = case.path.split(" -> ")
    start = statuses.index(expected[0]) if expected[0] in statuses else 0
    if statuses[start:] != expected:
        result.problems.append(f"the job went {' -> '.join(statuses[start:])}, expected {case.path}")
    if history.job.retries != case.retry_count:
        result.problems.append(f"retry_count is {history.job.retries}, expected {case.retry_count}")
    if case.dead_letter:
        await _check_dead_letter(engine, history.job, result)
    if case.end_again:
        await _check_refusals(engine, history.job, result)
    report = await verify(engine.store, engine.contracts, VerifyScope(job_id=job.id))
    result.problems += [f"verify: {finding.rule}: {finding.detail}" for finding in report.violations]


async def _check_dead_letter(engine: Engine, job: Job, result: CaseResult) -> None:
    if job.dlq_id is None:
        result.problems.append("the failed job has no dlq_id")
        return
    item = await engine.dead_letters.get(job.dlq_id)
    if (item.job_id, item.retries) != (job.id, job.retries):
        result.problems.append(f"dead letter {item.id} has job {item.job_id} and retry count {item.retries}")


async def _check_refusals(engine: Engine, job: Job, result: CaseResult) -> None:
    """Try every transition of a finished job to a final status; each must be refused and change nothing."""
    code = GATE_B2.code("illegal_transition")
    ends = [status for status in GATE_B2.statuses if not GATE_B2.legal_events(status)]
    for status in sorted(ends, key=lambda end: end != job.status):
        actual = "no refusal"
        try:
            await engine.jobs.transition(job.id, status, Scope(ACTOR))
        except DetentError as error:
            actual = error.code
        step = f"{job.status} -> {status}"
        if actual != code:
            result.problems.append(f"{step} was answered with {actual}, expected {code}")
        record = {"trace_id": job.trace_id, "job_id": job.id, "retry_count": job.retries}
        result.records.append({**record, "status_transition": f"{step} ({actual})"})
        result.path += f"; {step} {actual}"
    after = await engine.jobs.get(job.id)
    if after != job:
        result.problems.append(f"a refused transition changed the job: it is {after.status}, version {after.version}")
