"""`detent orchestrate`, and what other commands need to know of Redis Streams."""

import asyncio
import signal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from detent.cli.diagnose.database import shown_url
from detent.cli.loader import load_app
from detent.cli.options import AsJson, LogForm, LogFormat, MaybeApp, option
from detent.cli.output import FINE, tell
from detent.client.connect import default_url, redis_url, store_from, stream_transport_from
from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.observability.job_logs import set_up
from detent.streams.orchestrator import Orchestrator

if TYPE_CHECKING:
    from detent.client.app import Detent
    from detent.ports.stream import StreamSettings
    from detent.worker.worker import Worker


class Transport(StrEnum):
    """Where a worker's tasks come from."""

    DATABASE = "database"
    REDIS = "redis"


RedisUrl = Annotated[str | None, option("--redis-url", "The Redis or Valkey server: redis://host:6379/0.")]
VisibilityTimeout = Annotated[
    float | None,
    option("--visibility-timeout-s", "Without a sign of life for so long, a message goes to another worker.", min=0.1),
]


def orchestrate(
    app: MaybeApp = None,
    redis_url: RedisUrl = None,
    visibility_timeout_s: VisibilityTimeout = None,
    max_deliveries: Annotated[
        int | None, option("--max-deliveries", "Give a task up after so many lost workers; default never.", min=1)
    ] = None,
    url: Annotated[
        str | None, option("--url", "The database; default: the application's, else sqlite:///detent.db.")
    ] = None,
    log_format: LogFormat = LogForm.TEXT,
    as_json: AsJson = False,
) -> int:
    """Carry tasks to Redis Streams and results back, until SIGTERM or Ctrl-C. Several may run at once."""
    from detent.client.stream_app import stream_settings

    set_up(log_format)
    application = load_app(app) if app else None
    settings = stream_settings(redis_url, visibility_timeout_s=visibility_timeout_s, max_deliveries=max_deliveries)
    if application is not None and url:
        application.url = url
    target = application.url if application is not None else url or default_url()
    facts = {
        "url": shown_url(target),
        "redis_url": shown_url(settings.url),
        "task_stream": settings.task_stream,
        "visibility_timeout_s": settings.visibility_timeout_s,
    }
    tell(as_json, facts, f"orchestrating {facts['url']} over {facts['redis_url']} ({settings.task_stream})")
    return asyncio.run(_orchestrate(application, target, settings))


async def _orchestrate(app: "Detent | None", url: str, settings: "StreamSettings") -> int:
    engine = app.make_engine() if app is not None else Engine(store_from(url))
    await engine.open()
    part = OrchestratorPart(engine, settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, part.stop)
    try:
        await part.run()
    finally:
        await engine.close()
    return FINE


class OrchestratorPart:
    """An orchestrator that can be told to stop."""

    def __init__(self, engine: "Engine", settings: "StreamSettings") -> None:
        self.orchestrator = Orchestrator(engine, stream_transport_from(settings))
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    async def run(self) -> None:
        if self._stopped:
            return
        self._task = asyncio.create_task(self.orchestrator.run())
        await asyncio.wait([self._task])
        await self.orchestrator.wire.close()
        if not self._task.cancelled() and (error := self._task.exception()):
            raise error

    def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()


class WorkerPart:
    """A stream worker beside another worker, whose signals it leaves alone."""

    def __init__(self, worker: "Worker") -> None:
        self.worker = worker

    async def run(self) -> None:
        await self.worker.run(handle_signals=False)

    def stop(self) -> None:
        self.worker.stop()


async def stream_parts(app: "Detent", slots: int) -> "tuple[list[OrchestratorPart | WorkerPart], frozenset[str]]":
    """What `up` runs beside its worker where a Redis is named, and the contracts that worker then leaves alone.

    Without a job of its own on the stream it only orchestrates: it would refuse the tools of other workers.
    """
    if not redis_url():
        return [], frozenset()
    from detent.client.stream_app import has_stream_jobs, stream_settings

    settings = stream_settings()
    engine = await app.ready()
    parts: list[OrchestratorPart | WorkerPart] = [OrchestratorPart(engine, settings)]
    if has_stream_jobs(app):
        parts.append(WorkerPart(await app.worker(transport=str(Transport.REDIS), settings=settings, slots=slots)))
    return parts, _wired(engine.contracts)


def transport_options(
    app: "Detent", transport: Transport, url: str | None, visibility_timeout_s: float | None
) -> dict[str, Any]:
    """Over Redis the settings; by the database, where a Redis carries the wired contracts, only the others."""
    if transport is Transport.REDIS:
        from detent.client.stream_app import stream_settings

        settings = stream_settings(url, visibility_timeout_s=visibility_timeout_s)
        return {"transport": str(transport), "settings": settings}
    if url or redis_url():
        return {"exclude_contracts": _wired({**CONTRACTS, **app.contracts})}
    return {}


def _wired(contracts: Any) -> frozenset[str]:
    from detent.client.stream_app import stream_contract_names

    return stream_contract_names(contracts)
