"""OpenTelemetry: one trace from the enqueue through every execution, step and child job. Needs the extra `otel`.

Call `instrument(app)` before the app is opened. A span may cost as much as a small job, so a process spends at most a
share of its time on spans. A job without a span keeps its trace id, as do its children and its log lines.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from detent.client.app import Detent
from detent.core.outcome import Cancelled, Failed, Outcome, Stopped, Waits
from detent.engine.submit.submission import Submission
from detent.engine.tracing import Ended
from detent.observability.job_logs import current_job
from detent.ports.claims import Claimed
from detent.system.clock import SystemClock
from detent.system.extras import extra_imports

with extra_imports():
    from opentelemetry import context, trace
    from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

SHARE_OF_TIME = 0.01
_NO_SPAN = SpanContext(1, 1, False, TraceFlags(0))
_NOT_RECORDING = set_span_in_context(NonRecordingSpan(_NO_SPAN), context.Context())
"""The context of an execution without a span: spans that handlers start in it are not recorded either."""


def instrument(
    app: Detent, tracer_provider: trace.TracerProvider | None = None, *, share_of_time: float | None = SHARE_OF_TIME
) -> "OpenTelemetry":
    """Trace this application's jobs. share_of_time: maximum share of the time to spend on spans; None: no limit."""
    app.tracer = tracer = OpenTelemetry(tracer_provider, share_of_time)
    return tracer


class OpenTelemetry:
    """The tracer of `detent.engine.tracing` on the OpenTelemetry API. Without an SDK nothing is recorded."""

    def __init__(self, tracer_provider: trace.TracerProvider | None = None, share_of_time: float | None = None) -> None:
        self._tracer = trace.get_tracer("detent", tracer_provider=tracer_provider)
        self._budget = _Budget(share_of_time)
        self.left_out = 0

    def with_trace_context(self, submission: Submission) -> Submission:
        """Record a span for the enqueue and add its context to the submission; without a span, the current context."""
        current = trace.get_current_span().get_span_context()
        if self._may_span(not current.is_valid or current.trace_flags.sampled):
            began = self._budget.now()
            name, attributes = f"enqueue {submission.job_type}", _attributes("enqueue", submission)
            span = self._tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=attributes)
            current = span.get_span_context()
            span.end()
            self._budget.spend(began)
        if current == _NO_SPAN:  # inside an execution without a span: its trace continues
            job = current_job.get()
            if job is None or job.traceparent is None:
                return submission
            trace_id = submission.trace_id or job.traceparent.split("-")[1]
            return replace(submission, traceparent=job.traceparent, trace_id=trace_id)
        if not current.is_valid:
            return submission
        traceparent = f"00-{current.trace_id:032x}-{current.span_id:016x}-{current.trace_flags:02x}"
        trace_id = submission.trace_id or f"{current.trace_id:032x}"
        return replace(submission, traceparent=traceparent, trace_id=trace_id)

    def execution_span(self, claimed: Claimed) -> AbstractContextManager[Ended]:
        traceparent = claimed.traceparent
        if self._may_span(traceparent is None or int(traceparent[-1], 16) & 1):
            return self._span_around(claimed)
        if context.get_current() is not _NOT_RECORDING:
            context.attach(_NOT_RECORDING)  # not detached: the next job in this task sets its own context or this one
        return _WITHOUT_SPAN

    @contextmanager
    def _span_around(self, claimed: Claimed) -> Iterator[Ended]:
        began = self._budget.now()
        outer = _context_of(claimed.traceparent)
        attributes = _attributes("process", claimed) | {
            "messaging.message.id": claimed.id,
            "detent.contract": claimed.contract,
            "detent.execution_no": claimed.execution_no,
        }
        name = f"run {claimed.job_type}"
        span = self._tracer.start_span(name, outer, kind=SpanKind.CONSUMER, attributes=attributes)
        token = context.attach(set_span_in_context(span, outer))
        self._budget.spend(began)
        try:
            yield partial(_record_outcome, span)
        finally:
            began = self._budget.now()
            context.detach(token)
            span.end()
            self._budget.spend(began)

    @contextmanager
    def step(self, name: str) -> Iterator[object]:
        if not trace.get_current_span().is_recording():
            yield None
            return
        with self._tracer.start_as_current_span(f"step {name}", attributes={"detent.step": name}) as span:
            yield span

    def _may_span(self, sampled: object) -> bool:
        """True if the trace is sampled and the time budget allows a span."""
        if not sampled:
            return False
        if self._budget.has_time():
            return True
        self.left_out += 1
        return False


class _Budget:
    """A share of the elapsed time, saved up to a maximum. Measured, because the cost of a span varies a lot."""

    __slots__ = ("_left", "_share", "_since", "now")

    def __init__(self, share: float | None) -> None:
        self._share = share
        self.now = SystemClock().monotonic
        self._left = _MAX_SAVED_SECONDS
        self._since = self.now()

    def has_time(self) -> bool:
        if self._share is None:
            return True
        if self._left <= 0:
            now = self.now()
            self._left = min(_MAX_SAVED_SECONDS, self._left + (now - self._since) * self._share)
            self._since = now
        return self._left > 0

    def spend(self, began: float) -> None:
        self._left -= min(self.now() - began, _MAX_SPAN_SECONDS)


_MAX_SAVED_SECONDS = 0.015
_MAX_SPAN_SECONDS = 0.001
"""The most that one span is charged: if it took longer, another process or thread had the CPU."""


def _context_of(traceparent: str | None) -> context.Context:
    """An empty context, with the span of the enqueue as its remote parent if there was one."""
    if traceparent is None:
        return context.Context()
    _, trace_id, span_id, flags = (int(part, 16) for part in traceparent.split("-"))
    parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return set_span_in_context(NonRecordingSpan(parent), context.Context())


def _attributes(operation: str, job: Submission | Claimed) -> dict[str, Any]:
    return {
        "messaging.system": "detent",
        "messaging.operation.name": operation,
        "messaging.destination.name": job.queue,
        "detent.job_type": job.job_type,
        "detent.tenant_id": job.tenant_id,
    }


_WITHOUT_SPAN: AbstractContextManager[Ended] = nullcontext(lambda outcome: None)


def _record_outcome(span: trace.Span, outcome: Outcome) -> None:
    span.set_attribute("detent.outcome", type(outcome).__name__.lower())
    if isinstance(outcome, Failed):
        failure = outcome.failure
        span.set_status(trace.Status(trace.StatusCode.ERROR, failure.message))
        span.set_attribute("error.type", failure.error_class or failure.code)
        span.set_attribute("detent.error_code", failure.code)
    elif isinstance(outcome, Waits):
        span.set_attribute("detent.wait", outcome.wait.name)
    elif isinstance(outcome, Cancelled | Stopped):
        span.set_attribute("detent.ended_early", True)
