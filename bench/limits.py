"""The CPU cost of limits: the same drain with and without them, alternating.

A loop settles one batch and claims the next, without handlers; limits are checked at every claim and never reached.
It counts the CPU time of the client and, on Postgres, of its backends, which other load on the machine hardly affects.
Run with: python -m bench.limits [PLAIN_URL LIMITED_URL], two empty SQLite or Postgres databases.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from detent.client.connect import store_from
from detent.core.access import Scope
from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement, Submission

BATCH, JOBS, ROUNDS, TENANTS = 200, 4_000, 7, 4
_TICK = os.sysconf("SC_CLK_TCK")


async def open_engine(url: str, limited: bool) -> Engine:
    engine = Engine(store_from(url, may_migrate=True))
    await engine.open()
    if limited:
        await engine.limits.set(Scope("bench"), queue="default", concurrency=100_000)
        await engine.limits.set(Scope("bench"), per="tenant", concurrency=100_000)
        await engine.limits.set(Scope("bench"), job_type="noop", rate=(100_000_000, 60))
        await engine.limits.set_quota("t1", Scope("bench"), weight=3)
    return engine


async def backend_cpu(engine: Engine) -> float:
    """CPU seconds of all backends of this database; 0 on SQLite."""
    if not hasattr(engine.store, "bouncer"):
        return 0.0

    async def act(tx: Any) -> list[Any]:
        rows: list[Any] = await tx.queries.connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        )
        return rows

    return sum(_cpu_seconds(row[0]) for row in await engine.store.read(act))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


async def drain(engine: Engine) -> float:
    """CPU microseconds per job."""
    await engine.jobs.submit_many([Submission("noop", tenant_id=f"t{n % TENANTS}") for n in range(JOBS)])
    held: list[Settlement] = []
    before, started, done = await backend_cpu(engine), time.process_time(), 0
    while done < JOBS or held:
        result = await engine.settle_and_claim(held, engine.claim_request("bench", BATCH) if done < JOBS else None)
        held = [Settlement(job.id, job.token, job.contract, Succeeded(None)) for job in result.claimed] + result.later
        done += len(result.claimed)
    client = time.process_time() - started
    return (client + await backend_cpu(engine) - before) / JOBS * 1_000_000


async def main(urls: list[str]) -> None:
    engines = [await open_engine(url, limited) for url, limited in zip(urls, (False, True), strict=True)]
    readings: list[list[float]] = [[], []]
    for number in range(1 + ROUNDS):
        for index in (0, 1) if number % 2 else (1, 0):
            reading = await drain(engines[index])
            if number:  # the first round is a warm-up
                readings[index].append(reading)
    plain, limited = map(statistics.median, readings)
    ratios = ", ".join(f"{b / a:.2f}" for a, b in zip(*readings, strict=True))
    print(f"plain {plain:.1f} µs per job, with limits {limited:.1f}: {limited / plain - 1:+.0%} (rounds: {ratios})")
    for engine in engines:
        await engine.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        urls = sys.argv[1:] or [f"sqlite:///{folder}/{name}.db" for name in ("plain", "limited")]
        asyncio.run(main(urls))
