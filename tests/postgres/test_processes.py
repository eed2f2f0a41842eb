"""Several processes on one database, some of them killed: none runs a job twice without a recorded lost lease."""

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

import detent
from detent.engine import Engine, Submission
from detent.proof.verify.verify import verify
from support import SUPPORT
from support.servers.databases import Database

pytestmark = pytest.mark.anyio
CLAIMER = SUPPORT / "postgres" / "claimer.py"
SECONDS = 240.0


class Claimer:
    """One process, and what it said it ran."""

    def __init__(self, url: str, name: str, dies_at: int) -> None:
        self.name = name
        self.jobs: list[tuple[str, str]] = []
        self.refused = 0
        self._url = url
        self.dies_at = dies_at

    async def start(self) -> "Claimer":
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(CLAIMER), self._url, self.name, str(self.dies_at),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(detent.__file__ or "").parent.parent)},
        )  # fmt: skip
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"ready\n", await self._process.communicate()
        return self

    async def run(self) -> None:
        process = self._process
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(b"go\n")
        async for line in process.stdout:
            first, second = line.decode().split()
            if first == "refused":
                self.refused = int(second)
            else:
                self.jobs.append((first, second))
        errors = (await process.stderr.read()).decode()
        assert "eadlock" not in errors and "Traceback" not in errors, errors
        code = await process.wait()
        assert code == (-signal.SIGKILL if self.dies_at else 0), (code, errors)

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def crowd(url: str, kills: list[int]) -> list[Claimer]:
    """One claimer for each entry; it dies after that many jobs (0: never), and another one takes its place."""
    claimers = await asyncio.gather(*(Claimer(url, f"w{n}", kill).start() for n, kill in enumerate(kills)))
    spares = [await Claimer(url, f"s{n}", 0).start() for n, kill in enumerate(kills) if kill]
    waiting = list(spares)

    async def live(claimer: Claimer) -> None:
        await claimer.run()
        if claimer.dies_at:
            await waiting.pop().run()

    try:
        await asyncio.wait_for(asyncio.gather(*(live(claimer) for claimer in claimers)), SECONDS)
    finally:
        for claimer in (*claimers, *spares):
            await claimer.stop()
    return [*claimers, *spares]


@pytest.mark.parametrize(
    ("jobs", "kills"),
    [
        pytest.param(20_000, [0, 0], id="two"),
        pytest.param(20_000, [0, 1_500, 3_000, 0], id="four-two-killed", marks=pytest.mark.long),
        pytest.param(200_000, [0, 10_000, 20_000, 30_000], id="drill", marks=pytest.mark.drill),
    ],
)
async def test_every_job_ends_once_whoever_dies(
    engine: Engine, database: Database, jobs: int, kills: list[int]
) -> None:
    for _ in range(jobs // 1_000):
        await engine.jobs.submit_many([Submission("noop", max_retries=5) for _ in range(1_000)])
    claimers = await crowd(database.url, kills)
    assert sum(claimer.refused for claimer in claimers) == 0
    ran = Counter(job_id for claimer in claimers for job_id, _ in claimer.jobs)
    lost = dict(database.sql("SELECT job_id::text, count(*) FROM events WHERE event = 'job.interrupted' GROUP BY 1"))
    twice = {job_id: times for job_id, times in ran.items() if times > 1 + lost.get(job_id, 0)}
    assert twice == {}, "run twice without a recorded lost lease"
    assert len(ran) == jobs
    assert bool(lost) == any(kills)
    check_log(database, jobs)
    report = await verify(engine.store, engine.contracts)
    assert report.violations == []


def check_log(database: Database, jobs: int) -> None:
    assert database.sql("SELECT status, count(*) FROM jobs GROUP BY 1") == [("succeeded", jobs)]
    ((gaps,),) = database.sql(
        "SELECT count(*) FROM jobs j WHERE version <> (SELECT count(*) FROM events e WHERE e.job_id = j.id)"
    )
    assert gaps == 0
    ((ends,),) = database.sql("SELECT count(*) FROM events WHERE event = 'job.succeeded'")
    assert ends == jobs
    ((strangers,),) = database.sql(
        """SELECT count(*) FROM events s JOIN events c ON c.job_id = s.job_id AND c.seq = s.seq - 1
           WHERE s.event = 'job.succeeded' AND (c.event <> 'job.claimed' OR c.actor <> s.actor)"""
    )
    assert strangers == 0, "settled by another than its holder"
