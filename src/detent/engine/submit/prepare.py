"""Turns a submission into a job: checks it, resolves idempotency keys, and inserts it.

One INSERT is enough unless idempotency keys, numbered runs or tenant quotas must be checked in a transaction.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from detent.core.access import Reach
from detent.core.contract.model import Contract, Move, Phase, key_space
from detent.core.decide import create
from detent.core.errors import IdempotencyConflict, InvalidInput, TenantViolation, VersionConflict
from detent.core.job import Change, Facts, Job, Micros
from detent.core.options.job_options import STORED_WITH_JOBS
from detent.core.uniform_batch import UniformBatch
from detent.engine.execution.settle import not_supported
from detent.engine.payload_access import submitted_by
from detent.engine.runtime import Runtime
from detent.ports.tx import JobTable, Tx

from . import quotas
from .declarations import Warning
from .submission import Submission, check_submission, deadline_of, moment_of, payload_text

_stored_options = attrgetter(*STORED_WITH_JOBS)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job, and whether it existed before (an idempotency hit)."""

    job: Job
    hit: bool = False
    warnings: tuple[Warning, ...] = ()


class SubmittedId(NamedTuple):
    """The job's id, and whether the job existed before."""

    id: str
    hit: bool = False


@dataclass(slots=True)
class Prepared:
    """A checked submission with the Change that creates its job."""

    submission: Submission
    contract: Contract
    change: Change
    keys: list[tuple[str, str]]
    move: Move
    facts: Facts
    payloads: bool
    """False: the caller may not see payloads, so that this one is compared with none."""
    reach: Reach

    def as_attempt(self, number: int) -> "Prepared":
        """The same submission as attempt `number` of its task."""
        job = replace(self.change.after, task_attempt=number)
        return replace(self, change=create(self.contract, job, self.move, job.created_at, self.facts))


def prepare(runtime: Runtime, submission: Submission, now: Micros, *, apply_policy: bool = True) -> Prepared:
    contract = runtime.contract(submission.contract)
    payload = check_submission(contract, submission, runtime.max_payload)
    runtime.reach.require(submission.queue, submission.job_type)
    held_for = (
        runtime.approval_policy.reason_to_hold(submission.job_type, submission.payload or {})
        if apply_policy and runtime.approval_policy
        else None
    )
    if held_for is not None:
        submission = replace(submission, hold=True, actor=submission.actor or "guard")
    if runtime.tracer is not None and submission.traceparent is None:
        submission = runtime.tracer.with_trace_context(submission)
    job_id = submission.id or runtime.ids.job()
    _check_task_id(contract, submission, job_id)
    due_at, scheduled_at = moment_of(contract, submission, now)
    options = dict(zip(STORED_WITH_JOBS, _stored_options(submission), strict=True))
    generated_key = None if submission.idempotency_key else contract.keys.generated_key(job_id)
    if generated_key:
        options["idempotency_key"] = generated_key
    if not submission.task_id:
        options["task_id"] = job_id if contract.names_tasks else None
    options["trace_id"] = _trace(runtime, contract, submission, job_id)
    options["effect_root"] = submission.effect_root or job_id
    job = Job(
        id=job_id,
        contract=contract.name,
        job_type=submission.job_type,
        status="",
        phase=Phase.CLAIMABLE,
        version=0,
        payload=payload,
        created_at=now,
        updated_at=now,
        due_at=None,
        **options,
        max_retries=contract.retry.max_retries if submission.max_retries is None else submission.max_retries,
        task_attempt=1 if contract.task_attempts else None,
        schedule_type=submission.fire.kind if submission.fire else submission.schedule_type or "at",
        scheduled_at=due_at if submission.hold and due_at > now and not submission.fire else scheduled_at,
        deadline_at=deadline_of(contract, submission, now),
    )
    move = _creation_move(contract, submission, due_at > now)
    facts = Facts(actor=submission.actor, due_at=due_at, reason=held_for)
    change = create(contract, job, move, now, facts)
    own_id = submission.id is None  # an id of the client's choice may be in a key that another job owns
    keys = [pair for pair in keys_of(contract, change.after) if not own_id or pair[1] != generated_key]
    if submission.requeued_from and contract.keys.kept_by_requeue:
        keys = []
    return Prepared(submission, contract, change, keys, move, facts, runtime.payloads, runtime.reach)


