"""The stream port: messages between orchestrator and workers, the outbox in which they wait, and a stream server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from detent.core.errors import DetentError
from detent.core.job import Change, DeadLetter, Micros


class StreamUnavailable(DetentError, code="REDIS_UNAVAILABLE", http_status=503, retryable=True):
    """The stream server does not answer, or does not accept writes. The call may be repeated."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Names and timeouts of the stream protocol. The defaults are those of the streams contract."""

    url: str
    task_stream: str = "stream:task"
    result_stream: str = "stream:result"
    dlq_stream: str = "stream:dlq"
    worker_group: str = "cg:workers"
    orchestrator_group: str = "cg:orchestrator"
    epoch_key: str = "detent:epoch"
    visibility_timeout_s: float = 300.0
    """A message that is pending this long, without a heartbeat of its consumer, is delivered to another worker."""
    heartbeat_interval_s: float = 30.0
    max_deliveries: int | None = 8
    """How many deliveries of a task may end without a result before it fails; 0 or None: any number."""
    max_message_bytes: int = 1 << 20
    max_length: int = 1_000_000
    """While the task stream is this long, nothing is published; the tasks stay in the outbox."""
    dlq_length: int = 10_000
    """The dead letter stream is trimmed to about this length; the database keeps all dead letters."""
    write_results: bool = False
    """True: a Detent worker writes the results of its tasks to the result stream, for readers outside."""

    @property
    def beat_seconds(self) -> float:
        """The heartbeat interval of a worker: at least three heartbeats per visibility timeout."""
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
    """A message as a consumer received it. problem: why it is not a valid task."""

    message_id: str
    task_id: str
    retry_count: int
    payload: bytes
    fields: Mapping[bytes, bytes]
    problem: str | None = None


class Result(NamedTuple):
    """A message of the result stream, written by a worker that uses only the stream. problem: why it is invalid."""

    id: str
    """The id of this message on the result stream."""
    task_id: str
    message_id: str
    """The id of the task's message on the task stream; it is the lease token."""
    status: str
    output: str | None
    error: str
    error_code: str
    retryable: bool
    worker: str
    fields: Mapping[bytes, bytes]
    problem: str | None = None
    settled: bool = False
    """True: written by a Detent worker after its commit, for readers outside."""


class IdleMessage(NamedTuple):
    """A message claimed from a consumer that sent no heartbeat for the visibility timeout."""

    delivery: Delivery
    consumer: str
    idle_ms: int


class Pending(NamedTuple):
    """How long a message has been idle with its consumer; None: no consumer holds it."""

    message_id: str
    idle_ms: int | None


class Health(NamedTuple):
    """Length, lag and consumers of one stream, for operators."""

    stream: str
    group: str
    length: int
    pending: int
    lag: int
    oldest_idle_ms: int | None
    consumers: int


class TaskStream(Protocol):
    """The stream of tasks and its consumers, the workers."""

    async def read(self, consumer: str, count: int, block: float | None = None) -> list[Delivery]:
        """New messages. block: wait up to this many seconds for the first one."""
        ...

    def payload_problem(self, payload: bytes) -> str | None:
        """Why this payload is invalid; None if it is valid."""
        ...

    async def acknowledge(self, message_ids: Sequence[str]) -> None: ...

    async def keep_alive(self, consumer: str, message_ids: Sequence[str]) -> None:
        """Reset the idle time of these messages; nothing is written to the stream."""
        ...

    async def republish(self, deliveries: Sequence[Delivery]) -> None:
        """Append these messages to the stream under new ids and delete the old ones."""
        ...

    async def remove_consumer(self, consumer: str) -> None:
        """Remove a consumer, unless it has pending messages."""
        ...

    async def publish(self, tasks: Sequence[TaskMessage]) -> str:
        """Append these tasks to the stream; the run id of the server process that took them."""
        ...

    async def published_tasks(self) -> set[tuple[str, int]]:
        """(task_id, retry_count) of every message on the task stream."""
        ...

    async def length(self) -> int: ...

    async def claim_idle_messages(self, consumer: str, limit: int) -> list[IdleMessage]:
        """Claim messages that have been idle for the visibility timeout."""
        ...

    async def return_to_consumers(self, messages: Sequence[IdleMessage]) -> None:
        """Give claimed messages back to their consumers, with the idle time they had."""
        ...

    async def pending(self, message_ids: Sequence[str]) -> list[Pending]: ...


