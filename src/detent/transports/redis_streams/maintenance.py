"""Maintenance of the streams: trimming, removal of idle consumers, and the health of both groups."""

from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from detent.ports.stream import Health

if TYPE_CHECKING:
    from .connection import Command
    from .transport import RedisStreamTransport

_REMOVE_CONSUMER = """
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return 0"""
"""KEYS stream; ARGV group, consumer. Checked and deleted atomically: DELCONSUMER drops pending messages, so a consumer
that reads in between would lose its message."""


async def trim(transport: "RedisStreamTransport") -> None:
    """Delete messages that every group has acknowledged. Our workers delete theirs; other workers only acknowledge."""
    commands: list[Command] = []
    for stream in (transport.settings.task_stream, transport.settings.result_stream):
        first_needed = await _first_needed_id(transport, stream)
        if first_needed is None:
            continue
        if transport.settings.autoclaim is not False:
            commands.append(("XTRIM", stream, "MINID", "=", first_needed))
        else:  # MINID exists since Redis 6.2
            old = await transport.connection.execute("XRANGE", stream, "-", first_needed, "COUNT", 1_000)
            ids = [entry[0] for entry in old if entry[0].decode() != first_needed]
            commands += [("XDEL", stream, *ids)] if ids else []
    await transport.connection.execute_many(commands)


async def _first_needed_id(transport: "RedisStreamTransport", stream: str) -> str | None:
    """The lowest id a group still needs: its oldest pending id, else the id after its last delivered one."""
    bounds = []
    for group in await _groups(transport, stream):
        oldest = await transport.connection.execute("XPENDING", stream, group["name"])
        last = group["last-delivered-id"].decode()
        head, _, tail = last.partition("-")
        bounds.append(oldest[1].decode() if oldest[0] else f"{head}-{int(tail) + 1}")
    return min(bounds, key=_sort_key, default=None)


def _sort_key(message_id: str) -> tuple[int, int]:
    head, _, tail = message_id.partition("-")
    return int(head), int(tail or 0)


async def _groups(transport: "RedisStreamTransport", stream: str) -> list[dict[str, Any]]:
    try:
        return [_as_dict(row) for row in await transport.connection.execute("XINFO", "GROUPS", stream)]
    except ResponseError:  # no such stream
        return []


def _as_dict(row: list[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(row[::2], row[1::2], strict=True)}


async def remove_consumer(transport: "RedisStreamTransport", stream: str, group: str, consumer: Any) -> None:
    await transport.connection.execute("EVAL", _REMOVE_CONSUMER, 1, stream, group, consumer)


async def remove_idle_consumers(transport: "RedisStreamTransport", idle_seconds: float) -> None:
    for stream, group in transport.stream_groups:
        for row in await transport.connection.execute("XINFO", "CONSUMERS", stream, group):
            consumer = _as_dict(row)
            if consumer["pending"] == 0 and consumer["idle"] > idle_seconds * 1_000:
                await remove_consumer(transport, stream, group, consumer["name"])


async def health(transport: "RedisStreamTransport") -> list[Health]:
    health_of_streams = []
    connection = transport.connection
    for stream, name in transport.stream_groups:
        groups = [group for group in await _groups(transport, stream) if group["name"].decode() == name]
        length = int(await connection.execute("XLEN", stream))
        if not groups:
            health_of_streams.append(Health(stream, name, length, 0, length, None, 0))
            continue
        group = groups[0]
        pending = int(group["pending"])
        oldest = await connection.execute("XPENDING", stream, name, "-", "+", 1) if pending else []
        lag = group.get("lag")  # not reported by old servers, nor by new ones after a deletion
        if lag is None:
            lag = await _count_undelivered(transport, stream, group["last-delivered-id"].decode())
        idle_ms = int(oldest[0][2]) if oldest else None
        health_of_streams.append(Health(stream, name, length, pending, int(lag), idle_ms, int(group["consumers"])))
    return health_of_streams


async def _count_undelivered(transport: "RedisStreamTransport", stream: str, last: str) -> int:
    """Counted up to 100,000, to bound the reply."""
    head, _, tail = last.partition("-")
    return len(await transport.connection.execute("XRANGE", stream, f"{head}-{int(tail) + 1}", "+", "COUNT", 100_000))
