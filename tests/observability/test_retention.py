"""Retention by rule: the first that fits decides, batches are bounded, nothing goes that was not written down first."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from engine.acts import LONG, PERMANENT, claim, submit
from engine.clock import FakeClock

from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.engine.metrics import alerts
from detent.engine.pruning import Choice, Retention, prune
from detent.observability.retention import JsonLines, Retainer
from detent.observability.settings import Settings
from detent.ports.listing import Filter

pytestmark = pytest.mark.anyio
DAY = 86_400.0


async def ended(engine: Engine, contract: str = "p3c", *, well: bool = True, **fields: Any) -> str:
    """p3c keeps no dead letters, so a failed job may go too."""
    job = await submit(engine, contract, **fields)
    (held,) = await claim(engine, 1)
    await engine.settle(job.id, held.token, Succeeded("1") if well else PERMANENT)
    return job.id


async def left(engine: Engine) -> set[str]:
    return {job.id for job in await engine.jobs(Filter(limit=1_000))}


async def test_the_first_rule_that_fits_decides(engine: Engine, clock: FakeClock) -> None:
    rules = (
        Retention(None, queue="audit"),
        Retention(30 * DAY, status="failed"),
        Retention(20 * DAY, contract="men"),
        Retention(0.0, job_type="heartbeat"),
        Retention(7 * DAY),
    )
    audit = await ended(engine, queue="audit")
    failed = await ended(engine, well=False)
    men = await ended(engine, "men")
    beat = await ended(engine, job_type="heartbeat")
    plain = await ended(engine)
    young = await submit(engine, "p3c", delay=LONG * 100)
    choice = Choice(rules=rules, lap_seconds=0)
    kept = []
    for days in (1, 7, 13, 10):
        clock.advance(days * DAY)
        await prune(engine, choice, None, None)
        await prune(engine, choice, None, None)  # a lap begins anew behind the end
        kept.append(await left(engine))
    always = {audit, young.id}
    assert kept == [always | {failed, men, plain}, always | {failed, men}, always | {failed}, always]
    assert beat not in kept[0]


async def test_without_a_rule_nothing_goes(engine: Engine, clock: FakeClock) -> None:
    job = await ended(engine)
    clock.advance(LONG)
    assert (await prune(engine, Choice(rules=(Retention(0.0, queue="other"),)), None, None)).jobs == 0
    assert await Retainer(engine, Settings()).round() is None
    assert await left(engine) == {job}


async def test_the_retainer_takes_turns_and_writes_before_it_deletes(
    engine: Engine, clock: FakeClock, tmp_path: Path
) -> None:
    jobs = [await ended(engine) for _ in range(7)]
    clock.advance(DAY)
    settings = Settings(retention=(Retention(60.0),), retention_batch=3, export_to=str(tmp_path / "out"))
    assert await alerts.take_turn(engine, "retention", 10)
    assert await Retainer(engine, settings).round() is None, "another process has the turn"
    clock.advance(10)
    done = await Retainer(engine, settings).round()
    assert done and done.jobs == 7 and await left(engine) == set()
    (file,) = (tmp_path / "out").iterdir()
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["job"]["id"] for one in told] == jobs
    assert [event["event"] for event in told[0]["events"]] == ["created", "worker_claim", "completed"]


async def test_what_cannot_be_written_stays(engine: Engine, clock: FakeClock, tmp_path: Path) -> None:
    job = await ended(engine)
    clock.advance(DAY)
    (tmp_path / "file").touch()
    settings = Settings(retention=(Retention(60.0),), export_to=str(tmp_path / "file" / "below"))
    with pytest.raises(OSError):
        await Retainer(engine, settings).round()
    assert await left(engine) == {job}


def test_a_torn_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    file = JsonLines(tmp_path / "x.jsonl")
    file.write([{"job": {"id": "1"}}])
    with file.path.open("ab") as torn:
        torn.write(b'{"job": {"id"')
    file.write([{"job": {"id": "1"}}, {"job": {"id": "2"}}])
    lines = file.path.read_text().splitlines()
    assert [json.loads(lines[n])["job"]["id"] for n in (0, 2, 3)] == ["1", "1", "2"]


async def test_it_is_on_the_disk_before_it_is_deleted(
    engine: Engine, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ended(engine)
    clock.advance(DAY)
    order: list[str] = []
    sync, drop = os.fsync, engine.store.write

    def fsync(number: int) -> None:
        order.append("fsync")
        sync(number)

    async def write(act: Any) -> Any:
        order.append("write")
        return await drop(act)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(engine.store, "write", write)
    assert (await prune(engine, Choice(), 1, JsonLines(tmp_path / "x.jsonl"))).jobs == 1
    assert order[0] == "fsync" and order[-1] == "write" and "write" not in order[: order.index("fsync")]
    await asyncio.sleep(0)
