"""Schedules from an application: `@app.schedule` above a job, `app.schedules`, and the same without an event loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from detent.core.errors import InvalidInput
from detent.core.schedule import Fire, Schedule
from detent.engine.schedules import backfill as backfills
from detent.engine.schedules import schedules as acts
from detent.engine.schedules.backfill import Backfill
from detent.engine.schedules.request import ScheduleRequest, check_timing
from detent.engine.schedules.schedules import Preview
from detent.ports.listing import Filter

if TYPE_CHECKING:
    from .app import Detent
    from .job import JobDefinition
    from .sync import SyncClient

J = TypeVar("J", bound="JobDefinition[Any, Any]")
ACTOR = "app"


class When(TypedDict, total=False):
    """When a schedule fires: one of cron, every, at; and what holds for its fires."""

    cron: str | None
    every: str | float | timedelta | None
    at: str | datetime | None
    tz: str | None
    starts_at: str | datetime | None
    ends_at: str | datetime | None
    jitter: float
    misfire: str
    misfire_limit: int
    misfire_grace: float
    overlap: str


class Options(When, total=False):
    """The same, and how its jobs differ from the job's declaration."""

    contract: str | None
    queue: str
    tenant: str
    priority: int
    max_retries: int | None
    timeout: float | None
    limit_key: str
    deadline: float | None
    """Seconds after a job is due: if nobody has begun it by then, it ends."""


