"""A worker that receives tasks from a stream. Slots, handlers and heartbeat are those of `Worker`.

A message only names the task to claim. Claims and results are batched commits in the database; the message id is the
lease token.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from detent.core.contract.builtin import stream_contract_names
from detent.core.contract.streams import ResultStatus
from detent.core.errors import DetentError, StaleLease
from detent.core.job import Failure
from detent.core.outcome import Failed, NotBound, Stopped, Succeeded
from detent.core.times import SECOND
from detent.engine import BatchResult, Engine, Settlement
from detent.engine.execution.settle import sanitize
from detent.engine.streams.deliveries import StreamClaimer, receive_deliveries
from detent.engine.streams.poisoned_messages import dead_letter_delivery
from detent.handler.handler import Handler
from detent.ports.claims import Claimed, NamedClaim
from detent.ports.stream import Delivery, StreamTransport, StreamUnavailable
from detent.system.backoff import Backoff
from detent.worker.heartbeat import Heartbeat, LeaseListener
from detent.worker.state import Batch
from detent.worker.worker import Worker

log = logging.getLogger("detent.streams.stream_worker")
_BLOCK_SECONDS = 1.0
_MAX_PENDING_ACKS = 100_000
"""Acknowledgements and results kept while the server is unreachable; an orchestrator acknowledges what exceeds this."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class StreamWorker(Worker):
    """Runs tasks from the stream. A task without a handler in this worker fails for good."""

    def __init__(
        self,
        engine: Engine,
        handlers: Mapping[str, Handler],
        transport: StreamTransport,
        *,
        lease_seconds: float | None = None,
        **options: Any,
    ) -> None:
        lease = lease_seconds or transport.settings.visibility_timeout_s
        super().__init__(engine, handlers, lease_seconds=lease, sweep=False, **options)
        self.transport = transport
        self.claimer = StreamClaimer(self.id, int(lease * SECOND), transport.settings.max_deliveries)
        self._unclaimed: dict[str, Delivery] = {}
        """Messages read from the stream whose task is not yet claimed in the database, by message id."""
        self._being_claimed: set[str] = set()
        """Ids of unclaimed messages that a batch in flight is claiming."""
        self._acks: list[str] = []
        self._results: list[dict[str, str]] = []
        """Messages for the result stream that are not written yet; always empty without `write_results`."""
        self._ack_task: asyncio.Task[None] | None = None

    async def run(self, *, handle_signals: bool = True) -> int:
        try:
            return await super().run(handle_signals=handle_signals)
        finally:
            with suppress(StreamUnavailable):
                await self.transport.tasks.republish(list(self._unclaimed.values()))
                if self._ack_task is not None:
                    await self._ack_task
                await self._send_acks()
                await self.transport.tasks.remove_consumer(self.id)
            await self.transport.close()

    def _heartbeat(self, loop: asyncio.AbstractEventLoop, listener: LeaseListener | None = None) -> Heartbeat:
        return super()._heartbeat(loop, StreamLeaseListener(self))

    async def _settle_and_claim(self, batch: Batch) -> BatchResult:
        """Settle finished tasks and claim those that were read, in one transaction; acknowledge after the commit."""
        deliveries = await self._next_deliveries(batch.claim_limit) if batch.claim_limit else []
        ids = {delivery.message_id for delivery in deliveries}
        try:
            result = await self._claim(batch, deliveries)
        finally:
            self._being_claimed -= ids
        for message_id in ids:
            self._unclaimed.pop(message_id, None)
        if self._unclaimed.keys() - self._being_claimed:  # already read, so no new message will wake the worker
            self.state.notify_work_available()
        return result

    async def _claim(self, batch: Batch, deliveries: Sequence[Delivery]) -> BatchResult:
        named = {d.task_id: NamedClaim(d.task_id, d.message_id, d.retry_count) for d in reversed(deliveries)}
        request = self.engine.claim_request(self.id, batch.claim_limit, self.lease_seconds, named=list(named.values()))
        result = await self.engine.settle_and_claim(batch.settled, request if named else None)
        if self.transport.settings.write_results:
            done = [s for s in batch.settled if s.id not in result.refused and s not in result.later]
            self._results += [message for s in done if (message := _result_message(self.id, s))]
        self._acknowledge(_settled_messages(batch.settled, result))
        if deliveries:
            result.claimed += await self._receive_unclaimed(deliveries, {claimed.token for claimed in result.claimed})
            result.claimed = [claimed for claimed in result.claimed if self._can_run(claimed)]
        return result

    async def _next_deliveries(self, limit: int) -> list[Delivery]:
        """Messages to claim, read from the stream as needed. Poisoned messages become dead letters."""
        deliveries = self._reserve(limit)
        if limit > len(deliveries):
            try:
                new = await self.transport.tasks.read(self.id, limit - len(deliveries))
                self._unclaimed |= {delivery.message_id: delivery for delivery in new}
            except StreamUnavailable as error:
                log.warning("cannot read the stream: %s", error)
            deliveries += self._reserve(limit - len(deliveries))
        for delivery in deliveries:
            if delivery.problem is not None:
                await self._dead_letter(delivery)
        return [delivery for delivery in deliveries if delivery.problem is None]

    def _reserve(self, limit: int) -> list[Delivery]:
        """Unclaimed messages that no batch in flight is claiming."""
        free = [delivery for message_id, delivery in self._unclaimed.items() if message_id not in self._being_claimed]
        reserved = free[:limit]
        self._being_claimed.update(delivery.message_id for delivery in reserved)
        return reserved

    async def _dead_letter(self, delivery: Delivery) -> None:
        log.info("message %s is not a valid task: %s", delivery.message_id, delivery.problem or "its task is unknown")
        await dead_letter_delivery(self.engine, self.id, self.transport.settings.task_stream, delivery)
        self._unclaimed.pop(delivery.message_id, None)
        self._being_claimed.discard(delivery.message_id)
        self._acknowledge([delivery.message_id])

    async def _receive_unclaimed(self, deliveries: Sequence[Delivery], claimed: set[str]) -> list[Claimed]:
        """Handle the messages whose task the batched claim did not take."""
        left = [delivery for delivery in deliveries if delivery.message_id not in claimed]
        if not left:
            return []
        received = await self.engine.store.write(lambda tx: receive_deliveries(self.engine, tx, self.claimer, left))
        self.engine.report(received.changes)
        for delivery in received.unknown:
            await self._dead_letter(delivery)
        handled = {job.token for job in received.claimed} | {delivery.message_id for delivery in received.unknown}
        self._acknowledge([delivery.message_id for delivery in left if delivery.message_id not in handled])
        return received.claimed

    def _can_run(self, claimed: Claimed) -> bool:
        """False, and the task fails for good, if it has no handler here or its message has an invalid payload."""
        failure = None
        message = self._unclaimed.get(claimed.token)
        if claimed.job_type not in self.handlers:
            tools = ", ".join(sorted(self.handlers)) or "none"
            failure = Failure("TOOL_UNKNOWN", f"this worker has no tool {claimed.job_type!r}; it has {tools}")
        elif message is not None and message.payload != claimed.payload.encode():
            problem = self.transport.tasks.payload_problem(message.payload)
            failure = Failure("SCHEMA_INVALID", problem, "Poison", retryable=False) if problem else None
        if failure is None:
            return True
        settlement = Settlement(claimed.id, claimed.token, claimed.contract, Failed(failure), claimed=claimed)
        self.state.finished.append(settlement)
        return False

    def _acknowledge(self, message_ids: Sequence[str]) -> None:
        """Acknowledge in the background, batched."""
        self._acks += message_ids
        if self._acks and (self._ack_task is None or self._ack_task.done()):
            self._ack_task = asyncio.create_task(self._send_acks())

    async def _send_acks(self) -> None:
        """Write results and acknowledge messages, until all of them are sent."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while self._acks:
            ids, self._acks = self._acks[-_MAX_PENDING_ACKS:], []
            results, self._results = self._results[-_MAX_PENDING_ACKS:], []
            try:
                await self.transport.results.publish_results(results)
                results = []
                await self.transport.tasks.acknowledge(ids)
            except StreamUnavailable:
                self._acks, self._results = ids + self._acks, results + self._results
                if self._closing:
                    return
                await backoff.pause()

    async def _watch(self) -> None:
        """While slots are free, wait for messages."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            await self._wants_notifications.wait()
            being_claimed = sum(batch.claim_limit for batch in self.state.in_flight)
            room = self.state.free - len(self._unclaimed) - being_claimed
            if room <= 0 or self.state.stopping:
                await asyncio.sleep(_LONGEST_PAUSE / 10)
                continue
            self._start_waiting_for_notification()
            try:
                deliveries = await self.transport.tasks.read(self.id, room, _BLOCK_SECONDS)
                backoff.reset()
            except StreamUnavailable as error:
                log.warning("cannot read the stream, trying again in %.2f s: %s", backoff.seconds, error)
                await backoff.pause()
                continue
            self._unclaimed |= {delivery.message_id: delivery for delivery in deliveries}
            if deliveries or self.until_idle:
                self.wake()

    async def _no_work_left(self) -> bool:
        """True if no task of this worker's types is leased, claimable or due soon, on the stream or in the outbox."""
        try:
            rows = await self.engine.store.read(lambda tx: tx.stats.backlog())
        except DetentError as error:
            log.warning("checking for remaining work failed: %s", error)
            return False
        contracts = stream_contract_names(self.engine.contracts)
        own = [row for row in rows if row.contract in contracts and row.job_type in self.handlers]
        return not self._unclaimed and not any(row.due or row.held for row in own) and await super()._no_work_left()


