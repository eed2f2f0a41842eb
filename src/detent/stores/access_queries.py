"""The part of a transaction that stores tokens, audit entries and HTTP responses kept for idempotency keys."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from detent.core.access import Token
from detent.ports.access import Audit, AuditRow, StoredAnswer

from .named_queries import NamedQueries
from .rows import as_text, with_json

TOKEN_COLUMNS = tuple(field.name for field in fields(Token))
_AUDIT_TESTS = {"before": "n < :before", "tenant": "tenant_id = :tenant", "subject": "subject = :subject"}
_PAYLOADS, _ROLES = TOKEN_COLUMNS.index("payloads"), TOKEN_COLUMNS.index("roles")


class AccessQueries(NamedQueries):
    """Access tokens, the audit log, and stored HTTP responses by caller (`asker`) and idempotency key."""

    async def put_token(self, token: Token) -> None:
        await self.change("put_token", **{**asdict(token), "roles": json.dumps(token.roles, ensure_ascii=False)})

    async def token_by_digest(self, digest: str) -> Token | None:
        rows = await self.query("token_by_digest", digest=digest)
        return _token(rows[0]) if rows else None

    async def token(self, token_id: str) -> Token | None:
        rows = await self.query("token", id=token_id)
        return _token(rows[0]) if rows else None

    async def list_tokens(self) -> list[Token]:
        return [_token(row) for row in await self.query("tokens")]

    async def any_token(self) -> bool:
        return bool(await self.query("any_token"))

    async def add_audit(self, entry: Audit) -> None:
        values = {**asdict(entry), "data": as_text(entry.data)}
        await self.change("add_audit", now=self.now, **values)

    async def last_audit(self, limit: int = 100) -> list[AuditRow]:
        rows = await self.query("audit", limit=limit)
        return [_audit_row(row) for row in rows]

    async def audit_of(self, subject: str, limit: int = 100) -> list[AuditRow]:
        rows = await self.query("audit_of", subject=subject, limit=limit)
        return [_audit_row(row) for row in rows]

    async def audit_page(
        self, before: int | None, limit: int, tenant: str | None, subject: str | None
    ) -> list[AuditRow]:
        filters = {"before": before, "tenant": tenant, "subject": subject}
        values = {name: value for name, value in filters.items() if value is not None}
        where = " AND ".join(_AUDIT_TESTS[name] for name in values) or "true"
        rows = await self.query("audit_page", where, **values, limit=limit)
        return [_audit_row(row) for row in rows]

    async def reserve_answer(self, asker: str, key: str, digest: str, fresh_id: str, until: int) -> bool:
        values = {"asker": asker, "key": key, "digest": digest, "fresh_id": fresh_id, "until": until}
        return await self.change("reserve_answer", now=self.now, **values) == 1

    async def answer(self, asker: str, key: str) -> StoredAnswer | None:
        rows = await self.query("answer", asker=asker, key=key)
        return StoredAnswer(*rows[0]) if rows else None

    async def take_over_answer(self, asker: str, key: str, made_at: int, until: int) -> bool:
        values = {"asker": asker, "key": key, "made_at": made_at, "until": until}
        return await self.change("take_over_answer", now=self.now, **values) == 1

    async def keep_answer(self, asker: str, key: str, status: int, media: str, body: bytes, until: int) -> None:
        values = {"status": status, "media": media, "body": body, "until": until}
        await self.change("keep_answer", asker=asker, key=key, **values)

    async def release_answer(self, asker: str, key: str) -> None:
        await self.change("release_answer", asker=asker, key=key)

    async def drop_old_answers(self, limit: int) -> int:
        return await self.change("drop_old_answers", now=self.now, limit=limit)


def _audit_row(row: Sequence[Any]) -> AuditRow:
    return AuditRow(row[0], row[1], with_json(Audit, row[2:]))


def _token(row: Sequence[Any]) -> Token:
    values = list(row)
    values[_PAYLOADS] = bool(values[_PAYLOADS])
    values[_ROLES] = tuple(json.loads(values[_ROLES]))
    return Token(*values)
