"""Authentication: by a trusted proxy, the surrounding application, a token, a session, or nothing if it is open."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from starlette.requests import HTTPConnection, Request

from detent.core.access import EVERYTHING, POWERS, PROGRAMS, Power, Reach, Role, Token, deciding_roles, digest_of
from detent.core.errors import ScopeViolation, TenantViolation
from detent.core.job import Micros
from detent.engine import Engine
from detent.engine.control.access import Forbidden, Unauthorized, require_valid
from detent.system.clock import SystemClock

from .application_sign_in import ALL_TENANTS, person_of
from .proxies import forwarding_header, host_of

if TYPE_CHECKING:
    from .state import Web

KEY_HEADER = "X-Session-Key"
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
    session: str = ""
    """The label of the session, if there is one."""

    def may(self, power: Power) -> bool:
        return power in POWERS[self.role]

    @property
    def deciding_roles(self) -> list[str] | None:
        """The roles that count in approvals; None if they are unknown."""
        return None if self.roles is None else deciding_roles(self.role, self.roles)

    @property
    def idempotency_owner(self) -> str:
        """Owner of an Idempotency-Key. Two tokens share keys only if they have the same person and permissions."""
        permissions = (self.role, self.tenant, self.payloads, self.roles, self.reach, self.shared_with)
        return "\n".join(map(str, (self.person, *permissions)))

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


class Authenticator:
    """Looks up tokens and sessions. Caches results for `_CACHE_SECONDS` and joins concurrent lookups of one secret."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._clock = SystemClock()
        self._has_tokens = False
        self._signs_in = web.proxies.sign_in or web.settings.authenticate is not None
        """Whether somebody else signs people in."""
        self._cache: dict[str, tuple[float, Any]] = {}
        self._lookups: dict[str, asyncio.Future[Any]] = {}

    async def authenticate(self, request: Request, method: str, *, page: bool = False) -> Caller:
        """The caller of a request. Raises Unauthorized without a valid token or session, Forbidden if it is forged.

        page: the request is for an HTML page without data. A browser sends no key with it: the cookie is enough.
        """
        proxies, application = self._web.proxies, self._web.settings.authenticate
        person = proxies.person(request)
        if person is None and application is not None:
            person = await person_of(application, request)
        if person is not None:
            if method not in SAFE:
                proxies.require_same_origin(request)
            tenant = None if person.tenant == ALL_TENANTS else person.tenant
            token_id = f"proxy:{person.name}"
            return Caller(person.name, Role(person.role), tenant, token_id=token_id, roles=person.groups)
        header = request.headers.get("authorization")
        if header is not None:
            scheme, _, secret = header.partition(" ")
            if scheme.lower() != "bearer" or not secret.strip():
                raise Unauthorized("send the token as `Authorization: Bearer TOKEN`")
            return await self.authenticate_secret(secret.strip())
        if await self.is_open():
            _require_local_request(request)
            return LOCAL
        cookie = self.session_cookie(request)
        if cookie:
            idle_seconds = self._web.settings.session_idle_seconds
            session, token = await self._lookup(f"\0{cookie}", lambda engine: engine.sessions.use(cookie, idle_seconds))
            key = request.headers.get(KEY_HEADER, "")
            if not page and not compare_digest(digest_of(key), session.key_digest):
                message = f"the {KEY_HEADER} header is missing or wrong; send the session_key of the sign-in"
                raise Unauthorized(message, code="SESSION_KEY_INVALID")
            return replace(self._caller(token), session=session.label)
        advice = "a bearer token is required; create one with `detent token create`"
        raise Unauthorized(advice + proxies.ignored_headers(request))

    async def authenticate_secret(self, secret: str) -> Caller:
        """The caller with this token. Raises Unauthorized if it is unknown, expired or revoked."""
        token = await self._lookup(secret, lambda engine: engine.tokens.find(secret))
        return self._caller(token)

    def _caller(self, token: object) -> Caller:
        """Where somebody else signs people in, a token proves no person: an admin may have created it for anybody."""
        caller = caller_of(require_valid(token, self._clock.now()))
        is_proven = not self._signs_in or caller.role in PROGRAMS
        return caller if is_proven else replace(caller, shared_with=None)

    def session_cookie(self, request: HTTPConnection) -> str:
        """The session cookie of a request; empty without one."""
        return request.cookies.get(self.cookie_options(request)["key"], "")

    def cookie_options(self, request: HTTPConnection) -> dict[str, Any]:
        """The session cookie without its value. The prefixes make browsers refuse one that another host or port set."""
        secure, path = self._web.proxies.is_https(request), request.scope.get("root_path") or "/"
        prefix = ("__Host-" if path == "/" else "__Secure-") if secure else ""
        name = f"{prefix}detent_session"
        return {"key": name, "path": path, "secure": secure, "httponly": True, "samesite": "strict"}

    async def is_open(self) -> bool:
        """True if requests need no token: the setting allows it, nobody else signs people in and no token exists."""
        if not self._web.settings.open_without_tokens or self._signs_in:
            return False
        self._has_tokens = self._has_tokens or await self._lookup(_NO_SECRET, lambda engine: engine.tokens.exist())
        return not self._has_tokens

    def clear_cache(self) -> None:
        """To be called after this process has created or revoked a token, or ended a session."""
        self._cache.clear()

    async def _lookup(self, secret: str, query: Callable[[Engine], Awaitable[Any]]) -> Any:
        cached = self._cache.get(secret)
        if cached is not None and self._clock.monotonic() < cached[0]:
            return cached[1]
        lookup = self._lookups.get(secret)
        if lookup is None:
            lookup = self._lookups[secret] = asyncio.ensure_future(self._query(secret, query))
            lookup.add_done_callback(lambda _: self._lookups.pop(secret, None))
            lookup.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait any more
        return await asyncio.shield(lookup)

    async def _query(self, secret: str, query: Callable[[Engine], Awaitable[Any]]) -> Any:
        result = await query(await self._web.engine())
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        if result is not None:  # unknown tokens are not cached, or guessed ones would fill the memory
            self._cache[secret] = (self._clock.monotonic() + _CACHE_SECONDS, result)
        return result


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


def _require_local_request(request: HTTPConnection) -> None:
    """Refuse proxies, DNS rebinding and cross-site requests: an open API serves programs on this machine only."""
    reason = None
    if header := forwarding_header(request):
        reason = f"this request has the header {header}"
    elif request.scope.get("http_version") == "1.0":
        reason = "this request uses HTTP/1.0, as a proxy without further settings does"
    elif request.client is not None and not is_loopback(request.client.host):
        reason = "this request came from another machine"
    if reason is not None:
        raise Forbidden(
            f"without tokens this API accepts direct requests from this machine only, and {reason}; "
            f"create a token with `detent token create --name YOU --role admin`",
            code="PROXY_NOT_ALLOWED",
        )
    host = request.headers.get("host", "")
    if not is_loopback(_host_name(host)):
        raise Forbidden(
            "without tokens this API accepts requests to a loopback address only; use http://127.0.0.1",
            code="HOST_NOT_ALLOWED",
        )
    origin = request.headers.get("origin")
    if origin is not None and host_of(origin) != host:
        raise Forbidden(
            "without tokens this API accepts no cross-origin requests; create a token", code="ORIGIN_NOT_ALLOWED"
        )


def _host_name(host: str) -> str:
    """The host without its port and without the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") <= 1 else host


def is_loopback(host: str) -> bool:
    name = host.strip().lower().removeprefix("::ffff:")
    return name in ("localhost", "::1") or (name.startswith("127.") and name.replace(".", "").isdigit())
