"""Beside its row, a job is in the thin tables where claims and sweeps look for it: queue, timers, claims, deadlines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random
from typing import Any

import psycopg
import pytest

from detent.core.access import Scope
from detent.core.errors import IllegalMove
from detent.core.job import Wait
from detent.core.outcome import Snoozed, Succeeded, Waits
from detent.engine import Engine, Settlement, Submission
from detent.ports.claims import NamedClaim
from detent.proof.verify.verify import verify
from detent.stores.postgres.store import PostgresStore
from support.acts import LEASE_SECONDS, claim, claim_one, retryable, running, submit
from support.clock import FakeClock
from support.servers.databases import Database

from .test_processes import Claimer

pytestmark = pytest.mark.anyio
SECOND = 1_000_000
WRONG_PLACES = """
SELECT 'not in the queue', id FROM detent.jobs j WHERE state & 3 = 0
  AND NOT EXISTS (SELECT 1 FROM detent.queue q WHERE (q.lane, q.due_at, q.id) = (j.lane, j.due_at, j.id))
  AND NOT EXISTS (SELECT 1 FROM detent.timers t WHERE (t.wakes, t.due_at, t.id) = (false, j.due_at, j.id))
UNION ALL
SELECT 'does not wake', id FROM detent.jobs j WHERE state & 3 = 2 AND due_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM detent.timers t WHERE (t.wakes, t.due_at, t.id) = (true, j.due_at, j.id))
UNION ALL
SELECT 'left in the queue', q.id FROM detent.queue q WHERE NOT EXISTS (
  SELECT 1 FROM detent.jobs j WHERE (q.lane, q.due_at, q.id) = (j.lane, j.due_at, j.id) AND j.state & 3 = 0)
UNION ALL
SELECT 'left in the timers', t.id FROM detent.timers t WHERE NOT EXISTS (
  SELECT 1 FROM detent.jobs j WHERE (t.due_at, t.id) = (j.due_at, j.id)
    AND j.state & 3 = CASE WHEN t.wakes THEN 2 ELSE 0 END)
