"""The part of a transaction that stores tokens, audit pages and HTTP responses kept for idempotency keys."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from detent.core.access import Token
from detent.core.job import Micros
from detent.ports.access import Audit

from .named_queries import NamedQueries
from .rows import with_json

TOKEN_COLUMNS = tuple(field.name for field in fields(Token))
_AUDIT_TESTS = {"before": "n < :before", "tenant": "tenant_id = :tenant", "subject": "subject = :subject"}
_PAYLOADS, _ROLES = TOKEN_COLUMNS.index("payloads"), TOKEN_COLUMNS.index("roles")


class AccessQueries(NamedQueries):
    """Access tokens, and stored HTTP responses by caller (`asker`) and idempotency key."""

    async def put_token(self, token: Token) -> None:
        await self.change("put_token", **{**asdict(token), "roles": json.dumps(token.roles, ensure_ascii=False)})

    async def token_by_digest(self, digest: str) -> Token | None:
        rows = await self.query("token_by_digest", digest=digest)
        return _token(rows[0]) if rows else None

    async def token(self, token_id: str) -> Token | None:
        rows = await self.query("token", id=token_id)
        return _token(rows[0]) if rows else None

    async def tokens(self) -> list[Token]:
        return [_token(row) for row in await self.query("tokens")]

    async def any_token(self) -> bool:
        return bool(await self.query("any_token"))

    async def audit_page(
        self, before: int | None, limit: int, tenant: str | None, subject: str | None
    ) -> list[tuple[int, Micros, Audit]]:
        """The newest audit entries below a number, optionally of one tenant or subject."""
        filters = {"before": before, "tenant": tenant, "subject": subject}
        values = {name: value for name, value in filters.items() if value is not None}
        where = " AND ".join(_AUDIT_TESTS[name] for name in values) or "true"
        rows = await self.query("audit_page", where, **values, limit=limit)
        return [(n, at, with_json(Audit, rest)) for n, at, *rest in rows]

    async def reserve_answer(self, asker: str, key: str, digest: str, fresh_id: str, until: int) -> bool:
        """True if this is the first request with this key, so that the caller must produce the response."""
        values = {"asker": asker, "key": key, "digest": digest, "fresh_id": fresh_id, "until": until}
        return await self.change("reserve_answer", now=self.now, **values) == 1

    async def answer(self, asker: str, key: str) -> tuple[Any, ...] | None:
        """(digest, fresh_id, status, media type, body, made_at) of an earlier request; status None: still running."""
        rows = await self.query("answer", asker=asker, key=key)
        return tuple(rows[0]) if rows else None

    async def take_over_answer(self, asker: str, key: str, made_at: int, until: int) -> bool:
        """Take over a request whose process is gone (compare-and-set on made_at); True if it succeeded."""
        values = {"asker": asker, "key": key, "made_at": made_at, "until": until}
        return await self.change("take_over_answer", now=self.now, **values) == 1

    async def keep_answer(self, asker: str, key: str, status: int, media: str, body: bytes, until: int) -> None:
        values = {"status": status, "media": media, "body": body, "until": until}
        await self.change("keep_answer", asker=asker, key=key, **values)

    async def release_answer(self, asker: str, key: str) -> None:
        await self.change("release_answer", asker=asker, key=key)

    async def drop_old_answers(self, limit: int) -> int:
        return await self.change("drop_old_answers", now=self.now, limit=limit)


def _token(row: Sequence[Any]) -> Token:
    values = list(row)
    values[_PAYLOADS] = bool(values[_PAYLOADS])
    values[_ROLES] = tuple(json.loads(values[_ROLES]))
    return Token(*values)
