"""Retention: the first matching rule decides, batches are bounded, jobs are exported before they are deleted."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.engine.metrics import alerts
from detent.engine.pruning import PruneOptions, Retention, prune
from detent.observability.retention import JsonLinesFile, Pruner
from detent.observability.settings import Settings
from detent.ports.listing import Filter
from support.acts import LONG, PERMANENT, claim, submit
from support.clock import FakeClock

pytestmark = pytest.mark.anyio
DAY = 86_400.0


async def finished_job(engine: Engine, contract: str = "p3c", *, well: bool = True, **fields: Any) -> str:
    """The id of a finished job. p3c writes no dead letters, so that failed jobs can be pruned, too."""
    job = await submit(engine, contract, **fields)
    (held,) = await claim(engine, 1)
    await engine.settle(job.id, held.token, Succeeded("1") if well else PERMANENT)
    return job.id


async def remaining(engine: Engine) -> set[str]:
    return {job.id for job in await engine.jobs.list(Filter(limit=1_000))}


async def test_the_first_matching_rule_decides(engine: Engine, clock: FakeClock) -> None:
    rules = (
        Retention(None, queue="audit"),
        Retention(30 * DAY, status="failed"),
        Retention(20 * DAY, contract="men"),
        Retention(0.0, job_type="heartbeat"),
        Retention(7 * DAY),
    )
    audit = await finished_job(engine, queue="audit")
    failed = await finished_job(engine, well=False)
    men = await finished_job(engine, "men")
    beat = await finished_job(engine, job_type="heartbeat")
    plain = await finished_job(engine)
    young = await submit(engine, "p3c", delay=LONG * 100)
    options = PruneOptions(rules=rules, lap_seconds=0)
    kept = []
    for days in (1, 7, 13, 10):
        clock.advance(days * DAY)
        await prune(engine, options, None, None)
        await prune(engine, options, None, None)  # the scan starts again after it reached the end
        kept.append(await remaining(engine))
    always = {audit, young.id}
    assert kept == [always | {failed, men, plain}, always | {failed, men}, always | {failed}, always]
    assert beat not in kept[0]


async def test_without_a_matching_rule_nothing_is_deleted(engine: Engine, clock: FakeClock) -> None:
    job = await finished_job(engine)
    clock.advance(LONG)
    assert (await prune(engine, PruneOptions(rules=(Retention(0.0, queue="other"),)), None, None)).jobs == 0
    assert await Pruner(engine, Settings()).run_once() is None
    assert await remaining(engine) == {job}


async def test_the_pruner_claims_the_interval_and_exports(engine: Engine, clock: FakeClock, tmp_path: Path) -> None:
    jobs = [await finished_job(engine) for _ in range(7)]
    clock.advance(DAY)
    settings = Settings(retention=(Retention(60.0),), retention_batch=3, export_to=str(tmp_path / "out"))
    assert await alerts.claim_interval(engine, "retention", 10)
    assert await Pruner(engine, settings).run_once() is None, "another process has claimed the interval"
    clock.advance(10)
    done = await Pruner(engine, settings).run_once()
    assert done and done.jobs == 7 and await remaining(engine) == set()
    (file,) = (tmp_path / "out").iterdir()
    exported = [json.loads(line) for line in file.read_text().splitlines()]
    assert [history["job"]["id"] for history in exported] == jobs
    assert [event["event"] for event in exported[0]["events"]] == ["created", "worker_claim", "completed"]


async def test_a_job_that_cannot_be_exported_is_kept(engine: Engine, clock: FakeClock, tmp_path: Path) -> None:
    job = await finished_job(engine)
    clock.advance(DAY)
    (tmp_path / "file").touch()
    settings = Settings(retention=(Retention(60.0),), export_to=str(tmp_path / "file" / "below"))
    with pytest.raises(OSError):
        await Pruner(engine, settings).run_once()
    assert await remaining(engine) == {job}


def test_an_incomplete_line_does_not_damage_the_next(tmp_path: Path) -> None:
    file = JsonLinesFile(tmp_path / "x.jsonl")
    file.write([{"job": {"id": "1"}}])
    with file.path.open("ab") as incomplete:
        incomplete.write(b'{"job": {"id"')
    file.write([{"job": {"id": "1"}}, {"job": {"id": "2"}}])
    lines = file.path.read_text().splitlines()
    assert [json.loads(lines[n])["job"]["id"] for n in (0, 2, 3)] == ["1", "1", "2"]


async def test_the_export_is_synced_before_the_delete(
    engine: Engine, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await finished_job(engine)
    clock.advance(DAY)
    order: list[str] = []
    real_fsync, real_write = os.fsync, engine.store.write

    def fsync(number: int) -> None:
        order.append("fsync")
        real_fsync(number)

    async def write(act: Any) -> Any:
        order.append("write")
        return await real_write(act)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(engine.store, "write", write)
    assert (await prune(engine, PruneOptions(), 1, JsonLinesFile(tmp_path / "x.jsonl"))).jobs == 1
    assert order[0] == "fsync" and order[-1] == "write" and "write" not in order[: order.index("fsync")]
    await asyncio.sleep(0)
