"""The wire on Redis Streams: reading, publishing, acknowledging; groups are made when they are missing."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from detent.core.job import DeadLetter
from detent.ports.stream import Delivery, Health, Pending, Result, Stranded, StreamSettings, TaskMessage

from . import maintenance, reclaim
from .connection import SECONDS, RedisConnection, Refusal
from .messages import dead_letter_fields, delivery_of, fields_of, payload_problem, result_of

T = TypeVar("T")
_SCAN = 5_000


class RedisStreamTransport:
    """One server, seen from one event loop. Reads that wait have connections of their own."""

    def __init__(self, settings: StreamSettings) -> None:
        self.settings = settings
        self.link = RedisConnection(settings.url)
        self._tasks = RedisConnection(settings.url)
        self._waiting = RedisConnection(settings.url)
        self._results = RedisConnection(settings.url)
        self._facts: dict[str, str] | None = None
        self._cursor = reclaim.START

    def sibling(self) -> "RedisStreamTransport":
        return RedisStreamTransport(self.settings)

    async def close(self) -> None:
        for link in (self.link, self._tasks, self._waiting, self._results):
            await link.close()

    async def read(self, consumer: str, count: int, block: float | None = None) -> list[Delivery]:
        own = self.settings
        link = self._tasks if block is None else self._waiting
        entries = await self._read(link, own.worker_group, own.task_stream, consumer, count, block)
        return [delivery_of(entry, own.max_message_bytes) for entry in entries]

    async def read_results(self, consumer: str, count: int, block: float) -> list[Result]:
        """Results that an orchestrator took and never finished come first."""
        own = self.settings
        entries = await self._with_groups(lambda: reclaim.orphaned_results(self, consumer, count))
        if not entries:
            entries = await self._read(self._results, own.orchestrator_group, own.result_stream, consumer, count, block)
        return [result_of(entry, own.max_message_bytes) for entry in entries]

    async def _read(
        self, link: RedisConnection, group: str, stream: str, consumer: str, count: int, block: float | None
    ) -> list[Any]:
        wait = () if block is None else ("BLOCK", max(1, int(block * 1_000)))
        command = ("XREADGROUP", "GROUP", group, consumer, "COUNT", count, *wait, "STREAMS", stream, ">")
        answer = await self._with_groups(lambda: link.one(*command, seconds=SECONDS + (block or 0)))
        return answer[0][1] if answer else []

    async def _with_groups(self, call: Callable[[], Awaitable[T]]) -> T:
        """A server that came back empty has no groups: make them at 0, so that nothing published is missed."""
        try:
            return await call()
        except Refusal as error:
            if not str(error).startswith("NOGROUP"):
                raise
        await self.ensure_groups()
        return await call()

    async def ensure_groups(self) -> None:
        own = self.settings
        pairs = ((own.task_stream, own.worker_group), (own.result_stream, own.orchestrator_group))
        for answer in await self.link.all([("XGROUP", "CREATE", *pair, "0", "MKSTREAM") for pair in pairs]):
            if isinstance(answer, Exception) and not str(answer).startswith("BUSYGROUP"):
                raise answer

    def payload_problem(self, payload: bytes) -> str | None:
        return payload_problem(payload)

    async def acknowledge(self, message_ids: Sequence[str]) -> None:
        """Done with these: no longer pending, and no longer in the way."""
        own = self.settings
        await self._drop(own.task_stream, own.worker_group, message_ids)

    async def acknowledge_results(self, ids: Sequence[str]) -> None:
        own = self.settings
        await self._drop(own.result_stream, own.orchestrator_group, ids)

    async def _drop(self, stream: str, group: str, ids: Sequence[str]) -> None:
        if ids:
            await self.link.every([("XACK", stream, group, *ids), ("XDEL", stream, *ids)])

    async def keep(self, consumer: str, message_ids: Sequence[str]) -> None:
        if message_ids:
            own = self.settings
            claim = ("XCLAIM", own.task_stream, own.worker_group, consumer, 0, *message_ids, "JUSTID")
            await self._with_groups(lambda: self.link.one(*claim))

    async def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        own = self.settings
        commands: list[Any] = []
        for delivery in deliveries:
            words = [word for pair in delivery.fields.items() for word in pair]
            if words:
                commands.append(("XADD", own.task_stream, "*", *words))
        ids = [delivery.message_id for delivery in deliveries]
        if ids:
            commands += [("XACK", own.task_stream, own.worker_group, *ids), ("XDEL", own.task_stream, *ids)]
            await self.link.together(commands)

    async def leave(self, consumer: str) -> None:
        await maintenance.forget_consumer(self, self.settings.task_stream, self.settings.worker_group, consumer)

    async def publish(self, tasks: Sequence[TaskMessage]) -> list[str]:
        stream = self.settings.task_stream
        added = await self.link.every([("XADD", stream, "*", *fields_of(task)) for task in tasks])
        return [message_id.decode() for message_id in added]

    async def publish_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> None:
        head = ("XADD", self.settings.dlq_stream, "MAXLEN", "~", self.settings.dlq_length, "*")
        await self.link.every([(*head, *dead_letter_fields(dead_letter)) for dead_letter in dead_letters])

    async def stranded(self, consumer: str, limit: int) -> list[Stranded]:
        async def call() -> list[Stranded]:
            found, self._cursor = await reclaim.stranded(self, consumer, limit, self._cursor)
            return found

        return await self._with_groups(call)

    async def give_back(self, stranded: Sequence[Stranded]) -> None:
        await reclaim.give_back(self, stranded)

    async def pending(self, message_ids: Sequence[str]) -> list[Pending]:
        return await self._with_groups(lambda: reclaim.pending(self, message_ids))

    async def messages(self) -> set[tuple[str, int]]:
        """Read in pieces; deliveries that cannot be read are nobody's."""
        found: set[tuple[str, int]] = set()
        start = "-"
        while True:
            entries = await self.link.one("XRANGE", self.settings.task_stream, start, "+", "COUNT", _SCAN)
            read = [delivery_of(entry, self.settings.max_message_bytes) for entry in entries]
            found |= {(one.task_id, one.retry_count) for one in read if one.problem is None}
            if len(entries) < _SCAN:
                return found
            start = "(" + read[-1].message_id

    async def mark(self, fresh: str) -> tuple[str, str]:
        key = self.settings.epoch_key
        await self.ensure_groups()
        _, epoch, said = await self.link.every([("SET", key, fresh, "NX"), ("GET", key), ("INFO", "server")])
        return epoch.decode(), maintenance.facts_of(said).get("run_id", "")

    async def server(self) -> Mapping[str, Any]:
        if self._facts is None:
            self._facts = maintenance.facts_of(await self.link.one("INFO", "server"))
        return self._facts

    async def length(self) -> int:
        return int(await self.link.one("XLEN", self.settings.task_stream))

    async def trim(self) -> None:
        await maintenance.trim(self)

    async def forget_idle_consumers(self, idle_seconds: float) -> None:
        await maintenance.forget_idle_consumers(self, idle_seconds)

    async def health(self) -> list[Health]:
        return await maintenance.health(self)
