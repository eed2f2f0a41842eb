"""An asyncio event loop in virtual time: it runs one callback at a time, in an order fixed by the seed.

Whatever uses asyncio runs on it unchanged. Tasks belong to simulated processes: a killed process runs no further
callback, not even `finally` blocks, and a stalled one runs its callbacks when the stall ends.
"""

import asyncio
import heapq
import math
from asyncio import events
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any

from detent.core.job import Micros
from detent.proof.controlled_store import ManualClock

MS: Micros = 1_000
SECOND: Micros = 1_000_000
_MAX_CLOSES = 10
"""How often a coroutine that awaits while it is closed is closed again."""
_MIN_TASKS = 500
current_process: ContextVar["Process | None"] = ContextVar("current_process", default=None)


class Process:
    """A simulated process: its tasks crash and stall together, and a crash loses their state."""

    def __init__(self, loop: "SimulatedLoop", name: str) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        self.stalled_until: Micros = 0
        self._stalled: list[events.Handle] = []
        self.slow_until: Micros = 0
        """Handlers take longer up to this time."""
        self.calls_survive = True
        """Whether store calls already sent are still executed after the process has died."""
        self._context = copy_context()
        self._context.run(current_process.set, self)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as a task of this process."""
        task: asyncio.Task[Any] = self.loop.create_task(coroutine, context=self._context.copy())
        return task

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function as this process: tasks and timers that it creates belong to the process."""
        return self._context.run(function, *args)

    def stall(self, span: Micros) -> None:
        """Run no callback for this long; a second call replaces the end of the first stall."""
        self.stalled_until = self.loop.now + span
        self.loop.after(span, self._end_stall)

    def _end_stall(self) -> None:
        if self.stalled_until <= self.loop.now:
            handles, self._stalled = self._stalled, []
            for handle in handles:
                self.loop.push(self.loop.now, handle)

    def keeps(self, handle: events.Handle) -> bool:
        """True if the handle is not to be run now: the process is dead, or it runs the handle after its stall."""
        if self.alive and self.stalled_until > self.loop.now:
            self._stalled.append(handle)
            return True
        return not self.alive

    def kill(self) -> None:
        self.alive = False
        self._stalled.clear()


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The part of an event loop that tasks, futures, timers and locks need; there is no I/O and there are no threads.

    Callbacks for the same moment run in the order in which they were scheduled.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.now: Micros = 0
        self.errors: list[str] = []
        """What was passed to the loop's exception handler."""
        self._start = clock.wall
        self._wall_offset: Micros = 0
        self._heap: list[tuple[Micros, int, events.Handle]] = []
        self._pushed = 0
        self._tasks: list[asyncio.Task[Any]] = []
        """Keeps the tasks of dead processes alive: collected as garbage, they would run their `finally` blocks."""
        self._max_tasks = _MIN_TASKS
        self._stopped = False
        self._closed = False

    def run(self, until: Micros) -> None:
        """Run all callbacks up to a moment, or until `stop` is called."""
        heap = self._heap
        events._set_running_loop(self)
        try:
            while heap and heap[0][0] <= until and not self._stopped:
                moment, _, handle = heapq.heappop(heap)
                if handle._cancelled:
                    continue
                if moment != self.now:
                    self.now = moment
                    self._update_clock()
                process = handle._context.get(current_process)  # type: ignore[attr-defined]
                if process is None or not process.keeps(handle):
                    handle._run()
        finally:
            events._set_running_loop(None)
        if not self._stopped:
            self.now = max(self.now, until)
        self._update_clock()

    def stop(self) -> None:
        """Run no further callback."""
        self._stopped = True

    def push(self, moment: Micros, handle: events.Handle) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (max(moment, self.now), self._pushed, handle))

    def after(self, span: Micros, callback: Callable[[], object]) -> None:
        """Call something that belongs to no process."""
        self.push(self.now + span, events.Handle(callback, (), self, _OUTSIDE))

    def jump_wall_clock(self, span: Micros) -> None:
        """Set the wall clock forward or back; monotonic time is not affected."""
        self._wall_offset += span
        self._update_clock()

    def _update_clock(self) -> None:
        clock = self.clock
        clock.wall = self._start + self.now + self._wall_offset
        clock.mono = self.now / SECOND
        if clock.wall > clock.highest:
            clock.highest = clock.wall

    def time(self) -> float:
        return self.now / SECOND

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> events.Handle:
        handle = events.Handle(callback, args, self, context)
        if not self._closed:
            self.push(self.now, handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        handle = events.TimerHandle(when, callback, args, self, context)
        if not self._closed:
            at_least = self.now + (when > self.time())  # a moment of less than a microsecond must pass, too
            self.push(max(at_least, math.ceil(round(when * SECOND, 3))), handle)
        return handle

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Cancelled handles are skipped when their moment comes."""

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        if len(self._tasks) > self._max_tasks:
            self._tasks = [other for other in self._tasks if not other.done()]
            self._max_tasks = 2 * len(self._tasks) + _MIN_TASKS
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Any, *args: Any
    ) -> "asyncio.Future[Any]":
        """Call the function at once: there are no threads."""
        future = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End all tasks without effects on other objects, so that thousands of simulations do not pile up."""
        self._closed = True
        self._heap.clear()
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            for _ in range(_MAX_CLOSES):
                if coroutine.cr_frame is None:
                    break
                with suppress(BaseException):
                    coroutine.close()
        self._tasks.clear()


def new_loop(clock: ManualClock) -> SimulatedLoop:
    return SimulatedLoop(clock)  # type: ignore[abstract]  # the methods for I/O are missing


_OUTSIDE = Context()