def prepare_uniform(
    runtime: Runtime, submission: Submission, payloads: Sequence[Any], now: Micros
) -> UniformBatch | None:
    """The same submission with many payloads, checked once. None if the jobs need individual checks."""
    first = prepare(runtime, replace(submission, payload=payloads[0]), now)
    change = first.change
    if needs_transaction(first) or runtime.approval_policy or change.notes or len(change.events) != 1:
        return None
    ids, traces = [change.after.id], [change.after.trace_id]
    for _ in payloads[1:]:
        ids.append(runtime.ids.job())
        traces.append(_trace(runtime, first.contract, first.submission, ids[-1]))
    texts = [change.after.payload, *(payload_text(payload, runtime.max_payload) for payload in payloads[1:])]
    columns: dict[str, list[Any]] = {"id": ids, "payload": texts, "trace_id": traces}
    if first.contract.keys.job_of_key(change.after.idempotency_key) == change.after.id:
        columns["idempotency_key"] = [first.contract.keys.generated_key(job_id) for job_id in ids]
    return UniformBatch(change, columns)


def _trace(runtime: Runtime, contract: Contract, submission: Submission, job_id: str) -> str:
    """The submission's trace_id, else that of its traceparent, else an id in the contract's format."""
    if submission.trace_id or submission.traceparent:
        return submission.trace_id or (submission.traceparent or "").split("-")[1]
    unique = runtime.ids.job() if "{unique}" in contract.trace_form else ""
    return contract.trace_form.format(job_id=job_id, unique=unique)


def _check_task_id(contract: Contract, submission: Submission, job_id: str) -> None:
    own = contract.names_tasks and not contract.keys.task_id_is_key and not contract.task_attempts
    if own and submission.task_id not in (None, job_id):
        message = f"under {contract.name} the task_id is the job's own id; leave it out"
        raise InvalidInput(message, code="TASK_ID_FIXED", field="task_id")


def _creation_move(contract: Contract, submission: Submission, later: bool) -> Move:
    if submission.hold:
        if not contract.edge(None, Move.HOLD):
            raise not_supported(contract, "holding a job for approval")
        return Move.HOLD
    return Move.DEFER if later and contract.edge(None, Move.DEFER) else Move.SUBMIT


def keys_of(contract: Contract, job: Job) -> list[tuple[str, str]]:
    """The (key space, key) pairs that only this job may own. Contracts never share a key space."""
    rule, keys = contract.keys, []
    if rule.task_id_is_key and job.task_id:
        keys.append((key_space(contract.name, "task_id"), job.task_id))
    if job.idempotency_key and job.idempotency_key.strip():
        parts = [getattr(job, field) for field in rule.scope]
        keys.append((key_space(contract.name, "key", *parts), job.idempotency_key))
    return keys


def needs_transaction(prepared: Prepared) -> bool:
    """False if the job's id is new, so that nothing can be in its way: then one INSERT is enough."""
    return bool(prepared.keys) or _is_numbered(prepared) or prepared.submission.id is not None


def _is_numbered(prepared: Prepared) -> bool:
    """True if the job is an attempt of a task that may have others; else it is the first."""
    return prepared.contract.task_attempts and bool(prepared.submission.task_id)


async def submit_prepared(runtime: Runtime, prepared: list[Prepared]) -> list[Submitted]:
    """Create all of these jobs or none."""
    if runtime.relay is None:
        return await _submit(runtime, prepared)
    changes = [p.change for p in prepared]
    runtime.relay.reserve(changes)
    submitted = await _submit(runtime, prepared)
    runtime.relay.publish([c for c, s in zip(changes, submitted, strict=True) if c.outbox_hold and not s.hit])
    return submitted


