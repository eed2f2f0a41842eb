"""Submitting: idempotent, one or many, repeatable after a lost reply."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.core.contract.model import Contract, Move, Phase
from detent.core.decide import create
from detent.core.errors import IdempotencyConflict, InvalidInput, TenantViolation, VersionConflict
from detent.core.job import Change, Facts, Job, Micros
from detent.core.uniform_batch import UniformBatch
from detent.engine.execution.settle import lacks
from detent.ports.tx import Tx

from .submission import Submission, check_submission, deadline_of, moment_of, payload_text

if TYPE_CHECKING:
    from detent.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job, and whether it was there already."""

    job: Job
    hit: bool = False


class Made(NamedTuple):
    """Which job it is, and whether it was there already."""

    id: str
    hit: bool = False


@dataclass(slots=True)
class Prepared:
    """A checked request with the Change that would create its job."""

    ask: Submission
    contract: Contract
    change: Change
    keys: list[tuple[str, str]]


def prepare(engine: "Engine", ask: Submission, now: Micros, *, apply_policy: bool = True) -> Prepared:
    contract = engine.contract(ask.contract)
    payload = check_submission(contract, ask, engine.max_payload)
    held_for = (
        engine.approval_policy.reason_to_hold(ask.job_type, ask.payload or {})
        if apply_policy and engine.approval_policy
        else None
    )
    if held_for is not None:
        ask = replace(ask, hold=True, actor=ask.actor or "guard")
    if engine.tracer is not None and ask.traceparent is None:
        ask = engine.tracer.stamped(ask)
    job_id = ask.id or engine.ids.job()
    _check_task_id(contract, ask, job_id)
    due_at, asked_for = moment_of(contract, ask, now)
    key = ask.idempotency_key
    if not key and contract.keys.generated:
        key = f"auto-{job_id}"
    job = Job(
        id=job_id,
        contract=contract.name,
        job_type=ask.job_type,
        queue=ask.queue,
        tenant_id=ask.tenant_id,
        status="",
        phase=Phase.CLAIMABLE,
        version=0,
        payload=payload,
        created_at=now,
        updated_at=now,
        due_at=None,
        priority=ask.priority,
        limit_key=ask.limit_key,
        max_retries=contract.retry.max_retries if ask.max_retries is None else ask.max_retries,
        timeout_ms=ask.timeout_ms,
        idempotency_key=key,
        idempotency_scope=ask.idempotency_scope,
        task_id=ask.task_id or (job_id if contract.names_tasks else None),
        schedule_type=ask.schedule_type or "at",
        scheduled_at=due_at if ask.hold and due_at > now else asked_for,
        trace_id=_trace(engine, contract, ask, job_id),
        parent_id=ask.parent_id,
        requeued_from=ask.requeued_from,
        effect_root=ask.effect_root or job_id,
        deadline_at=deadline_of(contract, ask, now),
        traceparent=ask.traceparent,
    )
    move = _creation_move(contract, ask, due_at > now)
    change = create(contract, job, move, now, Facts(actor=ask.actor, due_at=due_at, reason=held_for))
    return Prepared(ask, contract, change, keys_of(contract, change.after))


def prepare_uniform(engine: "Engine", ask: Submission, payloads: Sequence[Any], now: Micros) -> UniformBatch | None:
    """The same request with many payloads: checked once. None: each has something of its own to be looked at."""
    first = prepare(engine, replace(ask, payload=payloads[0]), now)
    change = first.change
    if needs_transaction(first) or engine.approval_policy or change.notes or len(change.events) != 1:
        return None
    ids, traces = [change.after.id], [change.after.trace_id]
    for _ in payloads[1:]:
        ids.append(engine.ids.job())
        traces.append(_trace(engine, first.contract, first.ask, ids[-1]))
    texts = [change.after.payload, *(payload_text(payload, engine.max_payload) for payload in payloads[1:])]
    return UniformBatch(change, {"id": ids, "payload": texts, "trace_id": traces})


def _trace(engine: "Engine", contract: Contract, ask: Submission, job_id: str) -> str:
    """The id that was given, else the one of the trace it is submitted in, else one in the contract's form."""
    if ask.trace_id or ask.traceparent:
        return ask.trace_id or (ask.traceparent or "").split("-")[1]
    unique = engine.ids.job() if "{unique}" in contract.trace_form else ""
    return contract.trace_form.format(job_id=job_id, unique=unique)


def _check_task_id(contract: Contract, ask: Submission, job_id: str) -> None:
    own = contract.names_tasks and not contract.keys.task_id_is_key and not contract.task_attempts
    if own and ask.task_id not in (None, job_id):
        raise InvalidInput(
            f"under {contract.name} the task_id is the job's own id; leave it out",
            code="TASK_ID_FIXED",
            field="task_id",
        )


def _creation_move(contract: Contract, ask: Submission, later: bool) -> Move:
    if ask.hold:
        if not contract.edge(None, Move.HOLD):
            raise lacks(contract, "holding a job for approval")
        return Move.HOLD
    return Move.DEFER if later and contract.edge(None, Move.DEFER) else Move.SUBMIT


