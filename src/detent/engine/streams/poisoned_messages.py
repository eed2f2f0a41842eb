"""Poisoned messages: a stream message that is not a valid task becomes a dead letter with its readable parts."""

import json
from collections.abc import Mapping
from typing import Any

from detent.core.contract.model import Move, Phase
from detent.core.decide import add_move, decide
from detent.core.errors import DetentError
from detent.core.job import Change, Facts, Failure, Job
from detent.engine.runtime import Runtime
from detent.engine.submit.prepare import prepare, submit_in_transaction
from detent.engine.submit.submission import Submission, check_name, refuse_constant
from detent.ports.stream import Delivery
from detent.ports.tx import Tx

_MAX_FIELD = 2_000
_MAX_FIELDS = 20


async def dead_letter_message(
    runtime: Runtime, worker: str, origin: tuple[str, str], fields: Mapping[bytes, bytes], code: str, problem: str
) -> None:
    """Claim and fail the job of a poisoned message in one commit; without a known task, submit one first.

    origin: stream and message id; a message becomes a dead letter only once. A task that is leased or has ended is
    left unchanged.
    """
    change = await runtime.store.write(lambda tx: _dead_letter(runtime, worker, origin, fields, code, problem, tx))
    if change is not None:
        runtime.report([change])


async def _dead_letter(
    runtime: Runtime,
    worker: str,
    origin: tuple[str, str],
    fields: Mapping[bytes, bytes],
    code: str,
    problem: str,
    tx: Tx,
) -> Change | None:
    task_id = fields.get(b"task_id", b"").decode("ascii", "replace")
    job = (await tx.jobs.lock([task_id])).get(task_id) if task_id else None
    if job is not None and runtime.contract(job.contract).uses_stream:
        return await _fail(runtime, tx, job, worker, origin, code, problem) if job.phase is Phase.CLAIMABLE else None
    contract = next(contract for contract in runtime.contracts.values() if contract.uses_stream)
    submission = Submission(
        job_type=_tool_name(fields),
        payload=_payload(fields, origin, runtime.max_payload),
        contract=contract.name,
        idempotency_key=f"poison {origin[0]} {origin[1]}"[: contract.keys.max_length],
        actor=worker,
    )
    submitted = await submit_in_transaction(tx, prepare(runtime, submission, tx.now, apply_policy=False))
    return None if submitted.hit else await _fail(runtime, tx, submitted.job, worker, origin, code, problem)


async def dead_letter_delivery(runtime: Runtime, worker: str, stream: str, delivery: Delivery) -> None:
    """Record a delivery that is invalid, or names a task that does not exist, unless it was deleted from the stream."""
    if delivery.fields:
        code = "SCHEMA_INVALID" if delivery.problem else "TASK_UNKNOWN"
        problem = delivery.problem or unknown_task(delivery.task_id)
        origin = (stream, delivery.message_id)
        await dead_letter_message(runtime, worker, origin, delivery.fields, code, problem)


def unknown_task(task_id: str) -> str:
    return f"there is no task {task_id[:80]!r}"


async def _fail(
    runtime: Runtime, tx: Tx, job: Job, worker: str, origin: tuple[str, str], code: str, problem: str
) -> Change:
    contract = runtime.contract(job.contract)
    data = {"stream": origin[0], "message_id": origin[1]}
    facts = Facts(worker=worker, token=origin[1], lease=0, data=data)
    claimed = decide(contract, job, Move.CLAIM, tx.now, facts)
    failure = Failure(code, problem[:_MAX_FIELD], "Poison", retryable=False)
    change = add_move(
        contract, claimed, Move.FAIL, tx.now, Facts(actor=worker, failure=failure, dlq_id=runtime.ids.job(), data=data)
    )
    await tx.jobs.apply([change])
    return change


def _tool_name(fields: Mapping[bytes, bytes]) -> str:
    name = fields.get(b"tool_name", b"").decode("utf-8", "replace")[:200]
    try:
        check_name(name, "tool_name")
    except DetentError:
        return "unknown"
    return name


def _payload(fields: Mapping[bytes, bytes], origin: tuple[str, str], limit: int) -> dict[str, Any]:
    """The payload of the message if it is a JSON object, so that a requeue can use it; else the shortened fields."""
    payload = fields.get(b"payload", b"")
    if len(payload) <= limit:
        try:
            value = json.loads(payload, parse_constant=refuse_constant)
            json.dumps(value, ensure_ascii=False).encode()
            if isinstance(value, dict):
                return value
        except (ValueError, RecursionError):
            pass
    shortened = {_shortened(name): _shortened(value) for name, value in list(fields.items())[:_MAX_FIELDS]}
    return {"stream": origin[0], "message_id": origin[1], "fields": shortened, "bytes": sum(map(len, fields.values()))}


def _shortened(value: bytes) -> str:
    text = value[:_MAX_FIELD].decode("utf-8", "backslashreplace")
    return text if len(value) <= _MAX_FIELD else text + "…"
