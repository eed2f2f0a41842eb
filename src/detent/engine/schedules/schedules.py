"""`engine.schedules`: the operations on schedules."""

import builtins
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from detent.core.access import Scope
from detent.core.cron import describe_cron
from detent.core.errors import DetentError, InvalidInput, InvalidSchedule, VersionConflict, check_number
from detent.core.job import Job, Micros
from detent.core.schedule import Fire, Schedule, ScheduleKind, fires_between, jitter_delay, next_fire
from detent.core.times import SECOND
from detent.engine.reads import responses
from detent.engine.reads.responses import show
from detent.engine.refusal import Refused, audit
from detent.engine.runtime import Service, operators_only, reads, writes
from detent.ports.listing import Filter
from detent.ports.tx import Tx

from . import backfill
from .firing import Fired, fire_due, make_job
from .request import (
    ScheduleRequest,
    apply_changes,
    build_schedule,
    find_schedule,
    moment_of,
    request_of,
    with_declared_options,
)

DECLARED_BY = Scope("code")
"""Who declares the schedules of the application's code, in the audit log."""
MAX_PREVIEW = 1_000


class ScheduleExists(DetentError, code="SCHEDULE_EXISTS", http_status=409):
    """A schedule of this name exists already."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A future fire: its time, and when its job will be due (later by the jitter)."""

    fire_at: Micros
    due_at: Micros