class Schedules:
    """`app.schedules`: every act takes a schedule's name or id."""

    def __init__(self, app: "Detent") -> None:
        self._app = app
        self.declared: dict[tuple[str, str], ScheduleRequest] = {}
        """What the code declares, by tenant and name; brought to the database when a worker starts."""

    async def add(
        self,
        name: str,
        job: "JobDefinition[Any, Any] | str",
        payload: Mapping[str, Any] | None = None,
        *,
        paused: bool = False,
        actor: str = ACTOR,
        reason: str | None = None,
        **options: Unpack[Options],
    ) -> Schedule:
        ask = self.request(name, job, payload, **options)
        return await acts.add(await self._app.ready(), ask, actor=actor, reason=reason, paused=paused)

    def request(
        self,
        name: str,
        job: "JobDefinition[Any, Any] | str",
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> ScheduleRequest:
        """A checked request: where the application has the job, its declaration holds and its handler checks."""
        known = self._app.jobs.get(job) if isinstance(job, str) else job
        if known is None:
            return _request(ScheduleRequest(name, str(job), payload=payload), options)
        made = known.submission(known.handler.payload((), dict(payload or {})))
        ask = ScheduleRequest(
            name,
            made.job_type,
            payload=made.payload,
            contract=made.contract,
            queue=made.queue,
            tenant_id=made.tenant_id,
            priority=made.priority,
            max_retries=made.max_retries,
            timeout_ms=made.timeout_ms,
        )
        return _request(ask, options)

    async def edit(
        self,
        reference: str,
        *,
        version: int | None = None,
        tenant: str | None = None,
        actor: str = ACTOR,
        reason: str | None = None,
        **changes: Any,
    ) -> Schedule:
        """Change what a request says. version: only if the schedule is still at this one."""
        engine = await self._app.ready()
        changes = _fields(changes)
        if changes.get("payload") is not None or "job_type" in changes:
            there = await acts.get(engine, reference, tenant=tenant)
            changes = {**changes, **self._checked(there, changes)}
        return await acts.edit(engine, reference, changes, actor=actor, reason=reason, tenant=tenant, version=version)

    def _checked(self, there: Schedule, changes: Mapping[str, Any]) -> dict[str, Any]:
        known = self._app.jobs.get(changes.get("job_type", there.job_type))
        payload = changes.get("payload")
        if known is None or payload is None:
            return {}
        return {"payload": known.handler.payload((), payload)}

    async def pause(
        self, reference: str, *, tenant: str | None = None, actor: str = ACTOR, reason: str | None = None
    ) -> Schedule:
        return await acts.pause(await self._app.ready(), reference, actor=actor, reason=reason, tenant=tenant)

    async def resume(
        self, reference: str, *, tenant: str | None = None, actor: str = ACTOR, reason: str | None = None
    ) -> Schedule:
        return await acts.resume(await self._app.ready(), reference, actor=actor, reason=reason, tenant=tenant)

    async def remove(
        self, reference: str, *, tenant: str | None = None, actor: str = ACTOR, reason: str | None = None
    ) -> Schedule:
        return await acts.remove(await self._app.ready(), reference, actor=actor, reason=reason, tenant=tenant)

    async def get(self, reference: str, *, tenant: str | None = None) -> Schedule:
        return await acts.get(await self._app.ready(), reference, tenant=tenant)

    async def list(self, filter: Filter | None = None) -> list[Schedule]:
        return await acts.listed(await self._app.ready(), filter or Filter())

    async def fires(self, reference: str, *, tenant: str | None = None, limit: int = 50) -> Sequence[Fire]:
        return await acts.fires(await self._app.ready(), reference, tenant=tenant, limit=limit)

    async def preview(
        self,
        reference: str,
        count: int = 10,
        *,
        after: str | datetime | None = None,
        tenant: str | None = None,
    ) -> Sequence[Preview]:
        return await acts.preview(await self._app.ready(), reference, count, after=after, tenant=tenant)

    async def backfill(
        self,
        reference: str,
        first: str | datetime,
        last: str | datetime,
        *,
        tenant: str | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        actor: str = ACTOR,
        reason: str | None = None,
    ) -> Backfill:
        return await backfills.backfill(
            await self._app.ready(),
            reference,
            first,
            last,
            actor=actor,
            reason=reason,
            tenant=tenant,
            rate=rate,
            dry_run=dry_run,
        )

    async def declare(self) -> None:
        """Bring what the code declares to the database; workers do this when they start."""
        await acts.declare(await self._app.ready(), self.declared.values())


class SyncSchedules:
    """`app.sync.schedules`: the same acts, blocking."""

    def __init__(self, client: "SyncClient", schedules: Schedules) -> None:
        self._client, self._schedules = client, schedules

    def add(self, name: str, job: "JobDefinition[Any, Any] | str", *rest: Any, **options: Any) -> Schedule:
        return self._client.run(self._schedules.add(name, job, *rest, **options))

    def edit(self, reference: str, **changes: Any) -> Schedule:
        return self._client.run(self._schedules.edit(reference, **changes))

    def pause(self, reference: str, **options: Any) -> Schedule:
        return self._client.run(self._schedules.pause(reference, **options))

    def resume(self, reference: str, **options: Any) -> Schedule:
        return self._client.run(self._schedules.resume(reference, **options))

    def remove(self, reference: str, **options: Any) -> Schedule:
        return self._client.run(self._schedules.remove(reference, **options))

    def get(self, reference: str, *, tenant: str | None = None) -> Schedule:
        return self._client.run(self._schedules.get(reference, tenant=tenant))

    def list(self, filter: Filter | None = None) -> list[Schedule]:
        return self._client.run(self._schedules.list(filter))

    def fires(self, reference: str, **options: Any) -> Sequence[Fire]:
        return self._client.run(self._schedules.fires(reference, **options))

    def preview(self, reference: str, count: int = 10, **options: Any) -> Sequence[Preview]:
        return self._client.run(self._schedules.preview(reference, count, **options))

    def backfill(self, reference: str, first: str | datetime, last: str | datetime, **options: Any) -> Backfill:
        return self._client.run(self._schedules.backfill(reference, first, last, **options))


class Scheduling:
    """The part of an application that declares schedules."""

    schedules: Schedules

    def schedule(
        self,
        *,
        name: str | None = None,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Callable[[J], J]:
        """Declare a schedule above `@app.job`: cron= (with tz=), every= or at=; its name is the job's unless said."""

        def declare(job: J) -> J:
            if not hasattr(job, "submission"):
                raise InvalidInput("put @app.schedule above @app.job, not below it", code="HANDLER_INVALID")
            ask = self.schedules.request(name or job.name, job, payload, **options)
            place = (ask.tenant_id, ask.name)
            if place in self.schedules.declared:
                told = f"schedule {ask.name!r} is declared twice; give one of them another name="
                raise InvalidInput(told, code="SCHEDULE_EXISTS", field="name")
            check_timing(ask)
            self.schedules.declared[place] = ask
            return job

        return declare


def _request(ask: ScheduleRequest, options: Mapping[str, Any]) -> ScheduleRequest:
    try:
        return replace(ask, **_fields(options))
    except TypeError as error:
        raise InvalidInput(f"schedule {ask.name!r}: {error}", code="OPTION_UNKNOWN") from None


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords as jobs take them, under the names of a request."""
    fields = dict(options)
    if "tenant" in fields:
        fields["tenant_id"] = fields.pop("tenant")
    if "timeout" in fields:
        seconds = fields.pop("timeout")
        fields["timeout_ms"] = None if seconds is None else int(seconds * 1_000)
    return fields
