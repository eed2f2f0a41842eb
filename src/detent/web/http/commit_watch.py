"""Word of commits for everyone who waits here: one watch on the store, however many wait."""

import asyncio
from typing import TYPE_CHECKING

from detent.core.errors import DetentError

if TYPE_CHECKING:
    from .state import Web

_LOOK_SECONDS = 0.5


class CommitWatch:
    """Watches the store while anybody waits, and not a moment longer."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._waiting = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def wait(self, seconds: float) -> None:
        """Until something may have been committed, at most this long."""
        self._waiting += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="detent-web-changes")
            self._web.keep(self._task)
        changed = self._changed
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1

    async def _run(self) -> None:
        watch = (await self._web.engine()).store.watch()
        while self._waiting:
            try:
                changed = await watch.changed(_LOOK_SECONDS)
            except DetentError:
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            if changed:
                told, self._changed = self._changed, asyncio.Event()
                told.set()
                await asyncio.sleep(0.001)
