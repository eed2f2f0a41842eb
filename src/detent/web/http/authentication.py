"""Who is asking: a bearer token, a session cookie that holds one, or nobody where the API is open."""

import asyncio
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from detent.core.access import POWERS, Power, Role, Token, reached
from detent.core.errors import InvalidInput, TenantViolation
from detent.engine.control.access import Forbidden, Unauthorized, has_tokens, known_token
from detent.system.clock import SystemClock

if TYPE_CHECKING:
    from .state import Web

COOKIE = "detent_session"
CSRF_HEADER = "x-csrf-token"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_KNOWN_SECONDS = 0.1
"""How long a token is believed without looking again; a revoked one is refused after that."""
_KNOWN_AT_MOST = 10_000
_NOBODY = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """A person with what the token grants. Acts are logged under `person`."""

    person: str
    role: Role
    tenant: str | None = None
    payloads: bool = True
    token_id: str = _NOBODY
    roles: tuple[str, ...] | None = None
    """What the person is among people; None: nobody told, as on an open API."""

    def may(self, power: Power) -> bool:
        return power in POWERS[self.role]

    @property
    def deciding_roles(self) -> list[str] | None:
        """Those an approval may ask for: the token's own, and its role with those it reaches."""
        return None if self.roles is None else sorted({*self.roles, *reached(self.role)})

    @property
    def asker(self) -> str:
        """Whose idempotency keys these are: the person's, as far as the token sees."""
        return f"{self.person}\n{self.role}\n{self.tenant}\n{self.payloads}\n{self.roles}"

    def tenant_for(self, asked: str | None) -> str | None:
        """The tenant to act in; a token that is bound to one asks for no other."""
        if self.tenant is None or asked is None or asked == self.tenant:
            return self.tenant if asked is None else asked
        raise TenantViolation(f"this token is bound to tenant {self.tenant!r}; leave the tenant out")

    def everywhere(self, what: str) -> None:
        """For what has no tenant: queues, workers, the limits of all."""
        if self.tenant is not None:
            raise TenantViolation(f"{what} belongs to all tenants; use a token without a tenant")


LOCAL = Caller("local", Role.ADMIN)
"""Everyone, where the API is open. One person: rules that ask for two refuse it."""


def csrf_of(secret: str) -> str:
    """What a page must send back with each change; only who can read the session's pages knows it."""
    return blake2b(b"csrf", key=secret.encode()[:64], digest_size=18).hexdigest()


class Authenticator:
    """Looks tokens up, believing what it saw for a moment; one look at a time for one token."""

    def __init__(self, web: "Web") -> None:
        self._web = web
        self._clock = SystemClock()
        self._known: dict[str, tuple[float, Token | bool | None]] = {}
        self._looking: dict[str, asyncio.Future[Token | bool | None]] = {}

    async def caller(self, request: HTTPConnection, method: str) -> Caller:
        """The person behind a request, or Unauthorized."""
        header = request.headers.get("authorization")
        if header is not None:
            scheme, _, secret = header.partition(" ")
            if scheme.lower() != "bearer" or not secret.strip():
                raise Unauthorized("send the token as `Authorization: Bearer TOKEN`")
            return self._standing(await self._look(secret.strip()))
        cookie = request.cookies.get(COOKIE)
        if cookie:
            caller = self._standing(await self._look(cookie))
            if method not in SAFE and not self._csrf_fits(request, cookie):
                raise Forbidden("a change from a session must bring its X-CSRF-Token", code="CSRF_TOKEN_INVALID")
            return caller
        if self._web.settings.open_without_tokens and not await self._look(_NOBODY):
            _refuse_other_sites(request)
            return LOCAL
        raise Unauthorized("this API asks for a token; `detent token create` makes one, send it as a bearer token")

    async def of_secret(self, secret: str) -> Caller:
        return self._standing(await self._look(secret))

    async def is_open(self) -> bool:
        return self._web.settings.open_without_tokens and not await self._look(_NOBODY)

    def forget(self) -> None:
        """A token was made or revoked here."""
        self._known.clear()

    def _csrf_fits(self, request: HTTPConnection, secret: str) -> bool:
        return compare_digest(request.headers.get(CSRF_HEADER, "").encode(), csrf_of(secret).encode())

    def _standing(self, token: Token | bool | None) -> Caller:
        if not isinstance(token, Token):
            raise Unauthorized("this token is not known here; ask for a new one")
        if not token.stands(self._clock.now()):
            raise Unauthorized("this token is over: it has expired or was revoked; ask for a new one")
        return Caller(token.person, Role(token.role), token.tenant_id, token.payloads, token.id, token.roles)

    async def _look(self, secret: str) -> Token | bool | None:
        now = self._clock.monotonic()
        known = self._known.get(secret)
        if known is not None and now < known[0]:
            return known[1]
        under_way = self._looking.get(secret)
        if under_way is None:
            under_way = self._looking[secret] = asyncio.ensure_future(self._ask(secret))
            under_way.add_done_callback(lambda _: self._looking.pop(secret, None))
        return await asyncio.shield(under_way)

    async def _ask(self, secret: str) -> Token | bool | None:
        engine = await self._web.engine()
        found = await (known_token(engine, secret) if secret else has_tokens(engine))
        if len(self._known) >= _KNOWN_AT_MOST:
            self._known.clear()
        if found is not None:  # what is unknown is not remembered, or guesses would fill the memory
            self._known[secret] = (self._clock.monotonic() + _KNOWN_SECONDS, found)
        return found


def _refuse_other_sites(request: HTTPConnection) -> None:
    """An open API answers to programs on this machine, not to a page of another site in someone's browser."""
    host = request.headers.get("host", "")
    if not is_loopback(host_name(host)):
        raise Forbidden("without tokens this API answers on its loopback address only", code="HOST_NOT_ALLOWED")
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise Forbidden("without tokens this API does not answer pages of other sites", code="ORIGIN_NOT_ALLOWED")


def host_name(host: str) -> str:
    """Without the port, and without the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") <= 1 else host


def is_loopback(host: str) -> bool:
    name = host.strip().lower()
    return name in ("localhost", "::1") or (name.startswith("127.") and name.replace(".", "").isdigit())


def check_secret(secret: object) -> str:
    if not isinstance(secret, str) or not secret.isascii() or not 0 < len(secret) <= 200:
        raise InvalidInput("a token is a short text; paste it as it was shown", code="TOKEN_INVALID", field="token")
    return secret
