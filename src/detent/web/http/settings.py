"""Settings of one API: who may use it, and limits on requests. The defaults suit a small server."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Frozen: the settings of a running API do not change."""

    open_without_tokens: bool = False
    """Need no token as long as none was ever created; for loopback addresses only."""
    internal: bool = False
    """Serve /internal: executions and transitions without a handler; see $DETENT_INTERNAL."""
    sweep: bool = False
    """Also expire leases and wake jobs in this process, for databases whose workers all use HTTP."""
    known_types_only: bool = False
    """Refuse jobs of a type that no worker has declared; see $DETENT_KNOWN_TYPES_ONLY."""
    record: bool = False
    """Record the time series of throughput and latency."""
    max_body: int = 4 << 20
    max_depth: int = 64
    max_bulk: int = 1_000
    head_seconds: float = 10.0
    """Timeout for the request headers, from the start of the connection."""
    body_seconds: float = 10.0
    """Timeout for the request body."""
    doubt_seconds: float = 0.5
    """After this long a request that still runs triggers a probe of the store."""
    request_seconds: float = 30.0
    """Timeout for a whole request."""
    rate_per_second: float = 5_000.0
    """Requests per second with one token; a burst may be twice as many."""
    max_streams: int = 2_000
    """Concurrent event streams."""
    send_seconds: float = 10.0
    """How long a client may not read while data waits for it; then its connection is closed."""
    beat_seconds: float = 15.0
    """How often an idle event stream sends a comment, and how often its token is checked again."""
    answers_kept_seconds: float = 86_400.0
    """How long the response under an Idempotency-Key is stored."""
    answer_lost_seconds: float = 60.0
    """After this long a request without a response counts as crashed; its key may be used again."""

    @classmethod
    def from_environment(cls, *, open_without_tokens: bool = False, sweep: bool = False, **more: float) -> "Settings":
        options = {name: _is_set(f"DETENT_{name.upper()}") for name in ("internal", "known_types_only")}
        options |= {"open_without_tokens": open_without_tokens, "sweep": sweep, "record": True}
        return cls(**options | more)  # type: ignore[arg-type]


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in ("1", "true", "yes", "on")