def keys_of(contract: Contract, job: Job) -> list[tuple[str, str]]:
    """The (space, key) pairs that must be this job's alone; spaces of different contracts never meet."""
    rule, keys = contract.keys, []
    if rule.task_id_is_key and job.task_id:
        keys.append((_space(contract, "task_id"), job.task_id))
    if job.idempotency_key and job.idempotency_key.strip():
        parts = [getattr(job, field) for field in rule.scope]
        keys.append((_space(contract, "key", *parts), job.idempotency_key))
    return keys


def _space(contract: Contract, *parts: Any) -> str:
    return json.dumps([contract.name, *parts], ensure_ascii=False, separators=(",", ":"))


def needs_transaction(prepared: Prepared) -> bool:
    return bool(prepared.keys) or prepared.contract.task_attempts or prepared.ask.id is not None


async def submit_in(tx: Tx, prepared: Prepared) -> Submitted:
    """One submit inside a transaction: a hit answers the job that is there, anything else creates it."""
    job = prepared.change.after
    owners = await tx.key_owners(prepared.keys)
    others = [owner for owner in owners.values() if owner != job.id]
    if others:
        return await _hit(tx, prepared, owners)
    if owners:  # our own id owns the key: this very call was made before and its reply was lost
        return await repeated(tx, prepared)
    if prepared.contract.task_attempts:
        job.task_attempt = await tx.next_attempt(job.task_id or job.id)
    if not await tx.take_keys(prepared.keys, job.id):
        raise VersionConflict("another call took the key at the same moment; repeat the call")
    if await tx.insert([prepared.change]):
        return await repeated(tx, prepared)
    return Submitted(job)


async def submit_together(tx: Tx, prepared: Sequence[Prepared]) -> list[Submitted] | None:
    """Many in three statements, where every key is new; None: something is not, so each must be looked at alone."""
    keys = {key: p.change.after.id for p in prepared for key in p.keys}
    plain = all(p.ask.id is None and not p.contract.task_attempts for p in prepared)
    if len(prepared) == 1 or not plain or len(keys) < sum(len(p.keys) for p in prepared):
        return None
    if await tx.key_owners(list(keys)):
        return None
    if await tx.take_all_keys([(*key, job_id) for key, job_id in keys.items()]) < len(keys):
        raise VersionConflict("another call took a key at the same moment; repeat the call")
    await tx.insert([p.change for p in prepared])
    return [Submitted(p.change.after) for p in prepared]


_SAME_REQUEST = ("contract", "job_type", "tenant_id", "payload", "idempotency_key", "idempotency_scope", "task_id")


async def repeated(tx: Tx, prepared: Prepared) -> Submitted:
    """The id is already there: fine if it is the same request, refused if it is another job's."""
    job = prepared.change.after
    there = (await tx.lock([job.id]))[job.id]
    same = all(getattr(there, field) == getattr(job, field) for field in _SAME_REQUEST)
    if not same:
        raise IdempotencyConflict(
            f"id {job.id} belongs to another job; make a fresh id for a new job", code="JOB_ID_CONFLICT"
        )
    return Submitted(there)


async def _hit(tx: Tx, prepared: Prepared, owners: dict[tuple[str, str], str]) -> Submitted:
    contract, ask = prepared.contract, prepared.ask
    code = contract.code("idempotency_conflict")
    found = await tx.lock(sorted(set(owners.values())))
    there = found.get(owners[next(key for key in prepared.keys if key in owners)])
    if there is None:
        raise IdempotencyConflict("the key belongs to a job that was pruned; use a new key", code=code)
    if there.tenant_id != ask.tenant_id:
        raise TenantViolation(
            "the key belongs to a job of another tenant; use a key of your own",
            code=contract.code("tenant_scope_violation"),
        )
    if len(set(owners.values())) > 1:
        fields = ["task_id", "idempotency_key"]
        raise _conflict(contract, there, code, fields, "task_id and idempotency_key belong to different jobs")
    fields = _differing(contract, prepared, there)
    if fields:
        raise _conflict(contract, there, code, fields, f"the key was used for a job with other {', '.join(fields)}")
    return Submitted(there, hit=True)


def _conflict(contract: Contract, there: Job, code: str, fields: list[str], text: str) -> IdempotencyConflict:
    shown: dict[str, Any] = {"task": contract.view(there)} if contract.keys.task_id_is_key else {}
    shown |= {"conflict_fields": fields, "job_id": there.id}
    return IdempotencyConflict(f"{text}; use a new key, or the same request as before", code=code, **shown)


def _differing(contract: Contract, prepared: Prepared, there: Job) -> list[str]:
    """Which fields keep this request from being the same as the one that made the job."""
    asked, wanted = prepared.ask, prepared.change.after
    if contract.keys.same_content == "nothing":
        return []
    if contract.keys.same_content == "payload":
        same = {
            "job_type": there.job_type == wanted.job_type,
            "payload": json.loads(there.payload) == json.loads(wanted.payload),
        }
        return [field for field, agrees in same.items() if not agrees]
    said = [f for f in contract.keys.critical_fields if getattr(asked, f) is not None]
    return [f for f in said if getattr(there, f) != getattr(wanted, f)]
