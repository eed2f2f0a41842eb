"""Many tasks while workers are killed every second and Redis is flushed once: each ends once, and the log is valid."""

import time
from collections import Counter
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from detent.engine import Engine, Submission
from support.streams.process_harness import TASKS, ProcessHarness, process_harness
from support.waiting import until_now

WORKERS = 3
BATCH = 1_000


@pytest.mark.long
@pytest.mark.parametrize(
    ("tasks", "seconds"), [(5_000, 120.0), pytest.param(100_000, 1_500.0, marks=pytest.mark.drill)]
)
def test_every_task_ends_once(tmp_path: Path, tasks: int, seconds: float) -> None:
    with process_harness(tmp_path, "postgres", 2.0) as harness:
        harness.orchestrate()
        harness.orchestrate()
        workers = [harness.work("--slots", "100") for _ in range(WORKERS)]
        submitting = Thread(target=submit, args=(harness, tasks))
        submitting.start()
        end = time.monotonic() + seconds
        flushed, turn, killed_at = False, 0, time.monotonic()
        while submitting.is_alive() or unfinished(harness) > 0:
            assert time.monotonic() < end, f"{unfinished(harness)} tasks are left\n{harness.log.read_text()[-3000:]}"
            if not flushed and finished(harness) > tasks * 0.4:
                harness.redis.flushdb()
                flushed = True
            ready = [number for number, worker in enumerate(workers) if worker.pid in worker_pids(harness)]
            if len(ready) > 1 and time.monotonic() - killed_at > 1.0:
                killed_at = time.monotonic()
                victim = ready[turn % len(ready)]
                workers[victim].kill()
                workers[victim].wait()
                workers[victim] = harness.work("--slots", "100")
                turn += 1
            time.sleep(0.1)
        assert flushed and turn > 0
        finals = Counter(row[0] for row in sql(harness, FINALS))
        assert len(finals) == tasks and set(finals.values()) == {1}
        assert sql(harness, RESULTS) == [(tasks,)]
        harness.check_integrity()
        until_now(lambda: harness.pending() == 0, 60)
        until_now(lambda: harness.redis.xlen(TASKS) == 0, 60)


FINALS = "SELECT job_id FROM events WHERE target IN ('succeeded', 'failed')"
RESULTS = "SELECT count(*) FROM jobs WHERE status = 'succeeded' AND result = payload::json ->> 'n'"


def submit(harness: ProcessHarness, tasks: int, first: int = 0) -> None:
    async def act(engine: Engine) -> None:
        for start in range(first, first + tasks, BATCH):
            payloads = [{"n": n} for n in range(start, min(start + BATCH, first + tasks))]
            await engine.jobs.submit_uniform(Submission("quick", contract="streams"), payloads)

    harness.run(act)


def worker_pids(harness: ProcessHarness) -> set[int]:
    return {row[0] for row in sql(harness, "SELECT pid FROM workers")}


def finished(harness: ProcessHarness) -> int:
    return int(sql(harness, "SELECT count(*) FROM jobs WHERE phase = 'final'")[0][0])


def unfinished(harness: ProcessHarness) -> int:
    return int(sql(harness, "SELECT count(*) FROM jobs WHERE phase <> 'final'")[0][0])


def sql(harness: ProcessHarness, statement: str) -> list[tuple[Any, ...]]:
    assert harness.database is not None
    return harness.database.sql(statement)
