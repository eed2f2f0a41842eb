"""What travels between orchestrator and workers on a stream, and what either asks of the server that carries it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from detent.core.errors import DetentError
from detent.core.job import DeadLetter


class StreamUnavailable(DetentError):
    """The stream server does not answer, or is not the one that may be written. The call may be repeated."""

    code = "REDIS_UNAVAILABLE"
    http_status = 503
    retryable = True


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Names and timeouts of the protocol; the defaults are the ones its document names."""

    url: str
    task_stream: str = "stream:task"
    result_stream: str = "stream:result"
    dlq_stream: str = "stream:dlq"
    worker_group: str = "cg:workers"
    orchestrator_group: str = "cg:orchestrator"
    epoch_key: str = "detent:epoch"
    visibility_timeout_s: float = 300.0
    """A message that was not acknowledged for so long, by a worker that showed no sign of life, is given to another."""
    heartbeat_interval_s: float = 30.0
    max_deliveries: int | None = None
    """Deliveries a task may survive without a result; None: any number."""
    max_message_bytes: int = 1 << 20
    max_length: int = 1_000_000
    """While the task stream is this long, nothing more is published; the outbox keeps it."""
    dlq_length: int = 10_000
    """About so many dead letters stay on the stream; the database keeps them all."""
    autoclaim: bool | None = None
    """None: as the server can. False: XPENDING and XCLAIM, as before Redis 6.2."""

    @property
    def beat_seconds(self) -> float:
        """How often a worker shows that it is alive: at least three times before it would be given up."""
        return min(self.heartbeat_interval_s, self.visibility_timeout_s / 3)


class TaskMessage(NamedTuple):
    """A task as it is published."""

    task_id: str
    tool_name: str
    payload: str
    retry_count: int
    idempotency_key: str
    trace_id: str


class Delivery(NamedTuple):
    """A message that was handed to a consumer, as far as it can be read. problem: why it is no task."""

    message_id: str
    task_id: str
    retry_count: int
    payload: bytes
    fields: Mapping[bytes, bytes]
    problem: str | None = None


class Result(NamedTuple):
    """What a worker that knows only the stream says of a task. problem: why it cannot be understood."""

    id: str
    """Its own place on the result stream."""
    task_id: str
    message_id: str
    says: str
    output: str | None
    error: str
    error_code: str
    retryable: bool
    worker: str
    fields: Mapping[bytes, bytes]
    problem: str | None = None


class Stranded(NamedTuple):
    """A message whose consumer showed no sign of life for the visibility timeout; it is ours to judge now."""

    delivery: Delivery
    consumer: str
    idle_ms: int


class Pending(NamedTuple):
    """How long ago the holder of a message last showed itself; None: nobody holds it."""

    message_id: str
    idle_ms: int | None


class Health(NamedTuple):
    """One stream as an operator sees it."""

    stream: str
    group: str
    length: int
    pending: int
    lag: int
    oldest_idle_ms: int | None
    consumers: int


class StreamTransport(Protocol):
    """A stream server, seen from one event loop. Every call may raise StreamUnavailable and be repeated."""

    settings: StreamSettings

    def sibling(self) -> "StreamTransport":
        """The same server for another event loop."""
        ...

    async def close(self) -> None: ...

    async def read(self, consumer: str, count: int, block: float | None = None) -> list[Delivery]:
        """New messages; block: wait so many seconds for the first one."""
        ...

    def payload_problem(self, payload: bytes) -> str | None:
        """Why the payload of a message is none, if it is none."""
        ...

    async def acknowledge(self, message_ids: Sequence[str]) -> None: ...

    async def keep(self, consumer: str, message_ids: Sequence[str]) -> None:
        """Show that whoever holds these is alive; nothing is written to the stream."""
        ...

    async def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Put messages at the end of the stream again, under new ids."""
        ...

    async def leave(self, consumer: str) -> None:
        """Forget a consumer, unless messages are still pending with it."""
        ...

    async def publish(self, tasks: Sequence[TaskMessage]) -> list[str]: ...

    async def publish_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> None: ...

    async def read_results(self, consumer: str, count: int, block: float) -> list[Result]: ...

    async def acknowledge_results(self, ids: Sequence[str]) -> None: ...

    async def stranded(self, consumer: str, limit: int) -> list[Stranded]: ...

    async def give_back(self, stranded: Sequence[Stranded]) -> None:
        """To the consumers they were taken from, as idle as they were."""
        ...

    async def pending(self, message_ids: Sequence[str]) -> list[Pending]: ...

    async def messages(self) -> set[tuple[str, int]]:
        """(task_id, retry_count) of everything on the task stream."""
        ...

    async def mark(self, fresh: str) -> tuple[str, str]:
        """(the server's epoch, which is `fresh` if it had none; a name of this run of the server)."""
        ...

    async def length(self) -> int: ...

    async def trim(self) -> None: ...

    async def forget_idle_consumers(self, idle_seconds: float) -> None: ...

    async def health(self) -> list[Health]: ...

    async def server(self) -> Mapping[str, Any]: ...
