"""Messages whose consumer is gone: XAUTOCLAIM where the server has it, XPENDING and XCLAIM where it has not."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from detent.ports.stream import Pending, Stranded

from .messages import delivery_of

if TYPE_CHECKING:
    from .transport import RedisStreamTransport

START = "0-0"
_RESULT_IDLE_SECONDS = 15.0
"""A result that was read and not acknowledged for so long is another orchestrator's to apply; twice does no harm."""


async def can_autoclaim(wire: "RedisStreamTransport") -> bool:
    if wire.settings.autoclaim is not None:
        return wire.settings.autoclaim
    version = str((await wire.server()).get("redis_version", "0"))
    major, minor, *_ = [*version.split("."), "0"]
    return (int(major), int(minor)) >= (6, 2)


async def stranded(wire: "RedisStreamTransport", consumer: str, limit: int, cursor: str) -> tuple[list[Stranded], str]:
    """Take what has been idle for the visibility timeout, from the cursor on; and where to go on next time."""
    own = wire.settings
    idle = int(own.visibility_timeout_s * 1_000)
    place = (own.task_stream, own.worker_group)
    if await can_autoclaim(wire):
        owners, claimed = await wire.link.together(
            [  # who held them is asked in the same breath: XAUTOCLAIM does not say
                ("XPENDING", *place, "IDLE", idle, cursor, "+", limit),
                ("XAUTOCLAIM", *place, consumer, idle, cursor, "COUNT", limit),
            ]
        )
        entries, following = claimed[1], claimed[0].decode()
    else:
        owners, following = await _idle_ones(wire, idle, limit, cursor)
        ids = [row[0] for row in owners]
        entries = await wire.link.one("XCLAIM", *place, consumer, idle, *ids) if ids else []
    held = {row[0].decode(): (row[1].decode("utf-8", "replace"), int(row[2])) for row in owners}
    await wire.acknowledge(_deleted(owners, entries))
    read = [delivery_of(entry, own.max_message_bytes) for entry in entries if not _is_empty(entry)]
    return [Stranded(one, *held.get(one.message_id, ("unknown", idle))) for one in read], following


def _is_empty(entry: Any) -> bool:
    return entry is None or entry[0] is None


def _deleted(owners: Sequence[Any], entries: Sequence[Any]) -> list[str]:
    """Deleted while pending: before 7.0 such a message comes back empty in its place, and stays pending for ever."""
    if len(owners) != len(entries):
        return []
    return [row[0].decode() for row, entry in zip(owners, entries, strict=True) if _is_empty(entry)]


async def _idle_ones(wire: "RedisStreamTransport", idle: int, limit: int, cursor: str) -> tuple[list[Any], str]:
    own = wire.settings
    rows = await wire.link.one("XPENDING", own.task_stream, own.worker_group, cursor, "+", limit)
    following = START
    if len(rows) == limit:
        head, _, tail = rows[-1][0].decode().partition("-")
        following = f"{head}-{int(tail) + 1}"
    return [row for row in rows if row[2] >= idle], following


async def give_back(wire: "RedisStreamTransport", stranded: Sequence[Stranded]) -> None:
    own = wire.settings
    await wire.link.every(
        [
            ("XCLAIM", own.task_stream, own.worker_group, one.consumer, 0, one.delivery.message_id,
             "IDLE", one.idle_ms, "JUSTID")
            for one in stranded
        ]
    )  # fmt: skip


async def pending(wire: "RedisStreamTransport", message_ids: Sequence[str]) -> list[Pending]:
    own = wire.settings
    asked = [one for one in message_ids if _is_message_id(one)]
    rows = await wire.link.every([("XPENDING", own.task_stream, own.worker_group, one, one, 1) for one in asked])
    idle = {one: int(found[0][2]) for one, found in zip(asked, rows, strict=True) if found}
    return [Pending(one, idle.get(one)) for one in message_ids]


def _is_message_id(text: str) -> bool:
    head, dash, tail = text.partition("-")
    return dash == "-" and head.isdecimal() and tail.isdecimal()


async def orphaned_results(wire: "RedisStreamTransport", consumer: str, count: int) -> list[Any]:
    own = wire.settings
    idle = int(min(_RESULT_IDLE_SECONDS, own.visibility_timeout_s) * 1_000)
    place = (own.result_stream, own.orchestrator_group)
    if await can_autoclaim(wire):
        claimed = await wire.link.one("XAUTOCLAIM", *place, consumer, idle, START, "COUNT", count)
        entries = claimed[1]
    else:
        rows = await wire.link.one("XPENDING", *place, "-", "+", count)
        ids = [row[0] for row in rows if row[2] >= idle]
        entries = await wire.link.one("XCLAIM", *place, consumer, idle, *ids) if ids else []
    return [entry for entry in entries if entry is not None and entry[0] is not None and entry[1] is not None]
