"""The orchestrator: publishes the outbox, applies results, reclaims messages of lost workers. Any number may run."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from detent.core.contract.builtin import stream_contract_names
from detent.core.contract.model import Phase
from detent.core.errors import DetentError, StoreRefused
from detent.core.job import DEAD_LETTER, TASK, Job
from detent.core.times import SECOND
from detent.engine import Engine
from detent.engine.streams import deliveries
from detent.engine.streams.poisoned_messages import dead_letter_delivery, dead_letter_message, unknown_task
from detent.handler.lease import Reading
from detent.ports.clock import Clock
from detent.ports.stream import Delivery, IdleMessage, OutboxItem, Result, StreamTransport
from detent.ports.tx import Tx
from detent.system.backoff import Backoff
from detent.system.batcher import batch_then_each
from detent.system.clock import SystemClock
from detent.worker.reclaim_grace import ReclaimGrace
from detent.worker.worker import worker_name

from .relay import BATCH, Pauses, Relay, is_paused, read_pauses, task_message

__all__ = ["BATCH", "Orchestrator"]
log = logging.getLogger("detent.streams.orchestrator")
_HOLD_SECONDS = 5.0
"""How long an outbox item that was taken is hidden from other orchestrators; publishing it twice is harmless."""
_POLL_SECONDS = 1.0
_TRIM_SECONDS = 5.0
_REMOVE_CONSUMERS_SECONDS = 300.0
_CONSUMER_IDLE_SECONDS = 3_600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0


class Orchestrator:
    """Three loops over one engine and one stream transport; each retries after any error of store or stream."""

    def __init__(self, engine: Engine, transport: StreamTransport, clock: Clock | None = None) -> None:
        self.engine = engine
        self.transport = transport
        self._store = engine.store
        self._settings = transport.settings
        self.id = f"orchestrator-{worker_name(engine.ids)}"
        self.republished = self.errors = 0
        self._clock = clock or SystemClock()
        self._lease = int(self._settings.visibility_timeout_s * SECOND)
        self._reclaim_grace = ReclaimGrace(self._settings.visibility_timeout_s)
        self._republished_at: dict[str, float] = {}
        """Token of a task that was published again -> when. Its lease stays expired until a worker reclaims it."""
        self._next_trim = self._next_removal = float("-inf")

    async def run(self) -> None:
        """Run until cancelled. Meanwhile tasks that are submitted by its engine are published by a relay."""
        loops = (("outbox", self._outbox_loop), ("results", self._results_loop), ("upkeep", self._upkeep_loop))
        relay = None
        if self.engine.relay is None:
            self.engine.relay = relay = Relay(self._store, self.transport.sibling())
        try:
            async with asyncio.TaskGroup() as group:
                for name, loop in loops:
                    group.create_task(self._restart_forever(name, loop))
        finally:
            if relay is not None:
                self.engine.relay = None
                await relay.close()

    async def _restart_forever(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            began = self._clock.monotonic()
            try:
                await loop()
            except Exception as error:
                if self._clock.monotonic() - began > _LONGEST_PAUSE:  # it ran without errors for a while
                    backoff.reset()
                if isinstance(error, DetentError):
                    log.warning("%s: trying again in %.1f s: %s", name, backoff.seconds, error)
                else:
                    log.exception("%s: trying again in %.1f s", name, backoff.seconds)
                self.errors += 1
                self._reclaim_grace.store_lost()
                await backoff.pause()

    async def _outbox_loop(self) -> None:
        watch = self._store.watch()
        await self.check_epoch()
        while True:
            while await self.publish_outbox() == BATCH:
                pass
            await watch.changed(_POLL_SECONDS)

    async def publish_outbox(self) -> int:
        """Publish a batch of due outbox items to the stream; returns how many items the batch had."""
        if await self.transport.tasks.length() >= self._settings.max_length:
            return 0
        hold = int(_HOLD_SECONDS * SECOND)
        outbox_items = await self._store.write(lambda tx: tx.outbox.take_outbox_items(BATCH, hold))
        if not outbox_items:
            return 0
        jobs, paused = await self._store.read(lambda tx: _jobs_and_pauses(tx, outbox_items))
        done = [outbox_item for outbox_item in outbox_items if not is_paused(jobs.get(outbox_item.job_id), paused)]
        now = self._store.now()
        tasks = [jobs[item.job_id] for item in done if item.kind == TASK and item.job_id in jobs]
        messages = [task_message(job) for job in tasks if _is_claimable_now(job, now)]
        run_ids = {await self.transport.tasks.publish(messages)}
        dead = [outbox_item.job_id for outbox_item in done if outbox_item.kind == DEAD_LETTER]
        if dead:
            dead_letters = await self._store.read(lambda tx: tx.dead_letters.dead_letters_of(dead))
            run_ids.add(await self.transport.results.publish_dead_letters(dead_letters))
        if done and len(run_ids) == 1:  # else a failover came between: what is left is published again
            await self._drop_outbox_items(done, run_ids.pop())
        return len(outbox_items)

    async def _drop_outbox_items(self, outbox_items: Sequence[OutboxItem], run_id: str) -> None:
        """Delete published items, if the server that took them is still the one of the stream."""
        stream = self._settings.task_stream
        if not await self._store.write(lambda tx: tx.outbox.drop_outbox_items(outbox_items, stream, run_id)):
            await self.check_epoch()
            await self._store.write(lambda tx: tx.outbox.drop_outbox_items(outbox_items, stream, run_id))

    async def _results_loop(self) -> None:
        while True:
            results = await self.transport.results.read_results(self.id, BATCH, _POLL_SECONDS)
            if results:
                await self.apply_results(results)

    async def apply_results(self, results: Sequence[Result]) -> None:
        """Commit the results to the database, then acknowledge the results and their task messages."""
        outcomes = await batch_then_each(results, self._apply_batch, lambda error: isinstance(error, StoreRefused))
        for result, error in zip(results, outcomes, strict=True):
            if isinstance(error, StoreRefused):
                if result.problem is not None:
                    raise error
                problem = f"its result cannot be stored: {error.message}"
                await self._apply_batch([result._replace(output=None, error="", problem=problem)])

    async def _apply_batch(self, results: Sequence[Result]) -> list[None]:
        limits = self._lease, self._settings.max_deliveries
        applied = await self._store.write(lambda tx: deliveries.apply_results(self.engine, tx, results, *limits))
        self.engine.report(applied.changes)
        for result in applied.unknown:
            origin, problem = (self._settings.result_stream, result.id), result.problem or unknown_task(result.task_id)
            await dead_letter_message(self.engine, self.id, origin, result.fields, "RESULT_INVALID", problem)
        await self.transport.tasks.acknowledge(applied.ended)
        await self.transport.results.acknowledge_results([result.id for result in results])
        return [None] * len(results)

    async def _upkeep_loop(self) -> None:
        """Watch the epoch, end timeouts, reclaim idle messages, recover lost ones, trim streams, remove consumers."""
        pause = min(_POLL_SECONDS, self._settings.visibility_timeout_s / 5)
        while True:
            await self.check_epoch()
            at = Reading.of(self._clock)
            self._reclaim_grace.store_answered(at.monotonic)
            self._reclaim_grace.check_clocks(at)
            if self._reclaim_grace.over(at.monotonic):
                await self.engine.expire(BATCH)
                while await self.reclaim() == BATCH:
                    pass
                await self.recover_lost_messages()
            await self._trim(self._clock.monotonic())
            await asyncio.sleep(pause)

    async def _trim(self, now: float) -> None:
        """Errors are only logged: a server that refuses to trim must not keep lost messages from being reclaimed."""
        try:
            if now >= self._next_trim:
                self._next_trim = now + _TRIM_SECONDS
                await self.transport.maintenance.trim()
            if now >= self._next_removal:
                self._next_removal = now + _REMOVE_CONSUMERS_SECONDS
                await self.transport.maintenance.remove_idle_consumers(_CONSUMER_IDLE_SECONDS)
        except Exception as error:
            log.warning("trimming the streams failed: %s", error)

    async def check_epoch(self) -> None:
        """Publish missing messages again if the server lost its epoch key (all data) or restarted (its last writes)."""
        epoch, run_id = await self.transport.maintenance.ensure_epoch(self.engine.ids.token())
        name, current = self._settings.task_stream, f"{epoch}/{run_id}"
        stored: str | None = await self._store.read(lambda tx: tx.outbox.epoch(name))
        if stored == current:
            return
        if stored is not None:
            self._reclaim_grace.start(self._clock.monotonic(), "the stream server was restarted")
        on_stream = await self.transport.tasks.published_tasks()
        self.republished += await self._store.write(lambda tx: self._republish(tx, on_stream, current, stored))

    async def _republish(self, tx: Tx, on_stream: set[tuple[str, int]], current: str, stored: str | None) -> int:
        """Put claimable tasks that are not on the stream into the outbox; after a loss of data, dead letters too."""
        if not await tx.outbox.put_epoch(self._settings.task_stream, current, stored):
            return 0  # another orchestrator did it
        contracts = sorted(stream_contract_names(self.engine.contracts))
        claimable = await tx.outbox.claimable(contracts)
        outbox_items = [
            OutboxItem(job.id, TASK, job.version, max(job.due_at, tx.now))
            for job in claimable
            if (job.id, job.failures) not in on_stream
        ]
        if stored is None or stored.partition("/")[0] != current.partition("/")[0]:
            outbox_items += [
                OutboxItem(job_id, DEAD_LETTER, version, tx.now)
                for job_id, version in await tx.dead_letters.open_dead_letters(contracts)
            ]
        await tx.outbox.put_outbox_items(outbox_items)
        if stored is not None and outbox_items:
            log.warning("the stream server lost %d messages; they are published again", len(outbox_items))
        return len(outbox_items)

    async def reclaim(self) -> int:
        """Publish messages of lost consumers again, under new ids; returns how many idle messages were claimed."""
        idle_messages: list[IdleMessage] = await self.transport.tasks.claim_idle_messages(self.id, BATCH)
        if not idle_messages:
            return 0
        messages = await self._store.write(lambda tx: deliveries.sort_idle_messages(self.engine, tx, idle_messages))
        for delivery in messages.unknown:
            await self.dead_letter_delivery(delivery)
        await self.transport.tasks.return_to_consumers(messages.alive)
        await self.transport.tasks.republish([message.delivery for message in messages.again])
        await self.transport.tasks.acknowledge([message.delivery.message_id for message in messages.drop])
        now = self._clock.monotonic()
        self._republished_at |= {message.delivery.message_id: now for message in messages.again}
        for consumer, number in Counter(message.consumer for message in messages.again).items():
            log.info("%d messages of %s are published again: it sent no heartbeat", number, consumer)
        return len(idle_messages)

    async def recover_lost_messages(self) -> None:
        """Publish tasks again whose lease expired although none of their messages is pending."""
        now, kept_for = self._clock.monotonic(), 10 * self._settings.visibility_timeout_s
        self._republished_at = {token: at for token, at in self._republished_at.items() if at + kept_for > now}
        contracts = sorted(stream_contract_names(self.engine.contracts))
        leases = await self._store.read(lambda tx: tx.claims.expired(2 * BATCH, contracts))
        expired = [job for job in leases if job.token not in self._republished_at]
        if not expired:
            return
        pending = await self.transport.tasks.pending([job.token for job in expired if job.token])
        lost = await self._store.write(lambda tx: deliveries.resolve_expired_leases(tx, expired, pending, self._lease))
        self._republished_at |= {job.token: now for job in expired if job.token and job.id in lost}

    async def dead_letter_delivery(self, delivery: Delivery) -> None:
        await dead_letter_delivery(self.engine, self.id, self._settings.task_stream, delivery)
        await self.transport.tasks.acknowledge([delivery.message_id])


async def _jobs_and_pauses(tx: Tx, outbox_items: Sequence[OutboxItem]) -> tuple[dict[str, Job], Pauses]:
    paused = await read_pauses(tx)
    return await tx.jobs.lock(sorted({outbox_item.job_id for outbox_item in outbox_items})), paused


def _is_claimable_now(job: Job, now: int) -> bool:
    """Claimable, or leased with an expired lease."""
    return job.phase is Phase.CLAIMABLE or (job.phase is Phase.LEASED and (job.lease_until or 0) <= now)
