"""The port for a tracing library. Without a tracer it adds no work."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from detent.core.outcome import Outcome
from detent.engine.submit.submission import Submission
from detent.ports.claims import Claimed

Ended = Callable[[Outcome], None]


class Tracer(Protocol):
    """Implemented by a tracing integration. Its methods must not raise: tracing may not fail a job."""

    def with_trace_context(self, submission: Submission) -> Submission:
        """The submission with the `traceparent` of the current trace."""
        ...

    def execution_span(self, claimed: Claimed) -> AbstractContextManager[Ended]:
        """A span around one execution; call what it yields with the outcome at the end."""
        ...

    def step(self, name: str) -> AbstractContextManager[object]: ...
