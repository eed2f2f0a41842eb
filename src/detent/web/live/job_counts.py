"""Counts of all jobs. Counting millions of jobs is slow, so it runs in the background and results are reused."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from detent.core.errors import StoreUnavailable
from detent.engine.reads.responses import JsonObject
from detent.system.clock import SystemClock

if TYPE_CHECKING:
    from detent.web.http.state import Web

_SLOW_SECONDS = 0.1
"""A count that takes longer than this is slow."""
_REUSE_FACTOR = 20.0
"""A slow count that took n seconds is reused for 20 n seconds, so counting takes at most a twentieth of the time."""
_MAX_RESULTS = 1_000
Count = Callable[[], Awaitable[JsonObject]]


class SharedCounts:
    """Runs counting queries. Fast ones run for every caller and are exact; slow ones are shared and reused."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._clock = SystemClock()
        self._results: dict[str, tuple[float, JsonObject]] = {}
        """key -> (until when the result is reused, the last result)"""
        self._running: dict[str, tuple[float, asyncio.Task[JsonObject]]] = {}

    async def get(self, key: str, count: Count, *, exact: bool = True) -> JsonObject:
        """The result of `count`, or a recent one under the same key.

        exact=False: shares a running count even if that may have started before the caller's last change.
        """
        now = self._clock.monotonic()
        fresh_until, result = self._results.get(key, (now, {}))
        if now < fresh_until:
            return result
        started, task = self._running.get(key, (now, None))
        if task is None or (exact and now - started < _SLOW_SECONDS):
            task = self._web.start(self._count(key, count), "stats")
            self._running[key] = now, task
        return await asyncio.shield(task)

    async def latest(self, key: str, count: Count) -> JsonObject | None:
        """The newest result that is available within `_SLOW_SECONDS`, also while the store is down; None before the
        first one."""
        try:
            async with asyncio.timeout(_SLOW_SECONDS):
                return await self.get(key, count, exact=False)
        except (TimeoutError, StoreUnavailable):
            return self._results.get(key, (0.0, None))[1]

    async def _count(self, key: str, count: Count) -> JsonObject:
        started = self._clock.monotonic()
        try:
            result = await count()
            now = self._clock.monotonic()
            if len(self._results) >= _MAX_RESULTS:
                self._results = {name: entry for name, entry in self._results.items() if entry[0] > now}
            seconds = now - started
            self._results[key] = now + (seconds * _REUSE_FACTOR if seconds > _SLOW_SECONDS else 0.0), result
            return result
        finally:
            if self._running.get(key, (0, None))[1] is asyncio.current_task():
                del self._running[key]
