"""`replay gate-b2`: the seed's five acceptance cases, played through the engine against a real store."""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from detent.core.contract.gate_b2 import GATE_B2
from detent.core.contract.model import Move
from detent.core.errors import DetentError
from detent.core.job import Failure, Job
from detent.core.outcome import Failed, Succeeded
from detent.engine import Engine, Submission
from detent.proof.verify.verify import Scope, verify

TRANSIENT = Failed(Failure("TRANSIENT", "a passing fault, injected by the replay", "Transient", retryable=True))
DONE = Succeeded('{"replayed":true}')
LEASE_SECONDS = 30.0
ACTOR = "replay"


@dataclass(frozen=True, slots=True)
class Case:
    """What the seed asks for. The path is compared from its first status on."""

    id: str
    failures: int
    path: str
    retry_count: int
    buried: bool = False
    end_again: bool = False


CASES = (
    Case("RP-001", 0, "queued -> running -> succeeded", 0),
    Case("RP-002", 1, "running -> retrying -> running -> succeeded", 1),
    Case(
        "RP-003",
        3,
        "running -> retrying -> running -> retrying -> running -> retrying -> running -> succeeded",
        3,
    ),
    Case(
        "RP-004",
        4,
        "running -> retrying -> running -> retrying -> running -> retrying -> running"
        " -> dlq_pending -> dlq_recorded -> failed",
        3,
        buried=True,
    ),
    Case("RP-005", 0, "queued -> running -> succeeded", 0, end_again=True),
)


@dataclass(slots=True)
class Result:
    """One case played: every step it recorded, and what did not come out as the seed says."""

    id: str
    path: str = ""
    """The statuses the job went through, and the steps it was refused."""
    records: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"id": self.id, "ok": self.ok, "records": self.records}
        return told if self.ok else {**told, "problems": self.problems}


async def run_gate_b2_cases(engine: Engine) -> list[Result]:
    """All cases, each on a job of its own in a queue of its own: nobody else claims it, nobody else's is claimed."""
    queue = f"replay-{engine.ids.token()}"
    return [await _play(engine, queue, case) for case in CASES]


async def _play(engine: Engine, queue: str, case: Case) -> Result:
    result = Result(case.id)
    try:
        job = await _lead(engine, queue, case, result)
        await _judge(engine, job, case, result)
    except DetentError as error:
        result.problems.append(f"refused: {error}")
    return result


async def _lead(engine: Engine, queue: str, case: Case, result: Result) -> Job:
    ask = Submission("detent.replay", {"case": case.id}, GATE_B2.name, queue, actor=ACTOR)
    job = (await engine.submit(ask)).job
    request = engine.claim_request(ACTOR, 1, LEASE_SECONDS, queues=frozenset({queue}))
    claimed = await engine.claim(request)
    if [one.id for one in claimed] != [job.id]:
        result.problems.append("a worker asked for the job and did not get it")
        return job
    for retry_no in range(1, case.failures + 1):
        job = await _settle(engine, job.id, TRANSIENT)
        claim = GATE_B2.edge(job.status, Move.CLAIM)
        if claim is None:
            return job
        _check_delay(engine, job, retry_no, result)
        job = await engine.transition(job.id, claim.target, actor=ACTOR)  # the delay is checked, not waited for
    return await _settle(engine, job.id, DONE)


async def _settle(engine: Engine, job_id: str, outcome: Succeeded | Failed) -> Job:
    held = await engine.job(job_id)
    return await engine.settle(job_id, held.token or "", outcome)


def _check_delay(engine: Engine, job: Job, retry_no: int, result: Result) -> None:
    drawn = (job.next_retry_at or 0) - job.updated_at
    wanted = engine.contract(GATE_B2.name).retry.backoff.delay_ms(job.id, retry_no, engine.jitter) * 1_000
    if drawn != wanted:
        result.problems.append(f"retry {retry_no} is due after {drawn} us, the policy draws {wanted} us")


async def _judge(engine: Engine, job: Job, case: Case, result: Result) -> None:
    """Every step on record, and the end that the seed names."""
    history = await engine.history(job.id)
    result.records += [GATE_B2.envelope(history.job, event) or {} for event in history.events]
    statuses = [event.target for event in history.events]
    result.path = " -> ".join(statuses)
    wanted = case.path.split(" -> ")
    start = statuses.index(wanted[0]) if wanted[0] in statuses else 0
    if statuses[start:] != wanted:
        result.problems.append(f"the job went {' -> '.join(statuses[start:])}, expected {case.path}")
    if history.job.retries != case.retry_count:
        result.problems.append(f"retry_count is {history.job.retries}, expected {case.retry_count}")
    if case.buried:
        await _check_burial(engine, history.job, result)
    if case.end_again:
        await _check_refusals(engine, history.job, result)
    report = await verify(engine.store, engine.contracts, Scope(job_id=job.id))
    result.problems += [f"verify: {found.rule}: {found.detail}" for found in report.violations]


async def _check_burial(engine: Engine, job: Job, result: Result) -> None:
    if job.dlq_id is None:
        result.problems.append("the failed job names no dead letter")
        return
    item = await engine.dead_letter(job.dlq_id)
    if (item.job_id, item.retries) != (job.id, job.retries):
        result.problems.append(f"dead letter {item.id} is of job {item.job_id} with retry count {item.retries}")


async def _check_refusals(engine: Engine, job: Job, result: Result) -> None:
    """An ended job is written again, to the end it has and to every other: each time refused, each time on record."""
    code = GATE_B2.code("illegal_transition")
    ends = [status for status in GATE_B2.statuses if not GATE_B2.legal_events(status)]
    for status in sorted(ends, key=lambda one: one != job.status):
        answer = await _refusal(engine.transition(job.id, status, actor=ACTOR))
        step = f"{job.status} -> {status}"
        if answer != code:
            result.problems.append(f"{step} was answered with {answer}, expected {code}")
        record = {"trace_id": job.trace_id, "job_id": job.id, "retry_count": job.retries}
        result.records.append({**record, "status_transition": f"{step} ({answer})"})
        result.path += f"; {step} {answer}"
    after = await engine.job(job.id)
    if after != job:
        result.problems.append(f"the refused writes changed the job: it is {after.status}, version {after.version}")


async def _refusal(act: Awaitable[Any]) -> str:
    try:
        await act
    except DetentError as error:
        return error.code
    return "no refusal"