async def _submit(runtime: Runtime, prepared: list[Prepared]) -> list[Submitted]:
    tenant_quotas = await runtime.quota_cache.quotas()
    if tenant_quotas and any(p.submission.tenant_id in tenant_quotas for p in prepared):
        return await runtime.run(lambda tx: submit_within_quotas(tx, prepared))
    if any(needs_transaction(p) for p in prepared):
        return await runtime.run(lambda tx: _submit_all(tx, prepared))
    present = await runtime.store.insert([p.change for p in prepared])
    if not present:
        return [Submitted(p.change.after) for p in prepared]
    return await runtime.store.read(lambda tx: _resolve_existing_ids(tx, prepared, present))


async def submit_within_quotas(tx: Tx, prepared: list[Prepared]) -> list[Submitted]:
    """Submit, and check the quotas of the jobs' tenants. A hit creates no job, so the backlog quota ignores it."""
    tenant_quotas = await quotas.lock_quotas(tx.quotas, (p.submission.tenant_id for p in prepared))
    quotas.check_payloads(tenant_quotas, (p.change.after for p in prepared))
    submitted = await _submit_all(tx, prepared)
    await quotas.check_backlogs(tx.quotas, tenant_quotas, (s.job.tenant_id for s in submitted if not s.hit))
    return submitted


async def _submit_all(tx: Tx, prepared: list[Prepared]) -> list[Submitted]:
    submitted = await submit_batch(tx, prepared) if len(prepared) > 1 else None
    return submitted or [await submit_in_transaction(tx, p) for p in prepared]


async def _resolve_existing_ids(tx: Tx, prepared: list[Prepared], present: set[str]) -> list[Submitted]:
    return [
        await resolve_existing_id(tx.jobs, p) if p.change.after.id in present else Submitted(p.change.after)
        for p in prepared
    ]


async def submit_in_transaction(tx: Tx, prepared: Prepared) -> Submitted:
    """Create the job inside a transaction, or return the existing job if its key is taken (a hit)."""
    job = prepared.change.after
    owners = await _key_owners(tx, prepared)
    others = [owner for owner in owners.values() if owner != job.id]
    if others:
        return await _hit(tx, prepared, owners)
    if owners:  # this job's id owns the key: the same call committed before and its reply was lost
        return await resolve_existing_id(tx.jobs, prepared)
    if prepared.contract.task_attempts:
        prepared = prepared.as_attempt(await tx.jobs.next_attempt(job.task_id or job.id))
    if not await tx.keys.take_keys(prepared.keys, job.id):
        raise VersionConflict("another call took the idempotency key at the same moment; repeat the call")
    if await tx.jobs.insert([prepared.change]):
        return await resolve_existing_id(tx.jobs, prepared)
    return Submitted(prepared.change.after)


async def _key_owners(tx: Tx, prepared: Prepared) -> dict[tuple[str, str], str]:
    """The owners of the keys of this submission. The owner of a generated key has no row in keys."""
    owners = await tx.keys.key_owners(prepared.keys)
    job_id = prepared.contract.keys.job_of_key(prepared.submission.idempotency_key)
    if job_id is not None:
        job = (await tx.jobs.lock([job_id])).get(job_id)
        if job is not None and job.contract == prepared.contract.name:
            owners |= {pair: job.id for pair in keys_of(prepared.contract, job) if pair in prepared.keys}
    return owners


async def submit_batch(tx: Tx, prepared: Sequence[Prepared]) -> list[Submitted] | None:
    """Create many jobs in three statements if all their keys are new. None: they must be submitted one by one."""
    keys = {key: p.change.after.id for p in prepared for key in p.keys}
    if not all(map(_may_share_statements, prepared)) or len(keys) < sum(len(p.keys) for p in prepared):
        return None
    if await tx.keys.key_owners(list(keys)):
        return None
    if await tx.keys.take_all_keys([(*key, job_id) for key, job_id in keys.items()]) < len(keys):
        raise VersionConflict("another call took an idempotency key at the same moment; repeat the call")
    await tx.jobs.insert([p.change for p in prepared])
    return [Submitted(p.change.after) for p in prepared]


