"""What a job costs the server as history, backlog and an open snapshot grow.

`make test` counts the blocks that the server reads per job, which no busy neighbour changes. The drills compare CPU
time as well: two databases of one server take turns, and the medians of their turns are compared.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import pytest

from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement, Submission
from detent.stores.postgres.store import PostgresStore
from support.postgres.crowd import claimable, finished, forget
from support.servers.databases import Database, house, newest

pytestmark = pytest.mark.anyio
SAMPLE, BATCH = 1_000, 200
TURNS = 15
MORE_BLOCKS = 1.25
"""A B-tree of twenty times the rows is one level deeper; a scan would read hundreds of times as much."""
MORE_BLOCKS_BESIDE_A_SNAPSHOT = 1.5
_ROW = Submission("mail", {"to": "somebody"})
Cost = Callable[[Engine], Awaitable[float]]


@pytest.fixture
def grown() -> Iterator[Database]:
    """The database that gets many rows; `database` stays small."""
    database = house(newest()).database()
    yield database
    forget(database)
    database.release()


@pytest.fixture
async def behind(grown: Database) -> AsyncIterator[Engine]:
    engine = Engine(PostgresStore(grown.url))
    await engine.open()
    yield engine
    await engine.close()


def cpu_microseconds(pid: int) -> float:
    """CPU time of a process as the scheduler counts it, in nanoseconds: exact for short samples, too."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e3


async def blocks_read(connection: Any) -> int:
    """Blocks read in this database so far, from the cache or from disk, after the session's counters are flushed."""
    await connection.fetchval("SELECT pg_stat_force_next_flush()::text")
    return int(
        await connection.fetchval(
            "SELECT pg_stat_get_db_blocks_fetched(oid) FROM pg_database WHERE datname = current_database()"
        )
    )


async def drain(engine: Engine, jobs: int = SAMPLE) -> tuple[float, float]:
    """Settle and claim this many jobs in one statement after another: (CPU microseconds, blocks) per job."""
    store: Any = engine.store
    claimed = (await engine.settle_and_claim([], engine.claim_request("w1", BATCH))).claimed
    connection = store._claim_connections[0]
    pid = connection.get_server_pid()
    blocks, cpu, done = await blocks_read(connection), cpu_microseconds(pid), 0
    while claimed and done < jobs:
        done += len(claimed)
        settled = [Settlement(job.id, job.token, job.contract, Succeeded(None)) for job in claimed]
        request = engine.claim_request("w1", BATCH if done < jobs else 0)
        claimed = (await engine.settle_and_claim(settled, request)).claimed
    assert done >= jobs
    cpu = cpu_microseconds(pid) - cpu
    return cpu / done, (await blocks_read(connection) - blocks) / done


async def submit(engine: Engine, jobs: int = SAMPLE) -> None:
    for _ in range(jobs // 1_000):
        await engine.jobs.submit_many([_ROW] * 1_000)


async def cpu_per_job(engine: Engine) -> float:
    await submit(engine)
    return (await drain(engine))[0]


async def blocks_per_job(engine: Engine) -> float:
    await submit(engine)
    return (await drain(engine))[1]


async def compare(cost: Cost, small: Engine, large: Engine, turns: int = TURNS) -> float:
    """The cost on the large database as a multiple of that on the small one: medians of alternating turns."""
    costs = [(await cost(small), await cost(large)) for _ in range(turns)]
    on_small, on_large = (median(turn[place] for turn in costs) for place in (0, 1))
    print(f"{cost.__name__}: {on_small:.2f} on the small database, {on_large:.2f} on the large one")
    return on_large / on_small


def leave_to_the_test(*databases: Database) -> None:
    """No autovacuum while blocks are counted: its reads are in the same counter."""
    for database in databases:
        for table in ("jobs", "events_default", "events_beyond", "queue", "claims"):
            database.sql(f"ALTER TABLE detent.{table} SET (autovacuum_enabled = off)")


@pytest.mark.parametrize(
    "rows",
    [
        100_000,
        pytest.param(1_000_000, marks=pytest.mark.long),
        pytest.param(10_000_000, marks=pytest.mark.drill),
    ],
)
async def test_finished_jobs_cost_no_reads(
    engine: Engine, database: Database, behind: Engine, grown: Database, rows: int
) -> None:
    await finished(engine, database, 10_000)
    await finished(behind, grown, rows)
    leave_to_the_test(database, grown)
    assert await compare(blocks_per_job, engine, behind, 3) < MORE_BLOCKS


@pytest.mark.drill
async def test_finished_jobs_cost_no_cpu(engine: Engine, behind: Engine, grown: Database) -> None:
    await finished(behind, grown, 1_000_000)
    assert await compare(cpu_per_job, engine, behind) < 1 / 0.9


@pytest.mark.parametrize("rows", [200_000, pytest.param(1_000_000, marks=pytest.mark.drill)])
async def test_a_backlog_costs_no_reads(
    engine: Engine, database: Database, behind: Engine, grown: Database, rows: int
) -> None:
    await claimable(engine, database, 10_000)
    await claimable(behind, grown, rows)
    leave_to_the_test(database, grown)
    assert await compare(blocks_per_job, engine, behind, 3) < MORE_BLOCKS


@pytest.mark.drill
async def test_a_backlog_costs_no_cpu(engine: Engine, database: Database, behind: Engine, grown: Database) -> None:
    await claimable(engine, database, 10_000)
    await claimable(behind, grown, 1_000_000)
    assert await compare(cpu_per_job, engine, behind) < 1 / 0.9


async def turns_beside_a_snapshot(
    engine: Engine, behind: Engine, grown: Database, jobs: int
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Both databases drained in turns, the second one while a forgotten snapshot keeps its dead rows."""
    for each in (engine, behind):
        await cpu_per_job(each)
        await submit(each, jobs + SAMPLE)
    forgotten: Any = await asyncpg.connect(grown.url)
    await forgotten.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM detent.jobs LIMIT 1")
    turns = [(await drain(engine), await drain(behind)) for _ in range(jobs // SAMPLE)]
    await forgotten.close()
    return turns


@pytest.mark.long
async def test_a_forgotten_snapshot_costs_few_reads(engine: Engine, behind: Engine, grown: Database) -> None:
    """More dead rows with every job: the last turns count, not the best ones."""
    turns = await turns_beside_a_snapshot(engine, behind, grown, 20_000)
    without, beside = (median(turn[place][1] for turn in turns[-5:]) for place in (0, 1))
    print(f"blocks per job {without:.1f}, beside a snapshot {beside:.1f}")
    assert beside < MORE_BLOCKS_BESIDE_A_SNAPSHOT * without


@pytest.mark.drill
async def test_a_forgotten_snapshot_costs_little_cpu(engine: Engine, behind: Engine, grown: Database) -> None:
    """The median of each quarter, so that a moment in which the machine was busy elsewhere does not decide."""
    turns = await turns_beside_a_snapshot(engine, behind, grown, 100_000)
    size = len(turns) // 4
    quarters = [turns[start : start + size] for start in range(0, len(turns), size)]
    without, beside = (sum(median(turn[place][0] for turn in part) for part in quarters) for place in (0, 1))
    print(f"beside a snapshot: {without / beside:.2f} x the rate")
    assert without / beside >= 0.7
