"""Pending and lag of the streams, for `stats` and `doctor`, where a Redis is named."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.cli.connection import on_engine
from detent.client.connect import redis_url, stream_transport_from
from detent.engine import Engine
from detent.engine.reads.why import span
from detent.ports.stream import Health, StreamSettings, StreamUnavailable

if TYPE_CHECKING:
    from .finding import Finding

_MANY_PARCELS = 10_000


@dataclass(frozen=True, slots=True)
class Streams:
    """One look at the wire: what is still to be published, and the streams if the server answers."""

    outbox: int
    problem: str | None
    found: list[Health]

    def view(self) -> dict[str, Any]:
        streams = [health._asdict() for health in self.found]
        return {"outbox": self.outbox, "problem": self.problem, "streams": streams}


def look_at_streams(url: str | None) -> Streams | None:
    """None: no Redis is named. A server that does not answer is told, not raised."""
    from detent.client.stream_app import stream_settings

    if not redis_url():
        return None
    outbox = on_engine(url, _outbox_items)
    try:
        found = asyncio.run(_health(stream_settings()))
    except StreamUnavailable as error:
        return Streams(outbox, error.message, [])
    return Streams(outbox, None, found)


async def _outbox_items(engine: Engine) -> int:
    return await engine.store.read(lambda tx: tx.count_outbox_items())


async def _health(settings: StreamSettings) -> list[Health]:
    wire = stream_transport_from(settings)
    try:
        return await wire.health()
    finally:
        await wire.close()


def streams_line(one: Health) -> str:
    idle = one.oldest_idle_ms
    waits = "" if idle is None else f", the oldest silent for {span(idle * 1_000)}"
    return f"{one.length} long, {one.pending} pending{waits}, {one.lag} not delivered yet"


def check_streams(url: str) -> Iterator["Finding"]:
    """A stream is ill when nobody answers, nobody reads, or what is pending is given to nobody."""
    from detent.client.stream_app import stream_settings

    from .finding import Finding

    seen = look_at_streams(url)
    if seen is None:
        return
    if seen.problem:
        yield Finding("streams", False, seen.problem, "start Redis, or set DETENT_REDIS_URL to the right one")
        return
    limit = 2_000 * stream_settings().visibility_timeout_s
    for one in seen.found:
        says = f"{one.stream}: {streams_line(one)}"
        do = ""
        if (one.oldest_idle_ms or 0) > limit:
            do = "start `detent orchestrate`: it gives them to other workers"
        elif one.lag and not one.consumers:
            do = f"start a reader of {one.group}: a worker with --transport redis, or `detent orchestrate`"
        yield Finding("streams", not do, says, do)
    full = seen.outbox > _MANY_PARCELS
    do = "start `detent orchestrate`, or see its log" if full else ""
    yield Finding("outbox", not full, f"{seen.outbox} not published yet", do)
