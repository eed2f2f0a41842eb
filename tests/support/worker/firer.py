"""Four processes that fire due schedules in a loop and are killed at random: `python firer.py URL KILLS SEED`.

Their clock advances ten minutes per second, starting in a night in which DST begins in Berlin.
"""

import asyncio
import os
import random
import signal
import sys
import time

from detent.core.times import SECOND, from_iso
from detent.engine import Engine
from detent.ports.store import Store
from detent.stores.postgres.store import PostgresStore
from detent.stores.sqlite.store import SqliteStore

NIGHT = from_iso("2026-03-29T00:55:00Z", field="night")
SPEED = 600
PROCESSES = 4


class FastClock:
    """A clock at SPEED times real time; it stands still at NIGHT if it has no start."""

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


async def fire_forever(url: str, began: float, report_pipe: int) -> None:
    engine = Engine(store_at(url, FastClock(began)))
    await engine.open()
    while True:
        if (await engine.schedules.fire_due(50)).jobs:
            os.write(report_pipe, b".")
        await asyncio.sleep(0.001)


def start(url: str, began: float, report_pipe: int) -> int:
    child = os.fork()
    if not child:
        asyncio.run(fire_forever(url, began, report_pipe))
    return child


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main(url: str, kills: int, seed: int) -> None:
    """Kill a random process shortly after one of them reported a fire, while the others keep firing."""
    draw, began = random.Random(seed), time.time()
    fired_pipe, report_pipe = os.pipe()
    children = [start(url, began, report_pipe) for _ in range(PROCESSES)]
    for _ in range(kills):
        for _ in range(draw.randrange(1, 4)):
            os.read(fired_pipe, 1)
        time.sleep(draw.uniform(0, 0.2))
        end(children.pop(draw.randrange(PROCESSES)))
        children.append(start(url, began, report_pipe))
    while time.time() < began + 1:
        os.read(fired_pipe, 1)
    for child in children:
        end(child)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
