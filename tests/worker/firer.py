"""Processes that fire what is due, over and over, and are killed at random: `python firer.py URL SECONDS SEED`.

Four at a time. Their clock runs an hour a second, from a night on which Berlin's clock goes forward.
"""

import asyncio
import os
import random
import signal
import sys
import time

from detent.core.times import SECOND, from_iso
from detent.engine import Engine
from detent.engine.firing import fire_due
from detent.ports import Store
from detent.stores.postgres import PostgresStore
from detent.stores.sqlite import SqliteStore

NIGHT = from_iso("2026-03-29T00:10:00Z", field="night")
SPEED = 3_600
PROCESSES = 4


class FastClock:
    """Stands still until it is told when it began."""

    def __init__(self, began: float | None = None) -> None:
        self.began = began

    def now(self) -> int:
        return NIGHT if self.began is None else NIGHT + round((time.time() - self.began) * SPEED * SECOND)

    def monotonic(self) -> float:
        return time.monotonic()


def store_at(url: str, clock: FastClock) -> Store:
    if url.startswith("sqlite:///"):
        return SqliteStore(url.removeprefix("sqlite:///"), clock=clock, synchronous="OFF")
    return PostgresStore(url, clock=clock)


async def fire_for_ever(url: str, began: float) -> None:
    engine = Engine(store_at(url, FastClock(began)))
    await engine.open()
    while True:
        await fire_due(engine, 50)
        await asyncio.sleep(0.001)


def start(url: str, began: float) -> int:
    child = os.fork()
    if not child:
        asyncio.run(fire_for_ever(url, began))
    return child


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main(url: str, seconds: float, seed: int) -> None:
    draw, began, kills = random.Random(seed), time.time(), 0
    children = [start(url, began) for _ in range(PROCESSES)]
    while time.time() < began + seconds:
        time.sleep(draw.uniform(0.02, 0.3))
        end(children.pop(draw.randrange(PROCESSES)))
        children.append(start(url, began))
        kills += 1
    for child in children:
        end(child)
    print(kills)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