def _may_share_statements(prepared: Prepared) -> bool:
    key_of_job = prepared.contract.keys.job_of_key(prepared.submission.idempotency_key)
    return prepared.submission.id is None and key_of_job is None and not _is_numbered(prepared)


_SAME_REQUEST = ("contract", "job_type", "tenant_id", "payload", "idempotency_key", "idempotency_scope", "task_id")


async def resolve_existing_id(jobs: JobTable, prepared: Prepared) -> Submitted:
    """The job id exists: return the stored job if it came from the same request, else raise IdempotencyConflict."""
    job = prepared.change.after
    existing = (await jobs.lock([job.id]))[job.id]
    same = all(getattr(existing, field) == getattr(job, field) for field in _SAME_REQUEST)
    if not same:
        raise IdempotencyConflict(
            f"id {job.id} belongs to another job; generate a new id for a new job", code="JOB_ID_CONFLICT"
        )
    return Submitted(existing)


async def _hit(tx: Tx, prepared: Prepared, owners: dict[tuple[str, str], str]) -> Submitted:
    contract, submission = prepared.contract, prepared.submission
    code = contract.code("idempotency_conflict")
    locked = await tx.jobs.lock(sorted(set(owners.values())))
    existing = locked.get(owners[next(key for key in prepared.keys if key in owners)])
    if existing is None:
        raise IdempotencyConflict("the key belongs to a job that was pruned; use a new key", code=code)
    if existing.tenant_id != submission.tenant_id:
        raise TenantViolation(
            "the key belongs to a job of another tenant; use another key",
            code=contract.code("tenant_scope_violation"),
        )
    if not prepared.reach.includes(existing.queue, existing.job_type):
        raise IdempotencyConflict("the key belongs to a job that the token does not reach; use another key", code=code)
    if not prepared.payloads:
        if len(set(owners.values())) == 1 and await submitted_by(tx, existing, submission.actor):
            return Submitted(existing, hit=True)
        message = "the key was used before; use a new key, or repeat your own first request"
        raise IdempotencyConflict(message, code=code)
    if len(set(owners.values())) > 1:
        fields = ["task_id", "idempotency_key"]
        raise _conflict(contract, existing, code, fields, "task_id and idempotency_key belong to different jobs")
    fields = _differing_fields(contract, prepared, existing)
    if fields:
        raise _conflict(
            contract, existing, code, fields, f"the key was used for a job with a different {', '.join(fields)}"
        )
    return Submitted(existing, hit=True)


def _conflict(contract: Contract, existing: Job, code: str, fields: list[str], text: str) -> IdempotencyConflict:
    extra: dict[str, Any] = {"task": contract.view(existing)} if contract.keys.task_id_is_key else {}
    extra |= {"conflict_fields": fields, "job_id": existing.id}
    return IdempotencyConflict(f"{text}; use a new key, or repeat the first request unchanged", code=code, **extra)


def _differing_fields(contract: Contract, prepared: Prepared, existing: Job) -> list[str]:
    """The fields in which this submission differs from the job that owns its key."""
    submission, new_job = prepared.submission, prepared.change.after
    if contract.keys.same_content == "nothing":
        return []
    if contract.keys.same_content == "payload":
        same = {
            "job_type": existing.job_type == new_job.job_type,
            "payload": json.loads(existing.payload) == json.loads(new_job.payload),
        }
        return [field for field, agrees in same.items() if not agrees]
    given_fields = [f for f in contract.keys.critical_fields if getattr(submission, f) is not None]
    return [f for f in given_fields if getattr(existing, f) != getattr(new_job, f)]
