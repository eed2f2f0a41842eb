"""Many tasks while workers are killed every second and Redis is emptied once: each ends once, and the log is sound."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from worker.waiting import until_now

from detent.engine import Engine, Submission

from .yard import TASKS, Yard, yard_in

WORKERS = 3
BATCH = 1_000


@pytest.mark.parametrize(
    ("tasks", "seconds"), [(5_000, 120.0), pytest.param(100_000, 1_500.0, marks=pytest.mark.drill)]
)
def test_every_task_ends_once(tmp_path: Path, tasks: int, seconds: float) -> None:
    with yard_in(tmp_path, "postgres", 2.0) as yard:
        yard.orchestrate()
        yard.orchestrate()
        workers = [yard.work("--slots", "100") for _ in range(WORKERS)]
        submit(yard, tasks)
        end = time.monotonic() + seconds
        wiped, turn, killed_at = False, 0, time.monotonic()
        while (left := unfinished(yard)) > 0:
            assert time.monotonic() < end, f"{left} tasks are left\n{yard.log.read_text()[-3000:]}"
            if not wiped and left < tasks * 0.6:
                yard.redis.flushdb()
                wiped = True
            ready = [number for number, worker in enumerate(workers) if worker.pid in at_work(yard)]
            if len(ready) > 1 and time.monotonic() - killed_at > 1.0:
                killed_at = time.monotonic()
                victim = ready[turn % len(ready)]
                workers[victim].kill()
                workers[victim].wait()
                workers[victim] = yard.work("--slots", "100")
                turn += 1
            time.sleep(0.1)
        assert wiped and turn > 0
        finals = Counter(row[0] for row in sql(yard, FINALS))
        assert len(finals) == tasks and set(finals.values()) == {1}
        assert sql(yard, RESULTS) == [(tasks,)]
        yard.verified()
        until_now(lambda: yard.pending() == 0, 60)
        until_now(lambda: yard.redis.xlen(TASKS) == 0, 60)


FINALS = "SELECT job_id FROM events WHERE target IN ('succeeded', 'failed')"
RESULTS = "SELECT count(*) FROM jobs WHERE status = 'succeeded' AND result = payload::json ->> 'n'"


def submit(yard: Yard, tasks: int) -> None:
    async def act(engine: Engine) -> None:
        for start in range(0, tasks, BATCH):
            payloads = [{"n": n} for n in range(start, start + BATCH)]
            await engine.submit_uniform(Submission("quick", contract="streams"), payloads)

    yard.ask(act)


def at_work(yard: Yard) -> set[int]:
    return {row[0] for row in sql(yard, "SELECT pid FROM workers")}


def unfinished(yard: Yard) -> int:
    return int(sql(yard, "SELECT count(*) FROM jobs WHERE phase <> 'final'")[0][0])


def sql(yard: Yard, statement: str) -> list[tuple[Any, ...]]:
    assert yard.database is not None
    return yard.database.sql(statement)
