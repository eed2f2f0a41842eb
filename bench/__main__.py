"""`python -m bench`: the short form; `--full`: more jobs, all contestants."""

import argparse
import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import sqlite_detent, sqlite_raw
from .harness import Contestant, Readings, compete, report

BATCH = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="more jobs a reading")
    parser.add_argument("--jobs", type=int, default=None, help="jobs to drain")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("bench/results/latest.json"))
    options = parser.parse_args()
    jobs = options.jobs or (200_000 if options.full else 50_000)
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as folder:
        print("SQLite, WAL, synchronous=FULL")
        report(compete(sqlite_contestants(Path(folder), jobs), _compared(), options.rounds), options.out)


def _compared() -> Readings:
    readings = Readings()
    readings.base = {
        "drain": sqlite_raw.NAME,
        "enqueue one by one": sqlite_raw.NAME,
    }
    return readings


def sqlite_contestants(folder: Path, jobs: int) -> list[Contestant]:
    fresh = _fresh_names(folder)

    def raw(readings: Readings) -> None:
        path = fresh()
        asyncio.run(_filled(path, jobs))
        sqlite_raw.drain(path, jobs, BATCH, readings)
        sqlite_raw.enqueue(fresh(), 2.0, readings)

    def detent(readings: Readings) -> None:
        path = fresh()
        rate = asyncio.run(_filled(path, jobs))
        readings.add("enqueue in bulk", sqlite_detent.NAME, rate)
        asyncio.run(sqlite_detent.drain(path, jobs, 2 * BATCH, readings))
        asyncio.run(sqlite_detent.enqueue(fresh(), 2.0, 1, readings))
        asyncio.run(sqlite_detent.enqueue(fresh(), 2.0, 16, readings))
        asyncio.run(sqlite_detent.pickup(fresh(), 100, readings, same_process=True))
        asyncio.run(sqlite_detent.pickup(fresh(), 100, readings, same_process=False))

    return [
        Contestant(sqlite_raw.NAME, raw, sqlite_raw.INCLUDES),
        Contestant(sqlite_detent.NAME, detent, sqlite_detent.INCLUDES),
    ]


async def _filled(path: Path, jobs: int) -> float:
    app = sqlite_detent.make_app(path)
    async with app:
        return await sqlite_detent.fill(app, jobs)


def _fresh_names(folder: Path) -> Callable[[], Path]:
    numbers = iter(range(1_000_000))
    return lambda: folder / f"{next(numbers)}.db"


if __name__ == "__main__":
    main()