UNION ALL
SELECT 'in queue and timers', q.id FROM detent.queue q JOIN detent.timers t USING (id)
UNION ALL
SELECT 'not in a claim', id FROM detent.jobs j WHERE state & 3 = 1
  AND NOT EXISTS (SELECT 1 FROM detent.claims c WHERE j.id = ANY (c.ids) AND c.check_at <= j.lease_until)"""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def engine(database: Database, clock: FakeClock) -> AsyncIterator[Engine]:
    engine = Engine(PostgresStore(database.url, clock=clock))
    await engine.open()
    yield engine
    await engine.close()


def places(database: Database) -> dict[str, int]:
    """How many jobs are where; every one must be where its row says."""
    assert database.sql(WRONG_PLACES) == []
    return {name: len(database.rows(f"detent.{name}")) for name in ("queue", "timers")}


def claims(database: Database) -> list[tuple[int, list[str]]]:
    rows = database.sql("SELECT check_at, ids FROM detent.claims ORDER BY check_at, n")
    return [(check_at, sorted(map(str, ids))) for check_at, ids in rows]


async def _delayed(engine: Engine) -> str:
    return (await submit(engine, delay=3600.0)).id


async def _queued(engine: Engine) -> str:
    return (await submit(engine)).id


async def _snoozed(engine: Engine) -> str:
    held = await running(engine)
    return (await engine.settle(held.id, held.token, Snoozed(SECOND))).id


async def _failed(engine: Engine) -> str:
    held = await running(engine)
    return (await engine.settle(held.id, held.token, retryable("standard"))).id


async def _waiting(engine: Engine) -> str:
    held = await running(engine)
    return (await engine.settle(held.id, held.token, Waits(Wait("answer", timeout=60 * SECOND)))).id


@pytest.mark.parametrize("make", [_delayed, _queued, _snoozed, _failed, _waiting])
async def test_a_cancelled_job_is_nowhere(engine: Engine, database: Database, clock: FakeClock, make: Any) -> None:
    job_id = await make(engine)
    assert sum(places(database).values()) == 1
    assert (await engine.jobs.cancel(job_id, Scope("ann"))).phase == "final"
    assert places(database) == {"queue": 0, "timers": 0}
    clock.advance(7_200)
    assert await claim(engine) == [] and await engine.wake() == []


@pytest.mark.parametrize("make", [_delayed, _snoozed, _failed, _waiting])
async def test_a_job_in_the_timers_is_in_the_queue_when_its_time_comes(
    engine: Engine, database: Database, clock: FakeClock, make: Any
) -> None:
    job_id = await make(engine)
    assert places(database) == {"queue": 0, "timers": 1}
    clock.advance(7_200)
    await engine.wake()
    assert (await claim_one(engine)).id == job_id
    assert places(database) == {"queue": 0, "timers": 0}


async def test_a_stale_claim_neither_hides_nor_expires_the_job_of_another(
    engine: Engine, database: Database, clock: FakeClock
) -> None:
    first = await running(engine)
    database.sql("CREATE TEMP TABLE old AS SELECT check_at, ids FROM detent.claims")
    await engine.settle(first.id, first.token, Snoozed(SECOND))
    clock.advance(10)
    second = await claim_one(engine, worker="w2")
    database.sql("DELETE FROM detent.claims WHERE check_at IN (SELECT check_at FROM old)")
    database.sql("INSERT INTO detent.claims (check_at, ids) SELECT check_at, ids FROM old")
    database.sql("DROP TABLE old")
    clock.advance(LEASE_SECONDS - 5)  # the lease of the first claim is over, that of the second is not
    assert await engine.expire() == []
    job = await engine.jobs.get(first.id)
    assert (job.token, job.worker, job.phase) == (second.token, "w2", "leased")
    assert all(check_at == job.lease_until for check_at, _ in claims(database)), "the stale one was replaced"
    clock.advance(10)
    assert [job.id for job in await engine.expire()] == [second.id], "and its own end is not missed"
    assert places(database)["queue"] + places(database)["timers"] == 1


async def test_a_sweep_keeps_what_is_leased_and_drops_the_rest(
    engine: Engine, database: Database, clock: FakeClock
) -> None:
    made = [await submit(engine) for _ in range(4)]
    ended, kept, longer, lost = held = await claim(engine)
    assert [job.id for job in held] == [job.id for job in made]
    start = clock.now()
    assert claims(database) == [(start + 30 * SECOND, sorted(job.id for job in made))]
    await engine.settle(ended.id, ended.token, retryable("standard"))
    await engine.settle_and_claim([Settlement(lost.id, lost.token, "standard", Succeeded())], None)
    clock.advance(20)
    await engine.extend({kept.id: kept.token}, 30)
    await engine.extend({longer.id: longer.token}, 60)
    assert claims(database) == [(start + 30 * SECOND, sorted(job.id for job in made))], "a heartbeat writes none"
    clock.advance(15)
    assert await engine.expire() == []
    assert claims(database) == [(start + 50 * SECOND, sorted([kept.id, longer.id]))]
    clock.advance(20)
    assert [job.id for job in await engine.expire()] == [kept.id]
    await engine.expire()
    assert claims(database) == [(start + 80 * SECOND, [longer.id])]
    clock.advance(100)
    assert [job.id for job in await engine.expire()] == [longer.id]
    await engine.expire()
    assert claims(database) == []
    assert database.sql(WRONG_PLACES) == []


async def test_a_claim_is_forgotten_with_its_last_job(engine: Engine, database: Database) -> None:
    """The next settlement takes the row along; the sweep only finds those of lost workers."""
    for _ in range(3):
        await submit(engine)
    held = [Settlement(job.id, job.token, job.contract, Succeeded()) for job in await claim(engine)]
    await engine.settle_and_claim(held[:2], None)
    assert len(claims(database)) == 1
    await engine.settle_and_claim(held[2:], None)
    last = await running(engine)
    assert len(claims(database)) == 2
    await engine.settle_and_claim([Settlement(last.id, last.token, "standard", Succeeded())], None)
    assert len(claims(database)) == 1


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_a_claim_leaves_a_locked_job_in_the_queue(engine: Engine, database: Database, limit: int) -> None:
    """However few are asked for, those behind it are found."""
    made = [(await submit(engine)).id for _ in range(3)]
    with psycopg.connect(database.url) as other:
        other.execute("SELECT 1 FROM detent.jobs WHERE id = %s FOR UPDATE", [made[0]])
        assert [job.id for job in await claim(engine, limit)] == made[1:][:limit]
        assert places(database)["queue"] == max(1, 3 - limit)
        other.rollback()
    assert [job.id for job in await claim(engine)] == [made[0], *made[1 + limit :]]
    assert places(database) == {"queue": 0, "timers": 0}


async def test_a_claim_leaves_a_locked_row_of_the_queue(engine: Engine, database: Database) -> None:
    made = [(await submit(engine)).id for _ in range(2)]
    with psycopg.connect(database.url) as other:
        other.execute("SELECT 1 FROM detent.queue WHERE id = %s FOR UPDATE", [made[0]])
        assert [job.id for job in await claim(engine, 1)] == made[1:]
        other.rollback()
    assert [job.id for job in await claim(engine, 1)] == made[:1]


async def test_a_row_of_the_queue_without_a_claimable_job_goes(engine: Engine, database: Database) -> None:
    """A claim by id cannot see the row that another process adds meanwhile; the next claim removes it."""
    held = await running(engine)
    database.sql("INSERT INTO detent.queue SELECT lane, due_at, id FROM detent.jobs")
    waiting = await submit(engine)
    assert await claim(engine, 1) == []
    assert [job.id for job in await claim(engine, 1)] == [waiting.id]
    assert places(database) == {"queue": 0, "timers": 0}
    assert (await engine.settle(held.id, held.token, Succeeded())).status == "succeeded"


@pytest.mark.parametrize("delay", [0.0, 5.0])
async def test_a_claim_by_id_takes_the_job_from_its_place(
    engine: Engine, database: Database, clock: FakeClock, delay: float
) -> None:
    job = await submit(engine, "streams", delay=delay)
    assert sum(places(database).values()) == 1
    clock.advance(10)
    named = (NamedClaim(job.id, "token", 0),)
    assert [one.id for one in await claim(engine, named=named)] == [job.id]
    assert places(database) == {"queue": 0, "timers": 0}


async def test_deadlines_of_jobs_that_are_gone_are_dropped(
    engine: Engine, database: Database, clock: FakeClock
) -> None:
    ended, pruned = [await running(engine, job_type=name, deadline=60.0) for name in ("ended", "pruned")]
    waits = await submit(engine, job_type="waits", deadline=60.0)
    for job in (ended, pruned):
        await engine.settle(job.id, job.token, Succeeded())
    database.sql("DELETE FROM detent.jobs WHERE id = %s", pruned.id)
    clock.advance(30)
    await engine.wake()
    assert len(database.rows("detent.deadlines")) == 3, "none has come"
    clock.advance(60)
    assert [job.id for job in await engine.wake()] == [waits.id]
    await engine.wake()
    assert database.rows("detent.deadlines") == []


@pytest.mark.long
async def test_processes_claim_while_others_cancel_the_same_jobs(database: Database) -> None:
    """Nobody waits for ever, every job ends once, and the tables agree with each other at the end."""
    people = [Engine(PostgresStore(database.url)) for _ in range(2)]
    for person in people:
        await person.open()
    made = await people[0].jobs.submit_many([Submission("noop") for _ in range(3_000)])
    ids = [one.job.id for one in made]
    claimers = [await Claimer(database.url, f"w{n}", 0).start() for n in range(2)]

    async def cancel_all(person: Engine, seed: int) -> int:
        cancelled, chosen = 0, Random(seed).sample(ids, len(ids) // 2)
        for job_id in chosen:
            with suppress(IllegalMove):  # it has ended
                cancelled += (await person.jobs.cancel(job_id, Scope("ann"))).status == "cancelled"
        return cancelled

    try:
        work = asyncio.gather(*(claimer.run() for claimer in claimers))
        cancelled = sum(await asyncio.gather(*(cancel_all(person, n) for n, person in enumerate(people))))
        await asyncio.wait_for(work, 120)
        ends = dict(database.sql("SELECT status, count(*) FROM jobs GROUP BY 1"))
        assert ends == {"succeeded": len(ids) - cancelled, "cancelled": cancelled}
        assert 0 < cancelled < len(ids), "they met"
        ran = [job_id for claimer in claimers for job_id, _ in claimer.jobs]
        assert len(ran) == len(set(ran)) == ends["succeeded"]
        assert places(database) == {"queue": 0, "timers": 0}
        report = await verify(people[0].store, people[0].contracts)
        assert report.violations == []
    finally:
        for claimer in claimers:
            await claimer.stop()
        for person in people:
            await person.close()
