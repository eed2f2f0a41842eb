"""Tokens: made once and shown once, looked up by digest, revoked for good. Each change is in the audit."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.core.access import Role, Token, digest_of
from detent.core.errors import DetentError, InvalidInput, NotFound
from detent.core.job import Micros
from detent.core.times import SECOND, iso
from detent.engine.submit.submission import check_name
from detent.ports.access import AccessTx, Audit
from detent.system.ids import secret

if TYPE_CHECKING:
    from detent.engine.engine import Engine

PREFIX = "detent_"
MAX_DAYS = 3_650
MAX_ROLES = 50
ROLES = tuple(str(role) for role in Role)


class Unauthorized(DetentError):
    """No token, an unknown one, or one that is over."""

    code = "UNAUTHORIZED"
    http_status = 401


class Forbidden(DetentError):
    """A known person whose role does not reach this far."""

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
    """(the token as it is kept, the secret). The secret is not kept: this is the only time it is seen.

    roles: what the person is among people, for approvals that ask for one of these.
    """
    check_name(person, "name")
    if role not in ROLES:
        raise InvalidInput(f"{role!r} is no role; roles are {', '.join(ROLES)}", code="ROLE_INVALID", field="role")
    if tenant is not None:
        check_name(tenant, "tenant")
    if expires_days is not None and not 0 < expires_days <= MAX_DAYS:
        raise InvalidInput(f"a token lasts up to {MAX_DAYS} days, and more than none", code="EXPIRY_INVALID")
    names = _names(roles)
    shown = PREFIX + secret()

    async def act(tx: AccessTx) -> Token:
        until = None if expires_days is None else tx.now + int(expires_days * 86_400 * SECOND)
        name = person.strip()
        token = Token(
            engine.ids.job(), digest_of(shown), name, role, tenant, payloads, tx.now, actor, until, roles=names
        )
        await tx.put_token(token)
        data = {"person": name, "role": role, "payloads": payloads, **({"roles": list(names)} if names else {})}
        await tx.add_audit(Audit(actor, "token.create", token.id, tenant, None, data))
        return token

    return await engine.store.write(act), shown


def _names(roles: Sequence[str]) -> tuple[str, ...]:
    if isinstance(roles, str) or len(roles) > MAX_ROLES:
        raise InvalidInput(f"roles is a list of up to {MAX_ROLES} names", code="ROLE_INVALID", field="roles")
    for role in roles:
        check_name(role, "roles")
    return tuple(sorted({role.strip() for role in roles}))


async def revoke_token(engine: "Engine", token_id: str, *, actor: str) -> Token:
    """For good; a second time changes nothing."""

    async def act(tx: AccessTx) -> Token:
        token = await tx.token(token_id)
        if token is None:
            raise NotFound(f"there is no token {token_id!r}; `detent token list` shows them", code="TOKEN_NOT_FOUND")
        if token.revoked_at is not None:
            return token
        token = replace(token, revoked_at=tx.now)
        await tx.put_token(token)
        await tx.add_audit(Audit(actor, "token.revoke", token.id, token.tenant_id, None, {"person": token.person}))
        return token

    return await engine.store.write(act)


async def list_tokens(engine: "Engine") -> list[Token]:
    async def act(tx: AccessTx) -> list[Token]:
        return await tx.tokens()

    return await engine.store.read(act)


async def known_token(engine: "Engine", shown: str) -> Token | None:
    digest = digest_of(shown)

    async def act(tx: AccessTx) -> Token | None:
        return await tx.token_by_digest(digest)

    return await engine.store.read(act)


async def has_tokens(engine: "Engine") -> bool:
    """Whether a token was ever made here, revoked ones included: an API that was closed stays closed."""

    async def act(tx: AccessTx) -> bool:
        return await tx.any_token()

    return await engine.store.read(act)


def token_view(token: Token, now: Micros) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.person,
        "role": token.role,
        "roles": list(token.roles),
        "tenant": token.tenant_id,
        "payloads": token.payloads,
        "valid": token.stands(now),
        "created_at": iso(token.created_at),
        "created_by": token.created_by,
        "expires_at": iso(token.expires_at),
        "revoked_at": iso(token.revoked_at),
    }
