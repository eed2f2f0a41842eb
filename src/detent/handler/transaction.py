"""ctx.transaction(): a user's writes in the jobs' own database, committed with a step or with the job's success.

Opened inside a step, it commits with that step's record; elsewhere with the settlement, if the handler returns. It is
guarded by the token: a job that was lost meanwhile takes its user's writes with it.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from detent.core.errors import InvalidInput
from detent.ports.store import OpenTransaction

if TYPE_CHECKING:
    from .context import Context

T = TypeVar("T")


class Scope:
    """What a transaction belongs to: one step, or the whole execution. At most one is open in it."""

    def __init__(self) -> None:
        self.open: OpenTransaction | None = None

    async def commit(self, act: Callable[[Any], Awaitable[T]]) -> T:
        assert self.open is not None, "there is something to commit"
        lent, self.open = self.open, None
        return await lent.commit(act)

    async def undo(self) -> None:
        if self.open is not None:
            lent, self.open = self.open, None
            await lent.rollback()


_step: ContextVar[tuple["Context", Scope] | None] = ContextVar("detent_step", default=None)


class InStep:
    """While a step's function runs, transactions of its context belong to that step."""

    def __init__(self, context: "Context") -> None:
        self.scope = Scope()
        self._context = context

    def __enter__(self) -> Scope:
        self._before = _step.set((self._context, self.scope))
        self._context.scopes.append(self.scope)
        return self.scope

    def __exit__(self, *_: object) -> None:
        _step.reset(self._before)
        self._context.scopes.remove(self.scope)


def scope_of(context: "Context") -> Scope:
    running = _step.get()
    return running[1] if running is not None and running[0] is context else context.scopes[0]


def check_closed(context: "Context", what: str) -> None:
    """SQLite has one writer: whoever holds it may not wait for a second one. The same rule everywhere."""
    if any(scope.open is not None for scope in context.scopes):
        raise InvalidInput(
            f"{what} while a transaction is open: it ends with its step or with the handler; do this before it, or "
            "open the transaction inside a step of its own",
            code="TRANSACTION_OPEN",
        )


class Transaction:
    """What `async with ctx.transaction() as connection` enters. Left in peace, it stays open for its record."""

    def __init__(self, context: "Context", scope: Scope | None = None) -> None:
        self._context = context
        self._given = scope

    async def __aenter__(self) -> Any:
        scope = self._scope = self._given or scope_of(self._context)
        if scope.open is None:
            check_closed(self._context, "a second transaction")
            scope.open = await self._context.begin()
        return scope.open.connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self._scope.undo()


class SyncTransaction:
    """The same for `with`, in a handler's thread."""

    def __init__(self, transaction: Transaction, run: Callable[[Callable[[], Any]], Any]) -> None:
        self._transaction = transaction
        self._run = run

    def __enter__(self) -> "SyncConnection":
        return SyncConnection(self._run(self._transaction.__aenter__), self._run)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(lambda: self._transaction.__aexit__(kind, error, trace))


class SyncConnection:
    """Plain SQL whose calls block the thread."""

    def __init__(self, connection: Any, run: Callable[[Callable[[], Any]], Any]) -> None:
        self._connection = connection
        self._run = run

    def execute(self, query: str, *values: Any) -> str:
        return self._run(lambda: self._connection.execute(query, *values))  # type: ignore[no-any-return]

    def executemany(self, query: str, many: Iterable[Sequence[Any]]) -> None:
        self._run(lambda: self._connection.executemany(query, many))

    def fetch(self, query: str, *values: Any) -> list[Any]:
        return self._run(lambda: self._connection.fetch(query, *values))  # type: ignore[no-any-return]

    def fetchrow(self, query: str, *values: Any) -> Any:
        return self._run(lambda: self._connection.fetchrow(query, *values))

    def fetchval(self, query: str, *values: Any, column: int = 0) -> Any:
        return self._run(lambda: self._connection.fetchval(query, *values, column=column))
