"""Waits for a condition up to a deadline. Tests use this instead of sleeping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

TIMEOUT = 30.0
"""Seconds. Far more than needed, because the machine may be busy."""


async def until(condition: Callable[[], Any], seconds: float = TIMEOUT) -> Any:
    """The first true value of a condition, which may be a coroutine function."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < end, f"not true after {seconds} s: {_source(condition)}"
        await asyncio.sleep(0.005)


def until_now(condition: Callable[[], Any], seconds: float = TIMEOUT) -> Any:
    """Like `until`, for tests without an event loop."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not true after {seconds} s: {_source(condition)}"
        time.sleep(0.005)
    return value


async def within(seconds: float, act: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(act, seconds)


def _source(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except OSError:
        return repr(condition)
