"""The relay: publishes the tasks that this process has submitted, right after their commit.

An orchestrator publishes what a relay did not: the outbox items are hidden from it for a second only.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from detent.core.job import TASK, Change, Job, Micros
from detent.core.times import SECOND
from detent.ports.store import Store
from detent.ports.stream import OutboxItem, StreamTransport, StreamUnavailable, TaskMessage
from detent.ports.tx import Tx
from detent.system.batcher import TaskBatcher
from detent.system.tasks import cancel_and_wait, wait_for_event

log = logging.getLogger("detent.streams.relay")
BATCH = 500
_HOLD: Micros = SECOND
"""How long outbox items are hidden from orchestrators; those that the relay has not published by then are theirs."""
_STATE_SECONDS = 1.0
"""How long pauses and the length of the stream are cached, so how late a pause by another process is noticed."""
_RETRY_SECONDS = 5.0
"""After a failure, how long tasks are left to the orchestrators."""
_DROP_SECONDS = 0.05
"""How long published items are collected before they are deleted together."""
_CLOSE_SECONDS = 1.0
Pauses = set[tuple[str, str]]
"""(kind, name) of everything that is paused."""


class Relay:
    """Publishes to one stream server from one event loop. It never raises: what fails is left to the orchestrators."""

    def __init__(self, store: Store, transport: StreamTransport) -> None:
        self._store = store
        self._transport = transport
        self._settings = transport.settings
        self._batcher: TaskBatcher[Sequence[Change], None] = TaskBatcher(self._publish_batch, max_size=BATCH, size=len)
        self._last: asyncio.Future[None] | None = None
        """Done when everything that was passed to the batcher is published."""
        self._pauses: Pauses = set()
        self._open = False
        """True: an orchestrator has used this stream, without which no item can be dropped, and it is not full."""
        self._state_until = self._retry_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._published: dict[str, list[OutboxItem]] = defaultdict(list)
        """Server process -> the items it has taken that are still in the outbox."""
        self._dropping: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def reserve(self, changes: Sequence[Change]) -> None:
        now = asyncio.get_running_loop().time()
        tasks = [change for change in changes if change.outbox_item == TASK and change.after.ready]
        if not tasks or now < self._retry_at:
            return
        for change in tasks:
            change.outbox_hold = _HOLD
        if now >= self._state_until and self._reading is None:  # while the insert is on its way
            self._reading = asyncio.create_task(self._read_state())

    def publish(self, changes: Sequence[Change]) -> None:
        for start in range(0, 0 if self._closing.is_set() else len(changes), BATCH):
            self._last = self._batcher.add(changes[start : start + BATCH], at_once=False)
            self._last.add_done_callback(_retrieve)

    async def _read_state(self) -> None:
        try:
            self._pauses, epoch = await self._store.read(self._read_pauses_and_epoch)
            length = await self._transport.tasks.length() if epoch is not None else 0
            self._open = epoch is not None and length < self._settings.max_length
            self._state_until = asyncio.get_running_loop().time() + _STATE_SECONDS
        except Exception as error:
            self._leave_to_orchestrators(error)
        finally:
            self._reading = None

    async def _read_pauses_and_epoch(self, tx: Tx) -> tuple[Pauses, str | None]:
        return await read_pauses(tx), await tx.outbox.epoch(self._settings.task_stream)

    async def _publish_batch(self, batch: Sequence[Sequence[Change]]) -> list[None]:
        if self._reading is not None:
            await asyncio.wait([self._reading])
        jobs = [change.after for changes in batch for change in changes if self._may_publish(change)]
        if jobs:
            try:
                run_id = await self._transport.tasks.publish([task_message(job) for job in jobs])
            except Exception as error:
                self._leave_to_orchestrators(error)
            else:
                self._drop_later(jobs, run_id)
        return [None] * len(batch)

    def _may_publish(self, change: Change) -> bool:
        job = change.after
        in_time = self._store.now() < (job.due_at or 0) + change.outbox_hold  # else an orchestrator may publish it
        return in_time and self._open and not is_paused(job, self._pauses)

    def _leave_to_orchestrators(self, error: Exception) -> None:
        self._retry_at = asyncio.get_running_loop().time() + _RETRY_SECONDS
        expected = isinstance(error, StreamUnavailable)
        log.warning("tasks are left to the orchestrators: %s", error, exc_info=None if expected else error)

    def _drop_later(self, jobs: Iterable[Job], run_id: str) -> None:
        self._published[run_id] += [OutboxItem(job.id, TASK, job.version, (job.due_at or 0) + _HOLD) for job in jobs]
        if self._dropping is None or self._dropping.done():
            self._dropping = asyncio.create_task(self._drop())

    async def _drop(self) -> None:
        """Delete published items. Those that stay, because the stream is on another server now, are published again."""
        while self._published:
            await wait_for_event(self._closing, _DROP_SECONDS)
            run_id, items = self._published.popitem()
            stream = self._settings.task_stream
            try:
                await self._store.write(partial(_drop_items, items, stream, run_id))
            except Exception as error:
                log.warning("%d published tasks stay in the outbox: %s", len(items), error)

    async def close(self) -> None:
        """Publish what was submitted, for a second at most, and close the connections."""
        self._closing.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                if self._last is not None:
                    await asyncio.wait([self._last])
                if self._dropping is not None:  # begun by the publishing, if not before
                    await asyncio.wait([self._dropping])
        await self._batcher.close()
        await cancel_and_wait([task for task in (self._reading, self._dropping) if task is not None])
        await self._transport.close()


def _retrieve(future: "asyncio.Future[None]") -> None:
    """Nobody waits for the outcome: without this, asyncio logs that an error was not handled."""
    if not future.cancelled():
        future.exception()


async def _drop_items(items: Sequence[OutboxItem], stream: str, run_id: str, tx: Tx) -> int:
    return await tx.outbox.drop_outbox_items(items, stream, run_id)


async def read_pauses(tx: Tx) -> Pauses:
    return {(pause.kind, pause.name) for pause in await tx.pauses.list_pauses()}


def is_paused(job: Job | None, pauses: Pauses) -> bool:
    return job is not None and not pauses.isdisjoint(
        (("queue", job.queue), ("job_type", job.job_type), ("tenant", job.tenant_id))
    )


def task_message(job: Job) -> TaskMessage:
    key = job.idempotency_key or job.id
    return TaskMessage(job.id, job.job_type, job.payload, job.failures, key, job.trace_id or job.id)
