"""Parents and children on worker processes that are killed: every parent ends with the right result."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import detent
from detent.ports.listing import Filter
from detent.proof.verify.verify import verify
from support import SUPPORT
from support.waiting import until

from .family_app import CHILDREN, DOORS, app

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).with_name("family_app.py")
PARENTS = 12


class Workers:
    """Two worker processes; a killed one is replaced."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.log = folder / "log"
        self.processes = [self._start(), self._start()]

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(Path(detent.__file__).parent.parent), str(SUPPORT.parent)])
        with self.log.open("ab") as log:
            environment = os.environ | {"PYTHONPATH": path}
            command = [sys.executable, str(SCRIPT), self.url, str(self.folder)]
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def waits_at_closed_door(self, number: int) -> bool:
        """Does this process run a leaf that waits for a door which does not exist yet?"""
        diary, pid = self.folder / "diary", str(self.processes[number].pid)
        entries = [line.split() for line in diary.read_text().splitlines()] if diary.exists() else []
        return any(process == pid and not (self.folder / door).exists() for door, process in entries)

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self._start()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


async def test_every_parent_ends_after_workers_are_killed(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    app.url = url
    async with app:
        engine = app.engine
        handles = await app.jobs["parent"].enqueue_many([{"base": 100 * n} for n in range(PARENTS)])
        workers = Workers(url, tmp_path)
        request.addfinalizer(workers.end)
        for door in range(DOORS):
            await until(lambda door=door: workers.waits_at_closed_door(door), 60)
            workers.kill(door)
            (tmp_path / f"door-{door}").touch()
        results = [await handle.result(60) for handle in handles]
        workers.end()
        everyone = PARENTS * (CHILDREN + 1)
        assert results == [sum(100 * n + k for k in range(CHILDREN)) for n in range(PARENTS)]
        counts = await engine.store.read(lambda tx: tx.stats.counts())
        assert {(status, number) for _, status, _, number in counts} == {("succeeded", everyone)}
        leaves = await engine.jobs.list(Filter(job_type="leaf", limit=everyone))
        assert sum(leaf.execution_no > 1 for leaf in leaves) >= DOORS, "the killed processes held some leaves"
        report = await verify(engine.store, engine.contracts)
        assert report.ok, report.violations
