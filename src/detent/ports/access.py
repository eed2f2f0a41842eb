"""Access tokens and the audit log, as a transaction stores them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from detent.core.access import Token
from detent.core.job import Micros

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Audit:
    """Who did what to which thing, and why."""

    actor: str
    act: str
    subject: str
    tenant_id: str | None = None
    reason: str | None = None
    data: Mapping[str, Any] | None = None


if TYPE_CHECKING:
    pass


class AccessTx(Protocol):
    """What these acts ask of a transaction."""

    now: Micros

    async def put_token(self, token: Token) -> None: ...

    async def token(self, token_id: str) -> Token | None: ...

    async def token_by_digest(self, digest: str) -> Token | None: ...

    async def tokens(self) -> list[Token]: ...

    async def any_token(self) -> bool: ...

    async def add_audit(self, entry: Audit) -> None: ...