class Schedules(Service):
    """`engine.schedules`: add, edit, pause, resume, remove, list, preview, declare, backfill and fire schedules."""

    async def add(
        self,
        request: ScheduleRequest,
        scope: Scope,
        *,
        paused: bool = False,
        new_id: str | None = None,
        given: Collection[str] | None = None,
    ) -> Schedule:
        """Create a schedule. With the same new_id the call can be repeated safely after a lost reply.

        given: the fields that the caller has set; the others are as workers have declared them for the job type, and
        the payload is checked, see `Declarations.apply`. None: the request is complete.
        """
        schedule_id = new_id or self._runtime.ids.job()
        tenant = self._runtime.tenant_of_new(request.tenant_id, "a schedule")
        if given is not None:
            self._runtime.reach.within_types({request.job_type})  # before what a declaration says about the payload
            request = await with_declared_options(self._runtime, request, given)
        own_request = replace(request, tenant_id=tenant)

        async def act(tx: Tx) -> Schedule:
            schedule = build_schedule(self._runtime, own_request, tx.now, schedule_id=schedule_id)
            self._runtime.reach.require(schedule.queue, schedule.job_type)
            if schedule.next_fire_at is None:
                raise InvalidInput(
                    f"schedule {request.name!r} would never fire, its last time has passed; use a time in the future",
                    code=self._runtime.contract(request.contract).code("invalid_schedule"),
                    field="at",
                )
            if paused:
                schedule = replace(schedule, paused_at=tx.now, next_fire_at=None)
            if not await tx.schedules.put_schedule(schedule):
                existing = [s for s in await tx.schedules.schedules_matching(schedule_id) if s.id == schedule_id]
                if existing:
                    return existing[0]
                raise ScheduleExists(
                    f"a schedule named {request.name!r} exists; choose another name, or edit that one",
                    name=request.name,
                )
            await audit(tx, scope, "schedule.add", schedule.id, schedule.tenant_id, definition(schedule))
            return schedule

        return await self._runtime.store.write(act)

    @writes
    async def edit(
        self, tx: Tx, reference: str, changes: Mapping[str, Any], scope: Scope, *, version: int | None = None
    ) -> Schedule | Refused:
        """Change fields of a schedule. version: raise VersionConflict if the schedule has another version."""
        before = await self._find(tx, reference, scope)
        if version is not None and before.version != version:
            message = (
                f"schedule {before.name!r} is at version {before.version}, not {version}; read it again and repeat"
            )
            return Refused(VersionConflict(message, name=before.name, version=before.version))
        request = apply_changes(request_of(before), changes)
        new = build_schedule(self._runtime, request, tx.now, schedule_id=before.id)
        self._runtime.reach.require(new.queue, new.job_type)
        after = _replacement(before, new, tx.now, before.declared)
        return await _change(tx, before, after, "schedule.edit", scope, _differences(before, after))

    @writes
    async def pause(self, tx: Tx, reference: str, scope: Scope) -> Schedule:
        """Stop its fires until it is resumed; fires that fall into the pause are not caught up."""
        before = await self._find(tx, reference, scope)
        if before.paused_at is not None:
            return before
        after = replace(before, paused_at=tx.now, next_fire_at=None, version=before.version + 1, updated_at=tx.now)
        return await _change(tx, before, after, "schedule.pause", scope)

    @writes
    async def resume(self, tx: Tx, reference: str, scope: Scope) -> Schedule:
        """End a pause: it fires again from now on."""
        before = await self._find(tx, reference, scope)
        if before.paused_at is None:
            return before
        after = replace(before, paused_at=None, version=before.version + 1, updated_at=tx.now)
        after = replace(after, next_fire_at=next_fire(after, _next_fire_after(before, tx.now)))
        return await _change(tx, before, after, "schedule.resume", scope)

    @writes
    async def remove(self, tx: Tx, reference: str, scope: Scope) -> Schedule:
        """Delete a schedule; its jobs and the records of its fires are kept."""
        schedule = await self._find(tx, reference, scope)
        await tx.schedules.drop_schedule(schedule.id)
        await audit(tx, scope, "schedule.remove", schedule.id, schedule.tenant_id, definition(schedule))
        return schedule

    async def run_now(self, reference: str, scope: Scope) -> Job:
        """Create the job of a run now, also for a paused schedule. Its later runs stay as they are."""

        async def act(tx: Tx) -> Job:
            schedule = await self._find(tx, reference, scope)
            job = await make_job(self._runtime, tx, replace(schedule, jitter=0), tx.now, scope.actor)
            if job is None:
                raise VersionConflict(f"schedule {schedule.name!r} has a run at this moment; try again")
            await audit(tx, scope, "schedule.run", schedule.id, schedule.tenant_id, {"job_id": job.id})
            return job

        return await self._runtime.run(act)

    @reads
    async def get(self, tx: Tx, reference: str) -> Schedule:
        """The schedule with this id or name; a name that several tenants use needs a tenant."""
        return await self._find(tx, reference)

    @reads
    async def list(self, tx: Tx, filter: Filter) -> builtins.list[Schedule]:
        return await tx.schedules.list_schedules(self._runtime.visible(filter))

    @reads
    async def fires(
        self, tx: Tx, reference: str, *, before: Micros | None = None, limit: int = 50
    ) -> builtins.list[Fire]:
        """The fires that created jobs, newest first."""
        schedule = await self._find(tx, reference)
        return await tx.fires.list_fires(schedule.id, None, None if before is None else before - 1, limit)

    async def preview(
        self, what: str | ScheduleRequest, count: int = 10, *, after: str | datetime | None = None
    ) -> builtins.list[Preview]:
        """The next fires after now (or `after`) of a stored schedule, even if it is paused, or of a request."""
        check_number(count, "count", 1, MAX_PREVIEW, InvalidSchedule.code)
        now = self._runtime.store.now()
        if isinstance(what, ScheduleRequest):
            schedule = build_schedule(self._runtime, what, now, schedule_id="preview")
        else:
            schedule = await self.get(what)
        start = now if after is None else moment_of(after, "after", schedule.timezone)
        moments = fires_between(schedule, start + 1, _LAST_MOMENT)
        return [Preview(moment, moment + jitter_delay(schedule, moment)) for moment in islice(moments, count)]

    @operators_only
    async def declare(self, requests: Iterable[ScheduleRequest]) -> builtins.list[Schedule]:
        """Update the stored schedules to the declarations in code.

        An operator's edit is kept until the declaration itself changes; a pause is kept until a resume.
        """
        return [await self._declare(request) for request in requests]

    @writes
    async def _declare(self, tx: Tx, request: ScheduleRequest) -> Schedule:
        text = json.dumps(asdict(request), default=str, sort_keys=True, ensure_ascii=False)
        key = (request.tenant_id, request.name)
        before = next(
            (s for s in await tx.schedules.schedules_matching(request.name) if (s.tenant_id, s.name) == key), None
        )
        if before is not None and before.declared == text:
            return before
        new = build_schedule(
            self._runtime, request, tx.now, schedule_id=before.id if before else self._runtime.ids.job()
        )
        if before is not None:
            after = _replacement(before, new, tx.now, text)
            return await _change(tx, before, after, "schedule.declare", DECLARED_BY, _differences(before, after))
        new = replace(new, declared=text)
        if not await tx.schedules.put_schedule(new):
            raise VersionConflict(
                f"another process declared schedule {request.name!r} at the same moment; repeat the call"
            )
        await audit(tx, DECLARED_BY, "schedule.declare", new.id, new.tenant_id, definition(new))
        return new

    async def _find(self, tx: Tx, reference: str, scope: Scope | None = None) -> Schedule:
        return await find_schedule(self._runtime, tx, reference, scope)

    backfill = backfill.backfill

    @operators_only
    async def fire_due(self, limit: int) -> Fired:
        """Fire up to `limit` due schedules in one transaction, where possible. Costs one read if none is due."""
        return await fire_due(self._runtime, limit)


