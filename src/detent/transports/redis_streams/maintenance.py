"""Maintenance of the streams: trimming, removal of idle consumers, and the health of both groups."""

from typing import Any

from redis.exceptions import ResponseError

from detent.ports.stream import Health

from .groups import StreamGroups, next_id

_DELETED_AT_ONCE = 1_000
_REMOVE_CONSUMER = """
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return 0"""
"""KEYS stream; ARGV group, consumer. Checked and deleted atomically: DELCONSUMER drops pending messages, so a consumer
that reads in between would lose its message."""


class Maintenance(StreamGroups):
    async def ensure_epoch(self, new_epoch: str) -> tuple[str, str]:
        key = self.settings.epoch_key
        await self.ensure_groups()
        _, epoch = await self.connection.execute_many([("SET", key, new_epoch, "NX"), ("GET", key)])
        return epoch.decode(), self.connection.run_id

    async def trim(self) -> None:
        """Delete messages that every group has acknowledged. Our workers delete theirs; others only acknowledge."""
        for stream in (self.settings.task_stream, self.settings.result_stream):
            first_needed = await self._first_needed_id(stream)
            if first_needed is None:
                continue
            if await self.connection.has_commands_of_6_2():
                await self.connection.execute("XTRIM", stream, "MINID", "=", first_needed)
            else:
                await self._delete_before(stream, first_needed)

    async def _delete_before(self, stream: str, first_needed: str) -> None:
        """XTRIM MINID for older servers. Not by MAXLEN: that deletes a message for each one added since the count."""
        while True:
            old = await self.connection.execute("XRANGE", stream, "-", first_needed, "COUNT", _DELETED_AT_ONCE)
            ids = [entry[0] for entry in old if entry[0].decode() != first_needed]
            if ids:
                await self.connection.execute("XDEL", stream, *ids)
            if len(ids) < _DELETED_AT_ONCE:
                return

    async def _first_needed_id(self, stream: str) -> str | None:
        """The lowest id a group still needs: its oldest pending id, else the id after its last delivered one."""
        bounds = []
        for group in await self._read_groups(stream):
            oldest = await self.connection.execute("XPENDING", stream, group["name"])
            bounds.append(oldest[1].decode() if oldest[0] else next_id(group["last-delivered-id"].decode()))
        return min(bounds, key=_sort_key, default=None)

    async def _read_groups(self, stream: str) -> list[dict[str, Any]]:
        try:
            return [_as_dict(row) for row in await self.connection.execute("XINFO", "GROUPS", stream)]
        except ResponseError:  # no such stream
            return []

    async def remove_consumer(self, consumer: str) -> None:
        await self._remove_consumer(self.task_group, consumer)

    async def _remove_consumer(self, group: tuple[str, str], consumer: Any) -> None:
        await self.connection.execute("EVAL", _REMOVE_CONSUMER, 1, *group, consumer)

    async def remove_idle_consumers(self, idle_seconds: float) -> None:
        for group in (self.task_group, self.result_group):
            for row in await self.connection.execute("XINFO", "CONSUMERS", *group):
                consumer = _as_dict(row)
                if consumer["pending"] == 0 and consumer["idle"] > idle_seconds * 1_000:
                    await self._remove_consumer(group, consumer["name"])

    async def health(self) -> list[Health]:
        return [await self._health(*self.task_group), await self._health(*self.result_group)]

    async def _health(self, stream: str, name: str) -> Health:
        groups = [group for group in await self._read_groups(stream) if group["name"].decode() == name]
        length = int(await self.connection.execute("XLEN", stream))
        if not groups:
            return Health(stream, name, length, 0, length, None, 0)
        group = groups[0]
        pending = int(group["pending"])
        oldest = await self.connection.execute("XPENDING", stream, name, "-", "+", 1) if pending else []
        lag = group.get("lag")  # not reported by old servers, nor by new ones after a deletion
        if lag is None:  # counted up to 100,000, to bound the reply
            start = next_id(group["last-delivered-id"].decode())
            lag = len(await self.connection.execute("XRANGE", stream, start, "+", "COUNT", 100_000))
        idle_ms = int(oldest[0][2]) if oldest else None
        return Health(stream, name, length, pending, int(lag), idle_ms, int(group["consumers"]))


def _sort_key(message_id: str) -> tuple[int, int]:
    head, _, tail = message_id.partition("-")
    return int(head), int(tail or 0)


def _as_dict(row: list[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(row[::2], row[1::2], strict=True)}
