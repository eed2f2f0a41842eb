"""A stream server in memory, in place of Redis: consumer groups, idle messages, restarts that lose the last writes.

Calls take time and may fail, before or after the server has executed them. A read may return messages in another
order, and the server may deliver a message twice.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from detent.core.contract.streams import ResultStatus
from detent.core.job import DeadLetter, Micros
from detent.ports.stream import (
    Delivery,
    Health,
    IdleMessage,
    Pending,
    Result,
    StreamSettings,
    StreamUnavailable,
    TaskMessage,
)

from .loop import MS, SECOND, Process

if TYPE_CHECKING:
    from .simulation import Simulation

T = TypeVar("T")
V = TypeVar("V")
_RESULT_IDLE: Micros = 3 * SECOND
_LOST_SPAN: Micros = SECOND
"""A restart loses the writes of up to so long before it."""


@dataclass(slots=True)
class _Entry:
    """One message of a stream, and the consumer that holds it."""

    id: str
    value: dict[str, str]
    added_at: Micros
    consumer: str | None = None
    read_at: Micros = 0


@dataclass(slots=True)
class _Stream:
    entries: dict[str, _Entry] = field(default_factory=dict)
    last: int = 0

    def add(self, value: Mapping[str, str], now: Micros) -> str:
        self.last += 1
        message_id = f"{self.last}-0"
        self.entries[message_id] = _Entry(message_id, dict(value), now)
        return message_id

    def read(self, consumer: str, count: int, now: Micros, random: Random) -> list[_Entry]:
        new = [entry for entry in self.entries.values() if entry.consumer is None][: count * 2]
        random.shuffle(new)
        for entry in new[:count]:
            entry.consumer, entry.read_at = consumer, now
        return new[:count]

    def claim_idle(self, consumer: str, idle: Micros, limit: int, now: Micros) -> list[tuple[_Entry, str, Micros]]:
        idle_entries = [e for e in self.entries.values() if e.consumer is not None and now - e.read_at >= idle]
        claimed = [(entry, entry.consumer or "", now - entry.read_at) for entry in idle_entries[:limit]]
        for entry, _, _ in claimed:
            entry.consumer, entry.read_at = consumer, now
        return claimed

    def drop(self, ids: Sequence[str]) -> None:
        for message_id in ids:
            self.entries.pop(message_id, None)


class StreamServer:
    """The state of the server; what its clients call is `SimulatedTransport`."""

    def __init__(self, simulation: "Simulation", settings: StreamSettings) -> None:
        self.simulation = simulation
        self.settings = settings
        self.random = simulation.random_stream("stream server")
        self.tasks, self.results = _Stream(), _Stream()
        self.epoch: str | None = None
        self.run = 1
        self.down_until: Micros = 0

    @property
    def run_id(self) -> str:
        return f"run-{self.run}"

    def restart(self, *, lose_all: bool) -> None:
        """A crash: the last writes are lost, or all data; messages that were read are still pending if they survive."""
        self.run += 1
        if lose_all:
            self.tasks, self.results, self.epoch = _Stream(last=self.tasks.last), _Stream(last=self.results.last), None
            return
        oldest_lost = self.simulation.loop.now - self.random.randrange(_LOST_SPAN)
        for stream in (self.tasks, self.results):
            stream.entries = {name: entry for name, entry in stream.entries.items() if entry.added_at < oldest_lost}

    async def call(self, process: Process, function: Callable[[], T]) -> T:
        """Execute a function on the server after a delay, with the faults of a network."""
        simulation, random = self.simulation, self.random
        loop, faults = simulation.loop, simulation.active_faults
        luck = random.random()
        request_delay, reply_delay = random.randrange(MS, 5 * MS), random.randrange(MS, 5 * MS)
        reply: asyncio.Future[T] = loop.create_future()

        def execute() -> None:
            if not process.alive and not process.calls_survive:
                return
            if loop.now < self.down_until:
                loop.after(reply_delay, lambda: _fail(reply))
                return
            result = function()
            if luck > 0.98 and "stream error" in faults:
                simulation.count_fault("stream error", process.name)
                loop.after(reply_delay, lambda: _fail(reply))
            else:
                loop.after(reply_delay, lambda: None if reply.done() else reply.set_result(result))

        if luck < 0.02 and "stream error" in faults:
            simulation.count_fault("stream error", process.name)
            loop.after(request_delay, lambda: _fail(reply))
        else:
            loop.after(request_delay, execute)
        return await reply


def _fail(reply: "asyncio.Future[Any]") -> None:
    if not reply.done():
        reply.set_exception(StreamUnavailable("injected fault: the stream server does not answer"))


class SimulatedTransport:
    """The stream server as one process sees it."""

    def __init__(self, server: StreamServer, process: Process, *, foreign: bool = False) -> None:
        """foreign: the process is not Detent's, and may acknowledge a message too early."""
        self.settings = server.settings
        self._foreign = foreign
        self._server = server
        self._process = process

    @property
    def tasks(self) -> "SimulatedTransport":
        return self

    results = maintenance = tasks

    def sibling(self) -> "SimulatedTransport":
        return self

    async def close(self) -> None: ...

    async def _call(self, function: Callable[[], T]) -> T:
        return await self._server.call(self._process, function)

    async def _call_each(self, function: Callable[[V], object], values: Sequence[V]) -> str:
        """One command per value, sent together; the server may fail after some of them. Returns the run id."""
        server, simulation = self._server, self._server.simulation
        torn = len(values) > 1 and server.random.random() < 0.08 and "torn batch" in simulation.active_faults

        def execute() -> str:
            for value in values[: server.random.randrange(len(values))] if torn else values:
                function(value)
            if torn:
                simulation.count_fault("torn batch", self._process.name)
            return server.run_id

        run_id = await self._call(execute)
        if torn:
            raise StreamUnavailable("injected fault: the stream server failed in the middle of a batch")
        return run_id

    @property
    def _now(self) -> Micros:
        return self._server.simulation.loop.now

    async def read(self, consumer: str, count: int, block: float | None = None) -> list[Delivery]:
        entries = await self._read(lambda: self._server.tasks, consumer, count, block)
        return [_delivery(entry) for entry in entries]

    async def _read(
        self, stream: Callable[[], _Stream], consumer: str, count: int, block: float | None
    ) -> list[_Entry]:
        """The entries are copied when the server executes the call, as they travel in the reply."""
        end = self._now + int((block or 0) * SECOND)

        def read() -> list[_Entry]:
            entries = stream().read(consumer, count, self._now, self._server.random)
            return [replace(entry) for entry in entries]

        while True:
            entries = await self._call(read)
            if entries or self._now >= end:
                return entries
            await asyncio.sleep(0.2)

    def payload_problem(self, payload: bytes) -> str | None:
        return None

    async def acknowledge(self, message_ids: Sequence[str]) -> None:
        def acknowledge(message_id: str) -> None:
            if not self._foreign:
                self._server.simulation.monitor.check_acknowledged([message_id])
            self._server.tasks.drop([message_id])

        if message_ids:
            await self._call_each(acknowledge, message_ids)

    async def keep_alive(self, consumer: str, message_ids: Sequence[str]) -> None:
        await self._call(partial(self._keep_alive, consumer, message_ids))

    def _keep_alive(self, consumer: str, message_ids: Sequence[str]) -> None:
        """As XCLAIM with an idle time of 0: the messages are this consumer's, whoever held them."""
        for message_id in message_ids:
            entry = self._server.tasks.entries.get(message_id)
            if entry is not None and entry.consumer is not None:
                entry.consumer, entry.read_at = consumer, self._now

    async def republish(self, deliveries: Sequence[Delivery]) -> None:
        def republish() -> None:
            for delivery in deliveries:
                self._server.tasks.add(_values(delivery), self._now)
            self._server.tasks.drop([delivery.message_id for delivery in deliveries])

        if deliveries:
            await self._call(republish)

    async def remove_consumer(self, consumer: str) -> None: ...

    async def publish(self, tasks: Sequence[TaskMessage]) -> str:
        def publish(task: TaskMessage) -> None:
            twice = self._server.random.random() < 0.03 and "stream error" in self._server.simulation.active_faults
            for _ in range(2 if twice else 1):
                self._server.tasks.add({k: str(v) for k, v in task._asdict().items()}, self._now)

        return await self._call_each(publish, tasks)

    async def publish_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> str:
        return await self._call(lambda: self._server.run_id)

    async def publish_results(self, results: Sequence[Mapping[str, str]]) -> None:
        await self._call_each(lambda result: self._server.results.add(result, self._now), results)

    async def read_results(self, consumer: str, count: int, block: float) -> list[Result]:
        def claim_idle() -> list[_Entry]:
            claimed = self._server.results.claim_idle(consumer, _RESULT_IDLE, count, self._now)
            return [replace(entry) for entry, _, _ in claimed]

        entries = await self._call(claim_idle) or await self._read(lambda: self._server.results, consumer, count, block)
        return [_result(entry) for entry in entries]

    async def acknowledge_results(self, ids: Sequence[str]) -> None:
        def acknowledge() -> None:
            entries = [entry for result_id in ids if (entry := self._server.results.entries.get(result_id))]
            ends = [entry.value for entry in entries if entry.value["status"] != ResultStatus.CLAIMED]
            self._server.simulation.monitor.check_acknowledged([value["message_id"] for value in ends])
            self._server.results.drop(ids)

        await self._call(acknowledge)

    async def published_tasks(self) -> set[tuple[str, int]]:
        def published() -> set[tuple[str, int]]:
            entries = self._server.tasks.entries.values()
            return {(entry.value["task_id"], int(entry.value["retry_count"])) for entry in entries}

        return await self._call(published)

    async def length(self) -> int:
        return await self._call(lambda: len(self._server.tasks.entries))

    async def claim_idle_messages(self, consumer: str, limit: int) -> list[IdleMessage]:
        idle = int(self.settings.visibility_timeout_s * SECOND)

        def claim() -> list[IdleMessage]:
            claimed = self._server.tasks.claim_idle(consumer, idle, limit, self._now)
            return [IdleMessage(_delivery(entry), owner, span // MS) for entry, owner, span in claimed]

        return await self._call(claim)

    async def return_to_consumers(self, messages: Sequence[IdleMessage]) -> None:
        def give_back() -> None:
            for message in messages:
                entry = self._server.tasks.entries.get(message.delivery.message_id)
                if entry is not None:
                    entry.consumer, entry.read_at = message.consumer, self._now - message.idle_ms * MS

        if messages:
            await self._call(give_back)

    async def pending(self, message_ids: Sequence[str]) -> list[Pending]:
        def look() -> list[Pending]:
            entries = self._server.tasks.entries
            held = {name: entries[name] for name in message_ids if name in entries and entries[name].consumer}
            idle = {name: (self._now - entry.read_at) // MS for name, entry in held.items()}
            return [Pending(name, idle.get(name)) for name in message_ids]

        return await self._call(look)

    async def ensure_epoch(self, new_epoch: str) -> tuple[str, str]:
        def ensure() -> tuple[str, str]:
            self._server.epoch = self._server.epoch or new_epoch
            return self._server.epoch, self._server.run_id

        return await self._call(ensure)

    async def trim(self) -> None: ...

    async def remove_idle_consumers(self, idle_seconds: float) -> None: ...

    async def health(self) -> list[Health]:
        return []


def _delivery(entry: _Entry) -> Delivery:
    fields = {name.encode(): text.encode() for name, text in entry.value.items()}
    return Delivery(entry.id, entry.value["task_id"], int(entry.value["retry_count"]), fields[b"payload"], fields)


def _values(delivery: Delivery) -> dict[str, str]:
    return {name.decode(): text.decode() for name, text in delivery.fields.items()}


def _result(entry: _Entry) -> Result:
    value = entry.value
    return Result(
        entry.id,
        value["task_id"],
        value["message_id"],
        value["status"],
        value.get("output"),
        value.get("error", ""),
        value.get("error_code", ""),
        value.get("retryable") != "false",
        value.get("worker", ""),
        {name.encode(): text.encode() for name, text in value.items()},
    )
