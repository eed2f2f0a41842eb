"""What people and code do to schedules: add, edit, pause, resume, remove, preview, declare."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from detent.core.errors import DetentError, InvalidInput, NotFound, TenantViolation, VersionConflict
from detent.core.job import Micros
from detent.core.schedule import Fire, Schedule, fires_between, next_fire, shift
from detent.core.times import SECOND, iso
from detent.engine.refusal import Refused, unwrap
from detent.ports.access import Audit
from detent.ports.listing import Filter
from detent.ports.tx import Tx

from .request import INVALID, ScheduleRequest, edited, make, moment_of, request_of

if TYPE_CHECKING:
    from detent.engine.engine import Engine

CODE = "code"
"""Who changes a schedule when a declaration in code does."""
MAX_PREVIEW = 1_000


class ScheduleExists(DetentError):
    code = "SCHEDULE_EXISTS"
    http_status = 409


@dataclass(frozen=True, slots=True)
class Preview:
    """A fire to come: its moment, and when its job will be due."""

    fire_at: Micros
    due_at: Micros


async def add(
    engine: "Engine",
    ask: ScheduleRequest,
    *,
    actor: str,
    reason: str | None = None,
    paused: bool = False,
    new_id: str | None = None,
) -> Schedule:
    """A new schedule; it fires from now on. With the same new_id the call may be repeated after a lost reply."""
    fresh = new_id or engine.ids.job()

    async def act(tx: Tx) -> Schedule:
        made = make(engine, ask, tx.now, schedule_id=fresh)
        if made.next_fire_at is None:
            told = f"schedule {ask.name!r} would never fire: its end or its one moment has passed"
            raise InvalidInput(told, code=engine.contract(ask.contract).code("invalid_schedule"), field="at")
        if paused:
            made = replace(made, paused_at=tx.now, next_fire_at=None)
        if not await tx.put_schedule(made):
            there = [one for one in await tx.schedules_called(fresh) if one.id == fresh]
            if there:
                return there[0]
            told = f"there is a schedule {ask.name!r} already; choose another name, or edit that one"
            raise ScheduleExists(told, name=ask.name)
        await tx.add_audit(Audit(actor, "schedule.add", made.id, made.tenant_id, reason, definition(made)))
        return made

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
    """Change fields of a request. version: refuse if the schedule is no longer at this one."""

    async def act(tx: Tx) -> Schedule | Refused:
        before = await find(tx, reference, tenant)
        if version is not None and before.version != version:
            told = f"schedule {before.name!r} is at version {before.version}, not {version}; look again and repeat"
            return Refused(VersionConflict(told, name=before.name, version=before.version))
        made = make(engine, edited(request_of(before), changes), tx.now, schedule_id=before.id)
        after = _in_place_of(before, made, tx.now, before.declared)
        await _change(tx, before, after, actor, "schedule.edit", reason, _differences(before, after))
        return after

    return unwrap(await engine._again(act))


async def pause(
    engine: "Engine", reference: str, *, actor: str, reason: str | None = None, tenant: str | None = None
) -> Schedule:
    """No fires until it is resumed; those whose moment passes meanwhile are not made up for."""

    async def act(tx: Tx) -> Schedule:
        before = await find(tx, reference, tenant)
        if before.paused_at is not None:
            return before
        after = replace(before, paused_at=tx.now, next_fire_at=None, version=before.version + 1, updated_at=tx.now)
        await _change(tx, before, after, actor, "schedule.pause", reason)
        return after

    return await engine._again(act)


async def resume(
    engine: "Engine", reference: str, *, actor: str, reason: str | None = None, tenant: str | None = None
) -> Schedule:
    """From now on it fires again."""

    async def act(tx: Tx) -> Schedule:
        before = await find(tx, reference, tenant)
        if before.paused_at is None:
            return before
        after = replace(before, paused_at=None, version=before.version + 1, updated_at=tx.now)
        after = replace(after, next_fire_at=next_fire(after, _behind(before, tx.now)))
        await _change(tx, before, after, actor, "schedule.resume", reason)
        return after

    return await engine._again(act)


async def remove(
    engine: "Engine", reference: str, *, actor: str, reason: str | None = None, tenant: str | None = None
) -> Schedule:
    """Its jobs stay, and what is known of its fires stays with them."""

    async def act(tx: Tx) -> Schedule:
        gone = await find(tx, reference, tenant)
        await tx.drop_schedule(gone.id)
        await tx.add_audit(Audit(actor, "schedule.remove", gone.id, gone.tenant_id, reason, definition(gone)))
        return gone

    return await engine._again(act)


async def get(engine: "Engine", reference: str, *, tenant: str | None = None) -> Schedule:
    return await engine.store.read(lambda tx: find(tx, reference, tenant))


async def listed(engine: "Engine", filter: Filter) -> list[Schedule]:
    return await engine.store.read(lambda tx: tx.schedules(filter))


async def fires(
    engine: "Engine", reference: str, *, tenant: str | None = None, before: Micros | None = None, limit: int = 50
) -> list[Fire]:
    """The fires that made jobs, newest first."""

    async def act(tx: Tx) -> list[Fire]:
        schedule = await find(tx, reference, tenant)
        return await tx.fires(schedule.id, None, None if before is None else before - 1, limit)

    return await engine.store.read(act)


async def preview(
    engine: "Engine",
    what: str | ScheduleRequest,
    count: int = 10,
    *,
    after: str | datetime | None = None,
    tenant: str | None = None,
) -> list[Preview]:
    """The next fires of a schedule as if it were not paused, or of a request that was not stored; behind now."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_PREVIEW:
        raise InvalidInput(f"a preview shows 1 to {MAX_PREVIEW} fires, not {count!r}", code=INVALID, field="count")

    async def act(tx: Tx) -> tuple[Micros, Schedule]:
        if isinstance(what, ScheduleRequest):
            return tx.now, make(engine, what, tx.now, schedule_id="preview")
        return tx.now, await find(tx, what, tenant)

    now, schedule = await engine.store.read(act)
    start = now if after is None else moment_of(after, "after", schedule.timezone)
    coming = fires_between(schedule, start + 1, _END)
    return [Preview(moment, moment + shift(schedule, moment)) for moment in islice(coming, count)]


