"""Claims messages of consumers that stopped: with XAUTOCLAIM, or with XPENDING and XCLAIM before Redis 6.2."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from detent.ports.stream import IdleMessage, Pending

from .messages import delivery_of

if TYPE_CHECKING:
    from .transport import RedisStreamTransport

START = "0-0"
_RESULT_IDLE_SECONDS = 15.0
"""A result that was read but not acknowledged for this long is applied by another orchestrator; twice is harmless."""


async def can_autoclaim(transport: "RedisStreamTransport") -> bool:
    if transport.settings.autoclaim is not None:
        return transport.settings.autoclaim
    version = str((await transport.server()).get("redis_version", "0"))
    major, minor, *_ = [*version.split("."), "0"]
    return (int(major), int(minor)) >= (6, 2)


async def claim_idle_messages(
    transport: "RedisStreamTransport", consumer: str, limit: int, cursor: str
) -> tuple[list[IdleMessage], str]:
    """Claim messages that are idle for the visibility timeout, from the cursor on; and the next cursor."""
    settings, connection = transport.settings, transport.connection
    idle = int(settings.visibility_timeout_s * 1_000)
    group = (settings.task_stream, settings.worker_group)
    if await can_autoclaim(transport):
        owners, claimed = await connection.transaction(
            [  # XAUTOCLAIM does not return the previous owners, so they are read atomically with it
                ("XPENDING", *group, "IDLE", idle, cursor, "+", limit),
                ("XAUTOCLAIM", *group, consumer, idle, cursor, "COUNT", limit),
            ]
        )
        entries, next_cursor = claimed[1], claimed[0].decode()
    else:
        owners, next_cursor = await _idle_rows(transport, idle, limit, cursor)
        ids = [row[0] for row in owners]
        entries = await connection.execute("XCLAIM", *group, consumer, idle, *ids) if ids else []
    held = {row[0].decode(): (row[1].decode("utf-8", "replace"), int(row[2])) for row in owners}
    await transport.acknowledge(_deleted(owners, entries))
    deliveries = [delivery_of(entry, settings.max_message_bytes) for entry in entries if not _is_empty(entry)]
    return [IdleMessage(d, *held.get(d.message_id, ("unknown", idle))) for d in deliveries], next_cursor


def _is_empty(entry: Any) -> bool:
    return entry is None or entry[0] is None


def _deleted(owners: Sequence[Any], entries: Sequence[Any]) -> list[str]:
    """Ids of messages deleted while pending: before 7.0 they come back as empty entries and stay pending forever."""
    if len(owners) != len(entries):
        return []
    return [row[0].decode() for row, entry in zip(owners, entries, strict=True) if _is_empty(entry)]


async def _idle_rows(transport: "RedisStreamTransport", idle: int, limit: int, cursor: str) -> tuple[list[Any], str]:
    group = (transport.settings.task_stream, transport.settings.worker_group)
    rows = await transport.connection.execute("XPENDING", *group, cursor, "+", limit)
    next_cursor = START
    if len(rows) == limit:
        head, _, tail = rows[-1][0].decode().partition("-")
        next_cursor = f"{head}-{int(tail) + 1}"
    return [row for row in rows if row[2] >= idle], next_cursor


async def return_to_consumers(transport: "RedisStreamTransport", messages: Sequence[IdleMessage]) -> None:
    group = (transport.settings.task_stream, transport.settings.worker_group)
    await transport.connection.execute_many(
        [
            ("XCLAIM", *group, message.consumer, 0, message.delivery.message_id, "IDLE", message.idle_ms, "JUSTID")
            for message in messages
        ]
    )


async def pending(transport: "RedisStreamTransport", message_ids: Sequence[str]) -> list[Pending]:
    group = (transport.settings.task_stream, transport.settings.worker_group)
    valid_ids = [message_id for message_id in message_ids if _is_message_id(message_id)]
    commands = [("XPENDING", *group, message_id, message_id, 1) for message_id in valid_ids]
    replies = await transport.connection.execute_many(commands)
    idle = {message_id: int(rows[0][2]) for message_id, rows in zip(valid_ids, replies, strict=True) if rows}
    return [Pending(message_id, idle.get(message_id)) for message_id in message_ids]


def _is_message_id(text: str) -> bool:
    head, dash, tail = text.partition("-")
    return dash == "-" and head.isdecimal() and tail.isdecimal()


async def claim_idle_results(transport: "RedisStreamTransport", consumer: str, count: int) -> list[Any]:
    settings, connection = transport.settings, transport.connection
    idle = int(min(_RESULT_IDLE_SECONDS, settings.visibility_timeout_s) * 1_000)
    group = (settings.result_stream, settings.orchestrator_group)
    if await can_autoclaim(transport):
        claimed = await connection.execute("XAUTOCLAIM", *group, consumer, idle, START, "COUNT", count)
        entries = claimed[1]
    else:
        rows = await connection.execute("XPENDING", *group, "-", "+", count)
        ids = [row[0] for row in rows if row[2] >= idle]
        entries = await connection.execute("XCLAIM", *group, consumer, idle, *ids) if ids else []
    return [entry for entry in entries if entry is not None and entry[0] is not None and entry[1] is not None]
