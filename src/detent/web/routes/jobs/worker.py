"""A worker in any language: claim (waiting for work if there is none), heartbeat, settle under the lease's token."""

import asyncio
import json
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, WithJsonSchema
from starlette.responses import Response

from detent.core.access import Power
from detent.core.contract.model import Phase
from detent.core.job import Failure
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Stopped, Succeeded
from detent.core.times import SECOND
from detent.engine import Engine
from detent.engine.control.access import Forbidden
from detent.engine.submit.submission import json_text
from detent.ports.claims import Claimed
from detent.ports.listing import WorkerRow
from detent.version import __version__
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schemas

router = Router(tags=["worker"])
_MAX_WAIT = 20.0
_POLL_SECONDS = 0.5
Key = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern="^[!-~]+$")]
Seconds = Annotated[float, Field(ge=0, le=31_536_000)]
LeaseSeconds = Annotated[float, Field(ge=1, le=86_400)]


_KEY = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}
_HELD = {
    "type": "object",
    "description": "job id -> token of its lease",
    "maxProperties": 1_000,
    "propertyNames": _KEY,
    "additionalProperties": _KEY,
}


class Claim(schemas.Asks):
    worker: schemas.Name
    job_types: Annotated[list[schemas.Name], Field(min_length=1, max_length=500)]
    queues: Annotated[list[schemas.Name], Field(min_length=1, max_length=500)] | None = None
    limit: int = Field(1, ge=1, le=100)
    lease_seconds: LeaseSeconds = 30.0
    wait_seconds: float = Field(0.0, ge=0, le=_MAX_WAIT)


class Heartbeat(schemas.Asks):
    worker: schemas.Name
    held: Annotated[dict[Key, Key], Field(max_length=1_000), WithJsonSchema(_HELD)]
    lease_seconds: LeaseSeconds = 30.0


class Settle(schemas.Asks):
    """How an execution ended; which fields count depends on the outcome."""

    job_id: Key
    token: Key
    outcome: Literal["succeed", "fail", "snooze", "cancel", "stop"]
    result: Any = None
    code: schemas.Name | None = None
    message: schemas.Prose | None = None
    retryable: bool | None = None
    after_seconds: Seconds | None = None
    reason: schemas.Prose | None = None


@router.route_for("POST", "/worker/claim", needs=Power.WORK, answers={200: schemas.ClaimedJobs})
async def claim(asked: ApiRequest, body: Claim) -> Response:
    """Take due jobs of these types, waiting up to wait_seconds for the first."""
    worker = _worker(asked, body.worker)
    engine = await asked.engine()
    queues = None if body.queues is None else sorted(set(body.queues))
    types = sorted(set(body.job_types))
    row = _row(asked, engine, worker, types, queues, body.limit, body.lease_seconds)
    await engine.store.write(lambda tx: tx.put_worker(row))
    loop = asyncio.get_running_loop()
    end = loop.time() + body.wait_seconds
    while True:
        found = await engine.claim(
            engine.claim_request(
                worker,
                body.limit,
                body.lease_seconds,
                job_types=frozenset(types),
                queues=None if queues is None else frozenset(queues),
                reclaim=True,
            )
        )
        left = end - loop.time()
        if found or left <= 0:
            break
        await asked.web.changes.wait(min(left, _POLL_SECONDS))
        if asked.web.leaving.is_set() or await asked.is_disconnected():
            break
    if found and await asked.is_disconnected():
        await _hand_back(engine, found)
    return answer({"jobs": [_job_of(one) for one in found], "lease_seconds": body.lease_seconds})


async def _hand_back(engine: Engine, found: list[Claimed]) -> None:
    """Nobody is there to take the answer: the jobs need not wait for their leases."""
    for one in found:
        await engine.settle(one.id, one.token, Stopped())


def _job_of(one: Claimed) -> dict[str, Any]:
    return {
        "id": one.id,
        "token": one.token,
        "job_type": one.job_type,
        "contract": one.contract,
        "queue": one.queue,
        "tenant_id": one.tenant_id,
        "payload": json.loads(one.payload),
        "execution_no": one.execution_no,
        "retries": one.retries,
        "timeout_ms": one.timeout_ms,
        "trace_id": one.trace_id,
        "effect_root": one.effect_root,
        "idempotency_key": one.idempotency_key,
    }


@router.route_for("POST", "/worker/heartbeat", needs=Power.WORK, answers={200: schemas.Beaten})
async def heartbeat(asked: ApiRequest, body: Heartbeat) -> Response:
    """Lengthen leases; tells which are lost (stop working on them) and which jobs are to be cancelled."""
    _worker(asked, body.worker)
    extended = await (await asked.engine()).extend(body.held, body.lease_seconds)
    cancels = {job_id: json.loads(said).get("reason") for job_id, said in extended.cancels.items()}
    return answer({"lost": sorted(extended.lost), "cancels": cancels})


@router.route_for("POST", "/worker/settle", needs=Power.WORK, answers={200: schemas.Settled})
async def settle(asked: ApiRequest, body: Settle) -> Response:
    """End an execution; said again it answers the same, under a lost lease it is refused."""
    _worker(asked, "settle")
    job = await (await asked.engine()).settle(body.job_id, body.token, outcome_of(body))
    told = {"job_id": job.id, "status": job.status, "phase": str(job.phase), "version": job.version}
    return answer({**told, "ended": job.phase is Phase.FINAL})


def outcome_of(said: Settle) -> Outcome:
    after = None if said.after_seconds is None else int(said.after_seconds * SECOND)
    if said.outcome == "succeed":
        result = None if said.result is None else json_text(said.result, "RESULT_INVALID", "the result")
        return Succeeded(result)
    if said.outcome == "fail":
        failure = Failure(said.code or "EXECUTION_FAILED", said.message or "", None, said.retryable, after=after)
        return Failed(failure)
    if said.outcome == "snooze":
        return Snoozed(after or 0)
    return Cancelled(said.reason) if said.outcome == "cancel" else Stopped()


def _worker(asked: ApiRequest, name: str) -> str:
    """Who works is the person behind the token; a worker needs to see payloads, and takes jobs of all tenants."""
    asked.caller.everywhere("the work of all workers")
    if not asked.caller.payloads:
        raise Forbidden("a worker must see payloads; use a token that may", code="PAYLOADS_REQUIRED")
    return f"{asked.caller.person}/{name}"[:200]


def _row(
    asked: ApiRequest, engine: Engine, worker: str, types: list[str], queues: list[str] | None, slots: int, lease: float
) -> WorkerRow:
    now = engine.store.now()
    return WorkerRow(
        id=worker,
        host=asked.client.host if asked.client else "http",
        pid=0,
        version=__version__,
        queues=None if queues is None else json.dumps(queues),
        job_types=json.dumps(types),
        slots=slots,
        busy=0,
        state="working",
        started_at=now,
        seen_at=now,
        lease=int(lease * SECOND),
    )
