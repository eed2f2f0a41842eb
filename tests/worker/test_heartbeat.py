"""Heartbeats continue after errors, and their answers carry the lease tokens they checked."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from detent import Context, Detent
from detent.core.errors import StoreUnavailable
from detent.handler.lease import LeaseClock, Reading
from detent.system.clock import SystemClock
from detent.worker.heartbeat import Heartbeat
from detent.worker.state import HeartbeatAnswer, Held
from detent.worker.worker import Worker
from support.waiting import until, within
from support.worker.claims import claimed
from support.worker.running import working

pytestmark = pytest.mark.anyio


def heartbeat_of(worker: Worker, on_answer: Callable[[HeartbeatAnswer], object]) -> Heartbeat:
    return Heartbeat(worker.engine, worker.state, LeaseClock(SystemClock(), 6.0), worker.registration_row, on_answer)


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), OSError("gone"), RuntimeError("a bug")])
async def test_a_heartbeat_survives_any_error_and_is_repeated_at_once(
    app: Detent, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A failed heartbeat is repeated at the next check, not a heartbeat interval later."""
    beats: list[float] = []
    honest = Heartbeat._beat

    async def beat(self: Heartbeat, at: Reading) -> None:
        beats.append(asyncio.get_running_loop().time())
        if len(beats) == 2:
            raise error
        await honest(self, at)

    monkeypatch.setattr(Heartbeat, "_beat", beat)

    @app.job("work")
    async def work(ctx: Context) -> int:
        await until(lambda: len(beats) >= 4)
        return ctx.execution_no

    async with working(app, lease_seconds=0.9):
        assert await within(20, (await work.enqueue()).result()) == 1


async def test_a_failed_heartbeat_is_repeated_instead_of_a_check(app: Detent, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    async def beat(self: Heartbeat, at: Reading) -> None:
        calls.append("beat")
        raise StoreUnavailable("gone")

    async def check(self: Heartbeat, at: Reading) -> None:
        calls.append("check")

    monkeypatch.setattr(Heartbeat, "_beat", beat)
    monkeypatch.setattr(Heartbeat, "_check", check)
    worker = await app.worker()
    heartbeat = heartbeat_of(worker, lambda answer: None)
    monkeypatch.setattr(heartbeat._stopped, "wait", lambda seconds: len(calls) >= 4 and heartbeat._stopped.set())
    heartbeat.start()
    await until(lambda: len(calls) >= 4)
    await asyncio.to_thread(heartbeat.stop)
    assert calls[:4] == ["beat"] * 4, "checks come only between successful heartbeats"


async def test_an_answer_carries_the_tokens_it_checked(app: Detent) -> None:
    answers: list[HeartbeatAnswer] = []
    worker = await app.worker()
    worker.state.held["no-such-job"] = Held(claimed("no-such-job"))
    heartbeat = heartbeat_of(worker, answers.append)
    await heartbeat.send()
    await heartbeat.send()
    extended, checked = answers
    assert extended.extended_at is not None
    assert checked == replace(extended, extended_at=None)
    assert checked == HeartbeatAnswer(frozenset({"no-such-job"}), {}, {"no-such-job": "t1"})


async def test_a_worker_row_is_updated_while_it_works_and_deleted_when_it_ends(app: Detent) -> None:
    @app.job("work", queue="mail")
    async def work() -> None: ...

    async def rows() -> list[Any]:
        return await (await app.ready()).store.read(lambda tx: tx.workers.list_workers())

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


async def test_worker_ids_are_unique(app: Detent) -> None:
    ids = {(await app.worker()).id for _ in range(20)}
    assert len(ids) == 20 and isinstance(await app.worker(), Worker)
