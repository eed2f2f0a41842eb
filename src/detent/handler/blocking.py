"""Blocking versions of async methods, each declared in one line with the signature and docstring of the original."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class Run(Protocol):
    """Runs a coroutine on an event loop in another thread; returns its result or raises its exception."""

    def __call__(self, coroutine: Coroutine[Any, Any, R], /) -> R: ...


class Blocking(Generic[A_co]):
    """Base of a class with blocking versions of the methods of an async one, for callers without an event loop."""

    def __init__(self, original: A_co, run: Run) -> None:
        self._original = original
        self._run = run


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Blocking[A], P], R]:
    """A blocking version of an async method of A, to be assigned in the body of a `Blocking[A]`.

    class SyncHandle(Blocking[Handle[R]]):
        status = blocking(Handle.status)
    """

    @wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(method(self._original, *args, **kwargs))

    call.__doc__ = (method.__doc__ or "").replace("await ", "")
    return call
