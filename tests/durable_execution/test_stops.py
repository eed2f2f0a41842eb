"""Worker processes are stopped (SIGSTOP) for longer than a lease at random times: no recorded step is run again."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import detent
from detent.core.contract.model import Phase
from support.waiting import until

from .stopped_app import app

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
SCRIPT = Path(__file__).with_name("stopped_app.py")
JOBS, STEPS = 200, 50
LEASE_SECONDS = 1.0
WORKERS = 3
OPTIONS = {"slots": 8, "lease_seconds": LEASE_SECONDS}


def start(url: str, diary: Path) -> subprocess.Popen[bytes]:
    paths = {"DETENT_URL": url, "DIARY": str(diary), "PYTHONPATH": str(Path(detent.__file__).parent.parent)}
    with diary.with_suffix(".log").open("ab") as log:
        command = [sys.executable, str(SCRIPT), json.dumps(OPTIONS)]
        return subprocess.Popen(command, env=os.environ | paths, stdout=log, stderr=log)


async def test_no_recorded_step_runs_again_in_a_storm_of_stops(url: str, tmp_path: Path) -> None:
    draw = random.Random(17)
    diary = tmp_path / "diary"
    diary.touch()
    app.url = url
    async with app:
        handles = await app.jobs["steps"].enqueue_many([{"count": STEPS} for _ in range(JOBS)])
        engine = await app.ready()
        workers = [start(url, diary) for _ in range(WORKERS)]
        stops, unended = 0, handles
        try:
            while unended := [handle for handle in unended if (await handle.job()).phase is not Phase.FINAL]:
                worker = draw.choice(workers)
                worker.send_signal(signal.SIGSTOP)
                stops += 1
                end = time.monotonic() + draw.uniform(0.3, 3.0) * LEASE_SECONDS
                await until(lambda end=end: time.monotonic() > end)
                worker.send_signal(signal.SIGCONT)
                end = time.monotonic() + draw.uniform(0.0, 0.5)
                await until(lambda end=end: time.monotonic() > end)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        recorded = {}
        for handle in handles:
            for step in await engine.store.read(lambda tx, handle=handle: tx.steps.list_steps(handle.id)):
                recorded[step.job_id, step.name] = step.at
    assert len(recorded) == JOBS * STEPS
    calls, late, unexplained = 0, [], []
    for line in diary.read_text().splitlines():
        job_id, number, checked, called = line.split()
        at = recorded[job_id, f"step-{number}"]
        calls += 1
        if int(called) > at:
            late.append((job_id, number, int(checked) - at, int(called) - at))
            if int(checked) > at:
                unexplained.append(late[-1])
    print(f"\n{stops} stops, {calls} calls for {len(recorded)} steps, {len(late)} stopped between check and call")
    assert stops > 10 and calls > len(recorded), "the storm has repeated unrecorded steps"
    assert not unexplained, unexplained[:5]
