"""Table events in partitions: added ahead, never missing, dropped when their jobs are gone, and nobody is disturbed."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest

from detent.cli.diagnose import doctor_postgres
from detent.core.contract.builtin import CONTRACTS
from detent.core.job import Job
from detent.core.outcome import Succeeded
from detent.core.times import first_id
from detent.engine import Engine
from detent.engine.metrics.event_counts import EVENTS, EventCounter
from detent.engine.pruning import Pruned, add_partitions
from detent.observability.maintenance import MaintenanceLoop
from detent.observability.settings import Settings
from detent.ports.tail import Position
from detent.ports.verification import EVERYTHING, EventRow, JobRange
from detent.proof.verify.verify import verify
from detent.stores.postgres.dialect import compiled, queries
from detent.stores.postgres.store import POOL_SETTINGS, PostgresStore
from support.acts import claim_one, events_of, submit
from support.clock import START, ClockIds, FakeClock
from support.servers.databases import Database, house, newest

pytestmark = pytest.mark.anyio
DAY = 86_400.0
WEEK = 7 * DAY
KEEP = 30 * DAY
REFUSE_DELETES = """
CREATE FUNCTION public.refuse_delete() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'events are deleted by row'; END $$;
CREATE TRIGGER no_deletes BEFORE DELETE ON detent.events FOR EACH ROW EXECUTE FUNCTION public.refuse_delete()"""


@pytest.fixture
def database() -> Iterator[Database]:
    """Not used again: its partitions are no longer those of a new one."""
    database = house(newest()).database()
    yield database
    database.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def engine(database: Database, clock: FakeClock) -> AsyncIterator[Engine]:
    """Its clock is at the middle of a partition, and all partitions are those of its time."""
    database.sql("DROP TABLE detent." + ", detent.".join(partitions(database)))
    clock.advance((WEEK * 1e6 - START % (WEEK * 1e6) + WEEK * 5e5) / 1e6)
    engine = Engine(PostgresStore(database.url, clock=clock), CONTRACTS, ids=ClockIds(clock))
    await engine.open()
    await add_partitions(engine)
    yield engine
    await engine.close()


def partitions(database: Database) -> list[str]:
    return [row[0] for row in database.sql("SELECT name FROM detent.event_partition_list ORDER BY first_id")]


def at(database: Database, moment: int) -> str | None:
    """The partition for ids of this moment."""
    found = "SELECT name FROM detent.event_partition_list WHERE first_id <= %s AND end_id > %s"
    return next((row[0] for row in database.sql(found, first_id(moment), first_id(moment))), None)


def places(database: Database, job: Job) -> set[str]:
    """The partitions that hold events of this job."""
    rows = database.sql("SELECT tableoid::regclass::text FROM detent.events WHERE job_id = %s", job.id)
    return {row[0].removeprefix("detent.") for row in rows}


def rows_of(database: Database) -> int:
    return int(database.sql("SELECT count(*) FROM detent.events")[0][0])


async def ended(engine: Engine, **fields: Any) -> Job:
    job = await submit(engine, **fields)
    claimed = await claim_one(engine, job_types={job.job_type})
    return await engine.settle(job.id, claimed.token, Succeeded())


async def pruned(engine: Engine) -> Pruned:
    return await engine.prune(KEEP, lap_seconds=0.0)


async def check_clean(engine: Engine) -> None:
    report = await verify(engine.store)
    assert (report.violations, report.warnings) == ([], [])


def test_migrate_adds_the_partitions_of_two_weeks_ahead(database: Database) -> None:
    (now,) = database.sql("SELECT (extract(epoch FROM now()) * 1000000)::bigint")[0]
    names = [at(database, int(now + days * DAY * 1e6)) for days in (0, 7, 14)]
    assert names == partitions(database) and len(set(names)) == 3


async def test_opening_with_migrate_adds_what_is_missing(database: Database) -> None:
    database.sql("DROP TABLE detent." + ", detent.".join(partitions(database)))
    for may_migrate, number in ((False, 0), (True, 3)):
        engine = Engine(PostgresStore(database.url, may_migrate=may_migrate))
        await engine.open()
        await engine.close()
        assert len(partitions(database)) == number


async def test_maintenance_adds_the_next_one_in_time(engine: Engine, database: Database, clock: FakeClock) -> None:
    loop = MaintenanceLoop(engine, Settings(alerts=False))
    for _ in range(4):
        before = partitions(database)
        clock.advance(WEEK)
        await loop.run_once()
        added = set(partitions(database)) - set(before)
        assert added == {at(database, clock.now() + int(2 * WEEK * 1e6))}
        assert places(database, await submit(engine)) == {at(database, clock.now())} != {None}


async def test_several_processes_add_them_once(database: Database, clock: FakeClock) -> None:
    engines = [Engine(PostgresStore(database.url, clock=clock)) for _ in range(4)]
    for engine in engines:
        await engine.open()
    added = await asyncio.gather(*(add_partitions(engine) for engine in engines))
    assert sorted(added) == [0, 0, 0, 3]
    for engine in engines:
        await engine.close()


async def test_another_width_begins_where_the_existing_partitions_end(
    engine: Engine, database: Database, clock: FakeClock
) -> None:
    before = partitions(database)
    database.sql("UPDATE detent.event_partitions SET days = 2")
    assert await add_partitions(engine) == 0
    clock.advance(2 * WEEK)
    assert await add_partitions(engine) > 0
    bounds = database.sql(
        "SELECT first_id, end_id FROM detent.event_partition_list WHERE name > %s ORDER BY 1", before[0]
    )
    assert all(left[1] == right[0] for left, right in pairwise(bounds)), "no gaps, no overlaps"
    assert places(database, await submit(engine)) == {at(database, clock.now())}


async def test_an_id_without_a_partition_is_no_error(engine: Engine, database: Database) -> None:
    random_id = "f" + str(uuid4())[1:]
    for job_id, place in (
        (random_id, "events_beyond"),
        ("00000000-0000-0000-0000-000000000001", "events_default"),
        (first_id(START + int(1_000 * DAY * 1e6)), "events_default"),
    ):
        job = await ended(engine, id=job_id)
        assert places(database, job) == {place}
    await check_clean(engine)


async def test_a_range_with_rows_in_the_default_partition_is_left_out(
    engine: Engine, database: Database, clock: FakeClock
) -> None:
    clock.advance(10 * WEEK)
    early = await submit(engine, job_type="early")
    assert places(database, early) == {"events_default"}
    assert await add_partitions(engine) == 2
    assert at(database, clock.now()) is None
    clock.advance(WEEK)
    assert places(database, await submit(engine, job_type="late")) == {at(database, clock.now())}


async def test_workers_do_not_read_a_large_default_partition(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.stores.postgres.partitions._MAX_DEFAULT_BYTES", 100)
    await submit(engine, id="00000000-0000-0000-0000-000000000001")
    clock.advance(WEEK)
    assert await add_partitions(engine) == 0


async def test_an_expired_partition_is_dropped_and_no_row_is_deleted(
    engine: Engine, database: Database, clock: FakeClock
) -> None:
    database.sql(REFUSE_DELETES)
    partition = at(database, clock.now())
    for _ in range(5):
        await ended(engine)
    clock.advance(2 * DAY)
    await ended(engine)
    clock.advance(KEEP - DAY)
    done = await pruned(engine)
    assert (done.jobs, done.events) == (5, 0)
    assert partition in partitions(database) and rows_of(database) == 18, "a job of this partition is left"
    await check_clean(engine)
    clock.advance(DAY)
    young = await ended(engine)
    done = await pruned(engine)
    assert (done.jobs, done.events, done.partitions) == (1, 0, 1)
    assert partition not in partitions(database) and rows_of(database) == 3
    await check_clean(engine)
    totals = await engine.store.read(lambda tx: tx.event_counts.event_totals())
    assert sum(number for (log, _), number in totals.items() if log == EVENTS) >= 18, "counted before the drop"
    await EventCounter(engine).catch_up()
    totals = await engine.store.read(lambda tx: tx.event_counts.event_totals())
    assert sum(number for (log, _), number in totals.items() if log == EVENTS) == 21
    assert [event.job_id for event in await events_of(engine, young.id)] == [young.id] * 3
    assert [row[0] for row in database.sql("SELECT id::text FROM detent.jobs")] == [young.id]


async def test_a_partition_with_a_kept_job_stays_until_that_job_goes(
    engine: Engine, database: Database, clock: FakeClock
) -> None:
    gone = [await ended(engine) for _ in range(7)]
    kept = await submit(engine, job_type="kept", delay=1_000 * DAY)
    gone += [await ended(engine) for _ in range(7)]
    partition = at(database, clock.now())
    clock.advance(KEEP + WEEK)
    done = await pruned(engine)
    assert (done.jobs, done.events) == (14, 0) and partition in partitions(database)
    await check_clean(engine)
    clock.advance(WEEK)
    done = await engine.prune(KEEP, batch=4)
    assert (done.jobs, done.events) == (0, 42), "what deleted jobs have left is deleted by row"
    assert (await engine.prune(KEEP)).events == 0
    assert places(database, kept) == {partition} and rows_of(database) == 1
    await check_clean(engine)
    clock.advance(1_000 * DAY)
    await engine.wake(10)
    claimed = await claim_one(engine, job_types={"kept"})
    await engine.settle(kept.id, claimed.token, Succeeded())
    clock.advance(KEEP + DAY)
    await pruned(engine)
    done = await pruned(engine)  # the scan starts again
    assert (done.jobs, done.partitions, rows_of(database)) == (1, 1, 0)
    assert partition not in partitions(database)
    await check_clean(engine)


async def test_short_rules_delete_events_with_their_jobs(engine: Engine, database: Database, clock: FakeClock) -> None:
    await ended(engine)
    clock.advance(DAY)
    assert (await engine.prune(DAY / 2)).events == 3
    assert rows_of(database) == 0


async def test_the_id_of_a_pruned_job_can_be_used_again(engine: Engine, database: Database, clock: FakeClock) -> None:
    jobs = [await ended(engine, job_type=f"t{number}") for number in range(3)]
    clock.advance(DAY)
    await submit(engine, job_type="kept", delay=1_000 * DAY)
    clock.advance(KEEP)
    assert (await pruned(engine)).jobs == 3 and rows_of(database) == 10
    again = await ended(engine, id=jobs[0].id)
    assert [event.seq for event in await events_of(engine, again.id)] == [1, 2, 3]
    delayed = await submit(engine, id=jobs[1].id, delay=60.0)
    assert len(await events_of(engine, delayed.id)) == 1
    assert rows_of(database) == 8
    await check_clean(engine)


async def test_two_pruners_at_once(engine: Engine, database: Database, clock: FakeClock) -> None:
    other = Engine(PostgresStore(database.url, clock=clock), CONTRACTS, ids=ClockIds(clock))
    await other.open()
    for _ in range(20):
        await ended(engine)
    clock.advance(KEEP + WEEK)
    results = await asyncio.gather(*(e.prune(KEEP, batch=3, lap_seconds=0.0) for e in (engine, other)))
    last = await pruned(engine)
    assert sum(done.jobs for done in (*results, last)) == 20
    assert sum(done.partitions for done in (*results, last)) == 3
    assert rows_of(database) == 0
    await check_clean(engine)
    await other.close()


async def test_a_drop_gives_way_to_readers_and_writers(engine: Engine, database: Database, clock: FakeClock) -> None:
    """A transaction that holds events open delays the drop; inserts wait for a moment only, and nobody fails."""
    await ended(engine)
    partition = at(database, clock.now())
    clock.advance(KEEP + WEEK)
    with psycopg.connect(database.url) as reader:
        reader.execute("SELECT count(*) FROM detent.events")
        done, young = await asyncio.gather(pruned(engine), ended(engine))
        assert (done.jobs, done.partitions) == (1, 0) and partition in partitions(database)
    tail = await engine.store.read(lambda tx: tx.log.tail(Position(0), 100))
    assert [event.event.job_id for event in tail[0]] == [young.id] * 3
    await add_partitions(engine)
    assert (await pruned(engine)).partitions == 3
    after = await engine.store.read(lambda tx: tx.log.tail(Position(0), 100))
    assert [event.event for event in after[0]] == [event.event for event in tail[0]]


async def test_verify_sees_a_job_and_its_events_or_neither(
    engine: Engine, database: Database, clock: FakeClock
) -> None:
    """The snapshot of a chunk is older than the deletion of its jobs; their partition is not dropped meanwhile."""
    job = await ended(engine)
    clock.advance(KEEP + WEEK)

    async def chunk(tx: Any) -> list[Any]:
        jobs = JobRange(EVERYTHING)
        assert [row.id for row in await tx.verification.job_rows(jobs, 10)] == [job.id]
        done = await pruned(other)
        assert (done.jobs, done.partitions) == (1, 0)
        rows: list[Any] = await tx.verification.rows_of(EventRow, jobs)
        return rows

    other = Engine(PostgresStore(database.url, clock=clock), CONTRACTS)
    await other.open()
    assert len(await engine.store.read(chunk)) == 3
    assert (await pruned(other)).partitions == 3
    await other.close()


async def test_verify_still_finds_lost_jobs(engine: Engine, database: Database, clock: FakeClock) -> None:
    await ended(engine)
    clock.advance(KEEP + DAY)
    young = await ended(engine, job_type="young")
    await pruned(engine)
    database.sql("DELETE FROM detent.jobs WHERE id = %s", young.id)
    report = await verify(engine.store)
    assert {(row.job_id, row.rule) for row in report.violations} == {(young.id, "event-orphan")}


def test_the_doctor_says_what_is_missing(database: Database) -> None:
    def finding() -> Any:
        (found,) = [found for found in doctor_postgres.findings(database.url) if found.check == "partitions"]
        return found

    assert finding().ok and "3 partitions, 0 MB" in finding().message
    database.sql("DROP TABLE detent." + ", detent.".join(partitions(database)))
    assert not finding().ok and "none for tomorrow" in finding().message and "detent migrate" in finding().advice


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_the_log_of_a_job_is_read_from_one_partition(engine: Engine, database: Database, mode: str) -> None:
    job = await ended(engine)
    connection: Any = await asyncpg.connect(database.url, server_settings={**POOL_SETTINGS, "plan_cache_mode": mode})
    query = compiled(queries(own_clock=True)["events"])
    await connection.execute(f"PREPARE log (uuid) AS {query.text}")
    text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE log ('{UUID(job.id)}')")
    await connection.close()
    scanned = [node["Relation Name"] for node in scans(json.loads(text)[0]["Plan"])]
    assert scanned == [at(database, engine.store.now())]


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if plan.get("Relation Name", "").startswith("events"):
        yield plan
    for part in plan.get("Plans", ()):
        yield from scans(part)
