"""What seeing costs: CPU of a drain with and without metrics and traces, alternating in one run, best of several."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from worker.waiting import until

from detent import Detent
from detent.integrations import otel
from detent.observability.histograms import ExecutionHistograms
from detent.observability.metrics import exposition
from detent.observability.settings import Settings
from detent.worker.worker import Worker

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
JOBS, ROUNDS = 25_000, 5


class Blind(ExecutionHistograms):
    def picked_up(self, *_: Any) -> None:
        """Measures nothing."""

    def executed(self, *_: Any) -> None:
        """Measures nothing."""


async def drained(app: Detent, set_up: Callable[[Worker], None], *, scrape: bool) -> float:
    """CPU seconds a job, of the whole process."""
    job = app.jobs["noop"]
    await job.enqueue_many([{"n": n} for n in range(JOBS)])
    worker = await app.worker(slots=100, config=Settings(alerts=scrape))
    set_up(worker)
    if scrape:
        await worker.background.maintenance.follower.catch_up(1_000)
    began = time.process_time()
    task = asyncio.create_task(worker.run(handle_signals=False))
    await until(lambda: worker.done >= JOBS, 240)
    if scrape:
        await exposition(app.engine, worker.background.maintenance.follower, worker._histograms)
    spent = time.process_time() - began
    worker.stop()
    assert await task == 0
    return spent / JOBS


async def test_metrics_and_traces_cost_little(tmp_path: Path) -> None:
    app = Detent(f"sqlite:///{tmp_path / 'jobs.db'}")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
    tracer = otel.OpenTelemetry(provider, otel.SHARE_OF_TIME)

    @app.job("noop")
    async def noop(n: int) -> None:
        return None

    def blind(worker: Worker) -> None:
        worker._histograms = Blind()

    def traced(worker: Worker) -> None:
        blind(worker)
        worker.engine.tracer = tracer

    best: dict[str, float] = {}
    async with app:
        for _ in range(ROUNDS):
            for name, set_up in (("plain", blind), ("metrics", lambda worker: None), ("traces", traced)):
                app.engine.tracer = None
                cost = await drained(app, set_up, scrape=name == "metrics")
                best[name] = min(cost, best.get(name, cost))
    shares = {name: best[name] / best["plain"] - 1 for name in ("metrics", "traces")}
    print({name: f"{cost * 1e6:.1f} us" for name, cost in best.items()}, {n: f"{s:.1%}" for n, s in shares.items()})
    assert shares["metrics"] < 0.03
    assert shares["traces"] < 0.10
