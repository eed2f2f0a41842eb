"""Ends asyncio tasks, and waits for events."""

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
