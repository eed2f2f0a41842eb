"""`detent orchestrate`, and the Redis Streams options of other commands."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

from detent.cli.loader import load_app
from detent.cli.option_groups import LogOptions
from detent.cli.options import AsJson, OptionalApp, option
from detent.cli.output import EXIT_OK, print_result
from detent.client.app import Detent
from detent.client.connect import default_url, redis_url, shown_url, stream_transport_from, when_available
from detent.client.stream_app import has_stream_jobs, stream_settings
from detent.core.contract.builtin import CONTRACTS, stream_contract_names
from detent.engine import Engine
from detent.ports.stream import StreamSettings
from detent.streams.orchestrator import Orchestrator

Part = Callable[[], Awaitable[Any]]
"""Runs beside the worker of `up` until it is cancelled."""


class Transport(StrEnum):
    """The source of a worker's tasks."""

    DATABASE = "database"
    REDIS = "redis"


RedisUrl = Annotated[str | None, option("The Redis or Valkey server: redis://host:6379/0; default $DETENT_REDIS_URL.")]
VisibilityTimeout = Annotated[
    float | None, option("Seconds without a heartbeat after which a message is given to another worker.", min=0.1)
]


def orchestrate(
    app: OptionalApp = None,
    redis_url: RedisUrl = None,
    visibility_timeout_s: VisibilityTimeout = None,
    max_deliveries: Annotated[
        int | None, option("Fail a task after this many lost workers; 0: never. Default: 8.", min=0)
    ] = None,
    url: Annotated[str | None, option("The database; default: the application's, else sqlite:///detent.db.")] = None,
    *,
    logs: LogOptions,
    as_json: AsJson = False,
) -> int:
    """Publish tasks to Redis Streams and read results back until SIGTERM or Ctrl-C. Several may run at once."""
    logs.configure()
    application = load_app(app, url) if app else None
    settings = stream_settings(redis_url, visibility_timeout_s=visibility_timeout_s, max_deliveries=max_deliveries)
    target = application.url if application is not None else url or default_url()
    view = {
        "url": shown_url(target),
        "redis_url": shown_url(settings.url),
        "task_stream": settings.task_stream,
        "visibility_timeout_s": settings.visibility_timeout_s,
    }
    print_result(as_json, view, f"orchestrating {view['url']} over {view['redis_url']} (stream {settings.task_stream})")
    return asyncio.run(_orchestrate(application, target, settings))


async def _orchestrate(app: Detent | None, url: str, settings: StreamSettings) -> int:
    engine = (app or Detent(url)).make_engine()
    await when_available(engine.open)
    task = asyncio.create_task(_run_orchestrator(engine, settings))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        with suppress(asyncio.CancelledError):
            await task
    finally:
        await engine.close()
    return EXIT_OK


async def _run_orchestrator(engine: Engine, settings: StreamSettings) -> None:
    """Run an orchestrator until it is cancelled."""
    transport = stream_transport_from(settings)
    try:
        await Orchestrator(engine, transport).run()
    finally:
        await transport.close()


async def _run_stream_worker(app: Detent, settings: StreamSettings, slots: int) -> None:
    worker = await app.worker(transport=str(Transport.REDIS), settings=settings, slots=slots)
    await worker.run(handle_signals=False)


async def stream_parts(app: Detent, slots: int) -> tuple[list[Part], frozenset[str]]:
    """What `up` runs beside its worker if a Redis is configured, and the contracts that this worker then excludes.

    A stream worker is only started if the application has stream jobs: it would refuse tasks of other job types.
    """
    if not redis_url():
        return [], frozenset()
    settings = stream_settings()
    engine = await app.ready()
    parts: list[Part] = [partial(_run_orchestrator, engine, settings)]
    if has_stream_jobs(app):
        parts.append(partial(_run_stream_worker, app, settings, slots))
    return parts, stream_contract_names(engine.contracts)


def transport_options(
    app: Detent, transport: Transport, url: str | None, visibility_timeout_s: float | None
) -> dict[str, Any]:
    """Worker options: the stream settings for Redis; for the database, the stream contracts to exclude, if any."""
    if transport is Transport.REDIS:
        settings = stream_settings(url, visibility_timeout_s=visibility_timeout_s)
        return {"transport": str(transport), "settings": settings}
    if url or redis_url():
        return {"exclude_contracts": stream_contract_names({**CONTRACTS, **app.contracts})}
    return {}