_LAST_MOMENT: Micros = 253_402_300_799 * SECOND
_STATE_FIELDS = (
    *("paused_at", "created_at", "last_fire_at", "last_job_id", "last_error"),
    *("fires", "misfires", "last_misfire_at", "overlapped"),
)
_TIMING_FIELDS = ("kind", "expression", "timezone", "starts_at", "ends_at")


def _replacement(before: Schedule, new: Schedule, now: Micros, declared: str | None) -> Schedule:
    """The new definition with the old row's state. Fires that are due stay due unless the timing changed."""
    same_times = all(getattr(before, name) == getattr(new, name) for name in _TIMING_FIELDS)
    state = {name: getattr(before, name) for name in _STATE_FIELDS}
    anchor = before.anchor if same_times else new.anchor
    after = replace(new, **state, anchor=anchor, declared=declared, version=before.version + 1, updated_at=now)
    if after.paused_at is not None:
        return replace(after, next_fire_at=None)
    moment = before.next_fire_at if same_times else next_fire(after, _next_fire_after(before, now))
    return replace(after, next_fire_at=moment)


def _next_fire_after(schedule: Schedule, now: Micros) -> Micros:
    """The next fire must be later than this: now, or the last fire if the clock was set back since."""
    return now if schedule.last_fire_at is None else max(now, schedule.last_fire_at)


async def _change(
    tx: Tx, before: Schedule, after: Schedule, act: str, scope: Scope, data: Mapping[str, Any] | None = None
) -> Schedule:
    if not await tx.schedules.change_schedule(before, after):
        raise VersionConflict(f"schedule {before.name!r} was changed meanwhile; read it and repeat", name=before.name)
    await audit(tx, scope, act, after.id, after.tenant_id, data)
    return after


def definition(schedule: Schedule) -> dict[str, Any]:
    """The schedule's definition without its state, for the audit log."""
    return asdict(request_of(schedule))


def _differences(before: Schedule, after: Schedule) -> dict[str, Any]:
    old, new = definition(before), definition(after)
    return {name: {"from": old[name], "to": new[name]} for name in old if old[name] != new[name]}


def schedule_view(schedule: Schedule, *, payloads: bool = True) -> responses.Schedule:
    """A schedule as the API shows it."""
    return show(
        responses.Schedule,
        schedule,
        schedule_type=schedule.kind,
        jitter_seconds=schedule.jitter / SECOND,
        misfire_grace_seconds=schedule.misfire_grace / SECOND,
        payload=json.loads(schedule.payload) if payloads else None,
        deadline_seconds=None if schedule.deadline is None else schedule.deadline / SECOND,
        declared=schedule.declared is not None,
        paused=schedule.paused_at is not None,
        held_back=schedule.retry_at is not None,
        last_error=schedule.last_error if payloads else None,
        in_words=in_words(schedule.expression if schedule.kind == ScheduleKind.CRON else None),
    )


def in_words(cron: str | None) -> dict[str, str]:
    """A valid cron expression in each language of the dashboard; empty without one."""
    return {} if cron is None else {language: describe_cron(cron, language) for language in ("en", "zh")}
