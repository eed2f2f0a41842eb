"""Claims messages of consumers that stopped: with XAUTOCLAIM, or with XPENDING and XCLAIM before Redis 6.2."""

from collections.abc import Sequence
from typing import Any

from detent.ports.stream import IdleMessage, Pending, StreamSettings

from .groups import StreamGroups, next_id
from .messages import delivery_of

_START = "0-0"
_RESULT_IDLE_SECONDS = 15.0
"""A result that was read but not acknowledged for this long is applied by another orchestrator; twice is harmless."""


class Reclaim(StreamGroups):
    def __init__(self, settings: StreamSettings) -> None:
        super().__init__(settings)
        self._cursor = _START

    async def claim_idle_messages(self, consumer: str, limit: int) -> list[IdleMessage]:
        return await self._with_groups(lambda: self._claim_idle_messages(consumer, limit))

    async def _claim_idle_messages(self, consumer: str, limit: int) -> list[IdleMessage]:
        """Claim messages that are idle for the visibility timeout, from the cursor on; moves the cursor."""
        idle = int(self.settings.visibility_timeout_s * 1_000)
        owners, entries, self._cursor = await self._claim_from(self.task_group, self._cursor, consumer, idle, limit)
        held = {row[0].decode(): (row[1].decode("utf-8", "replace"), int(row[2])) for row in owners}
        await self._drop(self.task_group, _deleted(owners, entries))
        max_bytes = self.settings.max_message_bytes
        deliveries = [delivery_of(entry, max_bytes) for entry in entries if not _is_empty(entry)]
        return [IdleMessage(d, *held.get(d.message_id, ("unknown", idle))) for d in deliveries]

    async def _claim_from(
        self, group: tuple[str, str], start: str, consumer: str, idle: int, limit: int
    ) -> tuple[list[Any], list[Any], str]:
        """Claim messages that are idle for so many ms, from this id on: rows of XPENDING, messages, and the next id.

        XAUTOCLAIM does not return the previous owners, so they are read atomically with it.
        """
        if await self.connection.has_commands_of_6_2():
            pending = ("XPENDING", *group, "IDLE", idle, start, "+", limit)
            claim = ("XAUTOCLAIM", *group, consumer, idle, start, "COUNT", limit)
            owners, claimed = await self.connection.transaction([pending, claim])
            return owners, claimed[1], claimed[0].decode()
        rows = await self.connection.execute("XPENDING", *group, start, "+", limit)
        owners = [row for row in rows if row[2] >= idle]
        claim = ("XCLAIM", *group, consumer, idle, *(row[0] for row in owners))
        entries = await self.connection.execute(*claim) if owners else []
        return owners, entries, next_id(rows[-1][0].decode()) if len(rows) == limit else _START

    async def return_to_consumers(self, messages: Sequence[IdleMessage]) -> None:
        claims = [(message.consumer, 0, message.delivery.message_id, "IDLE", message.idle_ms) for message in messages]
        await self.connection.execute_many([("XCLAIM", *self.task_group, *claim, "JUSTID") for claim in claims])

    async def pending(self, message_ids: Sequence[str]) -> list[Pending]:
        valid_ids = [message_id for message_id in message_ids if _is_message_id(message_id)]
        commands = [("XPENDING", *self.task_group, message_id, message_id, 1) for message_id in valid_ids]
        replies = await self._with_groups(lambda: self.connection.execute_many(commands))
        idle = {message_id: int(rows[0][2]) for message_id, rows in zip(valid_ids, replies, strict=True) if rows}
        return [Pending(message_id, idle.get(message_id)) for message_id in message_ids]

    async def _claim_idle_results(self, consumer: str, count: int) -> list[Any]:
        idle = int(min(_RESULT_IDLE_SECONDS, self.settings.visibility_timeout_s) * 1_000)
        _, entries, _ = await self._claim_from(self.result_group, _START, consumer, idle, count)
        return [entry for entry in entries if not _is_empty(entry) and entry[1] is not None]


def _is_empty(entry: Any) -> bool:
    return entry is None or entry[0] is None


def _deleted(owners: Sequence[Any], entries: Sequence[Any]) -> list[str]:
    """Ids of messages deleted while pending: before 7.0 they come back as empty entries and stay pending forever."""
    if len(owners) != len(entries):
        return []
    return [row[0].decode() for row, entry in zip(owners, entries, strict=True) if _is_empty(entry)]


def _is_message_id(text: str) -> bool:
    head, dash, tail = text.partition("-")
    return dash == "-" and head.isdecimal() and tail.isdecimal()
