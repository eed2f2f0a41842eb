"""Orders and their jobs are written in one transaction: they agree whatever happens to the process."""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from detent import Detent
from support.servers.databases import Database, house, newest
from support.waiting import within
from support.web.served import SOURCES, first_json
from support.worker.running import working

APP = Path(__file__).parents[1] / "support" / "fastapi" / "orders_app.py"


@pytest.fixture
def database() -> Iterator[Database]:
    database = house(newest()).database()
    yield database
    database.sql("DROP TABLE IF EXISTS orders")
    database.release()


async def place_orders(database: Database, requests: int, kill_after: int) -> set[int]:
    """Send the requests; the server is killed in the middle and started again. Returns the acknowledged numbers."""
    acknowledged: set[int] = set()
    numbers = iter(range(requests))
    while len(remaining := list(numbers)) > 0:
        process = subprocess.Popen(
            [sys.executable, str(APP), database.url], env=os.environ | {"PYTHONPATH": SOURCES},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            sent = await _send(first_json(process)["at"], remaining, acknowledged, process, kill_after)
        finally:
            process.kill()
            process.communicate()
        numbers, kill_after = iter(remaining[sent:]), requests + 1
    return acknowledged


async def _send(
    at: str, numbers: list[int], acknowledged: set[int], process: "subprocess.Popen[str]", kill_after: int
) -> int:
    sent = 0
    async with httpx.AsyncClient(base_url=at, timeout=30) as client:

        async def place(number: int) -> None:
            try:
                answer = await client.post(f"/orders/{number}", params={"fail": number % 5 == 0})
            except httpx.TransportError:
                return
            assert answer.status_code == (422 if number % 5 == 0 else 200), answer.text
            if answer.status_code == 200:
                acknowledged.add(number)

        for start in range(0, len(numbers), 8):
            batch = numbers[start : start + 8]
            sent += len(batch)
            tasks = [asyncio.create_task(place(number)) for number in batch]
            if sent > kill_after:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                process.kill()
                await asyncio.gather(*tasks)
                return sent
            await asyncio.gather(*tasks)
    return sent


def check_agreement(database: Database, acknowledged: set[int]) -> None:
    orders = sorted(number for (number,) in database.sql("SELECT number FROM orders"))
    jobs = sorted(int(number) for (number,) in database.sql("SELECT payload::json ->> 'number' FROM detent.job_list"))
    assert orders == jobs and acknowledged <= set(orders)
    assert not [number for number in orders if number % 5 == 0]


@pytest.mark.anyio
async def test_orders_and_jobs_agree(database: Database) -> None:
    check_agreement(database, await place_orders(database, 80, kill_after=40))


@pytest.mark.drill
@pytest.mark.anyio
async def test_a_thousand_orders_and_jobs_agree(database: Database) -> None:
    acknowledged = await place_orders(database, 1_000, kill_after=500)
    check_agreement(database, acknowledged)
    assert len(acknowledged) > 780


@pytest.mark.drill
@pytest.mark.anyio
async def test_the_pickup_after_a_commit_is_as_quick_as_after_an_enqueue(database: Database) -> None:
    app = Detent(database.url)
    engine = create_async_engine(database.url.replace("postgresql:", "postgresql+asyncpg:"))
    started: asyncio.Queue[float] = asyncio.Queue()

    @app.job("ship")
    async def ship() -> None:
        started.put_nowait(time.perf_counter())

    plain: list[float] = []
    with_session: list[float] = []
    async with app, working(app):
        for _ in range(200):
            began = time.perf_counter()
            await ship.enqueue()
            plain.append(await within(5, started.get()) - began)
            async with AsyncSession(engine) as session, session.begin():
                await ship.enqueue_in(session)
                began = time.perf_counter()
            with_session.append(await within(5, started.get()) - began)
    await engine.dispose()
    assert statistics.median(with_session) <= 2 * statistics.median(plain)
