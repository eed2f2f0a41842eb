"""The part of a transaction that stores tokens, sessions, audit entries, and responses kept for idempotency keys."""

import json
from dataclasses import asdict
from typing import Any

from detent.core.access import Session, Token
from detent.core.job import Micros
from detent.ports.access import Audit, AuditRow, StoredAnswer

from .named_queries import NamedQueries
from .rows import as_text, columns_of, with_json

TOKEN_COLUMNS, SESSION_COLUMNS = columns_of(Token), columns_of(Session)
_AUDIT_TESTS = {"before": "n < :before", "tenant": "tenant_id = :tenant", "subject": "subject = :subject"}
_PAYLOADS = TOKEN_COLUMNS.index("payloads")
_LISTS = ("roles", "queues", "job_types", "shared_with")
"""Columns of a token that hold a list of names as JSON."""


class AccessQueries(NamedQueries):
    """Access tokens, the audit log, and stored HTTP responses by caller (`asker`) and idempotency key."""

    async def put_token(self, token: Token) -> None:
        await self.change("put_token", **asdict(token) | {name: as_text(getattr(token, name)) for name in _LISTS})

    async def token_by_digest(self, digest: str) -> Token | None:
        return await self.fetch_one(_token, "token_by_digest", digest=digest)

    async def token(self, token_id: str) -> Token | None:
        return await self.fetch_one(_token, "token", id=token_id)

    async def lock_token(self, token_id: str) -> Token | None:
        return await self.fetch_one(_token, "lock_token", id=token_id)

    async def list_tokens(self) -> list[Token]:
        return await self.fetch(_token, "tokens")

    async def any_token(self) -> bool:
        return bool(await self.query("any_token"))

    async def put_session(self, session: Session, keep: int) -> None:
        await self.change("put_session", **asdict(session))
        await self.change("drop_oldest_sessions", token_id=session.token_id, keep=keep)

    async def session(self, digest: str) -> Session | None:
        return await self.fetch_one(Session, "session", digest=digest)

    async def extend_session(self, digest: str, expires_at: Micros) -> None:
        await self.change("extend_session", digest=digest, expires_at=expires_at)

    async def end_session(self, digest: str) -> None:
        await self.change("end_session", digest=digest)

    async def end_sessions_of(self, token_id: str) -> None:
        await self.change("end_sessions_of", token_id=token_id)

    async def drop_expired_sessions(self, limit: int) -> int:
        return await self.change("drop_expired_sessions", now=self.now, limit=limit)

    async def add_audit(self, entry: Audit) -> None:
        values = {**asdict(entry), "data": as_text(entry.data)}
        await self.change("add_audit", now=self.now, **values)

    async def list_audit(
        self, limit: int = 100, *, before: int | None = None, tenant: str | None = None, subject: str | None = None
    ) -> list[AuditRow]:
        filters = {"before": before, "tenant": tenant, "subject": subject}
        return [_audit_row(*row) for row in await self.matching("audit", _AUDIT_TESTS, **filters, limit=limit)]

    async def reserve_answer(self, asker: str, key: str, digest: str, fresh_id: str, until: int) -> bool:
        values = {"asker": asker, "key": key, "digest": digest, "fresh_id": fresh_id, "until": until}
        return await self.change("reserve_answer", now=self.now, **values) == 1

    async def answer(self, asker: str, key: str) -> StoredAnswer | None:
        return await self.fetch_one(StoredAnswer, "answer", asker=asker, key=key)

    async def take_over_answer(self, asker: str, key: str, made_at: int, until: int) -> bool:
        values = {"asker": asker, "key": key, "made_at": made_at, "until": until}
        return await self.change("take_over_answer", now=self.now, **values) == 1

    async def keep_answer(self, asker: str, key: str, status: int, headers: str, answer: str, until: int) -> None:
        values = {"status": status, "headers": headers, "answer": answer, "until": until}
        await self.change("keep_answer", asker=asker, key=key, **values)

    async def release_answer(self, asker: str, key: str) -> None:
        await self.change("release_answer", asker=asker, key=key)

    async def drop_old_answers(self, limit: int) -> int:
        return await self.change("drop_old_answers", now=self.now, limit=limit)

    async def trim_answers(self, asker: str, kept: int) -> None:
        await self.change("trim_answers", asker=asker, kept=kept)


def _audit_row(number: int, at: Micros, *entry: Any) -> AuditRow:
    return AuditRow(number, at, with_json(Audit, entry))


def _token(*row: Any) -> Token:
    values = list(row)
    values[_PAYLOADS] = bool(values[_PAYLOADS])
    for name in _LISTS:
        position = TOKEN_COLUMNS.index(name)
        values[position] = tuple(json.loads(values[position]))
    return Token(*values)
