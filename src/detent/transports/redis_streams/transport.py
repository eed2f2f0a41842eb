"""The transport on Redis Streams: reads, publishes and acknowledges messages."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from detent.core.job import DeadLetter
from detent.ports.stream import Delivery, Result, StreamSettings, TaskMessage

from .address import close_pool
from .connection import REPLY_TIMEOUT, RedisConnection
from .groups import next_id
from .maintenance import Maintenance
from .messages import dead_letter_fields, delivery_of, fields_of, payload_problem, result_of
from .reclaim import Reclaim

_SCAN = 5_000


class RedisStreamTransport(Reclaim, Maintenance):
    """One server, used from one event loop. Blocking reads have their own connections."""

    def __init__(self, settings: StreamSettings) -> None:
        super().__init__(settings)
        self._tasks = RedisConnection(self._pool)
        self._blocking_tasks = RedisConnection(self._pool)
        self._results = RedisConnection(self._pool)

    @property
    def tasks(self) -> "RedisStreamTransport":
        """The part of the port that concerns the task stream, as `results` and `maintenance` are the others."""
        return self

    results = maintenance = tasks

    def sibling(self) -> "RedisStreamTransport":
        return RedisStreamTransport(self.settings)

    async def close(self) -> None:
        for connection in (self.connection, self._tasks, self._blocking_tasks, self._results):
            await connection.close()
        await close_pool(self._pool)

    async def read(self, consumer: str, count: int, block: float | None = None) -> list[Delivery]:
        connection = self._tasks if block is None else self._blocking_tasks
        entries = await self._read(connection, self.task_group, consumer, count, block)
        return [delivery_of(entry, self.settings.max_message_bytes) for entry in entries]

    async def read_results(self, consumer: str, count: int, block: float) -> list[Result]:
        """Results that another orchestrator read but did not acknowledge come first."""
        entries = await self._with_groups(lambda: self._claim_idle_results(consumer, count))
        if not entries:
            entries = await self._read(self._results, self.result_group, consumer, count, block)
        return [result_of(entry, self.settings.max_message_bytes) for entry in entries]

    async def _read(
        self, connection: RedisConnection, group: tuple[str, str], consumer: str, count: int, block: float | None
    ) -> list[Any]:
        stream, name = group
        wait = () if block is None else ("BLOCK", max(1, int(block * 1_000)))
        command = ("XREADGROUP", "GROUP", name, consumer, "COUNT", count, *wait, "STREAMS", stream, ">")
        timeout = REPLY_TIMEOUT + (block or 0)
        reply = await self._with_groups(lambda: connection.execute(*command, timeout=timeout))
        return reply[0][1] if reply else []

    payload_problem = staticmethod(payload_problem)

    async def acknowledge(self, message_ids: Sequence[str]) -> None:
        await self._drop(self.task_group, message_ids)

    async def acknowledge_results(self, ids: Sequence[str]) -> None:
        if ids and len(await self._read_groups(self.settings.result_stream)) > 1:
            await self.connection.execute("XACK", *self.result_group, *ids)
        else:
            await self._drop(self.result_group, ids)

    async def keep_alive(self, consumer: str, message_ids: Sequence[str]) -> None:
        if message_ids:
            claim = ("XCLAIM", *self.task_group, consumer, 0, *message_ids, "JUSTID")
            await self._with_groups(lambda: self.connection.execute(*claim))

    async def republish(self, deliveries: Sequence[Delivery]) -> None:
        stream, ids = self.settings.task_stream, [delivery.message_id for delivery in deliveries]
        if ids:
            fields = [chain.from_iterable(delivery.fields.items()) for delivery in deliveries if delivery.fields]
            commands = [("XADD", stream, "*", *arguments) for arguments in fields]
            commands += [("XACK", *self.task_group, *ids), ("XDEL", stream, *ids)]
            await self.connection.transaction(commands)

    async def publish(self, tasks: Sequence[TaskMessage]) -> str:
        stream = self.settings.task_stream
        await self.connection.execute_many([("XADD", stream, "*", *fields_of(task)) for task in tasks])
        return self.connection.run_id

    async def publish_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> str:
        head = ("XADD", self.settings.dlq_stream, "MAXLEN", "~", self.settings.dlq_length, "*")
        await self.connection.execute_many([(*head, *dead_letter_fields(dead_letter)) for dead_letter in dead_letters])
        return self.connection.run_id

    async def publish_results(self, results: Sequence[Mapping[str, str]]) -> None:
        head = ("XADD", self.settings.result_stream, "*")
        await self.connection.execute_many([(*head, *chain.from_iterable(result.items())) for result in results])

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
            start = next_id(deliveries[-1].message_id)  # not "(id": Redis before 6.2 has no exclusive ranges

    async def length(self) -> int:
        return int(await self.connection.execute("XLEN", self.settings.task_stream))
