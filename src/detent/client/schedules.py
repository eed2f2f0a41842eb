"""`@app.schedule` and `app.schedules`: jobs that are created at certain times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from detent.core.access import Scope
from detent.core.errors import InvalidInput
from detent.core.options.option import fields_of_python
from detent.core.options.schedule_options import ScheduleKeywords
from detent.core.schedule import Fire, Schedule
from detent.engine.schedules.backfill import Backfill
from detent.engine.schedules.request import ScheduleRequest, check_timing
from detent.engine.schedules.schedules import Preview
from detent.ports.listing import Filter

if TYPE_CHECKING:
    from .app import Detent
    from .job import JobDefinition

J = TypeVar("J", bound="JobDefinition[Any, Any]")
ACTOR = "app"


class Schedules:
    """`app.schedules`: create, change and look at schedules, which are kept in the database.

        await app.schedules.add("nightly", report, {"region": "eu"}, cron="30 2 * * *", tz="Europe/Berlin")

    `reference` is the name or the id of a schedule; an unknown one raises NotFound (SCHEDULE_NOT_FOUND), a name that
    several tenants use raises SCHEDULE_AMBIGUOUS unless `tenant` is given. `actor` and `reason` go to the audit log.
    """

    def __init__(self, app: "Detent") -> None:
        self._app = app
        self.declared: dict[tuple[str, str], ScheduleRequest] = {}
        """The schedules of `@app.schedule`, by tenant and name; written to the database when a worker starts."""

    async def add(
        self,
        name: str,
        job: "JobDefinition[Any, Any] | str",
        payload: Mapping[str, Any] | None = None,
        *,
        paused: bool = False,
        actor: str = ACTOR,
        reason: str | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> Schedule:
        """Create a schedule. job: a JobDefinition or the name of a job type; payload: the arguments of each job.

        options: those of `Detent.schedule`: cron, every or at, tz, misfire, overlap and so on.
        paused: True creates it paused.

        Raises DetentError: SCHEDULE_INVALID (with the field), SCHEDULE_EXISTS, PAYLOAD_INVALID, OPTION_UNKNOWN.
        """
        request = self.request(name, job, payload, **options)
        return await (await self._app.ready()).schedules.add(request, Scope(actor, reason), paused=paused)

    def request(
        self,
        name: str,
        job: "JobDefinition[Any, Any] | str",
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> ScheduleRequest:
        """The request that `add` sends. A job of this app brings its options, and its handler checks the payload."""
        definition = self._app.jobs.get(job) if isinstance(job, str) else job
        if definition is None:
            return _with_options(ScheduleRequest(name, str(job), payload=payload), options)
        submission = definition.submission(definition.handler.payload((), dict(payload or {})))
        return _with_options(ScheduleRequest(name, **submission.job_options()), options)

    async def edit(
        self,
        /,
        reference: str,
        *,
        version: int | None = None,
        tenant: str | None = None,
        actor: str = ACTOR,
        reason: str | None = None,
        **changes: Any,
    ) -> Schedule:
        """Change options of a schedule: `changes` are those of `add`, and `payload` and `job_type`.

        version: refuse with VersionConflict if the schedule was changed since this version. Raises what `add` raises.
        """
        engine = await self._app.ready()
        changes = fields_of_python(ScheduleRequest, changes)
        if changes.get("payload") is not None:
            schedule = await engine.scoped(tenant=tenant).schedules.get(reference)
            job_type = changes.get("job_type", schedule.job_type)
            changes["payload"] = self._app.jobs.checked_payload(job_type, changes["payload"])
        return await engine.schedules.edit(reference, changes, Scope(actor, reason, tenant), version=version)

    async def pause(
        self, reference: str, *, tenant: str | None = None, actor: str = ACTOR, reason: str | None = None
    ) -> Schedule:
        """Stop creating jobs until `resume`. Runs that pass meanwhile are not made up for; use `backfill`."""
        return await (await self._app.ready()).schedules.pause(reference, Scope(actor, reason, tenant))

    async def resume(
        self, reference: str, *, tenant: str | None = None, actor: str = ACTOR, reason: str | None = None
    ) -> Schedule:
        """Continue a paused schedule with its next run."""
        return await (await self._app.ready()).schedules.resume(reference, Scope(actor, reason, tenant))

    async def remove(
        self, reference: str, *, tenant: str | None = None, actor: str = ACTOR, reason: str | None = None
    ) -> Schedule:
        """Delete a schedule; its jobs stay. One declared in code comes back when a worker starts: pause it instead."""
        return await (await self._app.ready()).schedules.remove(reference, Scope(actor, reason, tenant))

    async def get(self, reference: str, *, tenant: str | None = None) -> Schedule:
        """One schedule: its options, its next and last run, and its counters."""
        return await (await self._app.ready()).scoped(tenant=tenant).schedules.get(reference)

    async def list(self, filter: Filter | None = None) -> list[Schedule]:
        """Schedules that match the filter (tenant_id, queue, job_type, contract, text), at most `filter.limit` (50)."""
        return await (await self._app.ready()).schedules.list(filter or Filter())

    async def fires(self, reference: str, *, tenant: str | None = None, limit: int = 50) -> Sequence[Fire]:
        """The latest runs that created a job, newest first: their moment and job id."""
        return await (await self._app.ready()).scoped(tenant=tenant).schedules.fires(reference, limit=limit)

    async def preview(
        self, reference: str, count: int = 10, *, after: str | datetime | None = None, tenant: str | None = None
    ) -> Sequence[Preview]:
        """The next `count` runs after now, or after the moment `after`: when each runs, and when its job is due."""
        return await (await self._app.ready()).scoped(tenant=tenant).schedules.preview(reference, count, after=after)

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
        """Create the jobs of all past runs from `first` to `last` that have none yet; at most 10,000.

        first, last: datetimes with a time zone or ISO-8601 text. rate: how many become due per second. dry_run: only
        count. Repeating it creates no job twice. Raises InvalidInput (BACKFILL_TOO_LARGE, BACKFILL_FORGOTTEN).
        """
        return await (await self._app.ready()).schedules.backfill(
            reference, first, last, Scope(actor, reason, tenant), rate=rate, dry_run=dry_run
        )

    async def declare(self) -> None:
        """Write the schedules of `@app.schedule` to the database; workers do it when they start."""
        await (await self._app.ready()).schedules.declare(self.declared.values())


class Scheduling:
    """The part of an application that declares schedules."""

    schedules: Schedules

    def schedule(
        self, *, name: str | None = None, payload: Mapping[str, Any] | None = None, **options: Unpack[ScheduleKeywords]
    ) -> Callable[[J], J]:
        """Declare a schedule for a job, above `@app.job`. Workers write it to the database when they start.

            @app.schedule(cron="30 2 * * *", tz="Europe/Berlin", payload={"region": "eu"})
            @app.job("report")
            async def report(region: str) -> None: ...

        name: the schedule's name. Default: the job's. payload: the arguments of each job.
        cron, every, at: exactly one of them. cron has five fields, or six with seconds first; every is "5m", "1h30m",
            seconds or a timedelta; at is one moment.
        tz: the time zone of cron times, for example "Europe/Berlin". Default UTC.
        starts_at, ends_at: the first and last moment it may run.
        jitter: each job is due up to this many seconds after its run. Default 0.
        misfire: what happens to missed runs: "once" (the latest, the default), "all" (up to misfire_limit, 10), "skip".
        misfire_grace: seconds a run may be late before it counts as missed. Default 60.
        overlap: while a job of an earlier run has not ended: "allow" (the default), "skip" or "cancel" that job.
        contract, queue, tenant, priority, max_retries, timeout, limit_key, backoff: as in `Detent.job` and `using`.
        deadline: seconds after it is due in which a job must start, else it is cancelled.

        Raises InvalidInput: SCHEDULE_INVALID, SCHEDULE_EXISTS, OPTION_UNKNOWN, PAYLOAD_INVALID.
        """

        def declare(job: J) -> J:
            if not hasattr(job, "submission"):
                raise InvalidInput("put @app.schedule above @app.job, not below it", code="HANDLER_INVALID")
            request = self.schedules.request(name or job.name, job, payload, **options)
            key = (request.tenant_id, request.name)
            if key in self.schedules.declared:
                message = f"schedule {request.name!r} is declared twice; give one of them another name="
                raise InvalidInput(message, code="SCHEDULE_EXISTS", field="name")
            check_timing(request)
            self.schedules.declared[key] = request
            return job

        return declare


def _with_options(request: ScheduleRequest, options: Mapping[str, Any]) -> ScheduleRequest:
    try:
        return replace(request, **fields_of_python(ScheduleRequest, options))
    except TypeError as error:
        raise InvalidInput(f"schedule {request.name!r}: {error}", code="OPTION_UNKNOWN") from None
