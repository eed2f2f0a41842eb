"""An application on Redis Streams: its settings from the environment, its orchestrator and its stream worker."""

import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pydantic

from detent.core.contract.builtin import CONTRACTS, stream_contract_names
from detent.core.errors import InvalidInput, invalid_value
from detent.engine import Engine
from detent.handler.handler import Handler
from detent.ports.stream import StreamSettings
from detent.streams.orchestrator import Orchestrator
from detent.streams.relay import Relay
from detent.streams.stream_worker import StreamWorker

from .connect import from_environment, redis_url, stream_transport_from

if TYPE_CHECKING:
    from .app import Detent

log = logging.getLogger("detent.streams.relay")
_ALSO_WITHOUT_PREFIX = {"visibility_timeout_s", "heartbeat_interval_s"}
"""Settings that the protocol's document names without the prefix DETENT_."""
_POSITIVE = ("visibility_timeout_s", "heartbeat_interval_s", "max_message_bytes", "max_length", "dlq_length")


def stream_settings(url: str | None = None, **options: Any) -> StreamSettings:
    """Settings of the stream protocol: options that are not None, else DETENT_<NAME> in the environment, else defaults.

    Raises InvalidInput: REDIS_URL_MISSING, SETTING_INVALID.
    """
    server_url = url or redis_url()
    if not server_url:
        raise InvalidInput("no Redis server is set; set DETENT_REDIS_URL or --redis-url", code="REDIS_URL_MISSING")
    names = [field.name for field in fields(StreamSettings) if field.name != "url"]
    environment = {name: text for name in names if (text := from_environment(name, bare=name in _ALSO_WITHOUT_PREFIX))}
    chosen = {name: value for name, value in options.items() if value is not None}
    try:
        settings = pydantic.TypeAdapter(StreamSettings).validate_python({**environment, **chosen, "url": server_url})
    except pydantic.ValidationError as error:
        raise invalid_value(error, code="SETTING_INVALID") from None
    for name in _POSITIVE:
        if getattr(settings, name) <= 0:
            raise InvalidInput(f"{name} must be above 0, got {getattr(settings, name)}", code="SETTING_INVALID")
    return settings


def has_stream_jobs(app: "Detent") -> bool:
    """Does the application declare jobs of a contract that uses the stream?"""
    stream_contracts = stream_contract_names({**CONTRACTS, **app.contracts})
    return any(definition.handler.options.contract in stream_contracts for definition in app.jobs.values())


def relay(app: "Detent", engine: Engine) -> Relay | None:
    """Publishes the tasks of this application, if it declares some and a Redis server is set; else None."""
    if not redis_url() or not has_stream_jobs(app):
        return None
    try:
        return Relay(engine.store, stream_transport_from(stream_settings()))
    except InvalidInput as error:
        log.warning("tasks are left to the orchestrators: %s", error)
        return None


async def orchestrator(app: "Detent", settings: StreamSettings | None = None) -> Orchestrator:
    """The orchestrator of this application: publishes its tasks to the stream and takes their results."""
    return Orchestrator(await app.ready(), stream_transport_from(settings or stream_settings()))


def stream_worker(
    engine: Engine, handlers: Mapping[str, Handler], *, settings: StreamSettings | None = None, **options: Any
) -> StreamWorker:
    """A worker that takes its tasks from the stream. options: those of Worker, without `queues`."""
    if options.pop("queues", None):
        raise InvalidInput(
            "one stream carries all queues; leave out --queues, or use a separate stream for the other queues",
            code="QUEUES_NOT_ON_STREAM",
        )
    return StreamWorker(engine, handlers, stream_transport_from(settings or stream_settings()), **options)
