"""CPU cost of metrics and traces: drains with and without them, alternating in one run, best of several."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from detent import Detent
from detent.integrations import otel
from detent.observability.metrics import exposition
from detent.observability.settings import Settings
from detent.worker.worker import Worker
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
JOBS, ROUNDS = 25_000, 5


async def cpu_per_job(app: Detent, prepare: Callable[[Worker], None], *, scrape: bool) -> float:
    """CPU seconds of the whole process, per job."""
    job = app.jobs["noop"]
    await job.enqueue_many([{"n": n} for n in range(JOBS)])
    worker = await app.worker(slots=100, config=Settings(alerts=scrape))
    prepare(worker)
    if scrape:
        await worker.background.maintenance.event_counter.catch_up(1_000)
    began = time.process_time()
    task = asyncio.create_task(worker.run(handle_signals=False))
    await until(lambda: worker.done >= JOBS, 240)
    if scrape:
        await exposition(app.engine, worker.background.maintenance.event_counter, worker.background.histograms)
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

    def without_metrics(worker: Worker) -> None:
        for name in ("record_pickups", "record_execution"):
            setattr(worker.background.histograms, name, lambda *_: None)

    def traced(worker: Worker) -> None:
        without_metrics(worker)
        worker.engine.tracer = tracer

    best: dict[str, float] = {}
    async with app:
        for _ in range(ROUNDS):
            for name, prepare in (("plain", without_metrics), ("metrics", lambda worker: None), ("traces", traced)):
                app.engine.tracer = None
                cost = await cpu_per_job(app, prepare, scrape=name == "metrics")
                best[name] = min(cost, best.get(name, cost))
    shares = {name: best[name] / best["plain"] - 1 for name in ("metrics", "traces")}
    print({name: f"{cost * 1e6:.1f} us" for name, cost in best.items()}, {n: f"{s:.1%}" for n, s in shares.items()})
    assert shares["metrics"] < 0.03
    assert shares["traces"] < 0.10
