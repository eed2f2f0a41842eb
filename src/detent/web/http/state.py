"""What one API keeps while it runs: its engine, its people, its limits. One for each application made."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from detent.core.errors import DetentError
from detent.engine import Engine
from detent.observability.maintenance import MaintenanceLoop
from detent.observability.settings import load_settings
from detent.ports.tx import Tx
from detent.system.clock import SystemClock
from detent.web.live.event_stream import Stream
from detent.web.live.job_counts import Counter, Shared
from detent.web.live.series_recorder import record
from detent.web.live.verification import Verifier
from detent.worker.reclaim_grace import ReclaimGrace
from detent.worker.sweeper import Sweeper

from .authentication import Authenticator
from .commit_watch import CommitWatch
from .limits import Buckets
from .settings import Settings

if TYPE_CHECKING:
    from detent.client.app import Detent

log = logging.getLogger("detent.web")
_PROBE_SECONDS = 0.4


class Web:
    """Opens lazily: an application mounted in another one never hears that the server has started."""

    def __init__(self, target: "Detent | Engine", settings: Settings) -> None:
        self.settings = settings
        self.people = Authenticator(self)
        self.stream = Stream(self)
        self.changes = CommitWatch(self)
        self.counts = Counter(self)
        self.shared_counts = Shared(self)
        self.verifier = Verifier(self)
        self.buckets = Buckets(settings.rate_per_second)
        self.on_close: list[Callable[[], Any]] = []
        self._target = target
        self._tasks: set[asyncio.Task[Any]] = set()
        self._probing: asyncio.Future[bool] | None = None
        self.documents: dict[Any, dict[str, Any]] = {}
        self.leaving = asyncio.Event()
        """Set when the server is about to stop: whoever follows or waits is sent away."""
        self.alive_at = float("-inf")
        """When a request was last answered, by the loop's clock."""
        self._started = False

    async def engine(self) -> Engine:
        target = self._target
        engine = target if isinstance(target, Engine) else await target.ready()
        if not self._started:
            self._started = True
            if self.settings.sweep:
                self.keep(asyncio.create_task(_sweep(engine), name="detent-web-sweeper"))
                self.keep(
                    asyncio.create_task(MaintenanceLoop(engine, load_settings()).run(), name="detent-web-lookout")
                )
            if self.settings.record:
                self.keep(asyncio.create_task(record(engine), name="detent-web-record"))
        return engine

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """A task that nobody waits for; it ends with the application at the latest."""
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("a task of the API ended: %s", error)

    async def is_there(self) -> bool:
        """Does the database server answer at all? A file is always there. Asked at most once at a time."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.ensure_future(self._within_reason(_uptime))
        return await asyncio.shield(self._probing)

    async def answers(self) -> bool:
        """Can it be read, now?"""
        return await self._within_reason(_read)

    async def _within_reason(self, ask: Callable[[Engine], Awaitable[Any]]) -> bool:
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await ask(await self.engine())
                return True
        except (TimeoutError, DetentError, OSError):
            return False

    async def close(self) -> None:
        for act in self.on_close:
            with suppress(Exception):
                await act()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._started = False
        if not isinstance(self._target, Engine):
            await self._target.close()


async def _sweep(engine: Engine) -> None:
    reclaim_grace = ReclaimGrace(SystemClock(), engine.contract(None).lease_seconds)
    await reclaim_grace.meet(engine.store)
    await Sweeper(engine, reclaim_grace).run()


async def _uptime(engine: Engine) -> None:
    await engine.store.uptime()


async def _read(engine: Engine) -> None:
    async def look(tx: Tx) -> None:
        await tx.query("lane_version")

    await engine.store.read(look)
