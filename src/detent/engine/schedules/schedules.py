"""Operations on schedules: add, edit, pause, resume, remove, list, preview, declare."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from detent.core.errors import DetentError, InvalidInput, NotFound, TenantViolation, VersionConflict
from detent.core.job import Micros
from detent.core.schedule import Fire, Schedule, fires_between, jitter_delay, next_fire
from detent.core.times import SECOND, iso
from detent.engine.refusal import Refused, unwrap
from detent.ports.access import Audit
from detent.ports.listing import Filter
from detent.ports.schedules import ScheduleTable
from detent.ports.tx import Tx

from .request import INVALID, ScheduleRequest, apply_changes, build_schedule, moment_of, request_of

if TYPE_CHECKING:
    from detent.engine.engine import Engine

DECLARED_BY = "code"
"""The audit log's actor for schedules that the application declares in code."""
MAX_PREVIEW = 1_000


class ScheduleExists(DetentError):
    code = "SCHEDULE_EXISTS"
    http_status = 409


@dataclass(frozen=True, slots=True)
class Preview:
    """A future fire: its time, and when its job will be due (later by the jitter)."""

    fire_at: Micros
    due_at: Micros


async def add(
    engine: "Engine",
    request: ScheduleRequest,
    *,
    actor: str,
    reason: str | None = None,
    paused: bool = False,
    new_id: str | None = None,
) -> Schedule:
    """Create a schedule. With the same new_id the call can be repeated safely after a lost reply."""
    schedule_id = new_id or engine.ids.job()

    async def act(tx: Tx) -> Schedule:
        schedule = build_schedule(engine, request, tx.now, schedule_id=schedule_id)
        if schedule.next_fire_at is None:
            raise InvalidInput(
                f"schedule {request.name!r} would never fire, its last time has passed; use a time in the future",
                code=engine.contract(request.contract).code("invalid_schedule"),
                field="at",
            )
        if paused:
            schedule = replace(schedule, paused_at=tx.now, next_fire_at=None)
        if not await tx.schedules.put_schedule(schedule):
            existing = [s for s in await tx.schedules.schedules_matching(schedule_id) if s.id == schedule_id]
            if existing:
                return existing[0]
            raise ScheduleExists(
                f"a schedule named {request.name!r} exists; choose another name, or edit that one", name=request.name
            )
        await tx.audit.add_audit(
            Audit(actor, "schedule.add", schedule.id, schedule.tenant_id, reason, definition(schedule))
        )
        return schedule

    return await engine.store.write(act)


async def edit(
    engine: "Engine",
    reference: str,
    changes: Mapping[str, Any],
    *,
    actor: str,
    reason: str | None = None,
    tenant: str | None = None,
    version: int | None = None,
) -> Schedule:
    """Change fields of a schedule. version: raise VersionConflict if the schedule has another version."""

    async def act(tx: Tx) -> Schedule | Refused:
        before = await find(tx.schedules, reference, tenant)
        if version is not None and before.version != version:
            message = (
                f"schedule {before.name!r} is at version {before.version}, not {version}; read it again and repeat"
            )
            return Refused(VersionConflict(message, name=before.name, version=before.version))
        new = build_schedule(engine, apply_changes(request_of(before), changes), tx.now, schedule_id=before.id)
        after = _replacement(before, new, tx.now, before.declared)
        await _change(tx, before, after, actor, "schedule.edit", reason, _differences(before, after))
        return after

    return unwrap(await engine._retry_on_conflict(act))


async def pause(
    engine: "Engine", reference: str, *, actor: str, reason: str | None = None, tenant: str | None = None
) -> Schedule:
    """Stop its fires until it is resumed; fires that fall into the pause are not caught up."""

    async def act(tx: Tx) -> Schedule:
        before = await find(tx.schedules, reference, tenant)
        if before.paused_at is not None:
            return before
        after = replace(before, paused_at=tx.now, next_fire_at=None, version=before.version + 1, updated_at=tx.now)
        await _change(tx, before, after, actor, "schedule.pause", reason)
        return after

    return await engine._retry_on_conflict(act)


async def resume(
    engine: "Engine", reference: str, *, actor: str, reason: str | None = None, tenant: str | None = None
) -> Schedule:
    """End a pause: it fires again from now on."""

    async def act(tx: Tx) -> Schedule:
        before = await find(tx.schedules, reference, tenant)
        if before.paused_at is None:
            return before
        after = replace(before, paused_at=None, version=before.version + 1, updated_at=tx.now)
        after = replace(after, next_fire_at=next_fire(after, _next_fire_after(before, tx.now)))
        await _change(tx, before, after, actor, "schedule.resume", reason)
        return after

    return await engine._retry_on_conflict(act)


