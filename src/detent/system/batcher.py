"""Group commit: calls that arrive while others are being written share the next batch."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from detent.core.errors import StoreUnavailable
from detent.system.tasks import cancel_and_wait

Item = TypeVar("Item")
Result = TypeVar("Result")
Outcomes = Sequence[Result | BaseException]
"""The result or the error of each item of a batch, in order."""


class Batcher(Generic[Item, Result]):
    """Passes items on in batches, on one event loop. Every caller gets the outcome of its own item.

        record = await batcher.add(item)

    start(items, done): begins to write a batch. It must not raise and must call `done(outcomes)` once, on the loop, at
    once or later. At most `max_in_flight` batches are written at the same time; the items that arrive meanwhile form
    the next batch, up to `max_size`. size(item): what counts for that, by default 1. iterations: how many iterations of
    the event loop follow a batch before the next one begins, so that its callers and others can join.

    An item is written even if its caller is cancelled while it waits; the others do not notice.
    """

    def __init__(
        self,
        start: Callable[[list[Item], Callable[[Outcomes[Result]], None]], None],
        *,
        max_size: int,
        max_in_flight: int = 1,
        size: Callable[[Item], int] | None = None,
        iterations: int = 1,
    ) -> None:
        self._start = start
        self._max_size = max_size
        self._free = max_in_flight
        self._max_in_flight = max_in_flight
        self._size = size
        self._iterations = iterations
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._scheduled = False

    @property
    def idle(self) -> bool:
        """True if nothing is waiting or being written."""
        return not self._waiting and self._free == self._max_in_flight

    def add(self, item: Item, *, at_once: bool = True) -> "asyncio.Future[Result]":
        """Write an item; the future has its outcome. at_once: do not wait for other calls of this loop iteration."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((item, future))
        if self._scheduled or not self._free:
            return future
        if at_once:
            self._flush()
        else:
            self._scheduled = True
            loop.call_soon(self._flush)
        return future

    def _flush(self, iterations: int = 1) -> None:
        """Start the next batch, after so many iterations of the loop, this one included."""
        if iterations > 1:
            asyncio.get_running_loop().call_soon(self._flush, iterations - 1)
            return
        self._scheduled = False
        while self._waiting and self._free:
            end = self._max_size if self._size is None else self._end_of_batch(self._size)
            batch, self._waiting = self._waiting[:end], self._waiting[end:]
            self._free -= 1
            self._start([item for item, _ in batch], partial(self._finish, batch))

    def _end_of_batch(self, size: Callable[[Item], int]) -> int:
        """How many of the waiting items fit into a batch; at least one."""
        total = 0
        for number, (item, _) in enumerate(self._waiting):
            total += size(item)
            if number and total > self._max_size:
                return number
        return len(self._waiting)

    def _finish(self, batch: list[tuple[Item, "asyncio.Future[Result]"]], outcomes: Outcomes[Result]) -> None:
        self._free += 1
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if future.done():  # its caller was cancelled
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        if self._waiting and not self._scheduled:
            self._schedule_next()

    def _schedule_next(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._flush, self._iterations)


class TaskBatcher(Batcher[Item, Result]):
    """A batcher whose batches are written by a coroutine. limits: as for `Batcher`.

    `write(items)` returns the outcomes of the items; an error that it raises is the outcome of every item.
    """

    def __init__(self, write: Callable[[list[Item]], Awaitable[Outcomes[Result]]], **limits: Any) -> None:
        super().__init__(self._start_task, **limits)
        self._write = write
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, item: Item) -> Result:
        """Like `await add(item)`, but in the caller's task while nothing else is written."""
        if not self.idle:
            return await self.add(item)
        self._free -= 1
        try:
            (outcome,) = await self._write([item])
        finally:
            self._free += 1
            if self._waiting and not self._scheduled:
                self._schedule_next()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _start_task(self, items: list[Item], done: Callable[[Outcomes[Result]], None]) -> None:
        task = asyncio.create_task(self._write_batch(items, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_batch(self, items: list[Item], done: Callable[[Outcomes[Result]], None]) -> None:
        try:
            outcomes = await self._write(items)
        except Exception as error:
            outcomes = [error] * len(items)
        except BaseException:
            done([_closed()] * len(items))
            raise
        done(outcomes)

    async def close(self) -> None:
        """Cancel what is being written. The callers, and those that wait, get StoreUnavailable."""
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(_closed())
        await asyncio.sleep(0)  # a task that is cancelled before it has begun would not report to its callers
        await cancel_and_wait(self._tasks)


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the store was closed before this was written; repeat the call")


async def batch_then_each(
    items: Sequence[Item],
    run: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
    is_refusal: Callable[[Exception], bool],
) -> list[Result | Exception]:
    """Run the items as one batch; if that is refused, run each alone, so that a bad item fails without the others.

    Returns a result or the refusal for each item. Raises every error of `run` that is not a refusal.
    """
    try:
        return [*await run(items)]
    except Exception as error:
        if not items or not is_refusal(error):
            raise
        if len(items) == 1:
            return [error]
    outcomes: list[Result | Exception] = []
    for item in items:
        outcomes += await batch_then_each([item], run, is_refusal)
    return outcomes
