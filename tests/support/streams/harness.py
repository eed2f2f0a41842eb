"""An orchestrator driven step by step, workers in this process, and a foreign worker with plain Redis commands."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import redis

from detent import Context, Detent
from detent.core.job import Job
from detent.engine import Engine, Submission
from detent.handler.handler import Handler
from detent.ports.stream import StreamSettings
from detent.proof.verify.verify import verify
from detent.streams.orchestrator import Orchestrator
from detent.streams.stream_worker import StreamWorker
from detent.transports.redis_streams.transport import RedisStreamTransport
from support.clock import FakeClock
from support.servers.valkey import fresh_url

VISIBILITY_SECONDS = 300.0
TASKS, RESULTS, DEAD_LETTERS, WORKERS = "stream:task", "stream:result", "stream:dlq", "cg:workers"

tools = Detent("sqlite:///:memory:")
"""Declares the handlers; it is never opened."""


@tools.job("add", contract="streams")
async def add(ctx: Context, a: int = 1, b: int = 1) -> int:
    return a + b


@tools.job("fail", contract="streams")
async def fail(ctx: Context) -> None:
    raise RuntimeError("it does not work")


@tools.job("garble", contract="streams")
async def garble(ctx: Context) -> None:
    raise RuntimeError("not \ud800 Unicode")


def handlers() -> dict[str, Handler]:
    return {name: definition.handler for name, definition in tools.jobs.items()}


class StreamHarness:
    """One engine, one Redis database, and an orchestrator between them."""

    def __init__(self, engine: Engine, clock: FakeClock, redis_url: str | None = None) -> None:
        self.engine, self.clock = engine, clock
        self.settings = StreamSettings(redis_url or fresh_url(), visibility_timeout_s=VISIBILITY_SECONDS)
        self.redis: Any = redis.Redis.from_url(self.settings.url, decode_responses=True, protocol=2)
        self.transports: list[RedisStreamTransport] = []
        self.orchestrator = self.new_orchestrator()

    def transport(self, **options: Any) -> RedisStreamTransport:
        self.transports.append(RedisStreamTransport(replace(self.settings, **options)))
        return self.transports[-1]

    def new_orchestrator(self, **options: Any) -> Orchestrator:
        return Orchestrator(self.engine, self.transport(**options), self.clock)

    async def close(self) -> None:
        for transport in self.transports:
            await transport.close()
        self.redis.close()

    async def submit(self, job_type: str = "add", **fields: Any) -> Job:
        return (await self.engine.jobs.submit(Submission(job_type, contract="streams", **fields))).job

    async def publish(self) -> None:
        await self.orchestrator.check_epoch()
        while await self.orchestrator.publish_outbox():
            pass

    async def work(self, **options: Any) -> StreamWorker:
        """Run a worker until no work is left for it."""
        worker = StreamWorker(self.engine, handlers(), self.transport(**options), until_idle=True)
        self._publishing = True  # ended between two batches: a cancelled one hides its outbox items for some time
        publisher = asyncio.create_task(self._publish_loop())
        await asyncio.wait_for(worker.run(handle_signals=False), 30)
        self._publishing = False
        await publisher
        return worker

    async def _publish_loop(self) -> None:
        while self._publishing:
            await self.publish()
            await asyncio.sleep(0.02)

    def read(self, consumer: str = "foreign") -> tuple[str, dict[str, str]]:
        """The next message, delivered to a worker that uses only Redis."""
        self.group()
        ((_, ((message_id, fields),)),) = self.redis.xreadgroup(WORKERS, consumer, {TASKS: ">"}, 1)
        return message_id, fields

    def group(self) -> None:
        with suppress(redis.ResponseError):
            self.redis.xgroup_create(TASKS, WORKERS, "0", True)

    def report(self, status: str, message_id: str, task_id: str, worker: str = "foreign", **fields: Any) -> None:
        message = {"task_id": task_id, "message_id": message_id, "status": status, "worker": worker, **fields}
        self.redis.xadd(RESULTS, message)

    async def apply_results(self, orchestrator: Orchestrator | None = None) -> None:
        """Apply all messages of the result stream."""
        own = orchestrator or self.orchestrator
        while results := await own.transport.read_results(own.id, 100, 0.001):
            await own.apply_results(results)

    def set_idle(self, message_id: str, consumer: str = "foreign", seconds: float = VISIBILITY_SECONDS) -> None:
        """Set the idle time of a message, as if its consumer had sent no heartbeat for that long."""
        self.redis.xclaim(TASKS, WORKERS, consumer, 0, [message_id], idle=int(seconds * 1_000), justid=True)

    def pending(self) -> list[str]:
        with suppress(redis.ResponseError):
            return [row["message_id"] for row in self.redis.xpending_range(TASKS, WORKERS, "-", "+", 1_000)]
        return []

    async def job(self, job_id: str) -> Job:
        return await self.engine.jobs.get(job_id)

    async def history(self, job_id: str) -> list[str]:
        entries = (await self.engine.jobs.history(job_id)).as_dict()["events"]
        return [entry["event"] for entry in entries]

    async def entry(self, job_id: str, name: str) -> dict[str, Any]:
        """The last event or note of this name."""
        entries = (await self.engine.jobs.history(job_id)).as_dict()["events"]
        return [entry for entry in entries if entry["event"] == name][-1]  # type: ignore[no-any-return]

    def dead_letters(self) -> list[dict[str, str]]:
        return [fields for _, fields in self.redis.xrange(DEAD_LETTERS)]

    async def check_integrity(self) -> None:
        report = await verify(self.engine.store)
        assert report.ok, report.violations[:10]

    def publish_invalid(self, **fields: Any) -> str:
        good = {"task_id": "t", "tool_name": "add", "payload": "{}", "retry_count": "0", "idempotency_key": "k"}
        message = {name: value for name, value in {**good, "trace_id": "x", **fields}.items() if value is not None}
        return str(self.redis.xadd(TASKS, message))
