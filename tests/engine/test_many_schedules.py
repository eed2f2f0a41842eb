"""Many schedules due at once: statements per batch do not depend on their number, and each keeps its own rules."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from detent import Detent
from detent.core.access import Scope
from detent.core.errors import StoreRefused
from detent.core.job import Job
from detent.core.schedule import Schedule
from detent.core.times import SECOND, iso
from detent.engine import Engine
from detent.engine.schedules.firing import QUOTA_RETRY_DELAY
from detent.engine.schedules.request import ScheduleRequest, build_schedule
from detent.ports.listing import Filter
from detent.ports.tx import Tx
from detent.proof.verify.verify import verify
from detent.stores.postgres.tx import PostgresTxQueries
from detent.stores.sqlite.store import SqliteStore
from detent.stores.sqlite.tx import SqliteTxQueries
from support.acts import events_of, submit
from support.clock import START, FakeClock
from support.stores import Place, make_engine
from support.waiting import until

pytestmark = pytest.mark.anyio


IGNORED = ("fire-missing", "schedule")
"""What `verify` rightly reports of a key that a fire did not take and of a time zone that does not exist."""


def minute(number: int) -> int:
    return START + number * 60 * SECOND


async def add_many(engine: Engine, count: int, prefix: str = "tick", **fields: Any) -> list[Schedule]:
    """Insert many schedules in one transaction; `fields` are those of a ScheduleRequest."""
    options = {"cron": "* * * * *"} | fields

    async def act(tx: Tx) -> list[Schedule]:
        requests = [ScheduleRequest(f"{prefix}-{number}", "mail", **options) for number in range(count)]
        rows = [build_schedule(engine, request, tx.now, schedule_id=engine.ids.job()) for request in requests]
        for row in rows:
            assert await tx.schedules.put_schedule(row)
        return rows

    return await engine.store.write(act)


async def fire(engine: Engine) -> list[Job]:
    """Fire until no due schedule is left that this process can handle."""
    jobs: list[Job] = []
    while (fired := await engine.schedules.fire_due(1_000)).handled:
        jobs += fired.jobs
    return jobs


async def check(engine: Engine) -> dict[str, Schedule]:
    """All schedules by name, after `verify` found nothing else than what the tests planted."""
    report = await verify(engine.store, engine.contracts)
    assert not (faults := [found for found in report.violations if not found.rule.startswith(IGNORED)]), faults[:3]
    return {schedule.name: schedule for schedule in await engine.schedules.list(Filter(limit=10_000))}


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the named statements that transactions run."""
    counts: Counter[str] = Counter()

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, name: str, /, *values: Any, **named: Any) -> Any:
            counts[name] += 1
            return original(self, name, *values, **named)

        return run

    with monkeypatch.context() as patch:
        for owner in (PostgresTxQueries, SqliteTxQueries):
            for method in ("query", "change"):
                patch.setattr(owner, method, counted(getattr(owner, method)))
        yield counts


