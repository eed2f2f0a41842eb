"""An orchestrator whose turns are called by hand, workers in this process, and a foreign worker with bare commands."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import redis
from engine.clock import FakeClock
from servers.valkey import fresh_url

from detent import Context, Detent
from detent.core.job import Job
from detent.engine import Engine, Submission
from detent.handler.handler import Handler
from detent.ports.stream import StreamSettings
from detent.proof.verify.verify import verify
from detent.streams.orchestrator import Orchestrator
from detent.streams.stream_worker import StreamWorker
from detent.transports.redis_streams.transport import RedisStreamTransport

SECONDS = 300.0
TASKS, RESULTS, LETTERS, WORKERS = "stream:task", "stream:result", "stream:dlq", "cg:workers"

tools = Detent("sqlite:///:memory:")
"""Only carries handlers."""


@tools.job("add", contract="streams")
async def add(ctx: Context, a: int = 1, b: int = 1) -> int:
    return a + b


@tools.job("fail", contract="streams")
async def fail(ctx: Context) -> None:
    raise RuntimeError("it does not work")


def handlers() -> dict[str, Handler]:
    return {name: definition.handler for name, definition in tools.jobs.items()}


class Stage:
    """Everything between one database and one Redis."""

    def __init__(self, engine: Engine, clock: FakeClock, **options: Any) -> None:
        self.engine, self.clock = engine, clock
        self.settings = StreamSettings(fresh_url(), visibility_timeout_s=SECONDS, **options)
        self.redis: Any = redis.Redis.from_url(self.settings.url, decode_responses=True)
        self.wires: list[RedisStreamTransport] = []
        self.orchestrator = self.another()

    def wire(self, **options: Any) -> RedisStreamTransport:
        self.wires.append(RedisStreamTransport(replace(self.settings, **options)))
        return self.wires[-1]

    def another(self, **options: Any) -> Orchestrator:
        return Orchestrator(self.engine, self.wire(**options), self.clock)

    async def close(self) -> None:
        for wire in self.wires:
            await wire.close()
        self.redis.close()

    async def submit(self, job_type: str = "add", **fields: Any) -> Job:
        return (await self.engine.submit(Submission(job_type, contract="streams", **fields))).job

    async def publish(self) -> None:
        await self.orchestrator.watch_epoch()
        while await self.orchestrator.relay():
            pass

    async def work(self, **options: Any) -> StreamWorker:
        """One worker, until nothing is left for it."""
        worker = StreamWorker(self.engine, handlers(), self.wire(**options), until_idle=True)
        self._relaying = True  # ended between two rounds: a relay broken off keeps what it took until its time is over
        relay = asyncio.create_task(self._relay())
        await asyncio.wait_for(worker.run(handle_signals=False), 30)
        self._relaying = False
        await relay
        return worker

    async def _relay(self) -> None:
        while self._relaying:
            await self.publish()
            await asyncio.sleep(0.02)

    def read(self, consumer: str = "foreign") -> tuple[str, dict[str, str]]:
        """The next message, handed to a worker that knows only Redis."""
        self.group()
        ((_, ((message_id, fields),)),) = self.redis.xreadgroup(WORKERS, consumer, {TASKS: ">"}, 1)
        return message_id, fields

    def group(self) -> None:
        with suppress(redis.ResponseError):
            self.redis.xgroup_create(TASKS, WORKERS, "0", True)

    def say(self, status: str, message_id: str, task_id: str, worker: str = "foreign", **fields: Any) -> None:
        told = {"task_id": task_id, "message_id": message_id, "status": status, "worker": worker, **fields}
        self.redis.xadd(RESULTS, told)

    async def hear(self, orchestrator: Orchestrator | None = None) -> None:
        """Everything that stands on the result stream."""
        own = orchestrator or self.orchestrator
        while results := await own.wire.read_results(own.id, 100, 0.001):
            await own.settle(results)

    def age(self, message_id: str, consumer: str = "foreign", seconds: float = SECONDS) -> None:
        """As if its holder had shown no sign of life for so long."""
        self.redis.xclaim(TASKS, WORKERS, consumer, 0, [message_id], idle=int(seconds * 1_000), justid=True)

    def pending(self) -> list[str]:
        with suppress(redis.ResponseError):
            return [row["message_id"] for row in self.redis.xpending_range(TASKS, WORKERS, "-", "+", 1_000)]
        return []

    async def job(self, job_id: str) -> Job:
        return await self.engine.job(job_id)

    async def history(self, job_id: str) -> list[str]:
        shown = (await self.engine.history(job_id)).as_dict()["events"]
        return [entry["event"] for entry in shown]

    async def entry(self, job_id: str, name: str) -> dict[str, Any]:
        """The last event or note of this name."""
        shown = (await self.engine.history(job_id)).as_dict()["events"]
        return [entry for entry in shown if entry["event"] == name][-1]  # type: ignore[no-any-return]

    def dead_letters(self) -> list[dict[str, str]]:
        return [fields for _, fields in self.redis.xrange(LETTERS)]

    async def verified(self) -> None:
        report = await verify(self.engine.store)
        assert report.ok, report.violations[:10]

    def poison(self, **fields: Any) -> str:
        good = {"task_id": "t", "tool_name": "add", "payload": "{}", "retry_count": "0", "idempotency_key": "k"}
        told = {name: value for name, value in {**good, "trace_id": "x", **fields}.items() if value is not None}
        return str(self.redis.xadd(TASKS, told))
