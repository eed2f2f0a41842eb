"""Those around the workers: producers that submit and repeat, operators that cancel, signal, approve and requeue."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from detent.core.contract.model import Contract, Move
from detent.core.errors import DetentError, StoreUnavailable
from detent.engine import Submission
from detent.ports.listing import Filter

from .children import relations
from .loop import MS, SECOND, Pause, Process
from .work import JOB_TYPE, SIGNAL

if TYPE_CHECKING:
    from .world import World

_ACTS = ("succeed", "retry", "retry soon", "fail", "snooze", "cancel", "wait", "wait long", "sleep", "ignore")
_WEIGHTS = (8, 8, 4, 2, 2, 1, 4, 1, 2, 2)
_PEOPLE = ("ada", "ben")


class Person(Process):
    """Somebody outside who repeats a call until it is answered, or gives up."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world.loop, name)
        self.world = world
        self.engine = world.engine
        self.random = world.stream(name)
        self.peaceful = False

    def make_peace(self) -> None:
        self.peaceful = True

    async def insist(self, call: Callable[[], Coroutine[Any, Any, Any]], tries: int = 4) -> Any:
        """The answer, a refusal as an answer too; None if the store never gave one."""
        for _ in range(tries):
            try:
                return await call()
            except StoreUnavailable:
                await Pause(self.random.randrange(20 * MS, SECOND))
            except DetentError as refusal:
                return refusal
        return None


class Producer(Person):
    """Submits its share; every id is made before the call, so that the call can be made again."""

    def __init__(self, world: "World", name: str, jobs: int) -> None:
        super().__init__(world, name)
        self.jobs = jobs
        self.over = False
        self.start(self._submits)

    async def _submits(self) -> None:
        gap = self.world.config.gap_ms * MS
        for number in range(self.jobs):
            await Pause(self.random.randrange(gap // 4, gap * 3 // 2))
            ask = self._draw(number)
            doubled = self.random.random() < 0.15
            for _ in range(2 if doubled else 1):
                tries = 50 if self.random.random() < 0.9 else 1
                told = await self.insist(lambda ask=ask: self.engine.submit(ask), tries)  # type: ignore[misc]
                if told is not None and not isinstance(told, DetentError):
                    self.world.acknowledge(told.job.id)
        self.over = True

    def _draw(self, number: int) -> Submission:
        random = self.random
        name = random.choice(self.world.config.contracts)
        contract = self.engine.contract(name)
        creations = {edge.move for edge in contract.edges if edge.source is None}
        plan = [self._line(contract) for _ in range(random.randint(1, 5))]
        return Submission(
            JOB_TYPE,
            {"plan": plan, "steps": number % 2 == 0, **relations(contract, number)},
            contract=name,
            id=self.engine.ids.job(),
            queue=random.choice(("default", "other")),
            tenant_id=random.choice(("north", "south")),
            priority=random.choice((0, 0, 0, 5)),
            hold=Move.HOLD in creations and random.random() < 0.15,
            delay=random.choice((0.0, 0.0, 0.0, 1.0, 4.0)),
            timeout_ms=random.choice((None, None, 3_000)),
            max_retries=None if contract.retry.frozen else random.choice((None, 0, 1, 2)),
            idempotency_key=random.choice((None, f"{self.name}-{number}")),
        )

    def _line(self, contract: Contract) -> list[Any]:
        """[act, seconds]: now and then longer than any lease."""
        act = self.random.choices(_ACTS, _WEIGHTS)[0]
        low, high = self.random.choices(((0.0, 0.6), (0.5, 3.0), (5.0, 14.0)), (66, 26, 8))[0]
        return [act, round(self.random.uniform(low, high), 3)]


class Operator(Person):
    """Does what operators do, to jobs picked at random, at bad moments, sometimes twice."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self.start(self._operates)

    async def _operates(self) -> None:
        acts = (self._signal, self._signal, self._signal, self._cancel, self._abort, self._decide, self._dead_letter)
        more = (self._reopen, self._pause)
        while not self.peaceful:
            await Pause(self.random.randrange(100 * MS, 2 * SECOND))
            known = sorted(self.world.watchman.acknowledged)
            if known and not self.peaceful:
                act = self.random.choice((*acts, *more))
                self.world.note(f"{self.name} {act.__name__}")
                await act(self._victim(known))

    def _victim(self, known: list[str]) -> str:
        """One of the latest, or one that is between two tries."""
        resting = self.world.watchman.between_tries()
        if resting and self.random.random() < 0.5:
            return self.random.choice(resting)
        return known[-1 - self.random.randrange(min(len(known), 12))]

    async def _signal(self, job_id: str) -> None:
        for _ in range(self.random.choice((1, 1, 2))):
            await self.insist(lambda: self.engine.signal(job_id, SIGNAL, {"by": self.name}, actor=self.name))

    async def _cancel(self, job_id: str) -> None:
        if self.random.random() < 0.4:
            force = self.random.random() < 0.3
            await self.insist(lambda: self.engine.cancel(job_id, actor=self.name, force=force))

    async def _abort(self, job_id: str) -> None:
        if self.random.random() < 0.5:
            await self.insist(lambda: self.engine.abort(job_id, actor=self.name))

    async def _decide(self, job_id: str) -> None:
        act = self.engine.approve if self.random.random() < 0.7 else self.engine.reject
        await self.insist(lambda: act(job_id, actor=self.name))

    async def _reopen(self, job_id: str) -> None:
        await self.insist(lambda: self.engine.reopen(job_id, actor=self.name))

    async def _pause(self, job_id: str) -> None:
        await self.insist(lambda: self.engine.pause("queue", "other", actor=self.name))
        for _ in range(3):
            await Pause(self.random.randrange(2 * SECOND))
            resting = self.world.watchman.between_tries()
            if resting:
                await self.random.choice((self._abort, self._cancel))(self.random.choice(resting))
        await self.insist(lambda: self.engine.resume("queue", "other", actor=self.name), 50)

    async def _dead_letter(self, job_id: str) -> None:
        """Requeue a dead letter under an id made beforehand, or discard it, one person after the other."""
        found = await self.insist(lambda: self.engine.dead_letters(Filter(limit=5)))
        if not isinstance(found, list) or not found:
            return
        item = self.random.choice(found)
        if self.random.random() < 0.6:
            fresh = self.engine.ids.job()
            told = await self.insist(lambda: self.engine.requeue(item.id, actor=self.name, new_id=fresh))
            if told is not None and not isinstance(told, DetentError):
                self.world.acknowledge(told.job.id)
        else:
            person = self.random.choice(_PEOPLE)
            await self.insist(lambda: self.engine.discard(item.id, person=person, reason="simulated"))
