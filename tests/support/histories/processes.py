"""The processes whose calls are recorded: `python -m support.histories.processes worker|client URL FOLDER …`.

A worker is a real one; its settlements, claims and heartbeats are recorded. A client submits, reads, cancels, signals.
"""

import asyncio
import json
import random
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from detent import Context, Detent
from detent.client.connect import when_available
from detent.core.access import Scope
from detent.core.errors import DetentError, NotFound, StoreUnavailable
from detent.core.outcome import Failed, Outcome
from detent.engine import Engine, Submission
from detent.ports.listing import Filter
from detent.stores.postgres.store import PostgresStore
from detent.system.ids import RandomIds
from detent.worker.heartbeat import Heartbeat

from .recording import Recorder

LEASE_SECONDS = 4.0
SLOTS = 400
BATCH = 500
PAGE = 1_000
FINISH_SECONDS = 180
SIGNALS_AT_ONCE = 50
RETRIES = {"quick": 40, "flaky": 2, "slow": 40, "waiter": 40}
BACKOFF = "0.2"
KEYS = 8
"""Idempotency keys that all clients use."""
SCOPE = Scope("operator")
app = Detent()


@app.job("quick", max_retries=RETRIES["quick"])
async def quick() -> None: ...


@app.job("flaky", max_retries=RETRIES["flaky"], backoff=BACKOFF)
async def flaky() -> None:
    if random.random() < 0.6:
        raise RuntimeError("sometimes")


@app.job("slow", max_retries=RETRIES["slow"])
async def slow() -> None:
    await asyncio.sleep(random.random() * 1.5)


@app.job("waiter", max_retries=RETRIES["waiter"])
async def waiter(ctx: Context) -> None:
    await ctx.wait_for("go")


def _outcome(outcome: Outcome) -> str:
    if isinstance(outcome, Failed) and outcome.failure.retryable is False:
        return "Failed for good"
    return type(outcome).__name__


def record_batches(recorder: Recorder) -> None:
    """Record every call of Engine.settle_and_claim in this process."""
    settle_and_claim = Engine.settle_and_claim

    async def recorded(self: Engine, settled: Any, request: Any) -> Any:
        settlements = [[s.id, s.token, _outcome(s.outcome)] for s in settled]
        number = recorder.invoke("batch", settlements, request.token if request else "")
        done = await settle_and_claim(self, settled, request)
        claimed = [[job.id, job.token, job.version, job.execution_no] for job in done.claimed]
        recorder.respond(number, [claimed, list(done.refused), [s.id for s in done.later]])
        return done

    Engine.settle_and_claim = recorded  # type: ignore[method-assign]


def record_heartbeats(recorder: Recorder) -> None:
    """Record every heartbeat that extends leases. They are sent by a thread, so the recorder is one of its own."""
    beat, report = Heartbeat._beat, Heartbeat._report

    async def recorded_beat(self: Heartbeat, at: Any) -> None:
        recorder.invoke("extend")
        await beat(self, at)

    def recorded_report(self: Heartbeat, held: Any, answer: Any, command: Any, extended_at: Any = None) -> None:
        if extended_at is not None:
            recorder.respond(recorder.number, [[job_id, held[job_id], job_id not in answer.lost] for job_id in held])
        report(self, held, answer, command, extended_at)

    Heartbeat._beat, Heartbeat._report = recorded_beat, recorded_report  # type: ignore[method-assign]


async def work(url: str, folder: Path) -> None:
    record_batches(Recorder(folder, "worker"))
    record_heartbeats(Recorder(folder, "heartbeat"))
    app.url = url
    worker = await when_available(lambda: app.worker(slots=SLOTS, lease_seconds=LEASE_SECONDS, grace_seconds=2.0))
    await worker.run()
    await app.close()


