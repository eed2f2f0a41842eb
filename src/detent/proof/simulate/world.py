"""A world in one process: workers, sweepers, producers, operators around a store that fails when the seed says so."""

import random as source
from functools import partial
from hashlib import blake2b
from typing import Any

from detent.core.contract.model import Phase
from detent.core.errors import DetentError, StoreRefused
from detent.core.job import CHILDREN, Micros
from detent.engine import BatchResult, Engine, Settlement
from detent.ports.claims import Claimed
from detent.proof.controlled_store import HONEST, ControlledStore, Hooks, ManualClock, StoreCall, run_all
from detent.system.ids import SeededIds, seeded

from .clients import Operator, Producer
from .config import Config
from .limits import LIMITS
from .loop import MS, SECOND, Loop, Pause, Process, Task, unavailable
from .schedules import Planner
from .watch import Watchman
from .work import SimSweeper, SimWorker, stale

STRIKES = ("crash", "stall", "heart", "stop", "clock")
"""Faults that come by themselves; the others befall a store call."""
PATIENCE: Micros = 600 * SECOND
"""How long the stage without faults may take; the longest chain of backoffs and waits is far below."""


class World:
    """Built from a config, run once."""

    def __init__(self, config: Config, hooks: Hooks = HONEST, *, keep_trace: bool = False) -> None:
        self.config = config
        self.hooks = hooks
        self.clock = ManualClock()
        self.loop = Loop(self.clock)
        self.loop.store = self._serve
        self.store = store = ControlledStore(self.clock, hooks)
        self.engine: Engine = hooks.engine(store, ids=SeededIds(("ids", config.seed)))
        run_all(self.engine.open())
        self.connection = store.session.connection
        for limit in LIMITS[: config.limits]:
            run_all(self.engine.limit(**limit, actor="world"))
        limits = run_all(self.engine.limits())
        self.watchman = Watchman(self.connection, self.engine.contracts, self.clock, limits)
        self.faults: dict[str, int] = {}
        self.stale_refused = 0
        self.trace: list[str] | None = [] if keep_trace else None
        self._digest = blake2b(digest_size=16)
        self._random = self.stream("store")
        self._chaos_random = self.stream("chaos")
        self._peaceful = False
        self._grants: dict[tuple[str, str], str] = {}
        self._born = 0
        self.workers: list[SimWorker] = []
        self.sweepers: list[SimSweeper] = []

    def stream(self, name: str) -> source.Random:
        """Everyone draws from a stream of their own, so that leaving one out changes little for the others."""
        return seeded((self.config.seed, name))

    def run(self) -> None:
        """First everything goes wrong that may; then nothing does, and everything must come to its end."""
        for _ in range(self.config.workers):
            self._new_worker()
        for _ in range(self.config.sweepers):
            self._new_sweeper()
        producers = [Producer(self, f"producer-{n}", share) for n, share in enumerate(_shares(self.config.jobs))]
        operators = [Operator(self, f"operator-{n}") for n in range(self.config.operators)]
        planners = [Planner(self, "planner", self.config.schedules)] if self.config.schedules else []
        self._plan_chaos()
        self.loop.run(self.config.seconds * SECOND, self._broken)
        self._make_peace([*producers, *operators, *planners])
        self.loop.run(self.loop.time + PATIENCE, lambda: self._broken() or self._all_ended([*producers, *planners]))
        for job_id, times in self.store.effects.items():
            if times > 1:
                self.watchman.blame(job_id, "once.twice", f"what may happen at most once happened {times} times")
        if not self._broken():
            self.watchman.final_check()
        if not self._broken():
            for row in self.watchman.stuck():
                self.watchman.blame(row.id, "liveness", f"{row.contract} job never ended: {row.status}", row.version)

    def close(self) -> None:
        """Break the circles, so that thousands of worlds do not pile up before they are collected."""
        self.loop.clear()
        self.connection.close()

    def digest(self) -> str:
        """Of everything that happened and everything that is stored."""
        told = self._digest.copy()
        for table in _STORED:
            for row in self.connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2"):
                told.update(repr(row).encode())
        return told.hexdigest()

    def note(self, what: str) -> None:
        line = f"{self.loop.time} {what}"
        self._digest.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    def fault(self, kind: str, whom: str) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + 1
        self.note(f"fault: {kind}: {whom}")

    def acknowledge(self, job_id: str) -> None:
        self.watchman.acknowledged.add(job_id)

    def granted(self, worker: SimWorker, claimed: Claimed) -> None:
        holder = self._grants.setdefault((claimed.id, claimed.token), worker.name)
        if holder != worker.name:
            self.watchman.blame(claimed.id, "holder.two", f"{holder} and {worker.name} were given one token")

    def settled(self, worker: SimWorker, said: list[Settlement], answer: BatchResult) -> None:
        self.stale_refused += stale(answer.refused)
        self.note(f"{worker.name} settled {len(said)}, refused {len(answer.refused)}, claimed {len(answer.claimed)}")

    def stopped(self, worker: SimWorker) -> None:
        self.loop.after(SECOND, self._new_worker)

    def _new_worker(self) -> None:
        self.workers = [worker for worker in self.workers if worker.alive]
        self._born += 1
        self.workers.append(SimWorker(self, f"worker-{self._born}"))

    def _new_sweeper(self) -> None:
        self._born += 1
        self.sweepers = [sweeper for sweeper in self.sweepers if sweeper.alive]
        self.sweepers.append(SimSweeper(self, f"sweeper-{self._born}"))

    def _serve(self, task: Task, call: StoreCall) -> None:
        """A call travels, happens or not, and its answer travels back."""
        random, faults = self._random, () if self._peaceful else self.config.faults
        there, back = random.randrange(MS, 8 * MS), random.randrange(MS, 8 * MS)
        luck = random.random()
        if luck < 0.012 and "error before commit" in faults:
            self.fault("error before commit", task.process.name)
            self.loop.after(there + back, lambda: task.resume(None, unavailable("before")))
            return
        lost = luck > 0.988 and "error after commit" in faults
        if 0.5 < luck < 0.506 and "slow call" in faults:
            self.fault("slow call", task.process.name)
            there += random.randrange(12 * SECOND)
        self.loop.after(there, lambda: self._arrive(task, call, back, lost))

    def _arrive(self, task: Task, call: StoreCall, back: Micros, lost: bool) -> None:
        process = task.process
        if not process.alive and not process.calls_survive:
            return
        answer: Any = None
        error: DetentError | None = None
        try:
            answer = call.run()
        except StoreRefused as refusal:
            error = refusal
            self.watchman.blame("", "store.refused", refusal.message)
        except DetentError as refusal:
            error = refusal
        except Exception as broken:
            self.watchman.blame("", "engine", f"{process.name}: {type(broken).__name__}: {broken}")
            return
        if self.watchman.committed():
            self.note(f"{process.name} wrote, {self.watchman.events} events")
            for worker in self.workers:
                worker.wake()
        if lost:
            self.fault("error after commit", process.name)
            answer, error = None, unavailable("after")
        self.loop.after(back, lambda: task.resume(answer, error))

    def _plan_chaos(self) -> None:
        random = self._chaos_random
        moment = 0.0
        while moment < self.config.seconds:
            moment += random.expovariate(1 / 3.0)
            kind, luck = random.choice(STRIKES), random.random()
            if kind in self.config.faults:
                self.loop.at(int(moment * SECOND), partial(self._strike, kind, luck))

    def _strike(self, kind: str, luck: float) -> None:
        if self._peaceful:
            return
        if kind == "clock":
            span = int((luck - 0.35) * 30 * SECOND)
            self.fault(kind, f"{span} µs")
            self.loop.jump(span)
            return
        if kind in ("crash", "stall") and self.config.schedules and luck * 10 % 1 < 0.3:
            self._strike_sweeper(kind, luck)
            return
        alive = [worker for worker in self.workers if worker.alive and not worker.state.stopping]
        if not alive:
            return
        busy = [worker for worker in alive if worker.state.held] or alive
        victim = busy[int(luck * len(busy))]
        self.fault(kind, victim.name)
        if kind == "stall":
            victim.stalled_until = self.loop.time + int((2 + luck * 14) * SECOND)
        elif kind == "heart":
            victim.heart_stands_until = self.loop.time + int((6 + luck * 10) * SECOND)
        elif kind == "stop":
            victim.stop()
        else:
            victim.calls_survive = luck < 0.5
            victim.kill()
            self.loop.after(int(luck * 5 * SECOND), self._new_worker)

    def _strike_sweeper(self, kind: str, luck: float) -> None:
        """Whoever fires may die between the look and the act, or come to it long after."""
        alive = [sweeper for sweeper in self.sweepers if sweeper.alive]
        if not alive:
            return
        victim = alive[int(luck * len(alive))]
        self.fault(kind, victim.name)
        if kind == "stall":
            victim.stalled_until = self.loop.time + int((2 + luck * 14) * SECOND)
        else:
            victim.calls_survive = luck < 0.5
            victim.kill()
            self.loop.after(int(luck * 5 * SECOND), self._new_sweeper)

    def _make_peace(self, people: list[Any]) -> None:
        if self._broken():
            return
        self.note("peace")
        self._peaceful = True
        for person in people:
            person.make_peace()
        Closer(self)

    def _broken(self) -> bool:
        return bool(self.watchman.violations)

    def _all_ended(self, producers: list[Producer | Planner]) -> bool:
        return all(producer.over for producer in producers) and self.loop.steps % 16 == 0 and not self.watchman.stuck()


class Closer(Process):
    """In the stage without faults somebody answers every question, so that nothing may wait for ever."""

    def __init__(self, world: World) -> None:
        super().__init__(world.loop, "closer")
        self.world = world
        self.start(self._close)

    async def _close(self) -> None:
        engine = self.world.engine
        for kind, name, *_ in await engine.store.read(lambda tx: tx.pauses()):
            await engine.resume(kind, name, actor="closer")
        while True:
            await Pause(2 * SECOND)
            for row in self.world.watchman.stuck():
                contract = engine.contract(row.contract)
                try:
                    if row.status in contract.approval_statuses:
                        for person in ("closer", "other closer"):
                            await engine.approve(row.id, actor=person)
                    elif row.wait_kind == CHILDREN:
                        continue
                    elif row.phase == Phase.BLOCKED and row.wait_name and row.due_at is None:
                        await engine.signal(row.id, row.wait_name, actor="closer")
                except DetentError:
                    continue


def _shares(jobs: int) -> list[int]:
    """Two producers, as even as it goes."""
    return [share for share in (jobs - jobs // 2, jobs // 2) if share]


_STORED = ("jobs", "events", "notes", "dead_letters", "signals", "steps", "keys", "audit", "schedules", "fires")
