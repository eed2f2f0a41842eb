"""While one lane is the only one with jobs, claims use a shorter statement. It claims what the general one would."""

from collections.abc import AsyncIterator
from random import Random
from typing import Any

import asyncpg
import pytest

from detent.core.access import Scope
from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement
from detent.ports.claims import Claimed, ClaimRequest, Success
from detent.stores.postgres.claims.claim import SETTINGS, lane_values, settle_and_claim_values
from detent.stores.postgres.claims.claiming import ONLY_LANE_SECONDS
from detent.stores.postgres.dialect import compiled
from detent.stores.postgres.store import PostgresStore
from support.acts import LEASE_SECONDS, submit
from support.clock import FakeClock
from support.servers.databases import Database

pytestmark = pytest.mark.anyio
TABLES = {
    "jobs": "id",
    "events": "job_id, seq",
    "queue": "lane, due_at, id",
    "timers": "due_at, id",
    "claims": "check_at",
}
GENERAL, FROM_LANE = "settle_and_claim", "settle_and_claim_from_lane"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def engine(database: Database, clock: FakeClock) -> AsyncIterator[Engine]:
    engine = Engine(PostgresStore(database.url, clock=clock))
    await engine.open()
    yield engine
    await engine.close()


@pytest.fixture
def statements(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The claim statements that were run, in order."""
    store = engine.store
    assert isinstance(store, PostgresStore)
    run, names = store._run_claim_query, list[str]()

    async def recorded(name: str, values: Any) -> list[Any]:
        names.append(name)
        return await run(name, values)

    monkeypatch.setattr(store, "_run_claim_query", recorded)
    return names


async def round_of(engine: Engine, held: list[Claimed], limit: int, **options: Any) -> list[Claimed]:
    """Settle these jobs and claim others, as a worker does."""
    settled = [Settlement(job.id, job.token, job.contract, Succeeded()) for job in held]
    request = engine.claim_request("w1", limit, LEASE_SECONDS, **options)
    return (await engine.settle_and_claim(settled, request)).claimed


async def outcome(connection: Any, store: PostgresStore, name: str, values: dict[str, Any]) -> dict[str, list[Any]]:
    """What the statement returns and leaves in the tables; then all of it is undone."""
    query = compiled(store._texts[name])
    transaction = connection.transaction()
    await transaction.start()
    try:
        head, *rows = await connection.fetch(query.text, *(values[parameter] for parameter in query.names))
        steps = {"step"}
        found = {
            "claimed": [[v for k, v in row.items() if k not in steps] for row in rows],
            "settled": [head[2], head[3]],
        }
        for table, order in TABLES.items():
            columns = (
                "check_at, ids" if table == "claims" else "x.*" if table != "events" else "job_id, seq, edge, at, actor"
            )
            found[table] = [
                tuple(r) for r in await connection.fetch(f"SELECT {columns} FROM detent.{table} x ORDER BY {order}")
            ]
        return found
    finally:
        await transaction.rollback()


@pytest.mark.parametrize("seed", range(12))
async def test_both_statements_claim_the_same(engine: Engine, database: Database, clock: FakeClock, seed: int) -> None:
    random = Random(seed)
    for _ in range(random.randint(5, 40)):
        await submit(engine)
        clock.advance(random.choice((0, 0.001)))
    held = await round_of(engine, [], random.randint(2, 10))
    store = engine.store
    assert isinstance(store, PostgresStore)
    (lane,) = store._lane_cache.cursors.values()
    waiting = [row[0] for row in database.sql("SELECT id FROM detent.queue ORDER BY due_at, id")]
    locked = random.sample(waiting, random.randint(0, len(waiting) // 3))
    if random.random() < 0.5 and waiting:
        due = random.choice(database.sql("SELECT due_at, id::text FROM detent.queue"))
        store._lane_cache.floors[lane] = (due[0], due[1])
    successes = [Success(job.id, job.token, job.contract, None, job.parent_id) for job in held]
    request = ClaimRequest("w1", "token", random.randint(2, 30), 30_000_000)
    values = settle_and_claim_values(successes, request, store._lane_cache, store._edges, 1, clock.now())
    values |= lane_values(store._lane_cache, lane)
    connection = await asyncpg.connect(database.url, server_settings=SETTINGS)
    other = await asyncpg.connect(database.url)
    try:
        async with other.transaction():
            await other.fetch("SELECT 1 FROM detent.queue WHERE id = ANY ($1::uuid[]) FOR UPDATE", locked)
            general = await outcome(connection, store, GENERAL, values)
            assert general["claimed"] or len(locked) == len(waiting) or store._lane_cache.floors
            assert await outcome(connection, store, FROM_LANE, values) == general
    finally:
        await connection.close()
        await other.close()


async def test_the_short_statement_is_used_while_one_lane_has_jobs(engine: Engine, statements: list[str]) -> None:
    for _ in range(30):
        await submit(engine)
    held: list[Claimed] = []
    for _ in range(4):
        held = await round_of(engine, held, 10)
    *first, one, two, three, last = statements
    assert set(first) == {"claim"}
    assert [one, two, three] == [FROM_LANE] * 3
    assert last == "claim", "the one before found nothing, so it looks at all lanes at once"
    assert held == []


async def test_locked_jobs_are_skipped_by_the_general_statement(
    engine: Engine, database: Database, statements: list[str]
) -> None:
    """The short statement waits for a moment; then the general one settles and claims what nobody has locked."""
    for _ in range(30):
        await submit(engine)
    held = await round_of(engine, [], 10)
    running, waiting = (
        held[3].id,
        database.sql("SELECT id FROM detent.queue ORDER BY due_at, id OFFSET 4 LIMIT 1")[0][0],
    )
    other = await asyncpg.connect(database.url)
    try:
        async with other.transaction():
            await other.fetch("SELECT 1 FROM detent.jobs WHERE id = ANY ($1::uuid[]) FOR UPDATE", [running, waiting])
            claimed = await round_of(engine, [job for job in held if job.id != running], 10)
    finally:
        await other.close()
    assert statements[-2:] == [FROM_LANE, GENERAL]
    assert len(claimed) == 10
    await round_of(engine, claimed[:1], 2)
    assert statements[-1] == GENERAL, "the next claims do not wait for it again"
    assert str(waiting) not in {job.id for job in claimed}
    assert database.sql("SELECT count(*) FROM detent.job_list WHERE status = 'succeeded'") == [(10,)]


async def test_a_job_of_another_worker_is_settled_too(engine: Engine, database: Database) -> None:
    for _ in range(30):
        await submit(engine)
    request = engine.claim_request("w2", 3, LEASE_SECONDS)
    (of_another, *_) = (await engine.settle_and_claim([], request)).claimed
    held = await round_of(engine, [], 10)
    await round_of(engine, [*held, of_another], 10)
    events = database.sql(
        f"SELECT actor FROM detent.event_list WHERE job_id = '{of_another.id}' ORDER BY seq DESC LIMIT 1"
    )
    assert events == [("w2",)]
    assert database.sql("SELECT count(*) FROM detent.job_list WHERE status = 'succeeded'") == [(11,)]


async def test_other_lanes_are_looked_at_again_after_a_while(
    engine: Engine, clock: FakeClock, statements: list[str]
) -> None:
    await submit(engine, tenant_id="other")
    held = await round_of(
        engine, [], 1
    )  # a lane that is new to the store changes the version, which ends the short way
    for _ in range(40):
        await submit(engine)
    held = await round_of(engine, held, 10)
    other = await submit(engine, tenant_id="other")
    held = await round_of(engine, held, 10)
    assert other.id not in {job.id for job in held}
    clock.advance(ONLY_LANE_SECONDS)
    del statements[:-1]
    held = await round_of(engine, held, 10)
    assert statements == [FROM_LANE, GENERAL]
    assert other.id in {job.id for job in held}


async def test_a_pause_and_other_queues_are_obeyed_at_once(engine: Engine, statements: list[str]) -> None:
    for _ in range(30):
        await submit(engine)
    held = await round_of(engine, [], 10)
    assert await round_of(engine, held, 10, queues=frozenset({"elsewhere"})) == []
    held = await round_of(engine, [], 10)
    await engine.limits.pause("queue", "default", scope=Scope("tester"))
    assert await round_of(engine, held, 10) == []
    assert statements[-2:] == [FROM_LANE, "claim"], "its lane version was out of date, so it claimed nothing"


async def test_with_several_priorities_every_claim_looks_at_all_lanes(engine: Engine, statements: list[str]) -> None:
    for number in range(30):
        await submit(engine, priority=number % 2)
    held: list[Claimed] = []
    for _ in range(3):
        held = await round_of(engine, held, 10)
    assert FROM_LANE not in statements


async def test_within_limits_one_statement_settles_and_claims(engine: Engine, statements: list[str]) -> None:
    await engine.limits.set(Scope("tester"), queue="default", concurrency=40)
    for _ in range(90):
        await submit(engine)
    held = await round_of(engine, [], 10)
    del statements[:]
    held = held[1:] + await round_of(engine, held[:1], 10)
    held = held[1:] + await round_of(engine, held[:1], 10)
    assert statements == ["settle_and_claim_limited"] * 2
    assert len(held) == 28
    held = held[1:] + await round_of(engine, held[:1], 20)
    assert len(held) == 40, "the limit has room for thirteen more"
    assert await round_of(engine, held[:1], 10) != []
    assert await round_of(engine, [], 10) == []


async def test_the_meters_count_what_another_process_started(
    engine: Engine, database: Database, clock: FakeClock, statements: list[str]
) -> None:
    await engine.limits.set(Scope("tester"), job_type="mail", rate=(40, 60))
    for _ in range(80):
        await submit(engine)
    other = Engine(PostgresStore(database.url, clock=clock))
    await other.open()
    try:
        held = await round_of(engine, [], 10)
        assert len(await round_of(other, [], 25)) == 25
        del statements[:]
        assert len(await round_of(engine, held, 10)) == 5
        assert statements[0] == "settle_and_claim_limited"
    finally:
        await other.close()
