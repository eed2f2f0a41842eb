"""What a job costs the server as history, backlog and somebody's open snapshot grow: CPU of the backend that claims."""

import os
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import pytest
from servers.databases import Database

from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement, Submission

from .crowd import claimable, finished

pytestmark = pytest.mark.anyio
SAMPLE, BATCH, ROUNDS = 4_000, 200, 3
_TICKS = os.sysconf("SC_CLK_TCK")
_ROW = Submission("mail", {"to": "somebody"})


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def drained(engine: Engine, jobs: int) -> float:
    """Microseconds of the server's CPU a job, settled and claimed in one statement after another."""
    store: Any = engine.store
    request = engine.claim_request("w1", BATCH)
    held = (await engine.cycle([], request)).claimed
    pid = store._hot[0].get_server_pid()
    before, done = cpu_seconds(pid), 0
    while held and done < jobs:
        done += len(held)
        said = [Settlement(one.id, one.token, one.contract, Succeeded(None)) for one in held]
        held = (await engine.cycle(said, engine.claim_request("w1", BATCH if done < jobs else 0))).claimed
    return (cpu_seconds(pid) - before) / done * 1e6


async def sampled(engine: Engine, jobs: int = SAMPLE) -> float:
    """The cost of this many new jobs, enqueued just before."""
    for _ in range(jobs // 1_000):
        await engine.submit_many([_ROW] * 1_000)
    return await drained(engine, jobs)


async def usual(engine: Engine, jobs: int = SAMPLE) -> float:
    await sampled(engine, 1_000)
    return median([await sampled(engine, jobs) for _ in range(ROUNDS)])


@pytest.mark.parametrize("rows", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.drill)])
async def test_finished_jobs_cost_nothing(engine: Engine, database: Database, rows: int) -> None:
    empty = await usual(engine)
    database.sql("TRUNCATE jobs, events")
    await finished(engine, database, rows)
    behind = await usual(engine)
    print(f"empty {empty:.1f} us a job, behind {rows:,} finished jobs {behind:.1f}: {empty / behind:.2f} x the rate")
    assert empty / behind >= 0.9
    database.sql("TRUNCATE jobs, events")


@pytest.mark.drill
@pytest.mark.parametrize("rows", [1_000_000])
async def test_a_backlog_costs_nothing(engine: Engine, database: Database, rows: int) -> None:
    await usual(engine)
    costs = {}
    for backlog in (10_000, rows):
        database.sql("TRUNCATE jobs, events")
        await claimable(engine, database, backlog)
        await drained(engine, 1_000)
        costs[backlog] = median([await drained(engine, 2_000) for _ in range(ROUNDS)])
    print("; ".join(f"backlog {n:,}: {cost:.1f} us a job" for n, cost in costs.items()))
    assert costs[10_000] / costs[rows] >= 0.9
    database.sql("TRUNCATE jobs, events")


@pytest.mark.parametrize("jobs", [20_000, pytest.param(100_000, marks=pytest.mark.drill)])
async def test_a_snapshot_somebody_forgot(engine: Engine, database: Database, jobs: int) -> None:
    normal = await usual(engine, jobs)
    forgotten: Any = await asyncpg.connect(database.url)
    await forgotten.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM jobs LIMIT 1")
    beside = await sampled(engine, jobs)
    await forgotten.close()
    print(f"{jobs:,} jobs: {normal:.1f} us a job, beside a snapshot {beside:.1f}: {normal / beside:.2f} x the rate")
    assert normal / beside >= 0.7