async def remove(
    engine: "Engine", reference: str, *, actor: str, reason: str | None = None, tenant: str | None = None
) -> Schedule:
    """Delete a schedule; its jobs and the records of its fires are kept."""

    async def act(tx: Tx) -> Schedule:
        schedule = await find(tx.schedules, reference, tenant)
        await tx.schedules.drop_schedule(schedule.id)
        await tx.audit.add_audit(
            Audit(actor, "schedule.remove", schedule.id, schedule.tenant_id, reason, definition(schedule))
        )
        return schedule

    return await engine._retry_on_conflict(act)


async def get(engine: "Engine", reference: str, *, tenant: str | None = None) -> Schedule:
    return await engine.store.read(lambda tx: find(tx.schedules, reference, tenant))


async def list_schedules(engine: "Engine", filter: Filter) -> list[Schedule]:
    return await engine.store.read(lambda tx: tx.schedules.list_schedules(filter))


async def fires(
    engine: "Engine", reference: str, *, tenant: str | None = None, before: Micros | None = None, limit: int = 50
) -> list[Fire]:
    """The fires that created jobs, newest first."""

    async def act(tx: Tx) -> list[Fire]:
        schedule = await find(tx.schedules, reference, tenant)
        return await tx.fires.list_fires(schedule.id, None, None if before is None else before - 1, limit)

    return await engine.store.read(act)


async def preview(
    engine: "Engine",
    what: str | ScheduleRequest,
    count: int = 10,
    *,
    after: str | datetime | None = None,
    tenant: str | None = None,
) -> list[Preview]:
    """The next fires after now (or `after`) of a stored schedule, even if it is paused, or of a request."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_PREVIEW:
        raise InvalidInput(f"count must be from 1 to {MAX_PREVIEW}, got {count!r}", code=INVALID, field="count")

    async def act(tx: Tx) -> tuple[Micros, Schedule]:
        if isinstance(what, ScheduleRequest):
            return tx.now, build_schedule(engine, what, tx.now, schedule_id="preview")
        return tx.now, await find(tx.schedules, what, tenant)

    now, schedule = await engine.store.read(act)
    start = now if after is None else moment_of(after, "after", schedule.timezone)
    moments = fires_between(schedule, start + 1, _LAST_MOMENT)
    return [Preview(moment, moment + jitter_delay(schedule, moment)) for moment in islice(moments, count)]


_LAST_MOMENT: Micros = 253_402_300_799 * SECOND


async def declare(engine: "Engine", requests: Iterable[ScheduleRequest]) -> list[Schedule]:
    """Update the stored schedules to the declarations in code.

    An operator's edit is kept until the declaration itself changes; a pause is kept until a resume.
    """
    return [await engine._retry_on_conflict(partial(_declare, engine, request)) for request in requests]


async def _declare(engine: "Engine", request: ScheduleRequest, tx: Tx) -> Schedule:
    text = json.dumps(asdict(request), default=str, sort_keys=True, ensure_ascii=False)
    key = (request.tenant_id, request.name)
    before = next(
        (s for s in await tx.schedules.schedules_matching(request.name) if (s.tenant_id, s.name) == key), None
    )
    if before is not None and before.declared == text:
        return before
    new = build_schedule(engine, request, tx.now, schedule_id=before.id if before else engine.ids.job())
    if before is not None:
        after = _replacement(before, new, tx.now, text)
        await _change(tx, before, after, DECLARED_BY, "schedule.declare", None, _differences(before, after))
        return after
    new = replace(new, declared=text)
    if not await tx.schedules.put_schedule(new):
        raise VersionConflict(f"another process declared schedule {request.name!r} at the same moment; repeat the call")
    await tx.audit.add_audit(Audit(DECLARED_BY, "schedule.declare", new.id, new.tenant_id, None, definition(new)))
    return new


async def find(schedules: ScheduleTable, reference: str, tenant: str | None) -> Schedule:
    """Look up a schedule by id or name; a name that several tenants use needs the tenant."""
    matches = await schedules.schedules_matching(reference)
    allowed = [schedule for schedule in matches if tenant is None or schedule.tenant_id == tenant]
    if len(allowed) == 1:
        return allowed[0]
    if allowed:
        raise InvalidInput(
            f"{len(allowed)} tenants have a schedule {reference!r}; name the tenant, or use the schedule's id",
            code="SCHEDULE_AMBIGUOUS",
            tenants=sorted(schedule.tenant_id for schedule in allowed),
        )
    if any(schedule.id == reference for schedule in matches):
        raise TenantViolation(f"schedule {reference} belongs to another tenant", schedule_id=reference)
    raise NotFound(
        f"schedule {reference!r} does not exist; `detent schedules list` lists all schedules",
        code="SCHEDULE_NOT_FOUND",
        schedule=reference,
    )


_TIMING_FIELDS = ("kind", "expression", "timezone", "starts_at", "ends_at")


def _replacement(before: Schedule, new: Schedule, now: Micros, declared: str | None) -> Schedule:
    """The new definition with the old row's state. Fires that are due stay due unless the timing changed."""
    same_times = all(getattr(before, name) == getattr(new, name) for name in _TIMING_FIELDS)
    after = replace(
        new,
        anchor=before.anchor if same_times else new.anchor,
        declared=declared,
        paused_at=before.paused_at,
        version=before.version + 1,
        created_at=before.created_at,
        updated_at=now,
        last_fire_at=before.last_fire_at,
        last_job_id=before.last_job_id,
        fires=before.fires,
        misfires=before.misfires,
        last_misfire_at=before.last_misfire_at,
        overlapped=before.overlapped,
        last_error=before.last_error,
    )
    if after.paused_at is not None:
        return replace(after, next_fire_at=None)
    moment = before.next_fire_at if same_times else next_fire(after, _next_fire_after(before, now))
    return replace(after, next_fire_at=moment)