def _settled_messages(settled: Sequence[Settlement], result: BatchResult) -> list[str]:
    """Message ids to acknowledge: their settlement is committed, or refused because the lease was lost."""
    later = {settlement.id for settlement in result.later}
    return [
        settlement.token
        for settlement in settled
        if settlement.id not in later
        and not isinstance(settlement.outcome, Stopped)
        and (settlement.id not in result.refused or isinstance(result.refused[settlement.id], StaleLease))
    ]


def _result_message(worker: str, settlement: Settlement) -> dict[str, str] | None:
    """The fields for the result stream; None for an execution that ended without a result."""
    head = {"task_id": settlement.id, "message_id": settlement.token, "worker": worker, "settled": "true"}
    match settlement.outcome:
        case Succeeded(result):
            return {**head, "status": ResultStatus.SUCCEEDED, "output": result or "null"}
        case Failed(failure) | NotBound(failure):  # a stream contract has no RELEASE
            error = {"error": sanitize(failure.message) or "", "error_code": sanitize(failure.code) or ""}
            retryable = "false" if failure.retryable is False else "true"
            return {**head, "status": ResultStatus.FAILED, **error, "retryable": retryable}
    return None


class StreamLeaseListener:
    """At each heartbeat: keeps the worker's messages alive on the stream and notes long-running jobs in the log."""

    def __init__(self, worker: StreamWorker) -> None:
        settings = worker.transport.settings
        self.beat_seconds = min(settings.beat_seconds, worker.lease_seconds / 3)
        self._worker = worker
        self._transport = worker.transport.sibling()
        self._note_every = int(settings.heartbeat_interval_s * SECOND)
        self._noted_at = 0

    async def on_heartbeat(self, engine: Engine, held: Mapping[str, str]) -> None:
        unclaimed = list(self._worker._unclaimed)
        try:
            await self._transport.tasks.keep_alive(self._worker.id, [*held.values(), *unclaimed])
        except StreamUnavailable as error:
            log.warning("the heartbeat did not reach the stream server: %s", error)
        now = engine.store.now()
        if held and now - self._noted_at >= self._note_every:
            self._noted_at = now
            names = {name: c.heartbeat_note for name, c in engine.contracts.items() if c.heartbeat_note}
            await engine.store.write(lambda tx: tx.outbox.note_heartbeats(held, names, self._note_every))

    async def close(self) -> None:
        await self._transport.close()
