"""Access tokens, sessions, the audit log, and HTTP responses kept for idempotency keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from detent.core.access import Session, Token
from detent.core.job import Micros


@dataclass(frozen=True, slots=True)
class Audit:
    """One entry of the audit log: who did what to which subject, and why."""

    actor: str
    act: str
    subject: str
    tenant_id: str | None = None
    reason: str | None = None
    data: Mapping[str, Any] | None = None


class AuditRow(NamedTuple):
    """An audit entry with its number and its time."""

    number: int
    at: Micros
    entry: Audit


class StoredAnswer(NamedTuple):
    """The response to an earlier request with the same idempotency key; status None: it is still running.

    headers and answer are JSON; the answer has ids in place of jobs, schedules and dead letters.
    """

    digest: str
    fresh_id: str
    status: int | None
    headers: str
    answer: str
    made_at: Micros


class TokenTable(Protocol):
    async def put_token(self, token: Token) -> None: ...
    async def token(self, token_id: str) -> Token | None: ...
    async def lock_token(self, token_id: str) -> Token | None: ...
    async def token_by_digest(self, digest: str) -> Token | None: ...
    async def list_tokens(self) -> list[Token]: ...
    async def any_token(self) -> bool: ...


class SessionTable(Protocol):
    """Sessions by the digest of their cookie."""

    async def put_session(self, session: Session, keep: int) -> None:
        """Insert a session and delete all but the newest `keep` of its token."""
        ...

    async def session(self, digest: str) -> Session | None: ...

    async def extend_session(self, digest: str, expires_at: Micros) -> None:
        """Let the session expire later; an earlier time changes nothing."""
        ...

    async def end_session(self, digest: str) -> None: ...
    async def end_sessions_of(self, token_id: str) -> None: ...
    async def drop_expired_sessions(self, limit: int) -> int: ...


class AuditTable(Protocol):
    async def add_audit(self, entry: Audit) -> None: ...
    async def list_audit(
        self, limit: int = 100, *, before: int | None = None, tenant: str | None = None, subject: str | None = None
    ) -> list[AuditRow]:
        """The newest audit entries, optionally below a number, of one tenant or about one subject."""
        ...


class AnswerTable(Protocol):
    """HTTP responses by caller (`asker`) and idempotency key."""

    async def reserve_answer(self, asker: str, key: str, digest: str, fresh_id: str, until: Micros) -> bool:
        """True if this is the first request with this key, so that the caller must produce the response."""
        ...

    async def answer(self, asker: str, key: str) -> StoredAnswer | None: ...

    async def take_over_answer(self, asker: str, key: str, made_at: Micros, until: Micros) -> bool:
        """Take over a request whose process is gone (compare-and-set on made_at); True if it succeeded."""
        ...

    async def keep_answer(
        self, asker: str, key: str, status: int, headers: str, answer: str, until: Micros
    ) -> None: ...
    async def release_answer(self, asker: str, key: str) -> None: ...
    async def drop_old_answers(self, limit: int) -> int: ...

    async def trim_answers(self, asker: str, kept: int) -> None:
        """Delete the oldest of a caller's answers beyond this number."""
        ...
