"""Opens the database that a command names, runs one function on its engine, and closes it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from detent.client.connect import default_url, environment_approval_policy, store_from
from detent.engine import Engine

T = TypeVar("T")


def on_engine(
    url: str | None, act: Callable[[Engine], Awaitable[T]], *, may_migrate: bool = False, read_only: bool = False
) -> T:
    """Run `act` on the engine of this database, in an event loop started for it.

    The engine has the contracts as this database stores them, including an application's own.
    """

    async def run() -> T:
        store = store_from(url or default_url(), may_migrate=may_migrate, inline=True, read_only=read_only)
        engine = Engine(store, approval_policy=environment_approval_policy())
        try:
            await engine.open()
            return await act(engine)
        finally:
            await engine.close()

    return asyncio.run(run())
