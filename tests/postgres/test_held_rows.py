"""A row in somebody's hands stalls nobody else; and those who must wait for it look again once they have it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from detent import Context, Detent
from detent.core.access import Scope
from detent.core.job import Wait
from detent.core.outcome import Succeeded, Waits
from detent.engine import Engine, Settlement
from detent.engine.dead_letters import discard_dead_letter, requeue_dead_letter
from detent.engine.execution.settle import settle_job
from detent.engine.jobs import cancel_job, signal_job
from detent.stores.postgres.store import PostgresStore
from support.acts import claim, claim_one, notes_of, path_of, reach, refused, running, submit
from support.clock import FakeClock
from support.servers.databases import SEARCH_DETENT, Database
from support.waiting import until

pytestmark = pytest.mark.anyio
SOON = 30.0


@asynccontextmanager
async def in_hand(database: Database, job_id: str) -> AsyncIterator[None]:
    """A user's transaction that has touched the row and is not yet over."""
    with psycopg.connect(database.url, options=SEARCH_DETENT) as connection:
        connection.execute("SELECT 1 FROM detent.jobs WHERE id = %s FOR UPDATE", [job_id])
        yield
        connection.rollback()


async def test_a_cycle_passes_by_the_row_and_settles_it_later(engine: Engine, database: Database) -> None:
    for _ in range(5):
        await submit(engine)
    held = await claim(engine)
    settlements = [Settlement(job.id, job.token, job.contract, Succeeded()) for job in held]
    await submit(engine)
    async with in_hand(database, held[2].id):
        done = await asyncio.wait_for(engine.settle_and_claim(settlements, engine.claim_request("w1", 10)), SOON)
        assert (len(done.claimed), done.refused, [s.id for s in done.later]) == (1, {}, [held[2].id])
        answer = await asyncio.wait_for(engine.extend({job.id: job.token for job in held}, 30), SOON)
        assert answer.lost == {job.id for job in held if job.id != held[2].id}, "those have ended, this one stands"
        assert await asyncio.wait_for(engine.expire(), SOON) == []
    again = await engine.settle_and_claim(done.later, None)
    assert (again.refused, again.later) == ({}, [])
    assert database.sql("SELECT count(*) FROM jobs WHERE status = 'succeeded'") == [(5,)]


async def test_a_late_result_is_noted_although_the_row_is_in_somebodys_hand(engine: Engine, database: Database) -> None:
    """In the hand of the heartbeat of its own worker, for example."""
    late = await running(engine)
    await engine.settle(late.id, late.token, Waits(Wait("go")))
    await engine.jobs.signal(late.id, "go", Scope("ann"))
    held = await claim_one(engine, worker="w2")
    async with in_hand(database, late.id):
        settlement = Settlement(late.id, late.token, late.contract, Succeeded())
        done = await asyncio.wait_for(engine.settle_and_claim([settlement], None), SOON)
        assert done.refused[late.id].code == "LEASE_STALE" and done.later == []
        assert (await notes_of(engine, late.id))[-1].name == "settle.refused"
    assert (await engine.settle(held.id, held.token, Succeeded())).status == "succeeded"


async def test_a_claim_passes_by_the_row(engine: Engine, database: Database) -> None:
    made = [(await submit(engine)).id for _ in range(3)]
    async with in_hand(database, made[0]):
        assert [job.id for job in await asyncio.wait_for(claim(engine), SOON)] == made[1:]
    claimed: list[str] = []

    async def claimed_later() -> list[str]:
        """A slow claim makes those of the next second start after the jobs it has passed."""
        claimed.extend(job.id for job in await claim(engine))
        return claimed

    await until(claimed_later)
    assert claimed == made[:1]


async def test_a_lease_that_ran_out_in_somebodys_hand_is_taken_back_afterwards(
    database: Database,
) -> None:
    clock = FakeClock()
    engine = Engine(PostgresStore(database.url, clock=clock))
    await engine.open()
    held = [await running(engine, job_type=f"t{n}") for n in range(3)]
    clock.advance(31)
    async with in_hand(database, held[1].id):
        assert {job.id for job in await asyncio.wait_for(engine.expire(), SOON)} == {held[0].id, held[2].id}
    assert [job.id for job in await engine.expire()] == [held[1].id]
    await engine.close()


async def test_a_worker_keeps_every_other_lease(database: Database) -> None:
    """The row is held for longer than a lease; the others end or are kept meanwhile, and the held one ends later."""
    app, go, started = Detent(database.url), asyncio.Event(), asyncio.Event()

    @app.job("short")
    async def short(ctx: Context) -> int:
        return 1

    @app.job("long")
    async def long(ctx: Context) -> int:
        await go.wait()
        return 2

    @app.job("touched")
    async def touched(ctx: Context) -> int:
        started.set()
        await go.wait()
        return 3

    lasting = await long.enqueue_many([{} for _ in range(4)])
    disputed = await touched.enqueue()
    worker = await app.worker(slots=8, lease_seconds=1.0)
    work = asyncio.create_task(worker.run(handle_signals=False))
    await asyncio.wait_for(started.wait(), SOON)
    async with in_hand(database, disputed.id):
        over = "SELECT 1 FROM jobs WHERE id = %s AND lease_until < extract(epoch FROM clock_timestamp()) * 1e6"
        await until(lambda: database.sql(over, disputed.id))
        for _ in range(3):
            assert await (await short.enqueue()).result(SOON) == 1
        go.set()
        assert [await handle.result(SOON) for handle in lasting] == [2] * 4
    assert await disputed.result(SOON) == 3
    worker.stop()
    await asyncio.wait_for(work, SOON)
    await app.close()
    lost = database.sql("SELECT DISTINCT job_id::text FROM events WHERE event = 'job.interrupted'")
    assert set(lost) <= {(disputed.id,)}, "no other lease was lost"


WAITERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def one_waits_for_the_other(
    database: Database, engine: Engine, first: Callable[[Any], Awaitable[Any]], second: Awaitable[Any]
) -> tuple[Any, Any]:
    """`first` stays in its transaction until the server says that `second` waits for its lock."""
    done, go = asyncio.Event(), asyncio.Event()

    async def hold_open(tx: Any) -> Any:
        answer = await first(tx)
        done.set()
        await go.wait()
        return answer

    one = asyncio.create_task(engine.store.write(hold_open))
    await asyncio.wait_for(done.wait(), SOON)
    other = asyncio.ensure_future(second)
    await until(lambda: database.sql(WAITERS) == [(1,)])
    go.set()
    return await asyncio.wait_for(asyncio.gather(one, other), SOON)  # type: ignore[return-value]


@pytest.mark.parametrize("contract", ["formal", "standard"])
async def test_a_signal_that_waits_for_the_wait_finds_it(engine: Engine, database: Database, contract: str) -> None:
    held = await running(engine, contract)
    settlements = Settlement(held.id, held.token, contract, Waits(Wait("answer")))

    async def wait(tx: Any) -> Any:
        job = (await tx.jobs.lock([held.id]))[held.id]
        return await settle_job(engine, tx, job, settlements)

    signal = engine.jobs.signal(held.id, "answer", Scope("test"), {"n": 1})
    _, (job, news) = await one_waits_for_the_other(database, engine, wait, signal)
    assert news and job.phase == "claimable"
    assert (await claim_one(engine)).id == held.id


@pytest.mark.parametrize("contract", ["formal", "standard"])
async def test_a_wait_that_waits_for_the_signal_finds_it(engine: Engine, database: Database, contract: str) -> None:
    """Lock first, then look: the inbox is read by a later statement than the one that waited."""
    held = await running(engine, contract)

    async def signal(tx: Any) -> Any:
        return await signal_job(engine, tx, held.id, "answer", Scope("ann"), {"n": 1})

    wait = engine.settle(held.id, held.token, Waits(Wait("answer")))
    (_, news), job = await one_waits_for_the_other(database, engine, signal, wait)
    assert news and job.phase == "claimable", f"it sleeps for ever in {job.status}"
    assert len(await path_of(engine, held.id)) == 4
    assert (await claim_one(engine)).id == held.id


async def test_who_waited_for_a_row_sees_what_was_done_to_it(engine: Engine, database: Database) -> None:
    clock = FakeClock()
    job = await reach(engine, clock, "standard", "queued")

    async def cancel(tx: Any) -> Any:
        return await cancel_job(engine, tx, job.id, Scope("ann"))

    late = refused(engine.jobs.cancel(job.id, Scope("bob")), "JOB_TRANSITION_INVALID", 409)
    one, _ = await one_waits_for_the_other(database, engine, cancel, late)
    assert one.after.status == "cancelled"
    assert len(await path_of(engine, job.id)) == 2


async def test_two_requeues_of_one_dead_letter_make_one_job(engine: Engine, database: Database) -> None:
    job = await reach(engine, FakeClock(), "gate-b2", "failed")
    dlq_id = str(job.dlq_id)

    async def requeue(tx: Any) -> Any:
        return await requeue_dead_letter(engine, tx, dlq_id, Scope("ann"))

    late = refused(engine.dead_letters.requeue(dlq_id, Scope("bob")), "DLQ_REQUEUE_CONFLICT", 409)
    one, _ = await one_waits_for_the_other(database, engine, requeue, late)
    assert (await engine.dead_letters.get(dlq_id)).requeued_as == one.job.id
    assert database.sql("SELECT count(*) FROM jobs") == [(2,)]


async def test_two_words_at_once_are_a_proposal_and_a_confirmation(engine: Engine, database: Database) -> None:
    job = await reach(engine, FakeClock(), "gate-b2", "failed")
    dlq_id = str(job.dlq_id)

    async def discard(tx: Any) -> Any:
        return await discard_dead_letter(engine, tx, dlq_id, Scope("ann", "broken"))

    second = engine.dead_letters.discard(dlq_id, Scope("bob", "broken"))
    one, other = await one_waits_for_the_other(database, engine, discard, second)
    assert (one.confirmed, other.confirmed) == (False, True)
    assert other.item.proposed_by == "ann"