class ResultStream(Protocol):
    """The streams from the workers: results, and dead letters for readers outside."""

    async def publish_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> str: ...
    async def publish_results(self, results: Sequence[Mapping[str, str]]) -> None: ...
    async def read_results(self, consumer: str, count: int, block: float) -> list[Result]: ...
    async def acknowledge_results(self, ids: Sequence[str]) -> None:
        """Acknowledge results; if no other group reads them, delete them at once."""
        ...


class StreamMaintenance(Protocol):
    async def ensure_epoch(self, new_epoch: str) -> tuple[str, str]:
        """(epoch, run id of the server process). The epoch becomes `new_epoch` if the server has none."""
        ...

    async def trim(self) -> None: ...
    async def remove_idle_consumers(self, idle_seconds: float) -> None: ...
    async def health(self) -> list[Health]: ...


class StreamTransport(Protocol):
    """A stream server, used from one event loop. Every call may raise StreamUnavailable and may be repeated."""

    settings: StreamSettings

    @property
    def tasks(self) -> TaskStream: ...
    @property
    def results(self) -> ResultStream: ...
    @property
    def maintenance(self) -> StreamMaintenance: ...

    def sibling(self) -> "StreamTransport":
        """A transport to the same server for another event loop."""
        ...

    async def close(self) -> None: ...


class Relay(Protocol):
    """Publishes tasks right after the commit, in the process that submits them."""

    def reserve(self, changes: Sequence[Change]) -> None:
        """Before the commit: hide outbox items of new tasks from orchestrators; sets the hold of their changes."""
        ...

    def publish(self, changes: Sequence[Change]) -> None:
        """After the commit: publish these tasks, which have a hold, in the background."""
        ...

    async def close(self) -> None: ...


class OutboxItem(NamedTuple):
    """One row of the outbox: the kind of message to publish about a job, as of that version."""

    job_id: str
    kind: str
    version: int
    due_at: Micros


class ClaimableJob(NamedTuple):
    id: str
    version: int
    failures: int
    due_at: Micros


class OutboxTable(Protocol):
    """The outbox and stream tasks; used by the orchestrator."""

    async def put_outbox_items(self, outbox_items: Sequence[OutboxItem]) -> None: ...

    async def take_outbox_items(self, limit: int, hold: Micros) -> list[OutboxItem]:
        """Due items, hidden from other orchestrators for `hold`."""
        ...

    async def drop_outbox_items(self, outbox_items: Sequence[OutboxItem], stream: str, run_id: str) -> int:
        """Delete items that were published to the server process `run_id`; returns how many.

        An item that was put again since it was taken stays. None is deleted if the stored epoch of the stream names
        another process: the messages may be on a former primary that nobody reads.
        """
        ...

    async def count_outbox_items(self) -> int: ...

    async def claimable(self, contracts: Sequence[str]) -> list[ClaimableJob]:
        """The claimable jobs of these contracts, without those that wait in the outbox until they are due."""
        ...

    async def note_heartbeats(self, held: Mapping[str, str], names: Mapping[str, str], older_than: Micros) -> None:
        """Write a note {contract: name} for each of these leases {id: token} that is older than `older_than`."""
        ...

    async def epoch(self, name: str) -> str | None: ...

    async def put_epoch(self, name: str, epoch: str, expected: str | None) -> bool:
        """Compare and set; False if the stored epoch is not the expected one."""
        ...
