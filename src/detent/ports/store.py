"""The store port: where jobs live, and how one transaction runs on it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from detent.core.contract.model import Contract
from detent.core.job import Change, Micros, Step

from .claims import ClaimRequest, StoreBatchResult, Success

T = TypeVar("T")


class Watch(Protocol):
    """One listener's view of what has been committed since it last heard."""

    async def changed(self, timeout: float) -> bool:
        """Wait until anyone may have committed something, at most this many seconds; True if so."""
        ...


class OpenTransaction(Protocol):
    """A transaction in a user's hands, on the database the jobs are in."""

    connection: Any

    async def commit(self, act: Callable[[Any], Awaitable[T]]) -> T:
        """One last act in it, then the commit; if either fails, nothing of it has happened."""
        ...

    async def rollback(self) -> None: ...


class Store(Protocol):
    """Where jobs live. `write` and `read` run one act in one transaction; acts must await nothing but the tx."""

    contracts: dict[str, Contract]
    """What the database knows once it is open."""
    skips_locked_rows: bool
    """True: a batch passes over rows that somebody else's transaction holds."""
    max_batches_in_flight: int
    """How many cycles of one worker are worth having under way together."""

    async def open(self, own: Mapping[str, Contract], carried: Mapping[str, Contract]) -> None:
        """own: declared by this application, they win; carried: Detent's, they fill what is missing."""
        ...

    async def close(self) -> None: ...

    def now(self) -> Micros: ...

    async def uptime(self) -> float:
        """Seconds since the database started, as far as it can tell."""
        ...

    def sibling(self) -> "Store":
        """The same database for another event loop; itself where loops do not matter."""
        ...

    async def write(self, act: Callable[[Any], Awaitable[T]]) -> T: ...

    async def read(self, act: Callable[[Any], Awaitable[T]]) -> T: ...

    async def insert(self, changes: Sequence[Change]) -> set[str]: ...

    async def record_step(self, step: Step, token: str) -> bool:
        """As Tx.record_step, alone and in one round trip. False may also mean: somebody held the row, look again."""
        ...

    async def begin(self) -> OpenTransaction: ...

    def held_back(self) -> tuple[bool, Micros | None]:
        """Did limits keep the last claim from jobs, and when does a rate let the next one begin?"""
        ...

    def watch(self) -> "Watch":
        """From now on, hear of commits; take the watch first, then look, then wait."""
        ...

    async def settle_and_claim(
        self, successes: Sequence[Success], request: ClaimRequest | None
    ) -> StoreBatchResult: ...
