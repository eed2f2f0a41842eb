"""One trace from the enqueue through every execution, step and child; without a tracer nothing is imported."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from detent import Context, Detent, Retry, SyncContext
from detent.core.errors import InvalidInput
from detent.engine import Submission
from detent.integrations import otel
from detent.ports.listing import Filter
from support.waiting import until
from support.worker.running import working

pytestmark = pytest.mark.anyio


class Traced:
    """An application whose spans are collected in memory."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options.pop("provider", {}))
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.app = Detent(f"sqlite:///{folder / 'jobs.db'}")
        self.tracer = otel.instrument(self.app, self.provider, **options)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def only_span(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


@pytest.mark.parametrize("mode", ["loop", "thread"])
async def test_one_trace_from_the_enqueue_to_the_last_step(tmp_path: Path, mode: str) -> None:
    traced = Traced(tmp_path)
    app = traced.app

    @app.job("child")
    async def child() -> None:
        return None

    if mode == "loop":

        @app.job("order")
        async def order(ctx: Context) -> None:
            await ctx.step("pay", lambda: 1)
            if ctx.execution_no == 1:
                raise Retry("again", after=0)
            await child.enqueue()
    else:

        @app.job("order")
        def order(ctx: SyncContext) -> None:  # type: ignore[no-redef]
            ctx.step("pay", lambda: 1)
            if ctx.execution_no == 1:
                raise Retry("again", after=0)
            app.sync.run(child.enqueue())

    async with app:
        async with working(app):
            with traced.provider.get_tracer("test").start_as_current_span("request") as request:
                handle = await order.enqueue()
            await until(lambda: traced.spans("run child"))
        job = await handle.job()
    root = request.get_span_context()
    enqueued = traced.only_span("enqueue order")
    assert parent(enqueued) == (root.trace_id, root.span_id)
    first, second = traced.spans("run order")
    assert parent(first) == parent(second) == ids(enqueued), "every execution belongs to the enqueue"
    assert [span.attributes["detent.execution_no"] for span in (first, second) if span.attributes] == [1, 2]
    assert first.status.status_code is trace.StatusCode.ERROR and second.status.is_unset
    assert parent(traced.only_span("step pay")) == ids(first), "a recorded step is not run again"
    assert parent(traced.only_span("run child")) == ids(traced.only_span("enqueue child"))
    assert parent(traced.only_span("enqueue child")) == ids(second)
    assert job.trace_id == f"{root.trace_id:032x}"
    flags = int(enqueued.context.trace_flags) if enqueued.context else 0
    assert flags & 1 and job.traceparent == f"00-{root.trace_id:032x}-{ids(enqueued)[1]:016x}-{flags:02x}"


async def test_many_share_the_trace_they_were_enqueued_in(tmp_path: Path) -> None:
    traced = Traced(tmp_path)
    app = traced.app

    @app.job("tick")
    async def tick(n: int) -> None:
        return None

    async with app, working(app):
        handles = await tick.enqueue_many([{"n": n} for n in range(5)])
        for handle in handles:
            await handle.result(10)
        traces = {(await handle.job()).trace_id for handle in handles}
    assert len(traces) == 1
    assert len(traced.spans("run tick")) == 5


async def test_an_unsampled_trace_is_kept_but_not_recorded(tmp_path: Path) -> None:
    traced = Traced(tmp_path, provider={"sampler": ALWAYS_OFF})
    app = traced.app
    seen: list[Any] = []

    @app.job("quiet")
    async def quiet(ctx: Context) -> None:
        seen.append((ctx.traceparent, trace.get_current_span().is_recording()))

    async with app, working(app):
        await (await quiet.enqueue()).result(10)
    ((traceparent, recording),) = seen
    assert not int(traceparent[-2:], 16) & 1 and not recording
    assert traced.exporter.get_finished_spans() == ()


async def test_the_cost_of_spans_is_bounded_and_children_keep_the_trace(tmp_path: Path) -> None:
    traced = Traced(tmp_path, share_of_time=0.0)
    app = traced.app

    @app.job("parent")
    async def parent_job(ctx: Context) -> None:
        await child.enqueue()

    @app.job("child")
    async def child() -> None:
        return None

    async with app:
        ask = Submission("parent", traceparent="00-" + "ab" * 16 + "-" + "cd" * 8 + "-01")
        engine = await app.ready()
        first, second = await engine.jobs.submit_many([ask, ask])
        while traced.tracer._may_span(True):
            traced.tracer._budget.spend(-1e9)
        async with working(app):
            for submitted in (first, second):
                await (await app.handle(submitted.job.id)).result(10)
            await until(lambda: _all_ended(app, 4))
        jobs = await engine.jobs.list(_all())
    assert traced.tracer.left_out > 0
    assert {job.trace_id for job in jobs} == {"ab" * 16}, "also the children of executions without a span"


async def _all_ended(app: Detent, number: int) -> bool:
    jobs = await (await app.ready()).jobs.list(_all())
    return len(jobs) == number and all(job.finished_at for job in jobs)


def _all() -> Any:
    return Filter(limit=100)


async def test_a_traceparent_is_kept_without_any_tracer(tmp_path: Path) -> None:
    async with Detent(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        engine = await app.ready()
        header = "00-" + "1f" * 16 + "-" + "2e" * 8 + "-01"
        submitted = await engine.jobs.submit(Submission("mail", traceparent=header))
        assert (await engine.jobs.get(submitted.job.id)).traceparent == header
        assert submitted.job.trace_id == "1f" * 16
        with pytest.raises(InvalidInput, match="W3C"):
            await engine.jobs.submit(Submission("mail", traceparent="nonsense"))
        plain = await engine.jobs.submit(Submission("mail"))
        assert plain.job.traceparent is None and plain.job.trace_id == f"trace-{plain.job.id}"


def test_tracing_and_metrics_libraries_are_imported_on_demand() -> None:
    code = "import sys, detent, detent.worker; sys.exit(any(n.startswith('opentelemetry') for n in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    code = "import sys, detent, detent.worker; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