class PlannedIds(RandomIds):
    """Gives out the ids that were recorded before the call, so that a submit whose reply is lost can be repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.planned: deque[str] = deque()

    def job(self) -> str:
        return self.planned.popleft() if self.planned else super().job()


class Client:
    """Calls of one process. A submit is repeated until it is acknowledged; each call is recorded by itself."""

    def __init__(self, engine: Engine, recorder: Recorder, bulk: Engine | None = None) -> None:
        self.engine, self.recorder, self.bulk = engine, recorder, bulk or engine
        self.ids = RandomIds()
        self.recent: deque[tuple[str, str]] = deque(maxlen=3_000)
        """(job type, id) of jobs that may not have ended."""

    async def submit(self, job_type: str, ids: list[str]) -> None:
        while True:
            number = self.recorder.invoke("submit", job_type, ids)
            try:
                async with asyncio.timeout(20):
                    await self._submit(Submission(job_type, max_retries=RETRIES[job_type], backoff=BACKOFF), ids)
            except (StoreUnavailable, TimeoutError):
                await asyncio.sleep(0.5)
            else:
                return self.recorder.respond(number, "ok")

    async def _submit(self, submission: Submission, ids: list[str]) -> None:
        if len(ids) < BATCH:
            await self.engine.jobs.submit_many([replace(submission, id=job_id) for job_id in ids])
            return
        assert isinstance(self.bulk.ids, PlannedIds)
        self.bulk.ids.planned = deque(ids)
        submitted = await self.bulk.jobs.submit_uniform(submission, [{}] * len(ids))
        assert {one.id for one in submitted} == set(ids), "the engine took the recorded ids"

    async def submit_all(self, jobs: int) -> None:
        while jobs > 0:
            for job_type, share in (("quick", BATCH), ("flaky", 4), ("slow", 6), ("waiter", 4)):
                ids = [self.ids.job() for _ in range(share)]
                await self.submit(job_type, ids)
                self.recent.extend((job_type, job_id) for job_id in ids[:6])
                jobs -= share

    async def operate(self, shared: list[tuple[str, str]]) -> None:
        while True:
            job_type, job_id = random.choice(random.choice((shared, self.recent)) or shared)
            await random.choice((self.read, self.read, self.cancel, self.signal))(job_id)
            if random.random() < 0.3:
                await self.submit_keyed(f"key-{random.randrange(KEYS)}")
            if job_type == "waiter" and random.random() < 0.3:
                await self.signal(job_id)

    async def read(self, job_id: str) -> None:
        async def answer() -> Any:
            try:
                job = await self.engine.jobs.get(job_id)
            except NotFound:
                return [None, 0]
            return [job.status, job.version]

        await self._call("read", job_id, answer)

    async def cancel(self, job_id: str) -> None:
        async def answer() -> Any:
            job = await self.engine.jobs.cancel(job_id, SCOPE)
            return [job.status, job.version]

        await self._call("cancel", job_id, answer)

    async def signal(self, job_id: str) -> None:
        async def answer() -> Any:
            await self.engine.jobs.signal(job_id, "go", SCOPE)
            return "ok"

        await self._call("signal", job_id, answer)

    async def submit_keyed(self, key: str) -> None:
        job_id = self.ids.job()

        submission = Submission("quick", id=job_id, idempotency_key=key, max_retries=RETRIES["quick"], backoff=BACKOFF)

        async def answer() -> Any:
            return (await self.engine.jobs.submit(submission)).job.id

        await self._call("keyed", key, answer, job_id)

    async def _call(self, kind: str, subject: str, answer: Any, *arguments: str) -> None:
        number = self.recorder.invoke(kind, subject, *arguments)
        try:
            async with asyncio.timeout(20):
                result = await answer()
        except (StoreUnavailable, TimeoutError):  # the outcome is unknown
            return await asyncio.sleep(0.5)
        except DetentError:
            result = "refused"
        self.recorder.respond(number, result)


async def call(url: str, folder: Path, jobs: int, shared: list[tuple[str, str]]) -> None:
    """Submit these many jobs and the shared ones, which other clients submit too, and operate on them meanwhile."""
    app.url = url
    engine = await when_available(app.ready)
    bulk = Engine(PostgresStore(url), ids=PlannedIds())
    await when_available(bulk.open)
    client = Client(engine, Recorder(folder, "client"), bulk)
    operating = [asyncio.create_task(client.operate(shared)) for _ in range(3)]
    submitting = [asyncio.create_task(client.submit_all(jobs))]
    for first in range(0, len(shared), 20):
        await asyncio.gather(*(client.submit(job_type, [job_id]) for job_type, job_id in shared[first : first + 20]))
    await asyncio.gather(*submitting)
    for task in operating:
        task.cancel()
    await asyncio.gather(*operating, return_exceptions=True)
    await bulk.close()
    await app.close()


async def finish(url: str, folder: Path) -> int:
    """Signal all that wait until everything has ended, then read every job; returns their number."""
    app.url = url
    engine = await when_available(app.ready)
    client = Client(engine, Recorder(folder, "reader"))
    async with asyncio.timeout(FINISH_SECONDS):
        while not all("final" in row for row in await engine.store.read(lambda tx: tx.stats.counts())):
            blocked = await engine.jobs.list(Filter(phase="blocked", limit=PAGE))
            for first in range(0, len(blocked), SIGNALS_AT_ONCE):
                await asyncio.gather(*(client.signal(job.id) for job in blocked[first : first + SIGNALS_AT_ONCE]))
            await asyncio.sleep(0.2)
    before, count = None, 0
    while True:
        number = client.recorder.invoke("reads")
        page = await engine.jobs.list(Filter(limit=PAGE, before=before))
        client.recorder.respond(number, [[job.id, job.status, job.version] for job in page])
        count += len(page)
        if len(page) < PAGE:
            break
        before = page[-1].id
    await app.close()
    return count


if __name__ == "__main__":
    role, url, folder, *words = sys.argv[1:]
    if role == "worker":
        asyncio.run(work(url, Path(folder)))
    else:
        asyncio.run(call(url, Path(folder), int(words[0]), json.loads(Path(words[1]).read_text())))
