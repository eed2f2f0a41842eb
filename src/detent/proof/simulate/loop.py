"""A discrete-event scheduler in virtual time: it runs coroutines one at a time, in an order fixed by the seed.

Coroutines may await a Pause, a Flag or a StoreCall, and nothing else.
"""

import heapq
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from detent.core.errors import StoreUnavailable
from detent.core.job import Micros
from detent.proof.controlled_store import ManualClock, StoreCall

MS: Micros = 1_000
SECOND: Micros = 1_000_000


class Pause:
    """Awaiting it sleeps for `span` of virtual time."""

    __slots__ = ("span",)

    def __init__(self, span: Micros) -> None:
        self.span = span

    def __await__(self) -> Generator["Pause", None, None]:
        yield self


class Flag:
    """Like asyncio.Event, for one waiting task."""

    __slots__ = ("raised", "waiter")

    def __init__(self) -> None:
        self.raised = False
        self.waiter: Task | None = None

    def set(self) -> None:
        self.raised = True
        if self.waiter is not None:
            task, self.waiter = self.waiter, None
            task.loop.after(0, task.resume)

    def clear(self) -> None:
        self.raised = False

    def __await__(self) -> Generator["Flag", None, None]:
        if not self.raised:
            yield self


class Process:
    """A simulated process: its tasks crash and stall together, and a crash loses their state."""

    def __init__(self, loop: "Loop", name: str) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        self.stalled_until: Micros = 0
        self._stalled_tasks: list[Callable[[], object]] = []
        self.tasks: list[Task] = []
        self.calls_survive = True
        """Whether store calls already sent are still executed after the process has died."""

    def start(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> "Task":
        task = Task(self, begin)
        self.tasks = [*(other for other in self.tasks if not other.finished), task]
        self.loop.after(0, task.resume)
        return task

    def stall(self, span: Micros) -> None:
        """Run no task for this long; a second call replaces the end of the first stall."""
        self.stalled_until = self.loop.time + span
        self.loop.after(span, self._end_stall)

    def when_not_stalled(self, callback: Callable[[], object]) -> bool:
        """False if the process is stalled: then the callback is called at the end of the stall."""
        if self.stalled_until <= self.loop.time:
            return True
        self._stalled_tasks.append(callback)
        return False

    def _end_stall(self) -> None:
        if self.stalled_until <= self.loop.time:
            callbacks, self._stalled_tasks = self._stalled_tasks, []
            for callback in callbacks:
                callback()

    def kill(self) -> None:
        self.alive = False
        for task in self.tasks:
            task.finished = True


class Task:
    """One coroutine of a process."""

    __slots__ = ("begin", "coroutine", "finished", "loop", "process", "thrown")

    def __init__(self, process: Process, begin: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.process = process
        self.loop = process.loop
        self.begin = begin
        self.coroutine: Coroutine[Any, Any, Any] | None = None
        self.finished = False
        self.thrown: BaseException | None = None

    def throw(self, error: BaseException) -> None:
        """Raise this at the task's current await, whatever it waits for."""
        self.thrown = error
        self.loop.after(0, self.resume)

    def resume(self, value: Any = None, error: BaseException | None = None) -> None:
        """Run the coroutine up to its next await; a stalled process resumes when its stall ends."""
        if self.finished or not self.process.when_not_stalled(lambda: self.resume(value, error)):
            return
        error, self.thrown = self.thrown or error, None
        self.loop.current = self
        if self.coroutine is None:
            self.coroutine = self.begin()
        try:
            awaited = self.coroutine.throw(error) if error else self.coroutine.send(value)
        except StopIteration:
            self.finished = True
            return
        self.loop.wait_for(self, awaited)


class Loop:
    """The scheduler: a heap of callbacks by virtual time. `run_store_call` decides the fate of each store call."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.time: Micros = 0
        self.steps = 0
        self.current: Task | None = None
        self._start = clock.wall
        self._wall_offset: Micros = 0
        self._heap: list[tuple[Micros, int, Callable[[], object]]] = []
        self._scheduled = 0
        self.run_store_call: Callable[[Task, StoreCall], None] = lambda task, call: task.resume(call.run())

    def at(self, moment: Micros, callback: Callable[[], object]) -> None:
        """Callbacks for the same moment run in the order in which they were scheduled."""
        self._scheduled += 1
        heapq.heappush(self._heap, (max(moment, self.time), self._scheduled, callback))

    def after(self, span: Micros, callback: Callable[[], object]) -> None:
        self.at(self.time + span, callback)

    def jump_wall_clock(self, span: Micros) -> None:
        """Set the wall clock forward or back; monotonic time is not affected."""
        self._wall_offset += span
        self._update_clock()

    def run(self, until: Micros, stop: Callable[[], bool] = lambda: False) -> None:
        while self._heap and self._heap[0][0] <= until and not stop():
            self.time, _, callback = heapq.heappop(self._heap)
            self._update_clock()
            self.steps += 1
            callback()
        self.time = max(self.time, until) if not stop() else self.time
        self._update_clock()

    def clear(self) -> None:
        """Drop all scheduled callbacks."""
        self._heap.clear()

    def wait_for(self, task: Task, awaited: object) -> None:
        if isinstance(awaited, Pause):
            self.after(awaited.span, task.resume)
        elif isinstance(awaited, Flag):
            awaited.waiter = task
        elif isinstance(awaited, StoreCall):
            self.run_store_call(task, awaited)
        else:
            raise TypeError(f"{task.process.name} awaited {awaited!r}; only Pause, Flag and StoreCall can be awaited")

    def _update_clock(self) -> None:
        self.clock.wall = self._start + self.time + self._wall_offset
        self.clock.mono = self.time / SECOND
        self.clock.highest = max(self.clock.highest, self.clock.wall)


def unavailable(when: str) -> StoreUnavailable:
    return StoreUnavailable(f"injected fault: the store failed {when} the commit")
