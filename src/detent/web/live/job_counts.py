"""Counts of all jobs. Counting millions of jobs is slow, so it runs in the background and results are reused."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.core.job import Micros
from detent.ports.tx import StatusCount
from detent.system.clock import SystemClock

if TYPE_CHECKING:
    from detent.web.http.state import Web

_SLOW_SECONDS = 0.1
"""A count that takes longer than this is slow."""
_FRESH_SECONDS = 0.5
_REUSE_FACTOR = 20.0
"""A count that took n seconds is reused for 20 n seconds, so counting takes at most a twentieth of the time."""


class Counts(NamedTuple):
    """The counts, and when they were made."""

    at: Micros
    rows: list[StatusCount]


class JobCounter:
    """Counts jobs by contract and status. All callers share one running count and the last result."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._clock = SystemClock()
        self._last: Counts | None = None
        self._fresh_until = 0.0
        self._counting: asyncio.Task[None] | None = None

    async def latest(self) -> Counts | None:
        """The newest count that is available within `_SLOW_SECONDS`; None before the first one."""
        if self._clock.monotonic() >= self._fresh_until and (self._counting is None or self._counting.done()):
            self._counting = self._web.start(self._count(), "count")
        if self._counting is not None:
            await asyncio.wait({self._counting}, timeout=_SLOW_SECONDS)
        return self._last

    async def _count(self) -> None:
        started = self._clock.monotonic()
        engine = await self._web.engine()
        rows = await engine.store.read(lambda tx: tx.stats.counts())
        self._last = Counts(engine.store.now(), rows)
        now = self._clock.monotonic()
        self._fresh_until = now + max(_FRESH_SECONDS, (now - started) * _REUSE_FACTOR)


class SharedCounts:
    """Runs counting queries. Fast ones run for every caller and are exact; slow ones are shared and reused."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._clock = SystemClock()
        self._cache: dict[str, tuple[float, dict[str, Any]]] = {}
        self._running: dict[str, tuple[float, asyncio.Task[dict[str, Any]]]] = {}

    async def get(self, key: str, count: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """The result of `count`, or a recent one under the same key; `at` in the result is the time of the count."""
        now = self._clock.monotonic()
        fresh_until, cached = self._cache.get(key, (now, {}))
        if now < fresh_until:
            return cached
        started, task = self._running.get(key, (now, None))
        # a fast count is not shared: it may have started before the caller's last change
        if task is None or now - started < _SLOW_SECONDS:
            task = self._web.start(self._count(key, count), "stats")
            self._running[key] = now, task
        return await asyncio.shield(task)

    async def _count(self, key: str, count: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        started = self._clock.monotonic()
        try:
            result = await count()
            now = self._clock.monotonic()
            if now - started > _SLOW_SECONDS:
                self._cache = {name: entry for name, entry in self._cache.items() if entry[0] > now}
                self._cache[key] = now + (now - started) * _REUSE_FACTOR, result
            return result
        finally:
            if self._running.get(key, (0, None))[1] is asyncio.current_task():
                del self._running[key]
