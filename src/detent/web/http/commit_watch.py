"""Wakes requests that wait for a commit: one watch on the store serves all of them."""

import asyncio
from typing import TYPE_CHECKING

from detent.core.errors import DetentError
from detent.system.tasks import wait_for_event

if TYPE_CHECKING:
    from .state import Web

_POLL_SECONDS = 0.5


class CommitWatch:
    """Watches the store only while at least one request waits."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._waiting = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def wait(self, seconds: float) -> None:
        """Return after the next commit that is noticed, or after this many seconds. May return without a commit."""
        self._waiting += 1
        if self._task is None or self._task.done():
            self._task = self._web.start(self._run(), "commit-watch")
        try:
            await wait_for_event(self._changed, seconds)
        finally:
            self._waiting -= 1

    async def _run(self) -> None:
        watch = (await self._web.engine()).store.watch()
        while self._waiting:
            try:
                changed = await watch.changed(_POLL_SECONDS)
            except DetentError:
                await asyncio.sleep(_POLL_SECONDS)
                continue
            if changed:
                notified, self._changed = self._changed, asyncio.Event()
                notified.set()
                await asyncio.sleep(0.001)
