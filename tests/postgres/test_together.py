"""Callers that submit at the same time share a commit; one whose row is refused does not take the others along."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from detent.core.errors import StoreRefused
from detent.engine import Engine, Submission
from detent.engine.submit.prepare import prepare
from detent.stores.postgres.batcher import InsertCall
from detent.stores.postgres.store import PostgresStore
from support.servers.databases import Database

pytestmark = pytest.mark.anyio
CALLERS = 40


def statements_of(store: PostgresStore) -> list[int]:
    """How many jobs each insert carries, from now on."""
    seen: list[int] = []
    write = store._insert_batcher._write

    async def counted(batch: Sequence[InsertCall]) -> list[set[str]]:
        seen.append(sum(len(changes) for changes, _ in batch))
        return await write(batch)

    store._insert_batcher._write = counted  # type: ignore[method-assign]
    return seen


async def test_forty_callers_take_two_commits(engine: Engine, database: Database) -> None:
    store: Any = engine.store
    await engine.jobs.submit(Submission("mail"))
    seen = statements_of(store)
    made = await asyncio.gather(*(engine.jobs.submit(Submission("mail", {"n": n})) for n in range(CALLERS)))
    assert seen == [1, CALLERS - 1]
    assert len({one.job.id for one in made}) == CALLERS
    for one in made:
        history = await engine.jobs.history(one.job.id)
        assert history.job.payload == one.job.payload and len(history.events) == 1


async def test_a_refused_row_is_refused_to_its_caller_alone(engine: Engine) -> None:
    store: Any = engine.store
    changes = [prepare(engine, Submission("mail", {"n": n}), store.now()).change for n in range(5)]
    changes[3].after.max_retries = -1
    answers = await asyncio.gather(*(store.insert([change]) for change in changes), return_exceptions=True)
    assert [type(answer) for answer in answers] == [set, set, set, StoreRefused, set]
    found = await store.read(lambda tx: tx.jobs.lock([change.after.id for change in changes]))
    assert found.keys() == {change.after.id for change in changes} - {changes[3].after.id}


async def test_a_caller_that_goes_away_leaves_the_others_their_answers(engine: Engine) -> None:
    store: Any = engine.store
    await engine.jobs.submit(Submission("mail"))
    calls = [asyncio.create_task(engine.jobs.submit(Submission("mail"))) for _ in range(6)]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[3].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    gone = [isinstance(answer, asyncio.CancelledError) for answer in answers]
    assert gone == [True, False, False, True, False, False]
    assert (await engine.jobs.submit(Submission("mail"))).job.version == 1
    assert store._insert_batcher._batcher.idle
