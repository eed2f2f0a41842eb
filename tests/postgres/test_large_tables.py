"""What a job costs the server as history, backlog and somebody's open snapshot grow: CPU of the backend that claims.

Two databases of one server take turns, and their cheapest turns are compared: those in which a busy neighbour left the
caches alone. The busier it is, the more turns that takes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import pytest
from servers.databases import Database, house, newest

from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement, Submission
from detent.stores.postgres.store import PostgresStore

from .crowd import claimable, finished

pytestmark = pytest.mark.anyio
SAMPLE, BATCH = 1_000, 200
AT_LEAST, AT_MOST = 6, 60
_ROW = Submission("mail", {"to": "somebody"})
Act = Callable[[Engine], Awaitable[float]]


@pytest.fixture
def grown() -> Iterator[Database]:
    """The other database: the one that has much in it."""
    database = house(newest()).database()
    yield database
    database.sql("TRUNCATE jobs, events")
    database.release()


@pytest.fixture
async def behind(grown: Database) -> AsyncIterator[Engine]:
    engine = Engine(PostgresStore(grown.url))
    await engine.open()
    yield engine
    await engine.close()


def cpu_microseconds(pid: int) -> float:
    """Of a process, counted by the scheduler in nanoseconds: a sample need not be many ticks long."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e3


async def drained(engine: Engine, jobs: int = SAMPLE) -> float:
    """Microseconds of the server's CPU a job, settled and claimed in one statement after another."""
    store: Any = engine.store
    request = engine.claim_request("w1", BATCH)
    held = (await engine.settle_and_claim([], request)).claimed
    pid = store._hot[0].get_server_pid()
    before, done = cpu_microseconds(pid), 0
    while held and done < jobs:
        done += len(held)
        said = [Settlement(one.id, one.token, one.contract, Succeeded(None)) for one in held]
        held = (await engine.settle_and_claim(said, engine.claim_request("w1", BATCH if done < jobs else 0))).claimed
    assert done >= jobs
    return (cpu_microseconds(pid) - before) / done


async def submitted(engine: Engine, jobs: int = SAMPLE) -> None:
    for _ in range(jobs // 1_000):
        await engine.submit_many([_ROW] * 1_000)


async def submitted_and_drained(engine: Engine) -> float:
    await submitted(engine)
    return await drained(engine)


async def rate(act: Act, engine: Engine, behind: Engine, enough: float) -> float:
    """The rate behind a crowd as a share of that without; a few turns, and more while it is not enough."""
    costs: dict[Engine, list[float]] = {engine: [], behind: []}
    share = 0.0
    for turn in range(AT_MOST):
        for one, cost in costs.items():
            cost.append(await act(one))
        share = min(costs[engine]) / min(costs[behind])
        if turn >= AT_LEAST and share >= enough:
            break
    told = f"{min(costs[engine]):.1f} us a job, behind many {min(costs[behind]):.1f}"
    print(f"{told}: {share:.2f} x the rate, after {len(costs[engine])} turns")
    return share


@pytest.mark.parametrize("rows", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.drill)])
async def test_finished_jobs_cost_nothing(engine: Engine, behind: Engine, grown: Database, rows: int) -> None:
    await finished(behind, grown, rows)
    assert await rate(submitted_and_drained, engine, behind, 0.9) >= 0.9


@pytest.mark.parametrize("rows", [200_000, pytest.param(1_000_000, marks=pytest.mark.drill)])
async def test_a_backlog_costs_nothing(
    engine: Engine, database: Database, behind: Engine, grown: Database, rows: int
) -> None:
    await claimable(engine, database, 10_000)
    await claimable(behind, grown, rows)
    assert await rate(submitted_and_drained, engine, behind, 0.9) >= 0.9


@pytest.mark.parametrize("jobs", [20_000, pytest.param(100_000, marks=pytest.mark.drill)])
async def test_a_snapshot_somebody_forgot(engine: Engine, behind: Engine, grown: Database, jobs: int) -> None:
    """It keeps what is dead in its own database, more with every job: the whole drain counts, not its best turn.

    Of each quarter of it the median, so that a moment in which the machine was busy elsewhere does not.
    """
    for one in (engine, behind):
        await submitted_and_drained(one)
        await submitted(one, jobs + SAMPLE)
    forgotten: Any = await asyncpg.connect(grown.url)
    await forgotten.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM jobs LIMIT 1")
    turns = [(await drained(engine), await drained(behind)) for _ in range(jobs // SAMPLE)]
    await forgotten.close()
    size = len(turns) // 4
    quarters = [turns[start : start + size] for start in range(0, len(turns), size)]
    normal, background = (sum(median(turn[place] for turn in part) for part in quarters) for place in (0, 1))
    print(f"{jobs:,} jobs beside a snapshot: {normal / background:.2f} x the rate")
    assert normal / background >= 0.7
