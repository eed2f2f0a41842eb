"""Settings of one API: who may use it, and limits on requests. The defaults suit a small server."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from detent.core.errors import InvalidInput

if TYPE_CHECKING:
    from .application_sign_in import Authenticate

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
    known_types_only: bool = False
    """Refuse jobs of a type that no worker has declared; see $DETENT_KNOWN_TYPES_ONLY."""
    record: bool = False
    """Record the time series of throughput and latency."""
    session_idle_seconds: float = 3_600.0
    """A session of the dashboard that is not used for this long ends."""
    session_seconds: float = 43_200.0
    """A session ends this long after the sign-in, however much it is used."""
    sign_in_failures_per_minute: float = 10.0
    """Failed sign-ins from one address, and with tokens that begin alike, before further ones are refused."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose X-Forwarded-For, -Proto and -Host headers are believed."""
    proxy_person_header: str = ""
    """The header in which a trusted proxy names the person it has signed in; empty: proxies sign nobody in."""
    proxy_role_header: str = ""
    """The header with the person's roles or groups, separated by commas. Needed if proxies sign people in."""
    proxy_roles: Mapping[str, str] = field(default_factory=dict)
    """Group -> role. Empty: the header names roles."""
    proxy_tenant_header: str = ""
    """The header with the person's tenant, `*` for all; empty: people see all tenants."""
    proxy_sign_out_url: str = ""
    """Where the dashboard's sign-out leads, for people whom a proxy has signed in."""
    authenticate: "Authenticate | None" = None
    """Maps a request to a Person that the surrounding application has signed in; None: there is no such application."""
    sign_in_url: str = ""
    """The application's sign-in page; it gets the page to return to as `next`. Empty: sign in with a token."""
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
        """These settings, and those that are set as DETENT_<FIELD>. Raises InvalidInput (SETTINGS_INVALID)."""
        switches = {name: _is_set(f"DETENT_{name.upper()}") for name in ("internal", "known_types_only")}
        docs = os.environ.get("DETENT_DOCS", "").strip().lower() or DOCS[0]
        if docs not in DOCS:
            raise InvalidInput(f"DETENT_DOCS must be one of {', '.join(DOCS)}, got {docs!r}", code="SETTINGS_INVALID")
        options: dict[str, Any] = {**switches, "docs": docs, "record": True}
        for name, parse in FROM_ENVIRONMENT.items():
            text = os.environ.get(variable := f"DETENT_{name.upper()}", "").strip()
            try:
                options |= {name: parse(text)} if text else {}
            except ValueError as error:
                raise InvalidInput(f"{variable}: {error}", code="SETTINGS_INVALID") from None
        return cls(open_without_tokens=open_without_tokens, sweep=sweep, **{**options, **more})


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in ("1", "true", "yes", "on")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pairs(text: str) -> dict[str, str]:
    pairs = [name.partition("=") for name in _names(text)]
    if not all(group.strip() and role.strip() for group, _, role in pairs):
        raise ValueError("write it like GROUP=ROLE,GROUP=ROLE")
    return {group.strip(): role.strip() for group, _, role in pairs}


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e9:
        raise ValueError("must be above 0 and below 1e9")
    return number


FROM_ENVIRONMENT: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("session_idle_seconds", "session_seconds", "sign_in_failures_per_minute"), _positive),
    **dict.fromkeys(("proxy_person_header", "proxy_role_header", "proxy_tenant_header", "proxy_sign_out_url"), str),
    "trusted_proxies": _names,
    "proxy_roles": _pairs,
}
"""Field -> how its text in the environment is read."""
