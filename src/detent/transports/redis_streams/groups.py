"""The streams with their consumer groups, which are created where they are missing."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from redis.exceptions import ResponseError

from detent.ports.stream import StreamSettings

from .address import connection_pool
from .connection import RedisConnection

T = TypeVar("T")


class StreamGroups:
    """One server, used from one event loop."""

    def __init__(self, settings: StreamSettings) -> None:
        self.settings = settings
        self._pool = connection_pool(settings.url)
        self.connection = RedisConnection(self._pool)
        self.task_group = (settings.task_stream, settings.worker_group)
        """Stream and consumer group of the tasks."""
        self.result_group = (settings.result_stream, settings.orchestrator_group)

    async def _with_groups(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call again after creating missing groups: a server that lost its data has none."""
        try:
            return await call()
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
        await self.ensure_groups()
        return await call()

    async def ensure_groups(self) -> None:
        """Create the groups at 0, not at $, so that messages published before are delivered."""
        groups = (self.task_group, self.result_group)
        for reply in await self.connection.pipeline([("XGROUP", "CREATE", *pair, "0", "MKSTREAM") for pair in groups]):
            if isinstance(reply, Exception) and not str(reply).startswith("BUSYGROUP"):
                raise reply

    async def _drop(self, group: tuple[str, str], ids: Sequence[str]) -> None:
        """Acknowledge and delete these messages."""
        if ids:
            await self.connection.execute_many([("XACK", *group, *ids), ("XDEL", group[0], *ids)])


def next_id(message_id: str) -> str:
    """The lowest id after this one."""
    head, _, tail = message_id.partition("-")
    return f"{head}-{int(tail) + 1}"
