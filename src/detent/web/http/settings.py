"""What one API is allowed to be asked, and by whom; every number has a default that a small server survives."""

import os
from dataclasses import dataclass


def _internal() -> bool:
    return os.environ.get("DETENT_INTERNAL", "").strip().lower() in ("1", "true", "yes", "on")


@dataclass(frozen=True, slots=True)
class Settings:
    """Frozen: what an API allows does not change while it runs."""

    open_without_tokens: bool = False
    """Let everyone in while no token was ever made; for loopback addresses only."""
    internal: bool = False
    """Serve the endpoints that play executions by hand; see $DETENT_INTERNAL."""
    sweep: bool = False
    """Expire leases and wake jobs from here too, for databases whose workers all come over HTTP."""
    record: bool = False
    """Keep the series of throughput and latency up to date."""
    max_body: int = 4 << 20
    max_depth: int = 64
    max_bulk: int = 1_000
    head_seconds: float = 10.0
    """How long a client may take from its connection to the end of its request's head."""
    body_seconds: float = 10.0
    """How long a client may take to send its body."""
    doubt_seconds: float = 0.5
    """After this long without an answer from the store, it is asked whether it is there at all."""
    request_seconds: float = 30.0
    rate_per_second: float = 5_000.0
    """Requests a second for one token; a burst may be twice as many."""
    max_streams: int = 2_000
    send_seconds: float = 10.0
    """How long a client of a stream may leave what was sent to it unread."""
    beat_seconds: float = 15.0
    answers_kept_seconds: float = 86_400.0
    """How long an Idempotency-Key is remembered."""
    answer_lost_seconds: float = 60.0
    """A request that has been under way for so long died; its key may be used again."""

    @classmethod
    def from_environment(cls, *, open_without_tokens: bool = False, sweep: bool = False, **more: float) -> "Settings":
        told = {"open_without_tokens": open_without_tokens, "internal": _internal(), "sweep": sweep, "record": True}
        return cls(**told, **more)  # type: ignore[arg-type]
