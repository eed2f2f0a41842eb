"""Ends asyncio tasks, and waits for events and futures."""

import asyncio
from collections.abc import Collection
from typing import Any


async def cancel_and_wait(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Cancel the tasks and wait until all have ended; what they raise is ignored.

    Not with `asyncio.gather`: if all tasks have ended it suspends on Python 3.11 and not on later versions, so that a
    simulated run would differ between them.
    """
    for task in tasks:
        task.cancel()
    if tasks:
        for task in (await asyncio.wait(tasks))[0]:
            if not task.cancelled():
                task.exception()


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set, at most this many seconds; False if it was not set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def wait_for_future(future: "asyncio.Future[bool]", seconds: float) -> None:
    """Wait until the future is complete, at most this many seconds; then it is completed here."""
    timer = asyncio.get_running_loop().call_later(seconds, complete, future)
    try:
        await future
    finally:
        timer.cancel()


def complete(future: "asyncio.Future[bool]") -> None:
    if not future.done():
        future.set_result(True)
