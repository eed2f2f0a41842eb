"""Virtual time: coroutines that pause, wait for flags and call the store, one at a time, in an order the seed fixes."""

import heapq
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from detent.core.errors import StoreUnavailable
from detent.core.job import Micros
from detent.proof.controlled_store import ManualClock, StoreCall

MS: Micros = 1_000
SECOND: Micros = 1_000_000


class Pause:
    """Let so much virtual time pass."""

    __slots__ = ("span",)

    def __init__(self, span: Micros) -> None:
        self.span = span

    def __await__(self) -> Generator["Pause", None, None]:
        yield self


class Flag:
    """Something one task waits for and others raise."""

    __slots__ = ("raised", "sleeper")

    def __init__(self) -> None:
        self.raised = False
        self.sleeper: Task | None = None

    def set(self) -> None:
        self.raised = True
        if self.sleeper is not None:
            task, self.sleeper = self.sleeper, None
            task.loop.after(0, task.resume)

    def clear(self) -> None:
        self.raised = False

    def __await__(self) -> Generator["Flag", None, None]:
        if not self.raised:
            yield self


class Process:
    """What crashes and stalls as one: its tasks stop together and lose what they knew."""

    def __init__(self, loop: "Loop", name: str) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        self.stalled_until: Micros = 0
        self.tasks: list[Task] = []
        self.calls_survive = True
        """Do calls that were already sent still reach the store if the process dies?"""

    def start(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> "Task":
        task = Task(self, begin)
        self.tasks = [one for one in self.tasks if not one.over]
        self.tasks.append(task)
        self.loop.after(0, task.resume)
        return task

    def kill(self) -> None:
        self.alive = False
        for task in self.tasks:
            task.over = True


class Task:
    """One coroutine of a process."""

    __slots__ = ("begin", "coroutine", "loop", "over", "process", "thrown")

    def __init__(self, process: Process, begin: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.process = process
        self.loop = process.loop
        self.begin = begin
        self.coroutine: Coroutine[Any, Any, Any] | None = None
        self.over = False
        self.thrown: BaseException | None = None

    def throw(self, error: BaseException) -> None:
        """Raise this where the task stands, instead of whatever it waits for."""
        self.thrown = error
        self.loop.after(0, self.resume)

    def resume(self, answer: Any = None, error: BaseException | None = None) -> None:
        if self.over:
            return
        if self.process.stalled_until > self.loop.time:
            self.loop.at(self.process.stalled_until, lambda: self.resume(answer, error))
            return
        error, self.thrown = self.thrown or error, None
        self.loop.current = self
        if self.coroutine is None:
            self.coroutine = self.begin()
        try:
            asked = self.coroutine.throw(error) if error else self.coroutine.send(answer)
        except StopIteration:
            self.over = True
            return
        self.loop.serve(self, asked)


class Loop:
    """The scheduler. `store` decides how a store call fares; everything else is time and order."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.time: Micros = 0
        self.steps = 0
        self.current: Task | None = None
        self._start = clock.wall
        self._apart: Micros = 0
        self._heap: list[tuple[Micros, int, Callable[[], object]]] = []
        self._made = 0
        self.store: Callable[[Task, StoreCall], None] = lambda task, call: task.resume(call.run())

    def at(self, moment: Micros, act: Callable[[], object]) -> None:
        self._made += 1
        heapq.heappush(self._heap, (max(moment, self.time), self._made, act))

    def after(self, span: Micros, act: Callable[[], object]) -> None:
        self.at(self.time + span, act)

    def jump(self, span: Micros) -> None:
        """The wall clock is set; monotonic time knows nothing of it."""
        self._apart += span
        self._tell_clock()

    def run(self, until: Micros, stop: Callable[[], bool] = lambda: False) -> None:
        while self._heap and self._heap[0][0] <= until and not stop():
            self.time, _, act = heapq.heappop(self._heap)
            self._tell_clock()
            self.steps += 1
            act()
        self.time = max(self.time, until) if not stop() else self.time
        self._tell_clock()

    def clear(self) -> None:
        """The end of time: nothing that was planned will happen."""
        self._heap.clear()

    def serve(self, task: Task, asked: object) -> None:
        if isinstance(asked, Pause):
            self.after(asked.span, task.resume)
        elif isinstance(asked, Flag):
            asked.sleeper = task
        elif isinstance(asked, StoreCall):
            self.store(task, asked)
        else:
            raise TypeError(f"{task.process.name} awaited {asked!r}, which virtual time does not know")

    def _tell_clock(self) -> None:
        self.clock.wall = self._start + self.time + self._apart
        self.clock.mono = self.time / SECOND
        self.clock.highest = max(self.clock.highest, self.clock.wall)


def unavailable(when: str) -> StoreUnavailable:
    return StoreUnavailable(f"planted: the store failed {when} the commit")
