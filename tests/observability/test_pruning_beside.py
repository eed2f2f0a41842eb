"""Pruning beside a full drain: a million old jobs go while workers are busy, and the drain is hardly slower."""

import asyncio
import os
import time
from pathlib import Path

import apsw
import pytest
from worker.waiting import until

from detent import Detent
from detent.engine.pruning import Choice, Retention, prune
from detent.observability.retention import Retainer
from detent.observability.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
OLD = int(os.environ.get("DETENT_DRILL_OLD_JOBS", "1000000"))
DRAINED, ROUNDS = 20_000, 9


def age(path: Path, number: int) -> None:
    """Copies of one ended job, with ids and logs of their own, that ended long ago."""
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", 0)
    (old,) = connection.execute("SELECT id FROM jobs LIMIT 1").fetchone()
    names = [row[1] for row in connection.execute("PRAGMA table_info(jobs)")]
    events = [row[1] for row in connection.execute("PRAGMA table_info(events)") if row[1] != "n"]
    made = "printf('00000000-%04x-7000-8000-%012x', s.value >> 16, s.value)"
    times = dict.fromkeys(("created_at", "updated_at", "started_at", "finished_at"), "1000000")
    own = {"id": made, "job_id": made, "effect_root": made, "at": "1000000", **times}
    numbers = f"WITH RECURSIVE s (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM s WHERE value < {number})"
    with connection:
        for table, key, columns in (("jobs", "id", names), ("events", "job_id", events)):
            told = ", ".join(own.get(name, f"t.{name}") for name in columns)
            into = f"INSERT INTO {table} ({', '.join(columns)})"
            connection.execute(f"{into} {numbers} SELECT {told} FROM s, {table} t WHERE t.{key} = ?", (old,))
    connection.close()


async def drained(app: Detent) -> float:
    """Seconds of draining."""
    await app.jobs["noop"].enqueue_many([{"n": n} for n in range(DRAINED)])
    worker = await app.worker(slots=100, config=Settings(alerts=False))
    began = time.monotonic()
    task = asyncio.create_task(worker.run(handle_signals=False))
    await until(lambda: worker.done >= DRAINED, 240)
    spent = time.monotonic() - began
    worker.stop()
    assert await task == 0
    return spent


async def test_pruning_hardly_slows_a_drain(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    app = Detent(f"sqlite:///{path}")

    @app.job("noop")
    async def noop(n: int) -> None:
        return None

    async with app:
        await drained(app)
        age(path, OLD)
        settings = Settings(retention=(Retention(86_400.0),), retention_interval_seconds=0.5)
        retainer = Retainer(app.engine, settings)
        alone, background = [], []
        gone = 0

        async def keep_pruning() -> None:
            nonlocal gone
            while True:
                done = await retainer.round()
                gone += done.jobs if done else 0
                await asyncio.sleep(0.01)  # the pace at which it asks whether it is its turn

        for _ in range(ROUNDS):
            alone.append(await drained(app))
            task = asyncio.create_task(keep_pruning())
            background.append(await drained(app))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        slower = min(background) / min(alone) - 1
        print(
            f"alone {min(alone):.2f} s, beside pruning {min(background):.2f} s: {slower:.1%} slower; {gone} jobs gone"
        )
        assert gone > 0
        assert slower < 0.15
        await prune(app.engine, Choice(rules=settings.retention, batch=5_000, lap_seconds=0), None, None)
        rows = await app.engine.store.read(lambda tx: tx.query("verify_size", "true"))
        assert rows[0][0] == DRAINED * (2 * ROUNDS + 1)
