"""The explorer: every interleaving of store calls of two workers, two jobs, a sweeper and an operator, breadth first.

Real engine, real machine, real SQLite; only time, ids and the order of calls are the search's own.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from detent.core.contract.model import Contract, Phase
from detent.proof.controlled_store import HONEST, Hooks, Violation

from .acts import Acts, Broken, Next
from .frame import JOBS, Frame, Place, next_moment
from .memory import NEWBORN, Memory, renamed, shape, tokens_of
from .stage import Stage

WORKERS = 2
STATES = 20_000
State = tuple[int, tuple[Memory, ...]]
"""(number of the place, memories of the workers)"""


@dataclass(frozen=True, slots=True)
class Exploration:
    """What a search saw. depth: the longest of the shortest paths; plays: calls made on the real engine."""

    contract: str
    states: int
    transitions: int
    places: int
    plays: int
    depth: int
    exhausted: bool
    violation: Violation | None = None

    @property
    def ok(self) -> bool:
        return self.violation is None

    def as_dict(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in self.__slots__ if name != "violation"}
        return {**told, "ok": self.ok, "violation": self.violation.as_dict() if self.violation else None}


def explore(
    contract: Contract,
    *,
    states: int = STATES,
    hooks: Hooks = HONEST,
    slots: int = 1,
    jobs: int = len(JOBS),
    tolerated: Collection[str] = (),
) -> Exploration:
    """Search until so many states were met, nothing new is left, or a promise is broken that is not tolerated."""
    return _Search(contract, hooks, slots, jobs, tolerated).run(states)


class _Search:
    def __init__(self, contract: Contract, hooks: Hooks, slots: int, jobs: int, tolerated: Collection[str]) -> None:
        self.tolerated = tolerated
        self.stage = Stage(contract, hooks)
        self.acts = Acts(self.stage, hooks, slots, jobs)
        self.places: list[Place] = []
        self.by_look: dict[Any, Place] = {}
        self.by_frame: dict[Any, Place] = {}
        self.frames: list[Frame] = []
        """Frames are known by identity in by_frame, so they must outlive it."""
        self.numbers: dict[State, int] = {}
        self.parents: list[tuple[int, tuple[Any, ...], tuple[int, ...]]] = []
        self.depths: list[int] = []
        self.transitions = 0

    def run(self, states: int) -> Exploration:
        queue: deque[tuple[int, State]] = deque()
        first = Next((), Frame((), (), (), (), ()), (NEWBORN,) * WORKERS)
        self._meet(0, first, queue)
        violation = None
        while queue and len(self.numbers) < states and violation is None:
            number, state = queue.popleft()
            violation = self._expand(number, state, queue)
        seen = (len(self.numbers), self.transitions, len(self.places), self.stage.plays, max(self.depths))
        return Exploration(self.stage.contract.name, *seen, exhausted=not queue, violation=violation)

    def _expand(self, number: int, state: State, queue: deque[tuple[int, State]]) -> Violation | None:
        place, workers = self.places[state[0]], state[1]
        try:
            for step in self.acts.successors(place, workers):
                self.transitions += 1
                if step.broken and step.broken[1] not in self.tolerated:
                    raise Broken(*step.broken, step.label)
                self._meet(number, step, queue)
        except Broken as broken:
            return Violation(broken.job_id, broken.rule, broken.detail, path=self._path(number, broken.label))
        return None

    def _meet(self, parent: int, step: Next, queue: deque[tuple[int, State]]) -> None:
        order = sorted(range(WORKERS), key=lambda i: shape(step.workers[i]))
        workers = [step.workers[i] for i in order]
        names, known = self._names(step.frame, workers)
        place = self._place(step.frame, names, known)
        state = (place.number, tuple(renamed(memory, names) for memory in workers))
        if state in self.numbers:
            return
        self._check(place, state, step.label)
        number = self.numbers[state] = len(self.numbers)
        self.parents.append((parent, step.label, tuple(order)))
        self.depths.append(self.depths[parent] + 1 if number else 0)
        queue.append((number, state))

    def _names(self, frame: Frame, workers: list[Memory]) -> tuple[dict[str, str], set[str]]:
        """Tokens in the order of the jobs that bear them, then of the workers that speak of them."""
        spoken = [token for memory in workers for token in tokens_of(memory)]
        known = set(spoken)
        borne = [token for token, stands in self.stage.desk.tokens(frame) if token and (stands or token in known)]
        return {token: f"t{n}" for n, token in enumerate(dict.fromkeys([*borne, *spoken]))}, known

    def _place(self, frame: Frame, names: dict[str, str], known: set[str]) -> Place:
        borne = [token for token, _ in self.stage.desk.tokens(frame)]
        key = (id(frame), tuple((names.get(token or ""), token in known) for token in borne))
        place = self.by_frame.get(key)
        if place is None:
            self.frames.append(frame)
            named = self.stage.desk.renamed(frame, names)
            seen = self.stage.desk.look(named, {names[token] for token in known})
            place = self.by_look.get(seen)
            if place is None:
                place = self.by_look[seen] = Place(len(self.places), named, seen, next_moment(seen))
                self.places.append(place)
            self.by_frame[key] = place
        return place

    def _check(self, place: Place, state: State, label: tuple[Any, ...]) -> None:
        """What only the rows and the workers' memories together can tell."""
        for number, job in enumerate(place.jobs):
            if job is not None and job.phase == Phase.LEASED:
                holders = sum((number, job.token) in {(h.job, h.token) for h in memory.held} for memory in state[1])
                if holders > 1:
                    raise Broken(JOBS[number], "holder.two", f"{holders} workers hold the job's token", label)

    def _path(self, number: int, last: tuple[Any, ...]) -> list[str]:
        """The shortest way here, with each worker under one name all along."""
        chain = []
        while number:
            parent, label, order = self.parents[number]
            chain.append((label, order))
            number = parent
        names = list(range(1, WORKERS + 1))
        told = []
        for label, order in reversed(chain):
            told.append(_sentence(label, names))
            names = [names[i] for i in order]
        told.append(_sentence(last, names))
        return [f"{n}. {sentence}" for n, sentence in enumerate(told, 1)]


def _sentence(label: tuple[Any, ...], names: list[int]) -> str:
    worker, *words = label
    text = " ".join(str(word) for word in words)
    return text if worker is None else f"worker {names[worker]} {text}"
