"""Slots: long-lived tasks that take jobs from one queue. They are created on demand, up to a number."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from detent.ports.claims import Claimed

Execute = Callable[[Claimed, "asyncio.Task[None]"], Awaitable[None]]


class Slots:
    """Creates one task at a time: the next one only when the handlers of the others await and jobs are left."""

    def __init__(self, number: int, execute: Execute) -> None:
        self._number = number
        self._execute = execute
        self._queue: deque[Claimed] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._wake_scheduled = False
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, claimed: Iterable[Claimed]) -> None:
        self._queue.extend(claimed)
        if self._queue:
            self._wake_one()

    def drop(self, job_id: str) -> None:
        self._queue = deque(claimed for claimed in self._queue if claimed.id != job_id)

    def clear(self) -> None:
        self._queue.clear()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.pop()
            if not waiter.done():
                waiter.set_result(None)
                return
        if len(self.tasks) < self._number:
            self.tasks.append(asyncio.create_task(self._serve()))

    def _scheduled_wake(self) -> None:
        self._wake_scheduled = False
        if self._queue:
            self._wake_one()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        while True:
            while self._queue:
                claimed = self._queue.popleft()
                if self._queue and not self._wake_scheduled:  # runs only if this task awaits: then wake another slot
                    self._wake_scheduled = True
                    loop.call_soon(self._scheduled_wake)
                await self._execute(claimed, task)
            waiter = loop.create_future()
            self._waiters.append(waiter)
            await waiter
