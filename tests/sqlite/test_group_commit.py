"""Calls that are made at the same time share commits; each gets its own outcome, and nobody waits for ever."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from detent.core.errors import StoreUnavailable
from detent.engine import Engine, Submission
from detent.stores.sqlite import batcher
from detent.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
CALLERS = 40


@pytest.fixture(params=["on the loop", "on the thread"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Engine]:
    monkeypatch.setattr(batcher, "_FAST_COMMIT_SECONDS", float("inf") if request.param == "on the loop" else 0.0)
    monkeypatch.setattr(batcher, "_RETRY_INLINE_EVERY", 1 << 60)
    engine = Engine(SqliteStore(f"{tmp_path}/jobs.db"))
    await engine.open()
    await engine.jobs.submit(Submission("mail"))  # interns queue, job type and tenant
    yield engine
    await engine.close()


@pytest.mark.parametrize("keyed, commits", [(False, 1), (True, 2)])
async def test_callers_share_commits(engine: Engine, keyed: bool, commits: int) -> None:
    """Inserts wait for the others of the loop iteration. A call with a key is a longer act, and the first starts."""
    store: Any = engine.store
    before = store.commits
    keys = [f"order-{n}" if keyed else None for n in range(CALLERS)]
    submitted = await asyncio.gather(*(engine.jobs.submit(Submission("mail", idempotency_key=key)) for key in keys))
    assert len({one.job.id for one in submitted}) == CALLERS
    assert store.commits - before == commits
    for one in submitted:
        assert (await engine.jobs.get(one.job.id)).version == 1, "what is acknowledged is committed"


async def test_a_task_that_is_alone_does_not_wait_for_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commits are on the disk when the call returns. After a millisecond of writing it lets others run."""
    monkeypatch.setattr(batcher, "_FAST_COMMIT_SECONDS", float("inf"))
    monkeypatch.setattr(batcher, "_LONE_SECONDS", float("inf"))
    engine = Engine(SqliteStore(f"{tmp_path}/jobs.db"))
    await engine.open()
    await engine.jobs.submit(Submission("mail"))
    store: Any = engine.store
    loop, iterations, before = asyncio.get_running_loop(), 0, store.commits

    def count_iterations() -> None:
        nonlocal iterations, handle
        iterations += 1
        handle = loop.call_soon(count_iterations)

    handle = loop.call_soon(count_iterations)
    for _ in range(5):
        await engine.jobs.submit(Submission("mail"))
    assert (iterations, store.commits - before) == (0, 5)
    monkeypatch.setattr(batcher, "_LONE_SECONDS", 0.0)
    store._batchers[loop, store._writer]._lone_seconds = 0.0  # its millisecond is over
    for _ in range(5):
        await engine.jobs.submit(Submission("mail"))
    assert iterations >= 5
    handle.cancel()
    await engine.close()


async def test_an_act_that_fails_rolls_back_alone(engine: Engine) -> None:
    store: Any = engine.store

    def pause(number: int) -> Any:
        async def act(tx: Any) -> int:
            await tx.pauses.pause("queue", f"q{number}", "ann", None)
            if number == 3:
                raise ValueError("no")
            return number

        return store.write(act)

    answers = await asyncio.gather(*(pause(n) for n in range(6)), return_exceptions=True)
    assert [answer if isinstance(answer, int) else str(answer) for answer in answers] == [0, 1, 2, "no", 4, 5]
    pauses = await store.read(lambda tx: tx.pauses.list_pauses())
    assert {pause[1] for pause in pauses} == {"q0", "q1", "q2", "q4", "q5"}


async def test_a_cancelled_caller_does_not_disturb_the_others(engine: Engine) -> None:
    calls = [asyncio.create_task(engine.jobs.submit(Submission("mail"))) for _ in range(6)]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[3].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True, False, False] * 2
    assert (await engine.jobs.submit(Submission("mail"))).job.version == 1


async def test_a_store_that_is_closed_leaves_nobody_waiting(engine: Engine) -> None:
    """Some calls are being written, some wait for their turn, some for the end of the loop iteration."""
    keys = [*(f"order-{n}" for n in range(3)), None, None]
    calls = [asyncio.create_task(engine.jobs.submit(Submission("mail", idempotency_key=key))) for key in keys]
    await asyncio.sleep(0)
    await engine.close()
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*calls, return_exceptions=True)
    unanswered = [answer for answer in answers if isinstance(answer, BaseException)]
    assert unanswered and all(isinstance(answer, StoreUnavailable) for answer in unanswered)