_END: Micros = 253_402_300_799 * SECOND


async def declare(engine: "Engine", asks: Iterable[ScheduleRequest]) -> list[Schedule]:
    """Bring the stored schedules to what the code declares.

    An edit by people stands until the declaration itself changes; a pause stands until somebody resumes.
    """
    return [await engine._again(partial(_declare, engine, ask)) for ask in asks]


async def _declare(engine: "Engine", ask: ScheduleRequest, tx: Tx) -> Schedule:
    text = json.dumps(asdict(ask), default=str, sort_keys=True, ensure_ascii=False)
    there = [s for s in await tx.schedules_called(ask.name) if (s.tenant_id, s.name) == (ask.tenant_id, ask.name)]
    if there and there[0].declared == text:
        return there[0]
    made = make(engine, ask, tx.now, schedule_id=there[0].id if there else engine.ids.job())
    if there:
        after = _in_place_of(there[0], made, tx.now, text)
        await _change(tx, there[0], after, CODE, "schedule.declare", None, _differences(there[0], after))
        return after
    made = replace(made, declared=text)
    if not await tx.put_schedule(made):
        raise VersionConflict(f"another process declared schedule {ask.name!r} at the same moment; repeat the call")
    await tx.add_audit(Audit(CODE, "schedule.declare", made.id, made.tenant_id, None, definition(made)))
    return made


async def find(tx: Tx, reference: str, tenant: str | None) -> Schedule:
    """By id or by name; a name that several tenants use needs the tenant."""
    found = await tx.schedules_called(reference)
    own = [one for one in found if tenant is None or one.tenant_id == tenant]
    if len(own) == 1:
        return own[0]
    if own:
        told = f"{len(own)} tenants have a schedule {reference!r}; say which tenant, or use its id"
        raise InvalidInput(told, code="SCHEDULE_AMBIGUOUS", tenants=sorted(one.tenant_id for one in own))
    if any(one.id == reference for one in found):
        raise TenantViolation(f"schedule {reference} belongs to another tenant", schedule_id=reference)
    told = f"there is no schedule {reference!r}; `detent schedules list` shows those there are"
    raise NotFound(told, code="SCHEDULE_NOT_FOUND", schedule=reference)


_WHEN = ("kind", "expression", "timezone", "starts_at", "ends_at")


def _in_place_of(before: Schedule, made: Schedule, now: Micros, declared: str | None) -> Schedule:
    """The new definition with the old one's life. Fires that are due stay due unless the timing itself changed."""
    same_times = all(getattr(before, name) == getattr(made, name) for name in _WHEN)
    after = replace(
        made,
        anchor=before.anchor if same_times else made.anchor,
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
    moment = before.next_fire_at if same_times else next_fire(after, _behind(before, now))
    return replace(after, next_fire_at=moment)


def _behind(schedule: Schedule, now: Micros) -> Micros:
    """Where fires go on: also by a clock that was set back, never at a moment that has fired."""
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
    if not await tx.change_schedule(before, after):
        raise VersionConflict(f"schedule {before.name!r} changed meanwhile; look again and repeat", name=before.name)
    await tx.add_audit(Audit(actor, act, after.id, after.tenant_id, reason, data))


def definition(schedule: Schedule) -> dict[str, Any]:
    """What people decided, without how far it has come."""
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
