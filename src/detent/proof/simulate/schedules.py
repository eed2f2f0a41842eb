"""Schedules in virtual time: a client that adds, edits, pauses and backfills them; the invariants of their fires."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import apsw

from detent.core.contract.model import Contract, Move
from detent.core.schedule import Misfire, Overlap, Schedule, parse_interval
from detent.core.times import iso
from detent.engine.schedules.request import ScheduleRequest
from detent.proof.controlled_store import BrokenRule

from .clients import Client
from .handler import JOB_TYPE
from .loop import MS, SECOND

if TYPE_CHECKING:
    from .simulation import Simulation

PLANNER = "planner"
"""The name of the ScheduleOperator; its backfills create jobs, too."""
STEADY = "steady"
"""A schedule that is never changed and catches up on all missed fires, so each of its fires must have created a job."""


class ScheduleOperator(Client):
    """Adds schedules and changes all but the steady one at random until the faults are healed; then pauses them all."""

    def __init__(self, simulation: "Simulation", count: int) -> None:
        super().__init__(simulation, PLANNER)
        self.names = [STEADY, *(f"schedule-{n}" for n in range(1, count))][:count]
        self.done = False
        self.start(self._operate())

    async def _operate(self) -> None:
        for name in self.names:
            new_id = self.engine.ids.job()
            add = partial(self.engine.schedules.add, self._draw(name), self.scope, new_id=new_id)
            await self.call_with_retries(add, 50)
        while not self.faults_healed:
            await self.pause(500 * MS, 4 * SECOND)
            if len(self.names) > 1 and not self.faults_healed:
                await self._change_schedule(self.random.choice(self.names[1:]))
        for name in self.names:
            await self.call_with_retries(partial(self.engine.schedules.pause, name, self.scope), 50)
        self.done = True

    def _draw(self, name: str) -> ScheduleRequest:
        random, steady = self.random, name == STEADY
        contract = random.choice(self.simulation.config.contracts)
        cancels = self.engine.contract(contract).has(Move.CANCEL)
        overlap = (
            Overlap.ALLOW if steady else random.choice(list(Overlap) if cancels else [Overlap.ALLOW, Overlap.SKIP])
        )
        return ScheduleRequest(
            name,
            JOB_TYPE,
            every=random.randint(2, 7),
            payload={"plan": [["succeed", round(random.uniform(0, 4), 3)]]},
            contract=contract,
            jitter=random.choice((0, 0, 2)),
            misfire=Misfire.ALL if steady else random.choice(list(Misfire)),
            misfire_limit=100 if steady else 3,
            misfire_grace=5,
            overlap=overlap,
        )

    async def _change_schedule(self, name: str) -> None:
        engine, random, scope = self.engine, self.random, self.scope
        act = random.choice(("edit", "pause", "resume", "backfill"))
        self.simulation.note(f"{self.name} {act} {name}")
        if act == "edit":
            every = random.randint(2, 7)
            edited = await self.call_with_retries(lambda: engine.schedules.edit(name, {"every": every}, scope))
            if isinstance(edited, Schedule):
                self.simulation.monitor.check_schedule(edited)
        elif act == "backfill":
            now = engine.store.now()
            span = iso(now - 20 * SECOND) or "", iso(now - random.randrange(10) * SECOND) or ""
            await self.call_with_retries(lambda: engine.schedules.backfill(name, *span, scope))
        else:
            call = engine.schedules.pause if act == "pause" else engine.schedules.resume
            await self.call_with_retries(lambda: call(name, scope))


class ScheduleMonitor:
    """next_fire_at never moves back without an edit, no fire is left out, and the rules for missed and overlapping
    fires hold. `verify` checks their jobs at the end."""

    def __init__(self, connection: apsw.Connection, contracts: Mapping[str, Contract]) -> None:
        self._connection = connection
        self._contracts = contracts
        self._fires: set[tuple[str, int]] = set()
        self._next_fires: dict[str, tuple[int, int | None]] = {}

    def check_edited(self, schedule: Schedule) -> Iterator[BrokenRule]:
        """An edit that was acknowledged is stored, unless the schedule was changed again since."""
        for version, expression in self._connection.execute(_EDITED, (schedule.id,)):
            changed_since = version > schedule.version
            if not changed_since and (version, expression) != (schedule.version, schedule.expression):
                detail = f"an edit returned version {schedule.version} of {schedule.name}, stored is version {version}"
                yield "", "schedule.lost", detail

    def check_commit(self) -> Iterator[BrokenRule]:
        for schedule_id, version, next_fire, last_fire in self._connection.execute(_NEXT_FIRES):
            before = self._next_fires.get(schedule_id)
            if before and before[0] == version and before[1] is not None and (next_fire or before[1]) < before[1]:
                detail = f"schedule {schedule_id}: next_fire_at moved back from {before[1]} to {next_fire}, no edit"
                yield "", "schedule.back", detail
            if next_fire is not None and last_fire is not None and last_fire >= next_fire:
                detail = f"schedule {schedule_id}: next_fire_at is {next_fire}, last_fire_at is {last_fire}"
                yield "", "schedule.back", detail
            self._next_fires[schedule_id] = (version, next_fire)
        yield from self._check_new_fires()

    def _check_new_fires(self) -> Iterator[BrokenRule]:
        """Backfills are not checked, these rules do not apply to them."""
        new: dict[str, list[tuple[Any, ...]]] = {}
        for schedule_id, fire_at, name, actor, *values in self._connection.execute(_FIRES_BY_SCHEDULE):
            if (schedule_id, fire_at) in self._fires:
                continue
            self._fires.add((schedule_id, fire_at))
            if actor not in (PLANNER, f"schedule:{name}"):
                yield values[0], "fire.actor", f"the job of schedule {name} was created by {actor}"
            if actor != PLANNER:
                new.setdefault(schedule_id, []).append((fire_at, *values))
        for schedule_id, fires in new.items():
            fire_at, job_id, made_at, misfire, limit, grace, overlap = fires[0]
            if len(fires) > (limit if misfire == Misfire.ALL and overlap != Overlap.SKIP else 1):
                yield job_id, "fire.many", f"{len(fires)} fires of schedule {schedule_id} at once, {misfire}, {overlap}"
            late = made_at - fire_at - grace
            # With this overlap a fire may be planned some time before it is made.
            if misfire == Misfire.SKIP and overlap != Overlap.CANCEL and late > 0:
                yield job_id, "fire.late", f"a missed fire of schedule {schedule_id} was made, {late} µs too late"
            if overlap != Overlap.ALLOW:
                yield from self._check_overlap(schedule_id, {fire[1] for fire in fires}, overlap)

    def _check_overlap(self, schedule_id: str, new: set[str], overlap: str) -> Iterator[BrokenRule]:
        for job_id, contract, status, cancel_requested in self._connection.execute(_UNFINISHED, (schedule_id,)):
            cancels = self._contracts[contract].edge(status, Move.CANCEL) and not cancel_requested
            if job_id not in new and (overlap == Overlap.SKIP or cancels):
                yield job_id, "fire.overlap", f"a fire of schedule {schedule_id} ({overlap}) overlaps with this job"

    def final_check(self) -> Iterator[BrokenRule]:
        """The fires of the steady schedule have no gap."""
        for schedule_id, anchor, text in self._connection.execute(_STEADY, (STEADY,)):
            every = parse_interval(text)
            fires: Any = self._connection.execute(_FIRES, (schedule_id,)).fetchall()
            for number, (moment, job_id) in enumerate(fires, 1):
                expected = anchor + number * every
                if moment != expected:
                    detail = f"fire {number} of the steady schedule is at {moment}, expected {expected}"
                    yield job_id, "fire.lost", detail
                    return


_EDITED = "SELECT version, expression FROM detent_schedules WHERE id = ?"
_NEXT_FIRES = "SELECT id, version, next_fire_at, last_fire_at FROM detent_schedules"
_FIRES_BY_SCHEDULE = (
    "SELECT f.schedule_id, f.fire_at, s.name, e.actor,"
    " f.job_id, f.made_at, s.misfire, s.misfire_limit, s.misfire_grace, s.overlap"
    " FROM detent_fires f JOIN detent_schedules s ON s.id = f.schedule_id"
    " JOIN detent_event_list e ON e.job_id = f.job_id AND e.seq = 1"
)
_UNFINISHED = (
    "SELECT j.id, j.contract, j.status, j.cancel_requested FROM detent_fires f"
    " JOIN detent_job_list j ON j.id = f.job_id AND j.phase <> 'final' WHERE f.schedule_id = ?"
)
_STEADY = "SELECT id, anchor, expression FROM detent_schedules WHERE name = ?"
_FIRES = "SELECT fire_at, job_id FROM detent_fires WHERE schedule_id = ? ORDER BY fire_at"
