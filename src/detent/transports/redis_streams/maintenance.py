"""Keeping the streams small and seeing how they are: trimming, consumers that left, pending and lag."""

from typing import TYPE_CHECKING, Any

from detent.ports.stream import Health

from .connection import Refusal

if TYPE_CHECKING:
    from .connection import Command
    from .transport import RedisStreamTransport

_FORGET = """
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return 0"""
"""KEYS stream; ARGV group, consumer. Asked and done at once: a consumer that reads meanwhile would lose its message."""


def facts_of(said: bytes) -> dict[str, str]:
    """INFO as a table."""
    lines = (line.partition(":") for line in said.decode("utf-8", "replace").splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}


async def trim(wire: "RedisStreamTransport") -> None:
    """Drop what every group has acknowledged. A worker of ours deletes its own; others only acknowledge."""
    commands: list[Command] = []
    for stream in (wire.settings.task_stream, wire.settings.result_stream):
        bound = await _all_done_before(wire, stream)
        if bound is None:
            continue
        if wire.settings.autoclaim is not False:
            commands.append(("XTRIM", stream, "MINID", "=", bound))
        else:  # MINID came with 6.2
            old = await wire.link.one("XRANGE", stream, "-", bound, "COUNT", 1_000)
            ids = [entry[0] for entry in old if entry[0].decode() != bound]
            commands += [("XDEL", stream, *ids)] if ids else []
    await wire.link.every(commands)


async def _all_done_before(wire: "RedisStreamTransport", stream: str) -> str | None:
    """The first id that some group still needs: its oldest pending one, else the one after its last."""
    bounds = []
    for group in await _groups(wire, stream):
        oldest = await wire.link.one("XPENDING", stream, group["name"])
        last = group["last-delivered-id"].decode()
        head, _, tail = last.partition("-")
        bounds.append(oldest[1].decode() if oldest[0] else f"{head}-{int(tail) + 1}")
    return min(bounds, key=_order, default=None)


def _order(message_id: str) -> tuple[int, int]:
    head, _, tail = message_id.partition("-")
    return int(head), int(tail or 0)


async def _groups(wire: "RedisStreamTransport", stream: str) -> list[dict[str, Any]]:
    try:
        return [_table(row) for row in await wire.link.one("XINFO", "GROUPS", stream)]
    except Refusal:  # no such stream
        return []


def _table(row: list[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(row[::2], row[1::2], strict=True)}


async def forget_consumer(wire: "RedisStreamTransport", stream: str, group: str, consumer: Any) -> None:
    await wire.link.one("EVAL", _FORGET, 1, stream, group, consumer)


async def forget_idle_consumers(wire: "RedisStreamTransport", idle_seconds: float) -> None:
    own = wire.settings
    for stream, group in ((own.task_stream, own.worker_group), (own.result_stream, own.orchestrator_group)):
        for row in await wire.link.one("XINFO", "CONSUMERS", stream, group):
            consumer = _table(row)
            if consumer["pending"] == 0 and consumer["idle"] > idle_seconds * 1_000:
                await forget_consumer(wire, stream, group, consumer["name"])


async def health(wire: "RedisStreamTransport") -> list[Health]:
    own = wire.settings
    found = []
    for stream, group in ((own.task_stream, own.worker_group), (own.result_stream, own.orchestrator_group)):
        mine = [one for one in await _groups(wire, stream) if one["name"].decode() == group]
        length = int(await wire.link.one("XLEN", stream))
        if not mine:
            found.append(Health(stream, group, length, 0, length, None, 0))
            continue
        pending = int(mine[0]["pending"])
        oldest = await wire.link.one("XPENDING", stream, group, "-", "+", 1) if pending else []
        lag = mine[0].get("lag")  # unknown to old servers, and to new ones where messages were deleted
        if lag is None:
            lag = await _undelivered(wire, stream, mine[0]["last-delivered-id"].decode())
        found.append(
            Health(stream, group, length, pending, int(lag), int(oldest[0][2]) if oldest else None,
                   int(mine[0]["consumers"]))
        )  # fmt: skip
    return found


async def _undelivered(wire: "RedisStreamTransport", stream: str, last: str) -> int:
    """Counted up to a bound; a stream that is longer is late enough."""
    head, _, tail = last.partition("-")
    return len(await wire.link.one("XRANGE", stream, f"{head}-{int(tail) + 1}", "+", "COUNT", 100_000))
