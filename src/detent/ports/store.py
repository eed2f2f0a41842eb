"""The store port: a database of jobs, and how a transaction runs on it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from detent.core.contract.model import Contract
from detent.core.job import Change, Micros, Step

from .claims import ClaimLimits, ClaimRequest, StoreBatchResult, Success
from .tx import Tx

T = TypeVar("T")


class Watch(Protocol):
    """Waits for commits of any process."""

    async def changed(self, timeout: float) -> bool:
        """Wait until there may be a new commit, at most this many seconds; True if there may be one."""
        ...


class OpenTransaction(Protocol):
    """A transaction on the jobs' database that user code writes to."""

    connection: Any

    async def commit(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        """Run a last act in the transaction, then commit; if either fails, everything is rolled back."""
        ...

    async def rollback(self) -> None: ...


class Store(Protocol):
    """A database of jobs. `write` and `read` run an act in one transaction; an act must await nothing but its tx."""

    contracts: dict[str, Contract]
    """The contracts registered in the database; set by `open`."""
    skips_locked_rows: bool
    """True: a batch skips rows that another transaction has locked."""
    max_batches_in_flight: int
    """How many settle-and-claim batches of one worker should run concurrently."""
    claim_limits: ClaimLimits

    async def open(self, own: Mapping[str, Contract], builtin: Mapping[str, Contract]) -> None:
        """own: contracts of the application, which take precedence; builtin: added if they are missing."""
        ...

    async def close(self) -> None: ...
    def now(self) -> Micros: ...

    async def uptime(self) -> float:
        """Seconds since the database server started; infinite if unknown."""
        ...

    def sibling(self) -> "Store":
        """A store on the same database for another event loop; may return itself."""
        ...

    async def write(self, act: Callable[[Tx], Awaitable[T]]) -> T: ...
    async def read(self, act: Callable[[Tx], Awaitable[T]]) -> T: ...
    async def insert(self, changes: Sequence[Change]) -> set[str]: ...

    async def record_step(self, step: Step, token: str) -> bool:
        """Like Tx.record_step, in one round trip. False may also mean that the row was locked: then check again."""
        ...

    async def begin(self) -> OpenTransaction: ...

    def watch(self, *, ends: bool = False) -> "Watch":
        """Watch for commits from now on. To miss none: create the watch, then read, then wait.

        ends: be notified when jobs end, in any process, instead of when jobs become claimable.
        """
        ...

    async def settle_and_claim(
        self, successes: Sequence[Success], request: ClaimRequest | None
    ) -> StoreBatchResult: ...
