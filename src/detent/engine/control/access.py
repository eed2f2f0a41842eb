"""API tokens: the secret is shown once and stored as a digest; revoking is final. Each change is in the audit log."""

import builtins
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from detent.core.access import (
    NEVER,
    POWERS,
    SERVER_OPERATOR,
    Power,
    Role,
    Scope,
    Token,
    default_expiry,
    digest_of,
)
from detent.core.errors import DetentError, InvalidInput, NotFound
from detent.core.job import Micros
from detent.core.times import DAY
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
MAX_NAMES = 100
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
        expires_days: float | Literal["never"] | None = None,
        roles: Sequence[str] = (),
        queues: Sequence[str] = (),
        job_types: Sequence[str] = (),
    ) -> tuple[Token, str]:
        """Create a token; returns (the stored token, the secret). The secret is not stored and cannot be shown again.

        roles: the person's roles for approvals that require one; `role` is the level of access to the API.
        queues, job_types: what the token is limited to; empty: all. expires_days: "never", or None for the default: 90
        days for people, never for workers and producers.
        """
        check_name(person, "name")
        if role not in ROLES:
            raise InvalidInput(
                f"unknown role {role!r}; use one of {', '.join(ROLES)}", code="ROLE_INVALID", field="role"
            )
        tenant = self._runtime.tenant_for(tenant, f"tokens of tenant {tenant}")
        if tenant is not None:
            check_name(tenant, "tenant")
        _check_limits(Role(role), tenant, payloads, bool(queues or job_types))
        others = (SERVER_OPERATOR,) if scope.shared_with is None else scope.shared_with
        token = Token(
            id=self._runtime.ids.job(),
            digest="",
            person=person.strip(),
            role=role,
            tenant_id=tenant,
            payloads=payloads,
            created_at=tx.now,
            created_by=scope.actor,
            expires_at=_expiry(Role(role), expires_days, tx.now),
            roles=_names(roles, "roles", MAX_ROLES),
            queues=_names(queues, "queues", MAX_NAMES),
            job_types=_names(job_types, "job_types", MAX_NAMES),
            shared_with=tuple(dict.fromkeys((scope.actor.strip(), *others))),
        )
        lists = {name: list(getattr(token, name)) for name in ("roles", "queues", "job_types")}
        data = {"person": token.person, "role": role, "payloads": payloads}
        data |= {name: names for name, names in lists.items() if names}
        return await self._put(tx, token, Scope(scope.actor), "token.create", data)

    @operators_only
    @writes
    async def rotate(self, tx: Tx, bearer_secret: str) -> tuple[Token, str]:
        """Replace a token by one that only its owner knows; returns (the new token, its secret).

        The new token grants the same and expires at the same time. The old one and its sessions end. Raises
        Unauthorized if the old one is unknown, expired or revoked.
        """
        found = require_valid(await tx.tokens.token_by_digest(digest_of(bearer_secret)), tx.now)
        old = require_valid(await tx.tokens.lock_token(found.id), tx.now)  # another rotation may have been faster
        await tx.tokens.put_token(replace(old, revoked_at=tx.now))
        await tx.sessions.end_sessions_of(old.id)
        new = replace(old, id=self._runtime.ids.job(), created_at=tx.now, created_by=old.person, shared_with=())
        return await self._put(tx, new, Scope(old.person), "token.rotate", {"person": old.person, "replaces": old.id})

    async def _put(self, tx: Tx, token: Token, scope: Scope, act: str, data: dict[str, Any]) -> tuple[Token, str]:
        """Store the token with a new secret."""
        bearer_secret = PREFIX + new_secret()
        token = replace(token, digest=digest_of(bearer_secret))
        await tx.tokens.put_token(token)
        await audit(tx, scope, act, token.id, token.tenant_id, data)
        return token, bearer_secret

    @writes
    async def revoke(self, tx: Tx, token_id: str, scope: Scope) -> Token:
        """Revoke a token; this is final and idempotent."""
        token = await tx.tokens.lock_token(token_id)
        if token is None or self._runtime.tenant not in (None, token.tenant_id):
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


def _expiry(role: Role, expires_days: float | Literal["never"] | None, now: Micros) -> Micros | None:
    if expires_days is None:
        return default_expiry(role, now)
    if expires_days == NEVER:
        return None
    if isinstance(expires_days, str) or not 0 < expires_days <= MAX_DAYS:
        message = f"expires_days must be above 0 and at most {MAX_DAYS}, or {NEVER!r}"
        raise InvalidInput(message, code="EXPIRY_INVALID", field="expires_days")
    return now + int(expires_days * DAY)


def _check_limits(role: Role, tenant: str | None, payloads: bool, by_queue: bool) -> None:
    """Refuse limits that a token of this role cannot have."""
    if role is Role.WORKER and (tenant is not None or not payloads):
        message = "a worker runs jobs of all tenants with their payloads; limit its token by queues and types instead"
        raise InvalidInput(message, code="SCOPE_INVALID", field="role")
    if role is Role.ADMIN and by_queue:
        message = "an admin acts on tokens, quotas and the audit log, which have no queue; limit it by tenant instead"
        raise InvalidInput(message, code="SCOPE_INVALID", field="role")


def _names(names: Sequence[str], field: str, most: int) -> tuple[str, ...]:
    if isinstance(names, str) or len(names) > most:
        code = "ROLE_INVALID" if field == "roles" else "SCOPE_INVALID"
        raise InvalidInput(f"{field} must be a list of up to {most} names", code=code, field=field)
    for name in names:
        check_name(name, field)
    return tuple(sorted({name.strip() for name in names}))


def token_view(token: Token, now: Micros) -> responses.TokenInfo:
    values = {"name": token.person, "valid": token.is_valid(now)}
    lists = {name: list(getattr(token, name)) for name in ("roles", "queues", "job_types", "shared_with")}
    return show(responses.TokenInfo, token, **values, **lists, expires_soon=token.expires_soon(now))
