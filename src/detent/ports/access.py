"""Access tokens and the audit log, as a transaction stores them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from detent.core.access import Token
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


class AccessTx(Protocol):
    """Access tokens and audit entries within a transaction."""

    now: Micros

    async def put_token(self, token: Token) -> None: ...

    async def token(self, token_id: str) -> Token | None: ...

    async def token_by_digest(self, digest: str) -> Token | None: ...

    async def tokens(self) -> list[Token]: ...

    async def any_token(self) -> bool: ...

    async def add_audit(self, entry: Audit) -> None: ...
