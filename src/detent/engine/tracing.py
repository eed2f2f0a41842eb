"""Where traces come in: a port that costs nothing while nobody traces."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from detent.core.outcome import Outcome
from detent.engine.submit.submission import Submission
from detent.ports.claims import Claimed

from .engine import Engine

Ended = Callable[[Outcome], None]


class Tracer(Protocol):
    """What a tracing library does for Detent. Nothing here may fail a job."""

    def stamped(self, ask: Submission) -> Submission:
        """The request with the trace it belongs to."""
        ...

    def executing(self, claimed: Claimed) -> AbstractContextManager[Ended]:
        """Around one execution; told its outcome at the end."""
        ...

    def step(self, name: str) -> AbstractContextManager[object]: ...


def step_span(engine: Engine, name: str) -> AbstractContextManager[object]:
    return engine.tracer.step(name) if engine.tracer is not None else nullcontext()
