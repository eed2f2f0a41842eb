"""Schedules in virtual time: somebody who adds, edits, pauses and backfills them, and what must hold of their fires."""

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import apsw

from detent.core.contract.model import Move
from detent.core.schedule import FIRE_KEY, Misfire, Overlap, read_every
from detent.core.times import iso
from detent.engine.schedules import schedules
from detent.engine.schedules.backfill import backfill
from detent.engine.schedules.request import ScheduleRequest

from .clients import Person
from .loop import MS, SECOND, Pause
from .work import JOB_TYPE

if TYPE_CHECKING:
    from .world import World

STEADY = "steady"
"""Every fire of this one must have made its job: all missed ones are made up for, and nobody touches it."""
_KEY = re.compile(re.escape(FIRE_KEY) + r"(.{36}):(.+)")
Finding = tuple[str, str, str]
"""(job id, rule, detail)"""


class Planner(Person):
    """Keeps schedules, one of them steady, and meddles with the others until peace comes."""

    def __init__(self, world: "World", name: str, count: int) -> None:
        super().__init__(world, name)
        self.names = [STEADY, *(f"schedule-{n}" for n in range(1, count))][:count]
        self.over = False
        self.start(self._plans)

    async def _plans(self) -> None:
        for name in self.names:
            add = partial(schedules.add, self.engine, self._draw(name), actor=self.name, new_id=self.engine.ids.job())
            await self.insist(add, 50)
        while not self.peaceful:
            await Pause(self.random.randrange(500 * MS, 4 * SECOND))
            if len(self.names) > 1 and not self.peaceful:
                await self._meddle(self.random.choice(self.names[1:]))
        for name in self.names:
            await self.insist(partial(schedules.pause, self.engine, name, actor=self.name), 50)
        self.over = True

    def _draw(self, name: str) -> ScheduleRequest:
        random, steady = self.random, name == STEADY
        contract = random.choice(self.world.config.contracts)
        cancels = any(edge.move is Move.CANCEL for edge in self.engine.contract(contract).edges)
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

    async def _meddle(self, name: str) -> None:
        engine, random, who = self.engine, self.random, self.name
        act = random.choice(("edit", "pause", "resume", "backfill"))
        self.world.note(f"{who} {act} {name}")
        if act == "edit":
            every = random.randint(2, 7)
            await self.insist(lambda: schedules.edit(engine, name, {"every": every}, actor=who))
        elif act == "backfill":
            now = engine.store.now()
            span = iso(now - 20 * SECOND) or "", iso(now - random.randrange(10) * SECOND) or ""
            await self.insist(lambda: backfill(engine, name, *span, actor=who))
        else:
            call = schedules.pause if act == "pause" else schedules.resume
            await self.insist(lambda: call(engine, name, actor=who))


class FireWatch:
    """Looks at the raw tables after every commit: one job per fire, and no schedule goes back."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._jobs: dict[tuple[str, str], str] = {}
        self._stands: dict[str, tuple[int, int | None]] = {}

    def born(self, job_id: str) -> Iterator[Finding]:
        """A job was created; was it made by a fire that has one?"""
        found: Any = self._connection.execute("SELECT idempotency_key FROM jobs WHERE id = ?", (job_id,)).fetchall()
        key = _KEY.fullmatch(found[0][0] or "") if found else None
        if key is None:
            return
        first = self._jobs.setdefault((key[1], key[2]), job_id)
        if first != job_id:
            yield job_id, "fire.twice", f"the fire of {key[2]} made {first} and {job_id}"

    def committed(self) -> Iterator[Finding]:
        for one, version, moment, last in self._connection.execute(_STANDS):
            before = self._stands.get(one)
            if before and before[0] == version and before[1] is not None and (moment or before[1]) < before[1]:
                yield "", "schedule.back", f"schedule {one} went back from {before[1]} to {moment} without an edit"
            if moment is not None and last is not None and last >= moment:
                yield "", "schedule.back", f"schedule {one} is to fire at {moment} and has fired at {last}"
            self._stands[one] = (version, moment)

    def final_check(self) -> Iterator[Finding]:
        """The fires of the steady schedule follow each other without a gap, each with its one job."""
        for one, anchor, text in self._connection.execute(_STEADY, (STEADY,)):
            every = read_every(text)
            fires: Any = self._connection.execute(_FIRES, (one,)).fetchall()
            for number, (moment, job_id, there) in enumerate(fires, 1):
                if moment != anchor + number * every:
                    told = f"fire {number} of the steady schedule is of {moment}, not {anchor + number * every}"
                    yield job_id, "fire.lost", told
                    return
                if there != job_id:
                    yield job_id, "fire.jobless", f"the fire of {moment} names a job that does not exist"


_STANDS = "SELECT id, version, next_fire_at, last_fire_at FROM schedules"
_STEADY = "SELECT id, anchor, expression FROM schedules WHERE name = ?"
_FIRES = (
    "SELECT f.fire_at, f.job_id, j.id FROM fires f LEFT JOIN jobs j ON j.id = f.job_id AND j.scheduled_at = f.fire_at "
    "WHERE f.schedule_id = ? ORDER BY f.fire_at"
)
