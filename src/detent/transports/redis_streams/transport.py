"""The transport on Redis Streams: reads, publishes and acknowledges messages; creates missing consumer groups."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from detent.core.job import DeadLetter
from detent.ports.stream import (
    Delivery,
    Health,
    IdleMessage,
    Pending,
    Result,
    ResultStream,
    StreamMaintenance,
    StreamSettings,
    TaskMessage,
    TaskStream,
)

from . import maintenance, reclaim
from .address import close_pool, connection_pool
from .connection import REPLY_TIMEOUT, RedisConnection, parse_info
from .messages import dead_letter_fields, delivery_of, fields_of, payload_problem, result_of

T = TypeVar("T")
_SCAN = 5_000


class RedisStreamTransport:
    """One server, used from one event loop. Blocking reads have their own connections."""

    def __init__(self, settings: StreamSettings) -> None:
        self.settings = settings
        self._pool = connection_pool(settings.url)
        self.connection = RedisConnection(self._pool)
        self._tasks = RedisConnection(self._pool)
        self._blocking_tasks = RedisConnection(self._pool)
        self._results = RedisConnection(self._pool)
        self._server_info: dict[str, str] | None = None
        self._cursor = reclaim.START

    @property
    def tasks(self) -> TaskStream:
        return self

    @property
    def results(self) -> ResultStream:
        return self

    @property
    def maintenance(self) -> StreamMaintenance:
        return self

    @property
    def stream_groups(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """(stream, consumer group) of the tasks and of the results."""
        settings = self.settings
        tasks = (settings.task_stream, settings.worker_group)
        return tasks, (settings.result_stream, settings.orchestrator_group)

    def sibling(self) -> "RedisStreamTransport":
        return RedisStreamTransport(self.settings)

    async def close(self) -> None:
        for connection in (self.connection, self._tasks, self._blocking_tasks, self._results):
            await connection.close()
        await close_pool(self._pool)

    async def read(self, consumer: str, count: int, block: float | None = None) -> list[Delivery]:
        settings = self.settings
        connection = self._tasks if block is None else self._blocking_tasks
        entries = await self._read(connection, settings.worker_group, settings.task_stream, consumer, count, block)
        return [delivery_of(entry, settings.max_message_bytes) for entry in entries]

    async def read_results(self, consumer: str, count: int, block: float) -> list[Result]:
        """Results that another orchestrator read but did not acknowledge come first."""
        settings = self.settings
        entries = await self._with_groups(lambda: reclaim.claim_idle_results(self, consumer, count))
        if not entries:
            group, stream = settings.orchestrator_group, settings.result_stream
            entries = await self._read(self._results, group, stream, consumer, count, block)
        return [result_of(entry, settings.max_message_bytes) for entry in entries]

    async def _read(
        self, connection: RedisConnection, group: str, stream: str, consumer: str, count: int, block: float | None
    ) -> list[Any]:
        wait = () if block is None else ("BLOCK", max(1, int(block * 1_000)))
        command = ("XREADGROUP", "GROUP", group, consumer, "COUNT", count, *wait, "STREAMS", stream, ">")
        timeout = REPLY_TIMEOUT + (block or 0)
        reply = await self._with_groups(lambda: connection.execute(*command, timeout=timeout))
        return reply[0][1] if reply else []

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
        commands = [("XGROUP", "CREATE", *pair, "0", "MKSTREAM") for pair in self.stream_groups]
        for reply in await self.connection.pipeline(commands):
            if isinstance(reply, Exception) and not str(reply).startswith("BUSYGROUP"):
                raise reply

    def payload_problem(self, payload: bytes) -> str | None:
        return payload_problem(payload)

    async def acknowledge(self, message_ids: Sequence[str]) -> None:
        """Acknowledge and delete these messages."""
        await self._drop(self.settings.task_stream, self.settings.worker_group, message_ids)

    async def acknowledge_results(self, ids: Sequence[str]) -> None:
        await self._drop(self.settings.result_stream, self.settings.orchestrator_group, ids)

    async def _drop(self, stream: str, group: str, ids: Sequence[str]) -> None:
        if ids:
            await self.connection.execute_many([("XACK", stream, group, *ids), ("XDEL", stream, *ids)])

    async def keep_alive(self, consumer: str, message_ids: Sequence[str]) -> None:
        if message_ids:
            settings = self.settings
            claim = ("XCLAIM", settings.task_stream, settings.worker_group, consumer, 0, *message_ids, "JUSTID")
            await self._with_groups(lambda: self.connection.execute(*claim))

    async def republish(self, deliveries: Sequence[Delivery]) -> None:
        stream, group = self.settings.task_stream, self.settings.worker_group
        commands: list[Any] = []
        for delivery in deliveries:
            arguments = [argument for pair in delivery.fields.items() for argument in pair]
            if arguments:
                commands.append(("XADD", stream, "*", *arguments))
        ids = [delivery.message_id for delivery in deliveries]
        if ids:
            commands += [("XACK", stream, group, *ids), ("XDEL", stream, *ids)]
            await self.connection.transaction(commands)

    async def remove_consumer(self, consumer: str) -> None:
        await maintenance.remove_consumer(self, self.settings.task_stream, self.settings.worker_group, consumer)

    async def publish(self, tasks: Sequence[TaskMessage]) -> str:
        stream = self.settings.task_stream
        await self.connection.execute_many([("XADD", stream, "*", *fields_of(task)) for task in tasks])
        return self.connection.run_id

    async def publish_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> str:
        head = ("XADD", self.settings.dlq_stream, "MAXLEN", "~", self.settings.dlq_length, "*")
        await self.connection.execute_many([(*head, *dead_letter_fields(dead_letter)) for dead_letter in dead_letters])
        return self.connection.run_id

    async def claim_idle_messages(self, consumer: str, limit: int) -> list[IdleMessage]:
        async def call() -> list[IdleMessage]:
            messages, self._cursor = await reclaim.claim_idle_messages(self, consumer, limit, self._cursor)
            return messages

        return await self._with_groups(call)

    async def return_to_consumers(self, messages: Sequence[IdleMessage]) -> None:
        await reclaim.return_to_consumers(self, messages)

    async def pending(self, message_ids: Sequence[str]) -> list[Pending]:
        return await self._with_groups(lambda: reclaim.pending(self, message_ids))

    async def published_tasks(self) -> set[tuple[str, int]]:
        """Read page by page; invalid messages are left out."""
        tasks: set[tuple[str, int]] = set()
        start = "-"
        while True:
            entries = await self.connection.execute("XRANGE", self.settings.task_stream, start, "+", "COUNT", _SCAN)
            deliveries = [delivery_of(entry, self.settings.max_message_bytes) for entry in entries]
            tasks |= {(delivery.task_id, delivery.retry_count) for delivery in deliveries if delivery.problem is None}
            if len(entries) < _SCAN:
                return tasks
            start = "(" + deliveries[-1].message_id

    async def ensure_epoch(self, new_epoch: str) -> tuple[str, str]:
        key = self.settings.epoch_key
        await self.ensure_groups()
        _, epoch = await self.connection.execute_many([("SET", key, new_epoch, "NX"), ("GET", key)])
        return epoch.decode(), self.connection.run_id

    async def server(self) -> Mapping[str, Any]:
        if self._server_info is None:
            self._server_info = parse_info(await self.connection.execute("INFO", "server"))
        return self._server_info

    async def length(self) -> int:
        return int(await self.connection.execute("XLEN", self.settings.task_stream))

    async def trim(self) -> None:
        await maintenance.trim(self)

    async def remove_idle_consumers(self, idle_seconds: float) -> None:
        await maintenance.remove_idle_consumers(self, idle_seconds)

    async def health(self) -> list[Health]:
        return await maintenance.health(self)
