"""Authentication: a bearer token, a session cookie that holds one, or no token where the API is open."""

import asyncio
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from detent.core.access import EVERYTHING, POWERS, Power, Reach, Role, Token, deciding_roles
from detent.core.errors import ScopeViolation, TenantViolation
from detent.core.job import Micros
from detent.engine.control.access import Forbidden, Unauthorized, require_valid
from detent.system.clock import SystemClock

if TYPE_CHECKING:
    from .state import Web

COOKIE = "detent_session"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_CACHE_SECONDS = 0.1
"""How long a token lookup is cached; a revoked token is refused at the latest after this time."""
_CACHE_SIZE = 10_000
_NO_SECRET = ""
"""The cache key under which "does any token exist" is stored."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated person and what the token grants. The log and the audit name `person` as the actor."""

    person: str
    role: Role
    tenant: str | None = None
    payloads: bool = True
    token_id: str = ""
    roles: tuple[str, ...] | None = None
    """The person's roles in approvals; None if they are unknown, as on an open API."""
    reach: Reach = EVERYTHING
    """The queues and job types that the token is limited to."""
    shared_with: tuple[str, ...] | None = ()
    """Who else knows the token, see `core.access.Signer`; None: the caller is not known, as on an open API."""
    expires_at: Micros | None = None

    def may(self, power: Power) -> bool:
        return power in POWERS[self.role]

    @property
    def deciding_roles(self) -> list[str] | None:
        """The roles that count in approvals; None if they are unknown."""
        return None if self.roles is None else deciding_roles(self.role, self.roles)

    @property
    def idempotency_owner(self) -> str:
        """Owner of an Idempotency-Key. Two tokens share keys only if they have the same person and permissions."""
        return f"{self.person}\n{self.role}\n{self.tenant}\n{self.payloads}\n{self.roles}\n{self.reach}"

    def tenant_for(self, requested: str | None) -> str | None:
        """The tenant to act in. Raises TenantViolation if the token is bound to another tenant."""
        if self.tenant is None or requested is None or requested == self.tenant:
            return self.tenant if requested is None else requested
        raise TenantViolation(f"this token is bound to tenant {self.tenant!r}; leave the tenant out")

    def require_all_tenants(self, resource: str) -> None:
        """Raise TenantViolation if the token is bound to a tenant; for resources that tenants share."""
        if self.tenant is not None:
            raise TenantViolation(f"{resource}: shared by all tenants; use a token that is not bound to a tenant")

    def require_all_queues(self, resource: str) -> None:
        """Raise ScopeViolation if the token is limited to queues or job types; for resources that queues share."""
        if self.reach.is_limited:
            raise ScopeViolation(f"{resource}: not limited to queues and job types; use a token without such limits")


LOCAL = Caller("local", Role.ADMIN, shared_with=None)
"""The caller of every request to an open API. It counts as one person, so rules that need two people refuse it."""


def caller_of(token: Token) -> Caller:
    return Caller(
        token.person,
        Role(token.role),
        token.tenant_id,
        token.payloads,
        token.id,
        token.roles,
        token.reach,
        token.shared_with,
        token.expires_at,
    )


def csrf_token_of(secret: str) -> str:
    """The CSRF token of a session: a keyed hash of its secret, to be sent with each change."""
    return blake2b(b"csrf", key=secret.encode()[:64], digest_size=18).hexdigest()


class Authenticator:
    """Looks up tokens. Caches results for `_CACHE_SECONDS` and joins concurrent lookups of one token."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._clock = SystemClock()
        self._cache: dict[str, tuple[float, Token | bool | None]] = {}
        self._lookups: dict[str, asyncio.Future[Token | bool | None]] = {}

    async def authenticate(self, request: HTTPConnection, method: str) -> Caller:
        """The caller of a request. Raises Unauthorized without a valid token, Forbidden without a CSRF token."""
        header = request.headers.get("authorization")
        if header is not None:
            scheme, _, secret = header.partition(" ")
            if scheme.lower() != "bearer" or not secret.strip():
                raise Unauthorized("send the token as `Authorization: Bearer TOKEN`")
            return await self.authenticate_secret(secret.strip())
        cookie = request.cookies.get(COOKIE)
        if cookie:
            caller = await self.authenticate_secret(cookie)
            csrf = request.headers.get("x-csrf-token", "")
            if method not in SAFE and not compare_digest(csrf.encode(), csrf_token_of(cookie).encode()):
                raise Forbidden(
                    "the X-CSRF-Token header is missing or wrong; a session must send it with each change",
                    code="CSRF_TOKEN_INVALID",
                )
            return caller
        if await self.is_open():
            _require_local_request(request)
            return LOCAL
        raise Unauthorized("a bearer token is required; create one with `detent token create`")

    async def authenticate_secret(self, secret: str) -> Caller:
        """The caller with this token. Raises Unauthorized if it is unknown, expired or revoked."""
        return caller_of(require_valid(await self._lookup(secret), self._clock.now()))

    async def is_open(self) -> bool:
        """True if requests need no token: the setting allows it and no token was ever created."""
        return self._web.settings.open_without_tokens and not await self._lookup(_NO_SECRET)

    def clear_cache(self) -> None:
        """To be called after this process has created or revoked a token."""
        self._cache.clear()

    async def _lookup(self, secret: str) -> Token | bool | None:
        cached = self._cache.get(secret)
        if cached is not None and self._clock.monotonic() < cached[0]:
            return cached[1]
        lookup = self._lookups.get(secret)
        if lookup is None:
            lookup = self._lookups[secret] = asyncio.ensure_future(self._query(secret))
            lookup.add_done_callback(lambda _: self._lookups.pop(secret, None))
        return await asyncio.shield(lookup)

    async def _query(self, secret: str) -> Token | bool | None:
        engine = await self._web.engine()
        result = await (engine.tokens.find(secret) if secret else engine.tokens.exist())
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        if result is not None:  # unknown tokens are not cached, or guessed ones would fill the memory
            self._cache[secret] = (self._clock.monotonic() + _CACHE_SECONDS, result)
        return result


def _require_local_request(request: HTTPConnection) -> None:
    """Refuse DNS rebinding and cross-site requests: an open API serves programs on this machine only."""
    host = request.headers.get("host", "")
    if not is_loopback(_host_name(host)):
        raise Forbidden(
            "without tokens this API accepts requests to a loopback address only; use http://127.0.0.1",
            code="HOST_NOT_ALLOWED",
        )
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise Forbidden(
            "without tokens this API accepts no cross-origin requests; create a token", code="ORIGIN_NOT_ALLOWED"
        )


def _host_name(host: str) -> str:
    """The host without its port and without the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") <= 1 else host


def is_loopback(host: str) -> bool:
    name = host.strip().lower()
    return name in ("localhost", "::1") or (name.startswith("127.") and name.replace(".", "").isdigit())
