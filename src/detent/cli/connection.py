"""From a command to the engine: opens the database a command names, runs one act on it, closes it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..connect import default_url, store_from
from ..core.contract import Contract
from ..core.contracts import CONTRACTS
from ..core.declare import contract_to
from ..engine import Engine

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
    """An engine that knows the contracts as this database has them, an application's own and its settings included.

    The declarations in the database are the application's word: only those it lacks are added.
    """
    store = store_from(url or default_url(), may_migrate=may_migrate, inline=True)
    await store.open({})
    try:
        known = await store.read(lambda tx: tx.contracts())
        await store.open({name: contract for name, contract in CONTRACTS.items() if name not in known})
    except BaseException:
        await store.close()
        raise
    return Engine(store, {name: _with_code(contract) for name, contract in known.items()})


def _with_code(declared: Contract) -> Contract:
    """Views and envelopes are code and not in the database: they come from the contract of the same name, if any."""
    carried = CONTRACTS.get(declared.name)
    if carried is None:
        return declared
    if contract_to(carried) == contract_to(declared):
        return carried
    return declared.with_options(view=carried.view, envelope=carried.envelope)
