"""A worker whose work comes over a stream: the same slots, handlers and heart, other claims.

A message only says which task to take. The claim itself, and its result, are commits in the database, one for many;
the message id is the token.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from detent.core.errors import DetentError, StaleLease
from detent.core.job import Failure
from detent.core.outcome import Failed, Stopped
from detent.core.times import SECOND
from detent.engine import BatchResult, Engine, Settlement
from detent.engine.streams.deliveries import Received, Taker, receive
from detent.engine.streams.poisoned_messages import dead_letter_message
from detent.handler.handler import Handler
from detent.ports.claims import Claimed, NamedClaim
from detent.ports.stream import Delivery, StreamTransport, StreamUnavailable
from detent.worker.heartbeat import Heartbeat, LeaseListener
from detent.worker.state import Batch
from detent.worker.worker import Worker

log = logging.getLogger("detent.worker")
_BLOCK_SECONDS = 1.0
_ACKS_KEPT = 100_000
"""Acknowledgements kept for a server that is away; what is forgotten is acknowledged by an orchestrator later."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class StreamWorker(Worker):
    """Runs the handlers it knows on tasks from the wire; a task it has no handler for fails for good."""

    def __init__(
        self,
        engine: Engine,
        handlers: Mapping[str, Handler],
        wire: StreamTransport,
        *,
        lease_seconds: float | None = None,
        **options: Any,
    ) -> None:
        lease = lease_seconds or wire.settings.visibility_timeout_s
        super().__init__(engine, handlers, lease_seconds=lease, sweep=False, **options)
        self.wire = wire
        self.taker = Taker(self.id, int(lease * SECOND), wire.settings.max_deliveries)
        self._read: dict[str, Delivery] = {}
        """Handed to us and not yet claimed in the database, by message id."""
        self._claiming: set[str] = set()
        """Those of them that a cycle under way is claiming."""
        self._acks: list[str] = []
        self._acking: asyncio.Task[None] | None = None

    async def run(self, *, handle_signals: bool = True) -> int:
        try:
            return await super().run(handle_signals=handle_signals)
        finally:
            with suppress(StreamUnavailable):
                await self.wire.hand_back(list(self._read.values()))
                if self._acking is not None:
                    await self._acking
                await self._flush()
                await self.wire.leave(self.id)
            await self.wire.close()

    def _heartbeat(self, loop: asyncio.AbstractEventLoop, keeper: LeaseListener | None = None) -> Heartbeat:
        return super()._heartbeat(loop, StreamLeaseListener(self))

    async def _settle_and_claim(self, order: Batch) -> BatchResult:
        """Settle what is finished, claim what was read, in one transaction; acknowledge after the commit."""
        deliveries = await self._deliveries(order.want) if order.want else []
        ids = {one.message_id for one in deliveries}
        try:
            answer = await self._claim(order, deliveries)
        finally:
            self._claiming -= ids
        for message_id in ids:
            self._read.pop(message_id, None)
        if self._read.keys() - self._claiming:  # no message will come to wake us for these
            self.state.heard_of_work()
        return answer

    async def _claim(self, order: Batch, deliveries: Sequence[Delivery]) -> BatchResult:
        named = {one.task_id: NamedClaim(one.task_id, one.message_id, one.retry_count) for one in reversed(deliveries)}
        request = self.engine.claim_request(self.id, order.want, self.lease_seconds, named=list(named.values()))
        answer = await self.engine.settle_and_claim(order.settled, request if named else None)
        self._acknowledge(_answered(order.settled, answer))
        if deliveries:
            answer.claimed += await self._look_closer(deliveries, {claimed.token for claimed in answer.claimed})
            answer.claimed = [claimed for claimed in answer.claimed if self._can_run(claimed)]
        return answer

    async def _deliveries(self, want: int) -> list[Delivery]:
        """What was read, filled up with what is there; a message that is no task is buried on the way."""
        found = self._reserve(want)
        if want > len(found):
            try:
                self._keep(await self.wire.read(self.id, want - len(found)))
            except StreamUnavailable as error:
                log.warning("cannot read the stream: %s", error)
            found += self._reserve(want - len(found))
        for one in found:
            if one.problem is not None:
                await self._bury(one, "SCHEMA_INVALID", one.problem)
        return [one for one in found if one.problem is None]

    def _reserve(self, at_most: int) -> list[Delivery]:
        """Messages no other cycle is claiming."""
        found = [one for message_id, one in self._read.items() if message_id not in self._claiming][:at_most]
        self._claiming.update(one.message_id for one in found)
        return found

    def _keep(self, deliveries: Sequence[Delivery]) -> None:
        self._read.update((one.message_id, one) for one in deliveries)

    async def _bury(self, delivery: Delivery, code: str, problem: str) -> None:
        origin = (self.wire.settings.task_stream, delivery.message_id)
        log.error("message %s is no task: %s", delivery.message_id, problem)
        if delivery.fields:
            await self.engine.store.write(
                lambda tx: dead_letter_message(self.engine, tx, self.id, origin, delivery.fields, code, problem)
            )
        self._read.pop(delivery.message_id, None)
        self._claiming.discard(delivery.message_id)
        self._acknowledge([delivery.message_id])

    async def _look_closer(self, deliveries: Sequence[Delivery], claimed: set[str]) -> list[Claimed]:
        """Messages whose task was not simply there to be claimed."""
        left = [one for one in deliveries if one.message_id not in claimed]
        if not left:
            return []
        found: Received = await self.engine.store.write(lambda tx: receive(self.engine, tx, self.taker, left))
        for one in found.unknown:
            await self._bury(one, "TASK_UNKNOWN", f"no task {one.task_id[:80]!r} is known here")
        taken = {one.token for one in found.claimed} | {one.message_id for one in found.unknown}
        self._acknowledge([one.message_id for one in left if one.message_id not in taken])
        return found.claimed

    def _can_run(self, claimed: Claimed) -> bool:
        """A tool we do not have, and a message that does not say what the task says, fail for good."""
        failure = None
        message = self._read.get(claimed.token)
        if claimed.job_type not in self.handlers:
            tools = ", ".join(sorted(self.handlers)) or "none"
            failure = Failure("TOOL_UNKNOWN", f"this worker has no tool {claimed.job_type!r}; it has {tools}")
        elif message is not None and message.payload != claimed.payload.encode():
            problem = self.wire.payload_problem(message.payload)
            failure = Failure("SCHEMA_INVALID", problem, "Poison", retryable=False) if problem else None
        if failure is None:
            return True
        self.state.finished.append(Settlement(claimed.id, claimed.token, claimed.contract, Failed(failure)))
        return False

    def _acknowledge(self, message_ids: Sequence[str]) -> None:
        """Soon, and together with others: nobody waits for it."""
        self._acks += message_ids
        if self._acks and (self._acking is None or self._acking.done()):
            self._acking = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        pause = _FIRST_PAUSE
        while self._acks:
            ids, self._acks = self._acks[-_ACKS_KEPT:], []
            try:
                await self.wire.acknowledge(ids)
            except StreamUnavailable:
                self._acks = ids + self._acks
                if self._closing:
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _watch(self) -> None:
        """While there is room, wait for messages."""
        pause = _FIRST_PAUSE
        while True:
            await self._idle.wait()
            room = self.state.free - len(self._read) - sum(order.want for order in self.state.in_flight)
            if room <= 0 or self.state.stopping:
                await asyncio.sleep(_LONGEST_PAUSE / 10)
                continue
            try:
                found = await self.wire.read(self.id, room, _BLOCK_SECONDS)
                pause = _FIRST_PAUSE
            except StreamUnavailable as error:
                log.warning("cannot read the stream, trying again in %.2f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            self._keep(found)
            if found or self.until_idle:
                self.wake()

    async def _nothing_left(self) -> bool:
        """Nothing of ours is held, waits for a worker or is due soon, on the stream or on its way there."""
        try:
            rows = await self.engine.store.read(lambda tx: tx.backlog())
        except DetentError as error:
            log.warning("cannot see whether anything is left: %s", error)
            return False
        wired = {name for name, contract in self.engine.contracts.items() if contract.wired}
        mine = [row for row in rows if row.contract in wired and row.job_type in self.handlers]
        return not self._read and not any(row.due or row.held for row in mine) and await super()._nothing_left()


def _answered(settled: Sequence[Settlement], answer: BatchResult) -> list[str]:
    """Messages whose execution has its end in the database. A lost one is another's by now."""
    later = {said.id for said in answer.later}
    return [
        said.token
        for said in settled
        if said.id not in later
        and not isinstance(said.outcome, Stopped)
        and isinstance(answer.refused.get(said.id, _LOST), StaleLease)
    ]


_LOST = StaleLease("")


class StreamLeaseListener:
    """At each beat of the heart: our messages stay ours, and jobs that run for long have a note."""

    def __init__(self, worker: StreamWorker) -> None:
        settings = worker.wire.settings
        self.beat_seconds = min(settings.beat_seconds, worker.lease_seconds / 3)
        self._worker = worker
        self._wire = worker.wire.sibling()
        self._note_every = int(settings.heartbeat_interval_s * SECOND)
        self._noted_at = 0

    async def keep(self, engine: Engine, held: Mapping[str, str]) -> None:
        waiting = list(self._worker._read)
        try:
            await self._wire.keep(self._worker.id, [*held.values(), *waiting])
        except StreamUnavailable as error:
            log.warning("cannot keep our messages: %s", error)
        now = engine.store.now()
        if held and now - self._noted_at >= self._note_every:
            self._noted_at = now
            names = {name: c.heartbeat_note for name, c in engine.contracts.items() if c.heartbeat_note}
            await engine.store.write(lambda tx: tx.note_heartbeats(held, names, self._note_every))

    async def close(self) -> None:
        await self._wire.close()