async def test_a_batch_runs_as_many_statements_as_one_schedule(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[Counter[str]] = []
    for number, size in enumerate((2, 60)):
        await add_many(engine, size, f"skip-{number}", overlap="skip")
        await add_many(engine, size, f"allow-{number}", tenant_id="acme", every="1m", cron=None)
        clock.advance(60)
        assert len(await fire(engine)) >= size
        clock.advance(60)
        with statements(monkeypatch) as ran:
            jobs = (await engine.schedules.fire_due(1_000)).jobs
        counts.append(ran)
        assert len(jobs) == 2 + (60 if number else 0), "those that skip have a job that has not ended"
    assert counts[0] == counts[1]
    assert counts[1].total() < 16
    named = await check(engine)
    assert {schedule.overlapped for name, schedule in named.items() if name.startswith("skip-1")} == {1}


async def test_new_names_of_a_batch_cost_one_round_trip(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The actor of a fire is its schedule. Rows hold a number for it, and 40 new ones are interned together."""
    await add_many(engine, 40)
    clock.advance(60)
    with statements(monkeypatch) as ran:
        jobs = await fire(engine)
    in_process = isinstance(engine.store, SqliteStore)
    assert (len(jobs), ran["intern_actors"], ran["add_actor"]) == ((40, 0, 40) if in_process else (40, 1, 0))
    assert {(await events_of(engine, job.id))[0].actor for job in jobs} == {f"schedule:tick-{n}" for n in range(40)}


async def test_none_due_costs_one_statement_and_reads_one_row(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, size in enumerate((5, 500)):
        await add_many(engine, size, f"later-{number}")
        with statements(monkeypatch) as ran, virtual_machine_steps(engine) as counted:
            assert (await engine.schedules.fire_due(1_000)).next == minute(1)
        assert ran == {"next_fire": 1}
        assert sum(counted) < 100, "instructions of SQLite, for 5 schedules and for 505"


@contextmanager
def virtual_machine_steps(engine: Engine) -> Iterator[list[int]]:
    """Collects the instructions that the reader of a SQLite store executes; stays empty on other stores."""
    counted: list[int] = []
    session = engine.store._reader if isinstance(engine.store, SqliteStore) else None
    if session is not None:
        session.connection.set_progress_handler(lambda: bool(counted.append(1)), 1)
    yield counted
    if session is not None:
        session.connection.set_progress_handler(None)


async def test_each_schedule_of_a_batch_keeps_its_rules(engine: Engine, clock: FakeClock) -> None:
    """Quotas, payload limits, taken keys, known fires, missing time zones and overlaps, beside plain schedules."""
    await engine.limits.set_quota("full", Scope("ann"), max_backlog=1)
    await engine.limits.set_quota("room", Scope("ann"), max_backlog=3)
    await engine.limits.set_quota("small", Scope("ann"), max_payload=20)
    await submit(engine, tenant_id="full")
    await add_many(engine, 20, "plain")
    await add_many(engine, 3, "full", tenant_id="full")
    await add_many(engine, 5, "room", tenant_id="room")
    await add_many(engine, 2, "small", tenant_id="small", payload={"text": "x" * 30})
    [taken] = await add_many(engine, 1, "taken")
    await submit(engine, job_type="other", idempotency_key=f"schedule:{taken.id}:2026-02-25T12:02:00Z")
    await add_many(engine, 2, "lost-zone")
    await rename_zone(engine, "lost-zone")
    await add_many(engine, 2, "cancel", overlap="cancel", misfire="all")
    await add_many(engine, 2, "catch-up", misfire="all")
    clock.advance(121)
    jobs = await fire(engine)
    named = await check(engine)
    fired = Counter(name.rpartition("-")[0] for name in (named_of(named, job) for job in jobs))
    assert fired == {"plain": 20, "room": 3, "cancel": 4, "catch-up": 4}
    assert [named[f"full-{n}"].retry_at for n in range(3)] == [clock.now() + QUOTA_RETRY_DELAY] * 3
    waiting = [s for s in named.values() if (s.last_error or "").startswith("TENANT_BACKLOG_FULL")]
    assert len(waiting) == 5 and {s.next_fire_at for s in waiting} == {minute(1)}
    assert {(named[f"small-{n}"].misfires, named[f"small-{n}"].next_fire_at) for n in (0, 1)} == {(2, minute(3))}
    assert (named["small-0"].last_error or "").startswith("TENANT_PAYLOAD_TOO_LARGE")
    assert (named["taken-0"].fires, named["taken-0"].next_fire_at) == (0, minute(3))
    assert "IDEMPOTENCY" in (named["taken-0"].last_error or "")
    assert {named[f"lost-zone-{n}"].next_fire_at for n in (0, 1)} == {minute(1)}, "another process may know the zone"
    assert {named[f"cancel-{n}"].fires for n in (0, 1)} == {2}


async def test_a_schedule_whose_fires_are_known_is_fired_alone(engine: Engine, clock: FakeClock) -> None:
    """A backfill made the job of a fire that is due: its schedule advances, the others fire in batches."""
    await add_many(engine, 9)
    clock.advance(60)
    await engine.schedules.backfill("tick-4", "2026-02-25T12:01:00Z", "2026-02-25T12:01:00Z", Scope("ann"))
    assert len(await fire(engine)) == 8
    named = await check(engine)
    assert {schedule.next_fire_at for schedule in named.values()} == {minute(2)}
    assert named["tick-4"].fires == 0 and len(await engine.jobs.list(Filter())) == 9


async def test_a_refused_row_stops_its_own_schedule_only(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses one job for a reason that the engine cannot know before."""
    await add_many(engine, 20, "good")
    await add_many(engine, 1, "bad", priority=7)
    await add_many(engine, 20, "fine")
    for owner in (PostgresTxQueries, SqliteTxQueries):
        monkeypatch.setattr(owner, "insert", refusing(owner.insert))
    clock.advance(60)
    assert len(await fire(engine)) == 40
    bad = (await check(engine))["bad-0"]
    assert (bad.fires, bad.misfires, bad.next_fire_at) == (0, 1, minute(2))
    assert (bad.last_error or "").startswith("STORE_CONSTRAINT")


def refusing(insert: Callable[..., Any]) -> Callable[..., Any]:
    async def run(self: Any, changes: Any) -> Any:
        if any(change.after.priority == 7 for change in changes):
            raise StoreRefused("the database refused a row")
        return await insert(self, changes)

    return run


async def test_processes_share_the_due_schedules(engine: Engine, place: Place, clock: FakeClock) -> None:
    others = [make_engine(place, clock) for _ in range(2)]
    for other in others:
        await other.open()
    await add_many(engine, 120)
    clock.advance(60)
    while (await engine.schedules.fire_due(1)).next != minute(2):
        await asyncio.gather(*(one.schedules.fire_due(10) for one in (engine, *others)))
    named = await check(engine)
    assert {(schedule.fires, schedule.next_fire_at) for schedule in named.values()} == {(1, minute(2))}
    assert len(await engine.jobs.list(Filter(limit=1_000))) == 120
    for other in others:
        await other.close()


async def rename_zone(engine: Engine, prefix: str) -> None:
    rows = [s for s in await engine.schedules.list(Filter(limit=1_000)) if s.name.startswith(prefix)]

    async def act(tx: Tx) -> None:
        for row in rows:
            assert await tx.schedules.change_schedule(
                row, replace(row, timezone="Nowhere/Else", version=row.version + 1)
            )

    await engine.store.write(act)


def named_of(named: dict[str, Schedule], job: Job) -> str:
    return next(name for name, schedule in named.items() if f":{schedule.id}:" in (job.idempotency_key or ""))


@pytest.mark.drill
async def test_20_000_due_at_once(url: str) -> None:
    """Under a worker that runs the jobs as well: all fired within 5 s, and other jobs wait for less than 0.5 s."""
    count, delays = 20_000, list[float]()
    app = Detent(url)

    @app.job("mail")
    async def mail() -> None: ...

    @app.job("probe")
    async def probe(at: float) -> None:
        delays.append(time.monotonic() - at)

    async with app:
        await add_many(app.engine, count, every="1h", cron=None, starts_at=iso(app.engine.store.now() + 12 * SECOND))
        worker = await app.worker(slots=50)
        task = asyncio.create_task(worker.run(handle_signals=False))
        await until(lambda: worker.background.sweeper.fired)
        began, probes = time.monotonic(), 0
        while worker.background.sweeper.fired < count:
            await (await probe.enqueue(at=time.monotonic())).result(timeout=30)
            probes += 1
        seconds = time.monotonic() - began
        worker.stop()
        assert await task == 0
        named = await app.engine.schedules.list(Filter(limit=count))
        assert {schedule.fires for schedule in named} == {1}
    print(f"\n{count} schedules fired in {seconds:.2f} s, {probes} other jobs delayed by at most {max(delays):.3f} s")
    assert seconds < 5
    assert max(delays) < 0.5
