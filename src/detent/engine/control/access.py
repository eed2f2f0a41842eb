"""API tokens: the secret is shown once and stored as a digest; revoking is final. Each change is in the audit log."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.core.access import Role, Token, digest_of
from detent.core.errors import DetentError, InvalidInput, NotFound
from detent.core.job import Micros
from detent.core.times import SECOND, iso
from detent.engine.submit.submission import check_name
from detent.ports.access import Audit
from detent.ports.tx import Tx
from detent.system.ids import new_secret

if TYPE_CHECKING:
    from detent.engine.engine import Engine

PREFIX = "detent_"
MAX_DAYS = 3_650
MAX_ROLES = 50
ROLES = tuple(str(role) for role in Role)


class Unauthorized(DetentError):
    """No token, an unknown token, or one that is expired or revoked."""

    code = "UNAUTHORIZED"
    http_status = 401


class Forbidden(DetentError):
    """The token is valid, but its role does not allow the request."""

    code = "FORBIDDEN"
    http_status = 403


async def create_token(
    engine: "Engine",
    person: str,
    role: str,
    *,
    actor: str,
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
        raise InvalidInput(f"unknown role {role!r}; use one of {', '.join(ROLES)}", code="ROLE_INVALID", field="role")
    if tenant is not None:
        check_name(tenant, "tenant")
    if expires_days is not None and not 0 < expires_days <= MAX_DAYS:
        raise InvalidInput(f"expires_days must be above 0 and at most {MAX_DAYS}", code="EXPIRY_INVALID")
    names = _role_names(roles)
    bearer_secret = PREFIX + new_secret()

    async def act(tx: Tx) -> Token:
        until = None if expires_days is None else tx.now + int(expires_days * 86_400 * SECOND)
        name = person.strip()
        token = Token(
            engine.ids.job(), digest_of(bearer_secret), name, role, tenant, payloads, tx.now, actor, until, roles=names
        )
        await tx.tokens.put_token(token)
        data = {"person": name, "role": role, "payloads": payloads, **({"roles": list(names)} if names else {})}
        await tx.audit.add_audit(Audit(actor, "token.create", token.id, tenant, None, data))
        return token

    return await engine.store.write(act), bearer_secret


def _role_names(roles: Sequence[str]) -> tuple[str, ...]:
    if isinstance(roles, str) or len(roles) > MAX_ROLES:
        raise InvalidInput(f"roles must be a list of up to {MAX_ROLES} names", code="ROLE_INVALID", field="roles")
    for role in roles:
        check_name(role, "roles")
    return tuple(sorted({role.strip() for role in roles}))


async def revoke_token(engine: "Engine", token_id: str, *, actor: str) -> Token:
    """Revoke a token; this is final and idempotent."""

    async def act(tx: Tx) -> Token:
        token = await tx.tokens.token(token_id)
        if token is None:
            raise NotFound(
                f"token {token_id!r} does not exist; `detent token list` lists all tokens", code="TOKEN_NOT_FOUND"
            )
        if token.revoked_at is not None:
            return token
        token = replace(token, revoked_at=tx.now)
        await tx.tokens.put_token(token)
        await tx.audit.add_audit(
            Audit(actor, "token.revoke", token.id, token.tenant_id, None, {"person": token.person})
        )
        return token

    return await engine.store.write(act)


async def list_tokens(engine: "Engine") -> list[Token]:
    async def act(tx: Tx) -> list[Token]:
        return await tx.tokens.list_tokens()

    return await engine.store.read(act)


async def find_token(engine: "Engine", bearer_secret: str) -> Token | None:
    digest = digest_of(bearer_secret)

    async def act(tx: Tx) -> Token | None:
        return await tx.tokens.token_by_digest(digest)

    return await engine.store.read(act)


async def has_tokens(engine: "Engine") -> bool:
    """True if a token was ever created, even if all are revoked: the API must then keep requiring a token."""

    async def act(tx: Tx) -> bool:
        return await tx.tokens.any_token()

    return await engine.store.read(act)


def token_view(token: Token, now: Micros) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.person,
        "role": token.role,
        "roles": list(token.roles),
        "tenant": token.tenant_id,
        "payloads": token.payloads,
        "valid": token.is_valid(now),
        "created_at": iso(token.created_at),
        "created_by": token.created_by,
        "expires_at": iso(token.expires_at),
        "revoked_at": iso(token.revoked_at),
    }
