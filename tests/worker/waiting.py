"""Waiting for something to become true, up to a deadline: the only way in which these tests let time pass."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE = 30.0
"""Seconds; far more than anything needs, because the machine may be busy with other things."""


async def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """The first true answer of a condition, which may be a coroutine function."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < end, f"still not so after {seconds} s: {_words(condition)}"
        await asyncio.sleep(0.005)


def until_now(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """The same for tests without an event loop."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, f"still not so after {seconds} s: {_words(condition)}"
        time.sleep(0.005)
    return answer


async def within(seconds: float, act: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(act, seconds)


def _words(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except OSError:
        return repr(condition)
