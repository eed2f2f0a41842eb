"""Pruning a million old jobs while workers drain a queue: the drain is hardly slower."""

import asyncio
import os
import time
from pathlib import Path

import apsw
import pytest

from detent import Detent
from detent.engine.pruning import PruneOptions, Retention, prune
from detent.observability.retention import Pruner
from detent.observability.settings import Settings
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
OLD = int(os.environ.get("DETENT_DRILL_OLD_JOBS", "1000000"))
DRAINED, ROUNDS = 20_000, 9


def insert_old_jobs(path: Path, number: int) -> None:
    """Insert copies of one finished job, with their own ids and events, that finished long ago."""
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", 0)
    (old,) = connection.execute("SELECT id FROM detent_jobs LIMIT 1").fetchone()
    names = [row[1] for row in connection.execute("PRAGMA table_info(detent_jobs)") if row[1] != "n"]
    events = [row[1] for row in connection.execute("PRAGMA table_info(detent_events)") if row[1] != "n"]
    new_id = "printf('00000000-%04x-7000-8000-%012x', s.value >> 16, s.value)"
    times = dict.fromkeys(("created_at", "updated_at", "started_at", "finished_at"), "1000000")
    replaced = {"id": new_id, "job_id": new_id, "effect_root": new_id, "at": "1000000", **times}
    numbers = f"WITH RECURSIVE s (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM s WHERE value < {number})"
    with connection:
        for table, key, columns in (("detent_jobs", "id", names), ("detent_events", "job_id", events)):
            selected = ", ".join(replaced.get(name, f"t.{name}") for name in columns)
            into = f"INSERT INTO {table} ({', '.join(columns)})"
            connection.execute(f"{into} {numbers} SELECT {selected} FROM s, {table} t WHERE t.{key} = ?", (old,))
    connection.close()


async def drain_seconds(app: Detent) -> float:
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
        await drain_seconds(app)
        insert_old_jobs(path, OLD)
        settings = Settings(retention=(Retention(86_400.0),), retention_interval_seconds=0.5)
        pruner = Pruner(app.engine, settings)
        alone, background = [], []
        deleted = 0

        async def keep_pruning() -> None:
            nonlocal deleted
            while True:
                done = await pruner.run_once()
                deleted += done.jobs if done else 0
                await asyncio.sleep(0.01)  # how often it tries to claim the interval

        for _ in range(ROUNDS):
            alone.append(await drain_seconds(app))
            task = asyncio.create_task(keep_pruning())
            background.append(await drain_seconds(app))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        slower = min(background) / min(alone) - 1
        print(f"alone {min(alone):.2f} s, with pruning {min(background):.2f} s: {slower:.1%} slower, {deleted} deleted")
        assert deleted > 0
        assert slower < 0.15
        await prune(app.engine, PruneOptions(rules=settings.retention, batch=5_000, lap_seconds=0), None, None)
        rows = await app.engine.store.read(lambda tx: tx.queries.query("verify_size", "true"))
        assert rows[0][0] == DRAINED * (2 * ROUNDS + 1)