def _next_fire_after(schedule: Schedule, now: Micros) -> Micros:
    """The next fire must be later than this: now, or the last fire if the clock was set back since."""
    return now if schedule.last_fire_at is None else max(now, schedule.last_fire_at)


async def _change(
    tx: Tx,
    before: Schedule,
    after: Schedule,
    actor: str,
    act: str,
    reason: str | None,
    data: Mapping[str, Any] | None = None,
) -> None:
    if not await tx.schedules.change_schedule(before, after):
        raise VersionConflict(f"schedule {before.name!r} was changed meanwhile; read it and repeat", name=before.name)
    await tx.audit.add_audit(Audit(actor, act, after.id, after.tenant_id, reason, data))


def definition(schedule: Schedule) -> dict[str, Any]:
    """The schedule's definition without its state, for the audit log."""
    return asdict(request_of(schedule))


def _differences(before: Schedule, after: Schedule) -> dict[str, Any]:
    old, new = definition(before), definition(after)
    return {name: {"from": old[name], "to": new[name]} for name in old if old[name] != new[name]}


def schedule_view(schedule: Schedule, *, payloads: bool = True) -> dict[str, Any]:
    """A schedule as the API shows it."""
    return {
        "id": schedule.id,
        "name": schedule.name,
        "tenant_id": schedule.tenant_id,
        "schedule_type": schedule.kind,
        "expression": schedule.expression,
        "timezone": schedule.timezone,
        "starts_at": iso(schedule.starts_at),
        "ends_at": iso(schedule.ends_at),
        "jitter_seconds": schedule.jitter / SECOND,
        "misfire": schedule.misfire,
        "misfire_limit": schedule.misfire_limit,
        "misfire_grace_seconds": schedule.misfire_grace / SECOND,
        "overlap": schedule.overlap,
        "job_type": schedule.job_type,
        "payload": json.loads(schedule.payload) if payloads else None,
        "contract": schedule.contract,
        "queue": schedule.queue,
        "priority": schedule.priority,
        "max_retries": schedule.max_retries,
        "timeout_ms": schedule.timeout_ms,
        "limit_key": schedule.limit_key,
        "deadline_seconds": None if schedule.deadline is None else schedule.deadline / SECOND,
        "declared": schedule.declared is not None,
        "paused": schedule.paused_at is not None,
        "paused_at": iso(schedule.paused_at),
        "version": schedule.version,
        "created_at": iso(schedule.created_at),
        "updated_at": iso(schedule.updated_at),
        "next_fire_at": iso(schedule.next_fire_at),
        "retry_at": iso(schedule.retry_at),
        "last_fire_at": iso(schedule.last_fire_at),
        "last_job_id": schedule.last_job_id,
        "fires": schedule.fires,
        "misfires": schedule.misfires,
        "last_misfire_at": iso(schedule.last_misfire_at),
        "overlapped": schedule.overlapped,
        "last_error": schedule.last_error,
    }
