"""The state of one ASGI application: its engine, its authenticator, its limits and its background tasks."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from detent.core.errors import DetentError
from detent.engine import Engine
from detent.engine.metrics.time_series import SeriesRecorder
from detent.observability.maintenance import MaintenanceLoop
from detent.observability.settings import load_settings
from detent.ports.store import Store
from detent.system.clock import SystemClock
from detent.system.tasks import cancel_and_wait
from detent.web.live.event_stream import EventTail
from detent.web.live.job_counts import SharedCounts
from detent.web.live.verification import Verifier
from detent.worker.reclaim_grace import ReclaimGrace
from detent.worker.sweeper import Sweeper

from .authentication import Authenticator, Caller
from .commit_watch import CommitWatch
from .limits import RateLimiter
from .problems import RetryLater
from .proxies import Proxies
from .settings import Settings

if TYPE_CHECKING:
    from detent.client.app import Detent

T = TypeVar("T")
log = logging.getLogger("detent.web")
_PROBE_SECONDS = 0.4
_RECORD_SECONDS = 2.0
_CATCH_UP_SECONDS = 0.05
_AUDITED_SIGN_INS_PER_MINUTE = 20
"""So that nobody can fill the audit log by signing in."""
_ANSWERS_SECONDS = 60.0
_ANSWERS_AT_ONCE = 1_000


class Web:
    """Opens the engine on first use, because the lifespan events of a mounted application are never called."""

    def __init__(self, target: "Detent | Engine", settings: Settings) -> None:
        self.settings = settings
        self.proxies = Proxies(settings)
        self.authenticator = Authenticator(self)
        self.event_tail = EventTail(self)
        self.commit_watch = CommitWatch(self)
        self.shared_counts = SharedCounts(self)
        self.verifier = Verifier(self)
        self.rate_limiter = RateLimiter(settings.rate_per_second)
        self.sign_in_failures = RateLimiter(settings.sign_in_failures_per_minute / 60, 60.0)
        """By address and by the beginning of the token."""
        self.audited_sign_ins = RateLimiter(_AUDITED_SIGN_INS_PER_MINUTE / 60, 60.0)
        """By address, and all failed ones."""
        self._target = target
        self._tasks: set[asyncio.Task[Any]] = set()
        self._probe: asyncio.Future[bool] | None = None
        self.openapi_documents: dict[Any, dict[str, Any]] = {}
        self.stopping = asyncio.Event()
        """Set when the server is about to stop; event streams and waiting claims end then."""
        self.last_response_at = float("-inf")
        """When a request last succeeded, by the event loop's clock."""
        self.unfinished_bytes = 0
        """Bytes of request bodies that have not arrived completely."""
        self.streams: Counter[str] = Counter()
        """The number of event streams and waiting requests of each caller."""
        self._started = False

    async def engine(self) -> Engine:
        target = self._target
        engine = target if isinstance(target, Engine) else await target.ready()
        if not self._started:
            self._started = True
            self.start(_delete_old_answers(engine), "answers")
            if self.settings.sweep:
                self.start(_sweep(engine), "sweeper")
                self.start(MaintenanceLoop(engine, load_settings()).run(), "maintenance")
            if self.settings.record:
                self.start(record(engine), "record")
        return engine

    @contextmanager
    def stream_slot(self, caller: Caller) -> Iterator[None]:
        """Count an event stream or a request that waits for a job. Raises RetryLater (503) if there are too many."""
        streams, key = self.streams, caller.token_id or caller.person
        limits = (self.settings.max_streams, self.settings.max_streams_per_caller)
        for number, limit in zip((streams.total(), streams[key]), limits, strict=True):
            if number >= limit:
                message = f"there are already {limit} event streams and waiting requests; close some, or retry later"
                raise RetryLater(message, code="STREAMS_FULL", http_status=503)
        streams[key] += 1
        try:
            yield
        finally:
            streams[key] -= 1
            if not streams[key]:
                del streams[key]

    def start(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        """Start a background task."""
        task = asyncio.create_task(work, name=f"detent-web-{name}")
        self.track(task)
        return task

    def track(self, task: "asyncio.Task[Any]") -> None:
        """Hold a reference to a background task; `close` cancels it if it still runs."""
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("background task %s failed: %s", task.get_name(), error)

    def probe_store(self) -> "asyncio.Future[bool]":
        """Whether the database server responds; always true for SQLite. Concurrent calls share one probe."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.ensure_future(self._succeeds(lambda store: store.uptime()))
        return self._probe

    async def store_readable(self) -> bool:
        """Whether a read transaction succeeds now."""
        return await self._succeeds(lambda store: store.read(lambda tx: tx.stats.ping()))

    async def _succeeds(self, probe: Callable[[Store], Awaitable[Any]]) -> bool:
        """False if the probe fails or takes longer than `_PROBE_SECONDS`."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await probe((await self.engine()).store)
                return True
        except (TimeoutError, DetentError, OSError):
            return False

    async def close(self) -> None:
        await cancel_and_wait(list(self._tasks))
        self._started = False
        if not isinstance(self._target, Engine):
            await self._target.close()


async def _sweep(engine: Engine) -> None:
    sweeper = Sweeper(engine, SystemClock(), ReclaimGrace(engine.contract(None).lease_seconds))
    await sweeper.check_uptime()
    await sweeper.run()


async def _delete_old_answers(engine: Engine) -> None:
    """Delete stored answers whose time is over, also if no request arrives."""
    while True:
        await asyncio.sleep(_ANSWERS_SECONDS)
        try:
            while await engine.store.write(lambda tx: tx.answers.drop_old_answers(_ANSWERS_AT_ONCE)):
                pass
        except DetentError as error:
            log.debug("deleting old answers failed, retrying: %s", error)


async def record(engine: Engine) -> None:
    """Record the time series. While far behind, pause briefly between batches to let other transactions proceed."""
    recorder = SeriesRecorder(engine)
    while True:
        caught_up = True
        try:
            caught_up = await recorder.catch_up(4)
        except DetentError as error:
            log.debug("recording the time series failed, retrying: %s", error)
        await asyncio.sleep(_RECORD_SECONDS if caught_up else _CATCH_UP_SECONDS)
