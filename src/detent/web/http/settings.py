"""Settings of one API: who may use it, and limits on requests. The defaults suit a small server."""

import os
from dataclasses import dataclass

from detent.core.errors import InvalidInput

DOCS = ("public", "token", "off")


@dataclass(frozen=True, slots=True)
class Settings:
    """Frozen: the settings of a running API do not change."""

    open_without_tokens: bool = False
    """Need no token as long as none was ever created; for loopback addresses only."""
    internal: bool = False
    """Serve /internal: executions and transitions without a handler; see $DETENT_INTERNAL."""
    docs: str = DOCS[0]
    """Who may read /docs and /openapi.json: everybody (public), callers with a token (token), or nobody (off)."""
    sweep: bool = False
    """Also expire leases and wake jobs in this process, for databases whose workers all use HTTP."""
    record: bool = False
    """Record the time series of throughput and latency."""
    max_body: int = 4 << 20
    max_anonymous_body: int = 16 << 10
    """For requests without a token, such as a sign-in."""
    max_unfinished: int = 256 << 20
    """Bytes of all request bodies that have not arrived completely."""
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
    max_connections: int = 20_000
    """Concurrent connections, at most the process's limit of open files less 200; beyond it, the connection that has
    waited longest for a request is closed, or the new one if there is none."""
    max_streams: int = 2_000
    """Concurrent event streams."""
    max_streams_per_caller: int = 1_000
    """Concurrent event streams of one token."""
    send_seconds: float = 10.0
    """How long a client may not read while data waits for it; then its connection is closed."""
    beat_seconds: float = 15.0
    """How often an idle event stream sends a comment."""
    token_check_seconds: float = 0.5
    """How often the token of an event stream is checked again."""
    answers_kept_seconds: float = 86_400.0
    """How long the answer under an Idempotency-Key is stored."""
    answers_per_caller: int = 10_000
    """How many answers under Idempotency-Keys are stored for one caller; the oldest are deleted first."""
    answer_lost_seconds: float = 60.0
    """After this long a request without a response counts as crashed; its key may be used again."""

    @classmethod
    def from_environment(cls, *, open_without_tokens: bool = False, sweep: bool = False, **more: float) -> "Settings":
        internal = os.environ.get("DETENT_INTERNAL", "").strip().lower() in ("1", "true", "yes", "on")
        docs = os.environ.get("DETENT_DOCS", "").strip().lower() or DOCS[0]
        if docs not in DOCS:
            raise InvalidInput(f"DETENT_DOCS must be one of {', '.join(DOCS)}, got {docs!r}", code="SETTINGS_INVALID")
        options = {"open_without_tokens": open_without_tokens, "internal": internal, "sweep": sweep, "record": True}
        return cls(**options, docs=docs, **more)  # type: ignore[arg-type]
