"""Runs coroutines that never suspend, such as the acts of a store that does not wait."""

from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_now(awaitable: Awaitable[T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    coroutine: Coroutine[Any, Any, T] = awaitable  # type: ignore[assignment]
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("an act must await nothing but its transaction")
