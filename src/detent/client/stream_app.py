"""An application on a stream: its orchestrator, its stream worker, and the settings both go by."""

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput
from detent.engine import Engine
from detent.handler.handler import Handler
from detent.ports.stream import StreamSettings
from detent.streams.orchestrator import Orchestrator
from detent.streams.stream_worker import StreamWorker

from .connect import redis_url, stream_transport_from

if TYPE_CHECKING:
    from .app import Detent

_SEED_NAMES = {"visibility_timeout_s", "heartbeat_interval_s"}
"""Settings that are also known by the bare names the protocol's document gives them."""
_READ: dict[Any, Any] = {float: float, int: int, str: str, int | None: int}


def stream_settings(url: str | None = None, **said: Any) -> StreamSettings:
    """What was said, else DETENT_<NAME> in the environment, else the protocol's default."""
    where = url or redis_url()
    if not where:
        raise InvalidInput("no Redis is named; set DETENT_REDIS_URL or --redis-url", code="REDIS_URL_MISSING")
    settings = StreamSettings(where)
    given = {name: value for name, value in said.items() if value is not None}
    for field in fields(StreamSettings):
        if field.name not in given and field.type in _READ and field.name != "url":
            text = _from_environment(field.name)
            if text:
                given[field.name] = _number(field.name, text, _READ[field.type])
    settings = replace(settings, **given)
    for name in ("visibility_timeout_s", "heartbeat_interval_s", "max_message_bytes", "max_length", "dlq_length"):
        if getattr(settings, name) <= 0:
            raise InvalidInput(f"{name} must be above 0, got {getattr(settings, name)}", code="SETTING_INVALID")
    return settings


def _from_environment(name: str) -> str | None:
    bare = os.environ.get(name.upper()) if name in _SEED_NAMES else None
    return os.environ.get(f"DETENT_{name.upper()}") or bare


def _number(name: str, text: str, read: Any) -> Any:
    try:
        return read(text)
    except ValueError:
        raise InvalidInput(f"DETENT_{name.upper()} is {text!r}, which is no number", code="SETTING_INVALID") from None


def stream_contract_names(contracts: Mapping[str, Contract]) -> frozenset[str]:
    return frozenset(name for name, contract in contracts.items() if contract.wired)


def has_stream_jobs(app: "Detent") -> bool:
    """Does the application itself run tasks of a wired contract?"""
    wired = stream_contract_names({**CONTRACTS, **app.contracts})
    return any(definition.handler.options.contract in wired for definition in app.jobs.values())


async def orchestrator(app: "Detent", settings: StreamSettings | None = None) -> Orchestrator:
    return Orchestrator(await app.ready(), stream_transport_from(settings or stream_settings()))


def stream_worker(
    engine: Engine, handlers: Mapping[str, Handler], *, settings: StreamSettings | None = None, **options: Any
) -> StreamWorker:
    if options.pop("queues", None):
        raise InvalidInput(
            "one stream carries every queue; leave --queues out, or give the other queues a stream of their own",
            code="QUEUES_NOT_ON_STREAM",
        )
    return StreamWorker(engine, handlers, stream_transport_from(settings or stream_settings()), **options)
