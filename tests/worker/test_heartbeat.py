"""Heartbeats: they go on whatever happens to them, and tell of tokens, not of jobs."""

import asyncio
from typing import Any

import pytest

from detent import Context, Detent
from detent.core.errors import StoreUnavailable
from detent.ports.claims import Extended
from detent.worker.heartbeat import Heartbeat
from detent.worker.state import HeartbeatAnswer
from detent.worker.worker import Worker

from .conftest import working
from .waiting import until, within

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("trouble", [StoreUnavailable("gone"), OSError("gone"), RuntimeError("a bug")])
async def test_a_heart_survives_any_error_and_beats_again_at_once(
    app: Detent, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    """With a lease of 3 s a beat is due each second; one that failed is repeated at the next look, not a beat later."""
    beats: list[float] = []
    honest = Heartbeat._beat

    async def beat(self: Heartbeat) -> None:
        beats.append(asyncio.get_running_loop().time())
        if len(beats) == 2:
            raise trouble
        await honest(self)

    monkeypatch.setattr(Heartbeat, "_beat", beat)

    @app.job("work")
    async def work(ctx: Context) -> int:
        await until(lambda: len(beats) >= 4)
        return ctx.execution_no

    async with working(app, lease_seconds=0.9):
        assert await within(20, (await work.enqueue()).result()) == 1


async def test_a_failed_beat_is_not_counted_as_one(app: Detent, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    async def beat(self: Heartbeat) -> None:
        tried.append("beat")
        raise StoreUnavailable("gone")

    async def look(self: Heartbeat) -> None:
        tried.append("look")

    monkeypatch.setattr(Heartbeat, "_beat", beat)
    monkeypatch.setattr(Heartbeat, "_look", look)
    worker = await app.worker()
    heartbeat = Heartbeat(await app.ready(), 6.0, dict, worker._row, lambda answer: None)
    monkeypatch.setattr(heartbeat._stopped, "wait", lambda seconds: len(tried) >= 4 and heartbeat._stopped.set())
    heartbeat.start()
    await until(lambda: len(tried) >= 4)
    await asyncio.to_thread(heartbeat.stop)
    assert tried[:4] == ["beat"] * 4, "looks are for between two beats that went well"


async def test_what_it_tells_carries_the_tokens_it_asked_about(app: Detent) -> None:
    told: list[Extended] = []
    worker = await app.worker()
    heartbeat = Heartbeat(await app.ready(), 6.0, lambda: {"no-such-job": "t1"}, worker._row, told.append)
    await heartbeat._beat()
    await heartbeat._look()
    assert told == [HeartbeatAnswer(frozenset({"no-such-job"}), {}, {"no-such-job": "t1"})] * 2


async def test_a_worker_is_seen_while_it_works_and_gone_when_it_ends(app: Detent) -> None:
    @app.job("work", queue="mail")
    async def work() -> None: ...

    async def rows() -> list[Any]:
        return await (await app.ready()).store.read(lambda tx: tx.workers())

    async with working(app, lease_seconds=0.9, slots=3, queues=frozenset({"mail"})) as worker:
        [row] = await until(rows)
        assert (row.id, row.slots, row.state, row.queues, row.job_types) == (
            *(worker.id, 3, "working", '["mail"]', '["work"]'),
        )
        first = row.seen_at
        await until(lambda: _seen_after(rows, first))
    assert await rows() == []


async def _seen_after(rows: Any, moment: int) -> bool:
    return bool((await rows())[0].seen_at > moment)


async def test_worker_ids_are_never_used_again(app: Detent) -> None:
    ids = {(await app.worker()).id for _ in range(20)}
    assert len(ids) == 20 and isinstance(await app.worker(), Worker)
