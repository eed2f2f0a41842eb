"""The explorer: a breadth-first search over all interleavings of two workers, their jobs, a sweeper and an operator.

The engine, the worker's state machine and SQLite are the real ones; the search controls time, ids and the order of
store calls. A state is a normalized database snapshot together with the memory of both workers. Every state is checked
against the invariants, and the search reports the shortest path to the first violation.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from detent.core.contract.model import Contract, Phase
from detent.proof.controlled_store import DEFAULT_HOOKS, BrokenRule, Hooks
from detent.proof.verify.rules import Finding

from .engine_calls import EngineCalls
from .handlers import Scenario
from .snapshot import JOBS, DatabaseState, StateSnapshot, next_deadline
from .transitions import Transition, Transitions
from .worker_memory import NEW_WORKER, WorkerMemory, rename_tokens, sort_key, tokens_of

WORKERS = 2
STATES = 20_000
State = tuple[int, tuple[WorkerMemory, ...]]
"""(number of the database state, memories of the workers)"""


@dataclass(frozen=True, slots=True)
class Exploration:
    """The result of a search."""

    contract: str
    scenario: Scenario
    states: int
    transitions: int
    places: int
    """Distinct database states."""
    plays: int
    """Calls executed on the real engine; all others came from the cache."""
    depth: int
    """Steps to the state that is farthest from the start."""
    exhausted: bool
    """Whether no state is left, or none within the depth that was requested."""
    violation: Finding | None = None
    path: Sequence[str] = ()
    """The steps that lead to the violation."""

    @property
    def ok(self) -> bool:
        return self.violation is None

    def as_dict(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in self.__slots__ if name not in ("violation", "path")}
        violation = {**self.violation._asdict(), "path": self.path} if self.violation else None
        return {**counts, "ok": self.ok, "violation": violation}


def explore(
    contract: Contract,
    *,
    states: int = STATES,
    hooks: Hooks = DEFAULT_HOOKS,
    slots: int = 1,
    jobs: int | None = None,
    tolerated: Collection[str] = (),
    scenario: Scenario = Scenario.JOBS,
    depth: int | None = None,
) -> Exploration:
    """Search until `states` were visited, no new state is left, or a rule not in `tolerated` is broken.

    jobs: default: as many as the scenario has.
    depth: states that are so many steps from the start are checked, and their successors are not searched.
    """
    return _Search(contract, hooks, slots, jobs or scenario.jobs, tolerated, scenario).run(states, depth)


class _Search:
    def __init__(
        self, contract: Contract, hooks: Hooks, slots: int, jobs: int, tolerated: Collection[str], scenario: Scenario
    ) -> None:
        self.tolerated = tolerated
        self.scenario = scenario
        self.calls = EngineCalls(contract, hooks)
        self.successors = Transitions(self.calls, hooks, slots, jobs, scenario).successors
        self.database_states: list[DatabaseState] = []
        self.by_content: dict[Any, DatabaseState] = {}
        self.by_snapshot: dict[Any, DatabaseState] = {}
        self.snapshots: list[StateSnapshot] = []
        """Keeps snapshots alive: by_snapshot uses their id() as a key."""
        self.numbers: dict[State, int] = {}
        self.parents: list[tuple[int, tuple[Any, ...], tuple[int, ...]]] = []
        self.depths: list[int] = []
        self.transitions = 0

    def run(self, states: int, depth: int | None) -> Exploration:
        queue: deque[tuple[int, State]] = deque()
        first = Transition((), StateSnapshot((), (), (), (), ()), (NEW_WORKER,) * WORKERS)
        self._visit(0, first, queue)
        violation: tuple[Finding | None, list[str]] = (None, [])
        while queue and len(self.numbers) < states and violation[0] is None:
            number, state = queue.popleft()
            if depth is None or self.depths[number] < depth:
                violation = self._expand(number, state, queue)
        sizes = (len(self.numbers), self.transitions, len(self.database_states), self.calls.executed, max(self.depths))
        return Exploration(self.calls.contract.name, self.scenario, *sizes, not queue, *violation)

    def _expand(self, number: int, state: State, queue: deque[tuple[int, State]]) -> tuple[Finding | None, list[str]]:
        for transition in self.successors(self.database_states[state[0]], state[1]):
            self.transitions += 1
            broken = transition.violation
            if broken is None or broken[1] in self.tolerated:
                broken = self._visit(number, transition, queue)
            if broken:
                job_id, rule, detail = broken
                return Finding(job_id, None, rule, detail), self._path(number, transition.label)
        return None, []

    def _visit(self, parent: int, transition: Transition, queue: deque[tuple[int, State]]) -> BrokenRule | None:
        """Normalize the state a transition leads to; check and enqueue it if it is new. Returns the rule it breaks."""
        order = sorted(range(WORKERS), key=lambda i: sort_key(transition.workers[i]))
        workers = [transition.workers[i] for i in order]
        names, usable = self._token_names(transition.snapshot, workers)
        database_state = self._database_state(transition.snapshot, names, usable)
        state = (database_state.number, tuple(rename_tokens(memory, names) for memory in workers))
        if state in self.numbers:
            return None
        if broken := _second_holder(database_state, state):
            return broken
        number = self.numbers[state] = len(self.numbers)
        self.parents.append((parent, transition.label, tuple(order)))
        self.depths.append(self.depths[parent] + 1 if number else 0)
        queue.append((number, state))
        return None

    def _token_names(self, snapshot: StateSnapshot, workers: list[WorkerMemory]) -> tuple[dict[str, str], set[str]]:
        """New names t0, t1, … in the order of jobs, then of workers; and the tokens that workers remember."""
        remembered = [token for memory in workers for token in tokens_of(memory)]
        usable = set(remembered)
        stored = [
            token for token, leased in self.calls.database.tokens(snapshot) if token and (leased or token in usable)
        ]
        return {token: f"t{n}" for n, token in enumerate(dict.fromkeys([*stored, *remembered]))}, usable

    def _database_state(self, snapshot: StateSnapshot, names: dict[str, str], usable: set[str]) -> DatabaseState:
        database = self.calls.database
        tokens = [token for token, _ in database.tokens(snapshot)]
        key = (id(snapshot), tuple((names.get(token or ""), token in usable) for token in tokens))
        state = self.by_snapshot.get(key)
        if state is None:
            self.snapshots.append(snapshot)
            renamed = database.rename_tokens(snapshot, names)
            jobs = database.job_states(renamed, {names[token] for token in usable})
            state = self.by_content.get(jobs)
            if state is None:
                state = DatabaseState(len(self.database_states), renamed, jobs, next_deadline(jobs))
                self.by_content[jobs] = state
                self.database_states.append(state)
            self.by_snapshot[key] = state
        return state

    def _path(self, number: int, last: tuple[Any, ...]) -> list[str]:
        """The steps from the start to state `number` and the step `last`; a worker keeps its number throughout.

        States store their workers in sorted order, so the permutations are undone on the way.
        """
        chain = []
        while number:
            parent, label, order = self.parents[number]
            chain.append((label, order))
            number = parent
        names = list(range(1, WORKERS + 1))
        sentences = []
        for label, order in reversed(chain):
            sentences.append(_sentence(label, names))
            names = [names[i] for i in order]
        sentences.append(_sentence(last, names))
        return [f"{n}. {sentence}" for n, sentence in enumerate(sentences, 1)]


def _sentence(label: tuple[Any, ...], names: list[int]) -> str:
    worker, *words = label
    text = " ".join(str(word) for word in words)
    return text if worker is None else f"worker {names[worker]} {text}"


def _second_holder(database_state: DatabaseState, state: State) -> BrokenRule | None:
    """The invariant that needs rows and workers together: one holder per lease."""
    for number, job in enumerate(database_state.jobs):
        if job is not None and job.phase == Phase.LEASED:
            holders = sum((number, job.token) in {(h.job, h.token) for h in memory.held} for memory in state[1])
            if holders > 1:
                return JOBS[number], "holder.two", f"{holders} workers hold the job's token"
    return None
