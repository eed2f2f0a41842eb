"""Slots: long-lived tasks that take jobs from one queue, as many as there is work for, up to a number."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from detent.ports.claims import Claimed

Execute = Callable[[Claimed, "asyncio.Task[None]"], Awaitable[None]]


class Slots:
    """Made one by one when they are needed: a slot that has to wait leaves the queue to the next."""

    def __init__(self, number: int, execute: Execute) -> None:
        self._number = number
        self._execute = execute
        self._queue: deque[Claimed] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._called = False
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, claimed: Iterable[Claimed]) -> None:
        self._queue.extend(claimed)
        if self._queue:
            self._wake()

    def drop(self, job_id: str) -> None:
        self._queue = deque(claimed for claimed in self._queue if claimed.id != job_id)

    def clear(self) -> None:
        self._queue.clear()

    def _wake(self) -> None:
        while self._idle:
            sleeper = self._idle.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        if len(self.tasks) < self._number:
            self.tasks.append(asyncio.create_task(self._serve()))

    def _next(self) -> None:
        self._called = False
        if self._queue:
            self._wake()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        while True:
            while self._queue:
                claimed = self._queue.popleft()
                if self._queue and not self._called:  # heard only once this task waits for something
                    self._called = True
                    loop.call_soon(self._next)
                await self._execute(claimed, task)
            sleeper = loop.create_future()
            self._idle.append(sleeper)
            await sleeper
