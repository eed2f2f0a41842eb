"""Four real processes, two of them killed: no limit is exceeded at any line of the log, and everything ends."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

import detent
from detent.client.connect import store_from
from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.core.limits import Limit
from detent.engine import Engine, Submission
from detent.proof.verify.limits import LimitCheck, Step
from detent.proof.verify.verify import verify
from support.servers.databases import house, newest

from .log import steps_of_file, steps_of_server

pytestmark = pytest.mark.anyio
CLAIMER = Path(__file__).with_name("claimer.py")
SECONDS = 120.0
LIMITS = (
    {"queue": "mail", "concurrency": 7},
    {"per": "tenant", "concurrency": 20},
    {"queue": "mail", "per": "key", "concurrency": 2},
    {"queue": "calls", "rate": (60, 0.3)},
    {"queue": "calls", "tenant": "t1", "rate": (20, 0.3)},
)


def exceeded(limits: Sequence[Limit], steps: Iterable[Step]) -> list[str]:
    """Every event at which a limit was exceeded. Steps must come in commit order."""
    check = LimitCheck(limits)
    return [excess for step in steps for excess in check.feed(step, CONTRACTS)]


async def start(url: str, name: str, seed: int, dies_at: int) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(CLAIMER), url, name, str(seed), str(dies_at),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(detent.__file__ or "").parent.parent)},
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n", await process.communicate()
    return process


async def crowd(url: str, kills: list[int]) -> None:
    processes = [await start(url, f"w{n}", n, kill) for n, kill in enumerate(kills)]
    try:
        outputs = await asyncio.wait_for(asyncio.gather(*(one.communicate(b"go\n") for one in processes)), SECONDS)
    finally:
        for one in processes:
            if one.returncode is None:
                one.kill()
                await one.wait()
    for process, kill, (_, errors) in zip(processes, kills, outputs, strict=True):
        fine = (0, -signal.SIGKILL) if kill else (0,)
        assert process.returncode in fine, errors.decode()[-2000:]
    assert not any(kills) or -signal.SIGKILL in [process.returncode for process in processes]


async def fill(url: str, jobs: int) -> list[Limit]:
    engine = Engine(store_from(url), CONTRACTS)
    await engine.open()
    try:
        for limit in LIMITS:
            await engine.limits.set(Scope("ann"), **limit)  # type: ignore[arg-type]
        asks = [
            Submission(
                "work",
                queue=("mail", "calls", "free")[n % 3],
                tenant_id=f"t{n % 4}",
                limit_key=("", "k1", "k2")[n % 5 % 3],
                priority=n % 2,
                max_retries=20,
            )
            for n in range(jobs)
        ]
        await engine.jobs.submit_many(asks)
        return await engine.limits.list()
    finally:
        await engine.close()


@pytest.mark.parametrize("jobs", [360, pytest.param(6_000, marks=pytest.mark.drill)])
async def test_on_one_file(tmp_path: Path, jobs: int) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    limits = await fill(url, jobs)
    await crowd(url, [0, jobs // 30, jobs // 20, 0])
    await check(url)
    steps = steps_of_file(tmp_path / "jobs.db")
    assert [str(excess) for excess in exceeded(limits, steps)] == []


@pytest.mark.parametrize("jobs", [360, pytest.param(6_000, marks=pytest.mark.drill)])
async def test_on_one_server(jobs: int) -> None:
    database = house(newest()).database()
    try:
        limits = await fill(database.url, jobs)
        await crowd(database.url, [0, jobs // 30, jobs // 20, 0])
        await check(database.url)
        steps = steps_of_server(database)
        assert [str(excess) for excess in exceeded(limits, steps)] == []
    finally:
        database.release()


async def test_a_count_that_is_not_compared_under_the_lock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: every process plans with what it has read, and takes it without looking again."""
    monkeypatch.setenv("BLIND", "1")
    database = house(newest()).database()
    try:
        limits = await fill(database.url, 300)
        await crowd(database.url, [0, 0, 0, 0])
        assert exceeded(limits, steps_of_server(database))
    finally:
        database.release()


async def check(url: str) -> None:
    engine = Engine(store_from(url))
    await engine.open()
    try:
        report = await verify(engine.store)
        assert report.ok, report.violations[:5]
        phases = {phase for _, _, phase, _ in await engine.store.read(lambda tx: tx.stats.counts())}
        assert phases == {"final"}
    finally:
        await engine.close()
