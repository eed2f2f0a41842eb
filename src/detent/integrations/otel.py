"""OpenTelemetry: one trace from the enqueue through every execution, step and child job. Needs the extra `otel`.

`instrument(app)` before the app is opened. A span may cost as much as a small job does, so a process spends at most a
share of its time on them; what is left out keeps its trace, in the job, in its children and in the log lines.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
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

from detent.client.app import Detent
from detent.core.outcome import Cancelled, Failed, Outcome, Stopped, Waits
from detent.engine.submit.submission import Submission
from detent.engine.tracing import Ended
from detent.observability.job_logs import bound
from detent.ports.claims import Claimed
from detent.ports.clock import Clock
from detent.system.clock import SystemClock

SHARE_OF_TIME = 0.01
_SILENT = set_span_in_context(NonRecordingSpan(SpanContext(1, 1, False, TraceFlags(0))), context.Context())
"""Inside an execution that is not traced, nothing is: whoever asks for a span there gets one that records nothing."""


def instrument(
    app: Detent,
    tracer_provider: trace.TracerProvider | None = None,
    *,
    share_of_time: float | None = SHARE_OF_TIME,
) -> "OpenTelemetry":
    """Trace this application's jobs, at most for this share of the time; None: every one of them."""
    app.tracer = made = OpenTelemetry(tracer_provider, share_of_time)
    return made


class OpenTelemetry:
    """The port of detent.tracing, on the API of OpenTelemetry; without an SDK nothing is recorded."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        share_of_time: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("detent", tracer_provider=tracer_provider)
        self._budget = _Budget(share_of_time, clock or SystemClock())
        self.left_out = 0

    def stamped(self, ask: Submission) -> Submission:
        """A span for the enqueue, and its context in the request; if none is due, the context we are in."""
        here = trace.get_current_span().get_span_context()
        if self._may_span(not here.is_valid or here.trace_flags.sampled):
            began = self._budget.now()
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
            self._budget.spend(began)
        if here == _NOWHERE:  # inside an execution whose span was left out: its trace goes on all the same
            around = bound.get()
            told = around.traceparent if around else None
            return ask if told is None else replace(ask, traceparent=told, trace_id=ask.trace_id or told.split("-")[1])
        if not here.is_valid:
            return ask
        told = f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"
        return replace(ask, traceparent=told, trace_id=ask.trace_id or f"{here.trace_id:032x}")

    def executing(self, claimed: Claimed) -> AbstractContextManager[Ended]:
        told = claimed.traceparent
        if self._may_span(told is None or int(told[-1], 16) & 1):
            return self._span_around(claimed)
        if context.get_current() is not _SILENT:
            context.attach(_SILENT)  # for good: the next job here has a context of its own, or none either
        return _NOTHING

    @contextmanager
    def _span_around(self, claimed: Claimed) -> Iterator[Ended]:
        began = self._budget.now()
        parent = _parent(claimed.traceparent)
        around = set_span_in_context(NonRecordingSpan(parent), context.Context()) if parent else context.Context()
        span = self._tracer.start_span(
            f"run {claimed.job_type}", around, kind=SpanKind.CONSUMER, attributes=_attributes(claimed)
        )
        token = context.attach(set_span_in_context(span, around))
        self._budget.spend(began)
        try:
            yield partial(_tell, span)
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
        """Not where the trace was not sampled, and not beyond what may be spent."""
        if not sampled:
            return False
        if self._budget.left():
            return True
        self.left_out += 1
        return False


class _Budget:
    """A share of the time that passes, a little of it saved up. Measured, because a span's price varies a lot."""

    __slots__ = ("_left", "_share", "_since", "now")

    def __init__(self, share: float | None, clock: Clock) -> None:
        self._share = share
        self.now = clock.monotonic
        self._left = _SAVED_SECONDS
        self._since = self.now()

    def left(self) -> bool:
        if self._share is None:
            return True
        if self._left <= 0:
            now = self.now()
            self._left = min(_SAVED_SECONDS, self._left + (now - self._since) * self._share)
            self._since = now
        return self._left > 0

    def spend(self, began: float) -> None:
        self._left -= min(self.now() - began, _DEAREST_SECONDS)


_SAVED_SECONDS = 0.015
_DEAREST_SECONDS = 0.001
"""What one span is charged at the most: if it took longer, something else had the processor."""
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


_NOTHING: AbstractContextManager[Ended] = nullcontext(_nothing)


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
