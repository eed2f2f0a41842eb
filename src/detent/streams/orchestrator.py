"""The orchestrator: outbox to stream, results to database, messages of the dead to the living. Any number may run."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from detent.core.contract.model import Phase
from detent.core.errors import DetentError, StoreRefused
from detent.core.job import LETTER, TASK, Job
from detent.core.times import SECOND
from detent.engine import Engine
from detent.engine.streams.deliveries import Heard, Judged, answer_overdue, hear, judge, overdue
from detent.engine.streams.poisoned_messages import dead_letter_message
from detent.ports.clock import Clock
from detent.ports.outbox import OutboxItem
from detent.ports.stream import Delivery, Result, Stranded, StreamTransport, TaskMessage
from detent.ports.tx import Tx
from detent.system.clock import SystemClock
from detent.worker.reclaim_grace import ReclaimGrace
from detent.worker.registration import worker_name

log = logging.getLogger("detent.orchestrator")
BATCH = 500
_HOLD_SECONDS = 5.0
"""How long a parcel that was taken is hidden from other orchestrators; told twice does no harm."""
_POLL_SECONDS = 1.0
_TRIM_SECONDS = 5.0
_FORGET_SECONDS = 300.0
_GONE_SECONDS = 3_600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class Orchestrator:
    """Three loops over one engine and one wire; each survives whatever the other side does."""

    def __init__(self, engine: Engine, wire: StreamTransport, clock: Clock | None = None) -> None:
        self.engine = engine
        self.wire = wire
        self.id = f"orchestrator-{worker_name(engine.ids)}"
        self.published = self.heard = self.reclaimed = self.refilled = self.troubles = 0
        self._clock = clock or SystemClock()
        self._lease = int(wire.settings.visibility_timeout_s * SECOND)
        self._reclaim_grace = ReclaimGrace(self._clock, wire.settings.visibility_timeout_s)
        self._offered: dict[str, float] = {}
        """Tokens whose task was published again, and when: their lease stays overdue until a worker takes it over."""
        self._next_trim = self._next_forget = float("-inf")

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, turn in (("relay", self._relay_turn), ("results", self._results_turn), ("round", self._round)):
                group.create_task(self._for_ever(name, turn))

    async def _for_ever(self, name: str, turn: Callable[[], Awaitable[None]]) -> None:
        pause = _FIRST_PAUSE
        while True:
            began = self._clock.monotonic()
            try:
                await turn()
            except Exception as error:
                if self._clock.monotonic() - began > _LONGEST_PAUSE:  # it went well for a while
                    pause = _FIRST_PAUSE
                if isinstance(error, DetentError):
                    log.warning("%s: trying again in %.1f s: %s", name, pause, error)
                else:
                    log.exception("%s: trying again in %.1f s", name, pause)
                self.troubles += 1
                self._reclaim_grace.lost()
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _relay_turn(self) -> None:
        watch = self.engine.store.watch()
        while True:
            while await self.relay() == BATCH:
                pass
            await watch.changed(_POLL_SECONDS)

    async def relay(self) -> int:
        """Tell the stream what is due in the outbox; how many parcels were looked at."""
        if await self.wire.length() >= self.wire.settings.max_length:
            return 0
        outbox_items = await self.engine.store.write(
            lambda tx: tx.take_outbox_items(BATCH, int(_HOLD_SECONDS * SECOND))
        )
        if not outbox_items:
            return 0
        jobs, paused = await self.engine.store.read(lambda tx: _look_up(tx, outbox_items))
        done = [outbox_item for outbox_item in outbox_items if not _is_paused(jobs.get(outbox_item.job_id), paused)]
        now = self.engine.store.now()
        tasks = [jobs[p.job_id] for p in done if p.kind == TASK and p.job_id in jobs]
        messages = [_message(job) for job in tasks if _is_claimable_now(job, now)]
        await self.wire.publish(messages)
        buried = [outbox_item.job_id for outbox_item in done if outbox_item.kind == LETTER]
        if buried:
            await self.wire.publish_dead_letters(await self.engine.store.read(lambda tx: tx.dead_letters_of(buried)))
        await self.engine.store.write(lambda tx: tx.drop_outbox_items(done))
        self.published += len(messages)
        return len(outbox_items)

    async def _results_turn(self) -> None:
        while True:
            results = await self.wire.read_results(self.id, BATCH, _POLL_SECONDS)
            if results:
                await self.settle(results)

    async def settle(self, results: Sequence[Result]) -> None:
        """Into the database first; only then are result and message acknowledged."""
        lease, limit = self._lease, self.wire.settings.max_deliveries
        try:
            heard: Heard = await self.engine.store.write(lambda tx: hear(self.engine, tx, results, lease, limit))
        except StoreRefused as error:  # one that the store refuses must not hold up the others
            if len(results) == 1 and results[0].problem is not None:
                raise
            for one in results:
                strange = len(results) == 1 and f"its result cannot be stored: {error.message}"
                await self.settle([one._replace(output=None, error="", problem=strange) if strange else one])
            return
        for one in heard.unknown:
            await self._bury(self.wire.settings.result_stream, one.id, one.fields, "RESULT_INVALID", _unknown(one))
        await self.wire.acknowledge(heard.ended)
        await self.wire.acknowledge_results([one.id for one in results])
        self.heard += len(results)

    async def _round(self) -> None:
        """What must be looked after now and then."""
        pause = min(_POLL_SECONDS, self.wire.settings.visibility_timeout_s / 5)
        while True:
            await self.watch_epoch()
            self._reclaim_grace.back()
            self._reclaim_grace.look()
            if self._reclaim_grace.over:
                while await self.reclaim() == BATCH:
                    pass
                await self.find_lost()
            now = self._clock.monotonic()
            if now >= self._next_trim:
                self._next_trim = now + _TRIM_SECONDS
                await self.wire.trim()
            if now >= self._next_forget:
                self._next_forget = now + _FORGET_SECONDS
                await self.wire.forget_idle_consumers(_GONE_SECONDS)
            await asyncio.sleep(pause)

    async def watch_epoch(self) -> None:
        """A server without our mark came back empty; one that was started anew may have lost its last moments."""
        epoch, run = await self.wire.mark(self.engine.ids.token())
        name, mark = self.wire.settings.task_stream, f"{epoch}/{run}"
        known: str | None = await self.engine.store.read(lambda tx: tx.epoch(name))
        if known == mark:
            return
        if known is not None:
            self._reclaim_grace.begin("the stream's server was started anew")
        there = await self.wire.messages()
        self.refilled += await self.engine.store.write(lambda tx: self._refill(tx, there, mark, known))

    async def _refill(self, tx: Tx, there: set[tuple[str, int]], mark: str, known: str | None) -> int:
        """Publish again what waits for a worker and is not on the stream."""
        if not await tx.put_epoch(self.wire.settings.task_stream, mark, known):  # another orchestrator was faster
            return 0
        wired = [name for name, contract in self.engine.contracts.items() if contract.wired]
        waiting = await tx.claimable(wired)
        outbox_items = [
            OutboxItem(job_id, TASK, version, tx.now) for job_id, version, n in waiting if (job_id, n) not in there
        ]
        if known is None or known.partition("/")[0] != mark.partition("/")[0]:
            outbox_items += [
                OutboxItem(job_id, LETTER, version, tx.now) for job_id, version in await tx.open_dead_letters(wired)
            ]
        await tx.put_outbox_items(outbox_items)
        if known is not None and outbox_items:
            log.warning("the stream server came back without %d messages; they are published again", len(outbox_items))
        return len(outbox_items)

    async def reclaim(self) -> int:
        """Messages of consumers that went silent go to the end of the stream, under new ids."""
        stranded: list[Stranded] = await self.wire.stranded(self.id, BATCH)
        if not stranded:
            return 0
        judged: Judged = await self.engine.store.write(lambda tx: judge(self.engine, tx, stranded, self._lease))
        for delivery in judged.unknown:
            await self.bury_delivery(delivery)
        await self.wire.give_back(judged.alive)
        await self.wire.hand_back([one.delivery for one in judged.again])
        await self.wire.acknowledge([one.delivery.message_id for one in judged.drop])
        now = self._clock.monotonic()
        self._offered |= {one.delivery.message_id: now for one in judged.again}
        for consumer, number in Counter(one.consumer for one in judged.again).items():
            log.info("%d messages of %s are published again: it showed no sign of life", number, consumer)
        self.reclaimed += len(judged.again)
        return len(stranded)

    async def find_lost(self) -> None:
        """Leases that ran out although no message of theirs is pending: it was lost, so there is a new one."""
        now, patience = self._clock.monotonic(), 10 * self.wire.settings.visibility_timeout_s
        self._offered = {token: at for token, at in self._offered.items() if at + patience > now}
        late: list[Job] = await self.engine.store.read(lambda tx: overdue(self.engine, tx, 2 * BATCH))
        late = [job for job in late if job.token not in self._offered]
        if not late:
            return
        seen = await self.wire.pending([job.token for job in late if job.token])
        lost = await self.engine.store.write(lambda tx: answer_overdue(tx, late, seen, self._lease))
        self._offered |= {job.token: now for job in late if job.token and job.id in lost}
        self.reclaimed += len(lost)

    async def bury_delivery(self, delivery: Delivery) -> None:
        if delivery.fields:
            code = "SCHEMA_INVALID" if delivery.problem else "TASK_UNKNOWN"
            problem = delivery.problem or f"no task {delivery.task_id[:80]!r} is known here"
            stream = self.wire.settings.task_stream
            await self._bury(stream, delivery.message_id, delivery.fields, code, problem)
        await self.wire.acknowledge([delivery.message_id])

    async def _bury(self, stream: str, message_id: str, fields: Mapping[bytes, bytes], code: str, problem: str) -> None:
        origin = (stream, message_id)
        await self.engine.store.write(
            lambda tx: dead_letter_message(self.engine, tx, self.id, origin, fields, code, problem)
        )


async def _look_up(tx: Tx, outbox_items: Sequence[OutboxItem]) -> tuple[dict[str, Job], dict[str, set[str]]]:
    paused: dict[str, set[str]] = {}
    for kind, name, *_ in await tx.pauses():
        paused.setdefault(kind, set()).add(name)
    return await tx.lock(sorted({outbox_item.job_id for outbox_item in outbox_items})), paused


def _is_paused(job: Job | None, paused: dict[str, set[str]]) -> bool:
    if job is None or not paused:
        return False
    names = {"queue": job.queue, "job_type": job.job_type, "tenant": job.tenant_id}
    return any(names[kind] in held for kind, held in paused.items())


def _is_claimable_now(job: Job, now: int) -> bool:
    """It waits for one, or its holder is gone."""
    return job.phase is Phase.CLAIMABLE or (job.phase is Phase.LEASED and (job.lease_until or 0) <= now)


def _message(job: Job) -> TaskMessage:
    key = job.idempotency_key or job.id
    return TaskMessage(job.id, job.job_type, job.payload, job.failures, key, job.trace_id or job.id)


def _unknown(one: Result) -> str:
    return one.problem or f"no task {one.task_id[:80]!r} is known here"
