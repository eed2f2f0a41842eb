"""ctx.transaction(): the user's own writes in the jobs' database, committed with a step or with the job's success.

Opened inside a step, the transaction commits with the step's record; elsewhere it commits with the settlement after the
handler returned. Both commits check the lease token: if the job was lost meanwhile, the user's writes are rolled back.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from detent.core.errors import InvalidInput
from detent.ports.store import OpenTransaction
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from .context import Context

T = TypeVar("T")


class Scope:
    """What a transaction commits with: one step, or the whole execution. Holds at most one open transaction."""

    def __init__(self) -> None:
        self.transaction: OpenTransaction | None = None

    async def commit(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        """Run `act` in the open transaction, then commit it."""
        assert self.transaction is not None, "no transaction is open"
        transaction, self.transaction = self.transaction, None
        return await transaction.commit(act)

    async def rollback(self) -> None:
        if self.transaction is not None:
            transaction, self.transaction = self.transaction, None
            await transaction.rollback()


_running_step: ContextVar[tuple["Context", Scope] | None] = ContextVar("detent_step", default=None)


@contextmanager
def step_scope(context: "Context") -> Iterator[Scope]:
    """While a step's function runs, transactions of its context belong to that step."""
    scope = Scope()
    reset_token = _running_step.set((context, scope))
    context.scopes.append(scope)
    try:
        yield scope
    finally:
        _running_step.reset(reset_token)
        context.scopes.remove(scope)


def current_scope(context: "Context") -> Scope:
    """The scope of the step that runs here, else the scope of the whole execution."""
    running = _running_step.get()
    return running[1] if running is not None and running[0] is context else context.scopes[0]


def check_no_transaction(scopes: Iterable[Scope], what: str) -> None:
    """Refuse `what` while a transaction is open.

    SQLite has one writer: a handler that holds it and waits for a second write would wait for itself. The rule is the
    same on Postgres.
    """
    if any(scope.transaction is not None for scope in scopes):
        raise InvalidInput(
            f"{what} is not possible while a transaction is open; the transaction ends with its step or with the "
            "handler: do this before it, or open the transaction inside a step",
            code="TRANSACTION_OPEN",
        )


class Transaction:
    """What `ctx.transaction()` returns. Leaving the block keeps the transaction open; an exception rolls it back."""

    def __init__(self, context: "Context", scope: Scope | None = None) -> None:
        self._context = context
        self._fixed_scope = scope

    async def __aenter__(self) -> Any:
        scope = self._scope = self._fixed_scope or current_scope(self._context)
        if scope.transaction is None:
            check_no_transaction(self._context.scopes, "a second transaction")
            scope.transaction = await self._context.begin_transaction()
        return scope.transaction.connection

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            await self._scope.rollback()
