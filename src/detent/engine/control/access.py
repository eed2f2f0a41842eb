"""API tokens: the secret is shown once and stored as a digest; revoking is final. Each change is in the audit log."""

import builtins
from collections.abc import Sequence
from dataclasses import replace

from detent.core.access import POWERS, Power, Role, Scope, Token, digest_of
from detent.core.errors import DetentError, InvalidInput, NotFound
from detent.core.job import Micros
from detent.core.times import SECOND
from detent.engine.reads import responses
from detent.engine.reads.responses import show
from detent.engine.refusal import audit
from detent.engine.runtime import Service, operators_only, reads, writes
from detent.engine.submit.submission import check_name
from detent.ports.tx import Tx
from detent.system.ids import new_secret

PREFIX = "detent_"
MAX_DAYS = 3_650
MAX_ROLES = 50
ROLES = tuple(str(role) for role in Role)


class Unauthorized(DetentError, code="UNAUTHORIZED", http_status=401):
    """No token, an unknown token, or one that is expired or revoked."""


class Forbidden(DetentError, code="FORBIDDEN", http_status=403):
    """The token is valid, but its role does not allow the request."""


class Tokens(Service):
    """`engine.tokens`: the API tokens of people and programs."""

    @writes
    async def create(
        self,
        tx: Tx,
        person: str,
        role: str,
        scope: Scope,
        *,
        tenant: str | None = None,
        payloads: bool = True,
        expires_days: float | None = None,
        roles: Sequence[str] = (),
    ) -> tuple[Token, str]:
        """Create a token; returns (the stored token, the secret). The secret is not stored and cannot be shown again.

        roles: the person's roles for approvals that require one; `role` is the level of access to the API.
        """
        check_name(person, "name")
        if role not in ROLES:
            raise InvalidInput(
                f"unknown role {role!r}; use one of {', '.join(ROLES)}", code="ROLE_INVALID", field="role"
            )
        tenant = self._runtime.tenant_for(tenant, f"tokens of tenant {tenant}")
        if tenant is not None:
            check_name(tenant, "tenant")
        if expires_days is not None and not 0 < expires_days <= MAX_DAYS:
            raise InvalidInput(f"expires_days must be above 0 and at most {MAX_DAYS}", code="EXPIRY_INVALID")
        names = _role_names(roles)
        bearer_secret = PREFIX + new_secret()
        until = None if expires_days is None else tx.now + int(expires_days * 86_400 * SECOND)
        name = person.strip()
        token_id, digest, creator = self._runtime.ids.job(), digest_of(bearer_secret), scope.actor
        token = Token(token_id, digest, name, role, tenant, payloads, tx.now, creator, until, roles=names)
        await tx.tokens.put_token(token)
        data = {"person": name, "role": role, "payloads": payloads, **({"roles": list(names)} if names else {})}
        await audit(tx, Scope(scope.actor), "token.create", token.id, tenant, data)
        return token, bearer_secret

    @writes
    async def revoke(self, tx: Tx, token_id: str, scope: Scope) -> Token:
        """Revoke a token; this is final and idempotent."""
        token = await tx.tokens.token(token_id)
        if token is None or not self._runtime.sees(token.tenant_id):
            raise NotFound(
                f"token {token_id!r} does not exist; `detent token list` lists all tokens", code="TOKEN_NOT_FOUND"
            )
        if token.revoked_at is not None:
            return token
        token = replace(token, revoked_at=tx.now)
        await tx.tokens.put_token(token)
        await tx.sessions.end_sessions_of(token.id)
        await audit(tx, Scope(scope.actor), "token.revoke", token.id, token.tenant_id, {"person": token.person})
        return token

    @reads
    async def list(self, tx: Tx) -> builtins.list[Token]:
        return [token for token in await tx.tokens.list_tokens() if self.tenant in (None, token.tenant_id)]

    @operators_only
    @reads
    async def find(self, tx: Tx, bearer_secret: str) -> Token | None:
        return await tx.tokens.token_by_digest(digest_of(bearer_secret))

    @operators_only
    async def authenticate(self, bearer_secret: str, power: Power) -> Token:
        """The valid token with this secret. Raises Unauthorized, and Forbidden if its role lacks the power."""
        token = require_valid(await self.find(bearer_secret), self._runtime.store.now())
        if power not in POWERS[Role(token.role)]:
            raise Forbidden(f"{token.person} has the role {token.role}, which may not {power}")
        return token

    @operators_only
    @reads
    async def exist(self, tx: Tx) -> bool:
        """True if a token was ever created, even if all are revoked: the API must then keep requiring a token."""
        return await tx.tokens.any_token()


def require_valid(token: object, now: Micros) -> Token:
    """The token that was found. Raises Unauthorized if there is none, or if it is expired or revoked."""
    if not isinstance(token, Token):
        raise Unauthorized("unknown token; use a valid token")
    if not token.is_valid(now):
        raise Unauthorized("token expired or revoked; use a valid token")
    return token


def _role_names(roles: Sequence[str]) -> tuple[str, ...]:
    if isinstance(roles, str) or len(roles) > MAX_ROLES:
        raise InvalidInput(f"roles must be a list of up to {MAX_ROLES} names", code="ROLE_INVALID", field="roles")
    for role in roles:
        check_name(role, "roles")
    return tuple(sorted({role.strip() for role in roles}))


def token_view(token: Token, now: Micros) -> responses.TokenInfo:
    values = {"name": token.person, "tenant": token.tenant_id, "valid": token.is_valid(now)}
    return show(responses.TokenInfo, token, **values, roles=list(token.roles))
