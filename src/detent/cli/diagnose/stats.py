"""`detent stats`: counts jobs, dead letters and workers; and the Redis streams, which `doctor` checks too."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from detent.cli.option_groups import ConnectionOptions
from detent.cli.output import pluralize, print_fields, print_json, print_line, print_table
from detent.client.connect import redis_url, stream_transport_from
from detent.client.stream_app import stream_settings
from detent.engine import Engine
from detent.engine.reads.stats import oldest_due, stats_view
from detent.engine.reads.why import span
from detent.ports.stream import Health, StreamUnavailable

from .database import Finding

_MAX_OUTBOX_ITEMS = 10_000


def stats(connection: ConnectionOptions) -> None:
    """Count jobs by status and phase, the backlog, dead letters and workers."""
    snapshot = connection.run(lambda engine: engine.stats.read())
    view = stats_view(snapshot)
    streams = read_streams(connection.url)
    if streams is not None:
        view["streams"] = streams.view()
    if connection.as_json:
        print_json(view)
        return
    if not view["jobs"]:
        print_line("No jobs yet. Create one with `detent enqueue TYPE`.")
        return
    print_table(
        ("contract", "status", "phase", ">jobs"),
        [[contract, status, phase, number] for contract, status, phase, number in sorted(snapshot.counts)],
    )
    print_line()
    workers, oldest = view["workers"], oldest_due(snapshot.backlog)
    paused = ", ".join(f"{pause['kind'].replace('_', ' ')} {pause['name']}" for pause in view["paused"])
    print_fields(
        {
            "jobs": view["jobs"],
            "ready jobs": view["due"] if oldest is None else f"{view['due']}, oldest for {span(snapshot.now - oldest)}",
            "scheduled jobs": view["later"],
            "running jobs": view["held"],
            "dead letters": ", ".join(f"{number} {status}" for status, number in sorted(snapshot.dead_letters.items()))
            or "none",
            "workers": f"{workers['live']} live, {workers['busy']} of {pluralize(workers['slots'], 'slot')} busy",
            "paused": paused or "none",
            **{health.stream: describe_stream(health) for health in (streams.streams if streams else ())},
        }
    )


@dataclass(frozen=True, slots=True)
class StreamsOverview:
    """The number of unpublished outbox items, and the health of each stream if Redis answers."""

    outbox: int
    problem: str | None
    streams: list[Health]

    def view(self) -> dict[str, Any]:
        streams = [health._asdict() for health in self.streams]
        return {"outbox": self.outbox, "problem": self.problem, "streams": streams}


def read_streams(url: str | None) -> StreamsOverview | None:
    """None if no Redis is configured. A Redis that does not answer is reported in `problem`, not raised."""
    if not redis_url():
        return None
    return ConnectionOptions(url).run(_read_streams)


async def _read_streams(engine: Engine) -> StreamsOverview:
    outbox = await engine.store.read(lambda tx: tx.outbox.count_outbox_items())
    transport = stream_transport_from(stream_settings())
    try:
        return StreamsOverview(outbox, None, await transport.maintenance.health())
    except StreamUnavailable as error:
        return StreamsOverview(outbox, error.message, [])
    finally:
        await transport.close()


def describe_stream(health: Health) -> str:
    idle = health.oldest_idle_ms
    oldest = "" if idle is None else f", oldest idle for {span(idle * 1_000)}"
    return f"{health.length} messages, {health.pending} pending{oldest}, {health.lag} not delivered yet"


def check_streams(url: str) -> Iterator[Finding]:
    """Fails if Redis does not answer, a stream has no reader, or pending messages are not handed to other workers."""
    overview = read_streams(url)
    if overview is None:
        return
    if overview.problem:
        yield Finding("streams", False, overview.problem, "start Redis, or correct DETENT_REDIS_URL")
        return
    max_idle_ms = 2_000 * stream_settings().visibility_timeout_s
    for health in overview.streams:
        message = f"{health.stream}: {describe_stream(health)}"
        advice = ""
        if (health.oldest_idle_ms or 0) > max_idle_ms:
            advice = "start `detent orchestrate`: it hands pending messages to other workers"
        elif health.lag and not health.consumers:
            advice = f"start a reader of group {health.group}: a worker with --transport redis, or `detent orchestrate`"
        yield Finding("streams", not advice, message, advice)
    full = overview.outbox > _MAX_OUTBOX_ITEMS
    advice = "start `detent orchestrate`, or check its log" if full else ""
    yield Finding("outbox", not full, f"{overview.outbox} items not published yet", advice)
