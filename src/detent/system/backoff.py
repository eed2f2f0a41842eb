"""Backoff: the pauses of a loop that tries again after an error."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Sleep = Callable[[float], Awaitable[Any]]


class Backoff:
    """Pauses that double from `first` to `longest` seconds with every failure in a row.

        backoff = Backoff(0.1, 5.0)
        while True:
            try:
                await work()
                backoff.reset()
            except OSError:
                await backoff.pause()

    failures: how many there have been already. sleep: for tests and for other kinds of time.
    """

    def __init__(self, first: float, longest: float, *, failures: int = 0, sleep: Sleep = asyncio.sleep) -> None:
        self._first = first
        self._longest = longest
        self._failures = failures
        self._sleep = sleep

    @property
    def seconds(self) -> float:
        """How long the next pause is."""
        return min(self._first * 2.0 ** min(self._failures, 64), self._longest)

    async def pause(self) -> None:
        seconds = self.seconds
        self._failures += 1
        await self._sleep(seconds)

    def reset(self) -> None:
        """Begin with the shortest pause again, after a success."""
        self._failures = 0
