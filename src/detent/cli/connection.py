"""From a command to the engine: opens the database a command names, runs one act on it, closes it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from detent.client.connect import default_url, environment_approval_policy, store_from
from detent.engine import Engine

T = TypeVar("T")


def on_engine(url: str | None, act: Callable[[Engine], Awaitable[T]], *, may_migrate: bool = False) -> T:
    """Run one act on the engine of this database, on a loop of its own."""

    async def run() -> T:
        engine = await open_engine(url, may_migrate=may_migrate)
        try:
            return await act(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


async def open_engine(url: str | None, *, may_migrate: bool = False) -> Engine:
    """An engine that knows the contracts as this database has them, an application's own included."""
    store = store_from(url or default_url(), may_migrate=may_migrate, inline=True)
    engine = Engine(store, approval_policy=environment_approval_policy())
    try:
        await engine.open()
    except BaseException:
        await store.close()
        raise
    return engine
