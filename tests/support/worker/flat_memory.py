"""Runs many jobs in one worker and prints JSON: number of finished jobs -> megabytes of the process."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from detent import Detent

AT_ONCE = 5_000
AHEAD = 20_000


async def main(jobs: int, folder: str) -> None:
    app = Detent(f"sqlite:///{folder}/jobs.db")

    @app.job("work", timeout=3_600)
    async def work(n: int) -> int:
        return n

    async with app:
        store: Any = (await app.ready()).store
        for connection in (store._writer.connection, store._reader.connection, store._watcher):
            connection.pragma("cache_size", -4_096)  # small, because SQLite's page cache grows until it is full
        worker = await app.worker(lease_seconds=30)
        task = asyncio.create_task(worker.run(handle_signals=False))
        sizes: dict[int, float] = {}
        sent = 0
        while worker.done < jobs:
            while sent < min(jobs, worker.done + AHEAD):
                await work.enqueue_many([{"n": n} for n in range(sent, sent + AT_ONCE)])
                sent += AT_ONCE
            mark = worker.done // 10_000 * 10_000
            if mark not in sizes:
                sizes[mark] = megabytes()
            await asyncio.sleep(0.01)
        sizes[worker.done] = megabytes()
        worker.stop()
        await task
    print(json.dumps(sizes))


def megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(int(sys.argv[1]), folder))
