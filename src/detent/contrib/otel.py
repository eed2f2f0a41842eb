"""OpenTelemetry: one trace from the enqueue through every execution, step and child job. Needs the extra `otel`.

`instrument(app)` before the app is opened. A span costs more than a small job does, so a process makes at most so many
a second of its own accord; what is left out keeps its trace id, in the job and in the log lines.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from opentelemetry import context, trace
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from ..app import Detent
from ..clock import SystemClock
from ..core.outcome import Cancelled, Failed, Outcome, Stopped, Waits
from ..engine.submission import Submission
from ..logs import bound
from ..ports import Claimed, Clock
from ..tracing import Ended

SPANS_PER_SECOND = 500.0
_SILENT = set_span_in_context(NonRecordingSpan(SpanContext(1, 1, False, TraceFlags(0))), context.Context())
"""Inside an execution that is not traced, nothing is: whoever asks for a span there gets one that records nothing."""


def instrument(
    app: Detent,
    tracer_provider: trace.TracerProvider | None = None,
    *,
    spans_per_second: float | None = SPANS_PER_SECOND,
) -> "OpenTelemetry":
    """Trace this application's jobs; spans_per_second None: every one of them."""
    app.tracer = made = OpenTelemetry(tracer_provider, spans_per_second)
    return made


class OpenTelemetry:
    """The port of detent.tracing, on the API of OpenTelemetry; without an SDK nothing is recorded."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        spans_per_second: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("detent", tracer_provider=tracer_provider)
        self._bucket = None if spans_per_second is None else _Bucket(spans_per_second, clock or SystemClock())
        self.left_out = 0

    def stamped(self, ask: Submission) -> Submission:
        """A span for the enqueue, and its context in the request; if none is due, the context we are in."""
        here = trace.get_current_span().get_span_context()
        if self._may_span(here):
            attributes: dict[str, Any] = {
                "messaging.system": "detent",
                "messaging.operation.name": "enqueue",
                "messaging.destination.name": ask.queue,
                "detent.job_type": ask.job_type,
                "detent.tenant_id": ask.tenant_id,
            }
            span = self._tracer.start_span(f"enqueue {ask.job_type}", kind=SpanKind.PRODUCER, attributes=attributes)
            here = span.get_span_context()
            span.end()
        if here == _NOWHERE:  # inside an execution whose span was left out: its trace goes on all the same
            around = bound.get()
            told = around.traceparent if around else None
            return ask if told is None else replace(ask, traceparent=told, trace_id=ask.trace_id or told.split("-")[1])
        if not here.is_valid:
            return ask
        told = f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"
        return replace(ask, traceparent=told, trace_id=ask.trace_id or f"{here.trace_id:032x}")

    @contextmanager
    def executing(self, claimed: Claimed) -> Iterator[Ended]:
        parent = _parent(claimed.traceparent)
        if not self._may_span(parent):
            token = context.attach(_SILENT)
            try:
                yield _nothing
            finally:
                context.detach(token)
            return
        around = set_span_in_context(NonRecordingSpan(parent), context.Context()) if parent else context.Context()
        with self._tracer.start_as_current_span(
            f"run {claimed.job_type}", around, kind=SpanKind.CONSUMER, attributes=_attributes(claimed)
        ) as span:
            yield lambda outcome: _tell(span, outcome)

    @contextmanager
    def step(self, name: str) -> Iterator[object]:
        if not trace.get_current_span().is_recording():
            yield None
            return
        with self._tracer.start_as_current_span(f"step {name}", attributes={"detent.step": name}) as span:
            yield span

    def _may_span(self, parent: SpanContext | None) -> bool:
        """Not where the trace was not sampled, and not beyond the rate."""
        if parent is not None and parent.is_valid and not parent.trace_flags.sampled:
            return False
        if self._bucket is None or self._bucket.take():
            return True
        self.left_out += 1
        return False


class _Bucket:
    """So many a second, with as many saved up."""

    __slots__ = ("_clock", "_left", "_rate", "_since")

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = self._left = rate
        self._clock = clock
        self._since = clock.monotonic()

    def take(self) -> bool:
        if self._left < 1.0:
            now = self._clock.monotonic()
            self._left = min(self._rate, self._left + (now - self._since) * self._rate)
            self._since = now
            if self._left < 1.0:
                return False
        self._left -= 1.0
        return True


_NOWHERE = SpanContext(1, 1, False, TraceFlags(0))


def _parent(traceparent: str | None) -> SpanContext | None:
    if traceparent is None:
        return None
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def _attributes(claimed: Claimed) -> dict[str, Any]:
    return {
        "messaging.system": "detent",
        "messaging.operation.name": "process",
        "messaging.destination.name": claimed.queue,
        "messaging.message.id": claimed.id,
        "detent.job_type": claimed.job_type,
        "detent.contract": claimed.contract,
        "detent.tenant_id": claimed.tenant_id,
        "detent.execution_no": claimed.execution_no,
    }


def _nothing(outcome: Outcome) -> None:
    """Nobody listens."""


def _tell(span: trace.Span, outcome: Outcome) -> None:
    span.set_attribute("detent.outcome", type(outcome).__name__.lower())
    if isinstance(outcome, Failed):
        failure = outcome.failure
        span.set_status(Status(StatusCode.ERROR, failure.message))
        span.set_attribute("error.type", failure.error_class or failure.code)
        span.set_attribute("detent.error_code", failure.code)
    elif isinstance(outcome, Waits):
        span.set_attribute("detent.wait", outcome.wait.name)
    elif isinstance(outcome, Cancelled | Stopped):
        span.set_attribute("detent.ended_early", True)
