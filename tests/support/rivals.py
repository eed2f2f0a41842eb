"""Two processes on one place, with the order of their commits forced: one is held open while the other runs into it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from detent.engine import Engine
from detent.ports.clock import Clock
from support.stores import Place, make_engine

T = TypeVar("T")
Act = Callable[[Engine, Any], Awaitable[T]]
"""An act inside a transaction: the engine it belongs to, and the transaction."""
PATIENCE = 20.0


async def one_inside_the_other(
    place: Place, clock: Clock, first: Act[Any], second: Callable[[Engine], Awaitable[T]]
) -> tuple[Any, T]:
    """`first` does its work and stays in its open transaction until `second` has set out; then both end."""
    done, set_out, go = threading.Event(), threading.Event(), threading.Event()

    async def hold_open(engine: Engine) -> Any:
        async def act(tx: Any) -> Any:
            answer = await first(engine, tx)
            done.set()
            assert go.wait(PATIENCE)
            return answer

        return await engine.store.write(act)

    async def run_into(engine: Engine) -> T:
        set_out.set()
        return await second(engine)

    with ThreadPoolExecutor(2) as pool:
        try:
            one = pool.submit(_alone, place, clock, hold_open)
            await _seen(done, one)
            other = pool.submit(_alone, place, clock, run_into)
            await _seen(set_out, other)
        finally:
            go.set()
        return await asyncio.wrap_future(one), await asyncio.wrap_future(other)


async def _seen(event: threading.Event, future: "Future[Any]") -> None:
    future.add_done_callback(lambda _: event.set())
    assert await asyncio.to_thread(event.wait, PATIENCE)


def _alone(place: Place, clock: Clock, do: Callable[[Engine], Awaitable[T]]) -> T:
    """An engine of its own, on this thread and a loop of its own: all another process would share is the place."""

    async def life() -> T:
        engine = make_engine(place, clock)
        await engine.open()
        try:
            return await do(engine)
        finally:
            await engine.close()

    return asyncio.run(life())
