"""Counting all jobs takes a while where there are millions: done aside, and a page gets the last count at once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.core.job import Micros
from detent.system.clock import SystemClock

if TYPE_CHECKING:
    from detent.web.http.state import Web

_PATIENCE_SECONDS = 0.1
_FRESH_SECONDS = 0.5
_SHARE = 20.0
"""Counting may take a twentieth of the time."""


@dataclass(frozen=True, slots=True)
class Counts:
    """(contract, status, phase, how many), and when that was so."""

    at: Micros
    rows: list[tuple[str, str, str, int]]


class Counter:
    """One count at a time for everybody; the last one is kept until the next."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._clock = SystemClock()
        self._last: Counts | None = None
        self._good_until = 0.0
        self._counting: asyncio.Task[None] | None = None

    async def look(self) -> Counts | None:
        """The newest count there is within a moment; None if there is none yet."""
        if self._clock.monotonic() >= self._good_until and (self._counting is None or self._counting.done()):
            self._counting = asyncio.create_task(self._count(), name="detent-web-count")
            self._web.keep(self._counting)
        if self._counting is not None:
            await asyncio.wait({self._counting}, timeout=_PATIENCE_SECONDS)
        return self._last

    async def _count(self) -> None:
        began = self._clock.monotonic()
        engine = await self._web.engine()
        rows = await engine.store.read(lambda tx: tx.counts())
        self._last = Counts(engine.store.now(), rows)
        now = self._clock.monotonic()
        self._good_until = now + max(_FRESH_SECONDS, (now - began) * _SHARE)


class Shared:
    """Answers that count everything: exact while that is quick; where it is slow, one count at a time serves all."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._clock = SystemClock()
        self._kept: dict[str, tuple[float, dict[str, Any]]] = {}
        self._under_way: dict[str, tuple[float, asyncio.Task[dict[str, Any]]]] = {}

    async def told(self, key: str, count: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """What the count tells, or told a moment ago; `at` in the answer says when that was so."""
        now = self._clock.monotonic()
        good_until, kept = self._kept.get(key, (now, {}))
        if now < good_until:
            return kept
        began, task = self._under_way.get(key, (now, None))
        if task is None or now - began < _PATIENCE_SECONDS:  # a quick one may have begun before the caller's last act
            task = asyncio.create_task(self._count(key, count), name="detent-web-stats")
            self._under_way[key] = now, task
            self._web.keep(task)
        return await asyncio.shield(task)

    async def _count(self, key: str, count: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        began = self._clock.monotonic()
        try:
            found = await count()
            now = self._clock.monotonic()
            if now - began > _PATIENCE_SECONDS:
                self._kept = {name: one for name, one in self._kept.items() if one[0] > now}
                self._kept[key] = now + (now - began) * _SHARE, found
            return found
        finally:
            if self._under_way.get(key, (0, None))[1] is asyncio.current_task():
                del self._under_way[key]
