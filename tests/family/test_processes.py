"""Families over several worker processes that are killed: every parent wakes, every child runs for one parent once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from worker.waiting import until

import detent
from detent.proof.verify import verify

from .family_app import CHILDREN, app

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).with_name("family_app.py")
PARENTS = 12
KILLS = 2


class Workers:
    """Two processes; one that is killed is replaced."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.log = folder / "log"
        self.processes = [self._start(), self._start()]

    def _start(self) -> subprocess.Popen[bytes]:
        source = str(Path(detent.__file__).parent.parent)
        with self.log.open("ab") as log:
            environment = os.environ | {"PYTHONPATH": source}
            return subprocess.Popen([sys.executable, str(SCRIPT), self.url], env=environment, stdout=log, stderr=log)

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self._start()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


async def test_killed_workers_strand_no_parent(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    app.url = url
    async with app:
        engine = app.engine
        handles = await app.jobs["parent"].enqueue_many([{"base": 100 * n} for n in range(PARENTS)])

        async def ended() -> int:
            counts = await engine.store.read(lambda tx: tx.counts())
            return sum(number for _, _, phase, number in counts if phase == "final")

        workers = Workers(url, tmp_path)
        request.addfinalizer(workers.end)
        everyone = PARENTS * (CHILDREN + 1)
        for kill in range(KILLS):
            goal = everyone * (kill + 1) // (KILLS + 2)
            await until(lambda goal=goal: _reached(ended, goal), 60)
            workers.kill(kill % 2)
        results = [await handle.result(60) for handle in handles]
        workers.end()
        assert results == [sum(100 * n + k for k in range(CHILDREN)) for n in range(PARENTS)]
        counts = await engine.store.read(lambda tx: tx.counts())
        assert {(status, number) for _, status, _, number in counts} == {("succeeded", everyone)}
        report = await verify(engine.store, engine.contracts)
        assert report.ok, report.violations


async def _reached(ended: object, goal: int) -> bool:
    return await ended() >= goal  # type: ignore[operator, no-any-return]
