"""Schedules over every store: one job per fire, whoever sees it due, whatever happens in between."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.errors import InvalidInput
from detent.core.job import Job
from detent.core.schedule import Schedule, plan
from detent.core.times import SECOND, iso
from detent.engine import Engine
from detent.engine.schedules.firing import QUOTA_RETRY_DELAY, _fire, make_job
from detent.engine.schedules.request import ScheduleRequest
from detent.engine.schedules.schedules import schedule_view
from detent.ports.listing import Filter
from detent.proof.verify.verify import verify
from support.acts import LONG, PERMANENT, claim, events_of, note_names, refused
from support.clock import START, FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio
MINUTE = 60


async def add(engine: Engine, name: str = "tick", job_type: str = "mail", **fields: Any) -> Schedule:
    if not {"cron", "every", "at"} & fields.keys():
        fields["cron"] = "* * * * *"
    return await engine.schedules.add(ScheduleRequest(name, job_type, **fields), Scope("ann"))


async def fire(engine: Engine, limit: int = 100) -> list[Job]:
    return (await engine.schedules.fire_due(limit)).jobs


async def stored(engine: Engine, name: str = "tick") -> Schedule:
    return await engine.schedules.get(name)


def minute(number: int) -> int:
    return START + number * MINUTE * SECOND


async def test_a_fire_makes_one_job(engine: Engine, clock: FakeClock) -> None:
    schedule = await add(engine, payload={"to": "bo"}, queue="post", priority=3, max_retries=1, timeout_ms=900)
    assert schedule.next_fire_at == minute(1)
    assert (await engine.schedules.fire_due(10)).next == minute(1)
    clock.advance(61)
    [job] = await fire(engine)
    assert await fire(engine) == []
    assert (job.job_type, job.queue, job.payload, job.priority) == ("mail", "post", '{"to":"bo"}', 3)
    assert (job.max_retries, job.timeout_ms, job.tenant_id) == (1, 900, "default")
    assert (job.schedule_type, job.scheduled_at) == ("cron", minute(1))
    assert job.idempotency_key == f"schedule:{schedule.id}:2026-02-25T12:01:00Z"
    assert [event.actor for event in await events_of(engine, job.id)] == ["schedule:tick"]
    now = await stored(engine)
    assert (now.last_fire_at, now.last_job_id, now.next_fire_at) == (minute(1), job.id, minute(2))
    assert (now.fires, now.misfires, now.version) == (1, 0, 1)
    assert [one.id for one in await claim(engine)] == [job.id]


@pytest.mark.parametrize("contract", ["gate-b2", "men", "p3c", "streams", "formal", "standard"])
async def test_under_every_contract(engine: Engine, clock: FakeClock, contract: str) -> None:
    await add(engine, contract=contract, jitter=5)
    clock.advance(60)
    [job] = await fire(engine)
    assert job.contract == contract and job.scheduled_at == minute(1)
    assert job.due_at is not None and minute(1) <= job.due_at <= minute(1) + 5 * SECOND
    clock.advance(6)
    await engine.wake()
    assert [one.id for one in await claim(engine)] == [job.id]


async def test_many_see_it_due_and_one_gets_it(engine: Engine, place: Place, clock: FakeClock) -> None:
    others = [make_engine(place, clock) for _ in range(3)]
    for other in others:
        await other.open()
    for number in range(5):
        await add(engine, f"tick-{number}", misfire="all")
    for round_ in range(3):
        clock.advance(120)
        found = await asyncio.gather(*(fire(one) for one in (engine, *others)))
        jobs = [job for jobs in found for job in jobs]
        assert sorted(job.scheduled_at or 0 for job in jobs) == sorted(
            [minute(2 * round_ + 1), minute(2 * round_ + 2)] * 5
        )
        assert len({job.idempotency_key for job in jobs}) == 10
    for other in others:
        await other.close()


async def test_whoever_looked_too_early_writes_nothing(engine: Engine, clock: FakeClock) -> None:
    """The plan was made of a row that has since moved on, been edited or been paused."""
    await add(engine)
    clock.advance(60)
    seen = await stored(engine)
    planned = plan(seen, clock.now())
    await engine.schedules.edit("tick", {"priority": 5}, Scope("ann"))
    assert await engine.store.write(lambda tx: _fire(engine, tx, seen, planned)) == []
    assert [job.priority for job in await fire(engine)] == [5]
    assert await engine.store.write(lambda tx: _fire(engine, tx, seen, planned)) == []
    seen = await stored(engine)
    clock.advance(60)
    late = plan(seen, clock.now())
    for _ in range(2):
        assert len(await fire(engine)) == 1
        clock.advance(60)
    before = await stored(engine)
    assert await engine.store.write(lambda tx: _fire(engine, tx, seen, late)) == []
    assert await stored(engine) == before, "it does not go back either"
    assert len(await engine.jobs.list(Filter())) == 3


async def test_the_second_guard_outlives_pruning(engine: Engine, place: Place, clock: FakeClock) -> None:
    schedule = await add(engine, job_type="once")
    clock.advance(60)
    [job] = await fire(engine)
    await engine.jobs.cancel(job.id, Scope("ann"))
    clock.advance(LONG)
    await engine.schedules.pause("tick", Scope("ann"))
    assert (await engine.prune(1.0)).jobs == 1
    assert await engine.store.write(lambda tx: make_job(engine, tx, schedule, minute(1), "ann")) is None
    again = await engine.schedules.backfill("tick", iso(minute(1)) or "", iso(minute(2)) or "", Scope("ann"))
    assert (again.fires, again.known, again.made) == (2, 1, 1)
    runs = await engine.schedules.fires("tick")
    assert [(fire_.fire_at, fire_.schedule_id) for fire_ in runs] == [
        (minute(2), schedule.id),
        (minute(1), schedule.id),
    ]
    await engine.schedules.remove("tick", Scope("ann"))
    assert len(place.dump()["fires"]) == 2, "a removed schedule's fires stay with the jobs they made"
    [left] = await engine.jobs.list(Filter())
    await engine.jobs.cancel(left.id, Scope("ann"))
    clock.advance(LONG)
    await engine.prune(1.0, lap_seconds=0)
    await engine.prune(1.0, lap_seconds=0)
    assert [row[1] for row in place.dump()["fires"]] == [minute(1)], "and go with them"


async def test_old_fires_are_forgotten_and_never_made_again(engine: Engine, place: Place, clock: FakeClock) -> None:
    await add(engine, job_type="once")
    jobs = []
    for _ in range(4):
        clock.advance(60)
        jobs += await fire(engine)
    for job in (jobs[0], jobs[1], jobs[3]):
        await engine.jobs.cancel(job.id, Scope("ann"))
    clock.advance(1_000)
    await engine.prune(1.0, keep_fires_for=500)
    assert [row[1] for row in place.dump()["fires"]] == [minute(3), minute(4)], "whose job is there, and the last"
    span = ("2026-02-25T12:02:00Z", "2026-02-25T12:05:00Z")
    error = await refused(engine.schedules.backfill("tick", *span, Scope("ann")), "BACKFILL_FORGOTTEN", 422)
    assert error.extra["limit"] == "2026-02-25T12:02:00Z"
    done = await engine.schedules.backfill("tick", "2026-02-25T12:03:00Z", "2026-02-25T12:05:00Z", Scope("ann"))
    assert (done.known, done.made) == (2, 1)
    assert (await verify(engine.store, engine.contracts)).ok


@pytest.mark.parametrize(("misfire", "expected"), [("skip", []), ("once", [5]), ("all", [3, 4, 5])])
async def test_misfires(engine: Engine, clock: FakeClock, misfire: str, expected: list[int]) -> None:
    await add(engine, misfire=misfire, misfire_limit=3, misfire_grace=10)
    clock.advance(5 * MINUTE + 30)
    assert [job.scheduled_at for job in await fire(engine)] == [minute(number) for number in expected]
    now = await stored(engine)
    assert (now.misfires, now.last_misfire_at, now.fires) == (5, minute(5), len(expected))
    assert now.next_fire_at == minute(6)


async def test_overlap_allow(engine: Engine, clock: FakeClock) -> None:
    await add(engine)
    for _ in range(2):
        clock.advance(60)
        assert len(await fire(engine)) == 1


async def test_overlap_skip(engine: Engine, clock: FakeClock) -> None:
    await add(engine, overlap="skip", misfire="all")
    clock.advance(120)
    [first] = await fire(engine)
    assert (await stored(engine)).overlapped == 1, "the second of two missed fires would overlap with the first"
    [claimed] = await claim(engine)
    clock.advance(60)
    assert await fire(engine) == []
    now = await stored(engine)
    assert (now.overlapped, now.fires, now.last_job_id, now.next_fire_at) == (2, 1, first.id, minute(4))
    await engine.settle(claimed.id, claimed.token, PERMANENT)
    clock.advance(60)
    assert len(await fire(engine)) == 1


async def test_overlap_cancel(engine: Engine, clock: FakeClock) -> None:
    await add(engine, overlap="cancel")
    clock.advance(60)
    [waiting] = await fire(engine)
    clock.advance(60)
    [running] = await fire(engine)
    assert (await engine.jobs.get(waiting.id)).phase == "final", "nobody held it: cancelled at once"
    await claim(engine)
    clock.advance(60)
    [third] = await fire(engine)
    cancelled = await engine.jobs.get(running.id)
    assert cancelled.cancel_requested is not None and "schedule:tick" in cancelled.cancel_requested
    assert await note_names(engine, running.id) == ["cancel.requested"]
    assert [one.id for one in await claim(engine)] == [third.id]


async def test_pause_and_resume(engine: Engine, clock: FakeClock) -> None:
    await add(engine)
    paused = await engine.schedules.pause("tick", Scope("bo", "holiday"))
    assert (paused.paused_at, paused.next_fire_at) == (START, None)
    clock.advance(10 * MINUTE + 5)
    assert await engine.schedules.fire_due(10) == ([], None, 0)
    resumed = await engine.schedules.resume("tick", Scope("bo"))
    assert resumed.next_fire_at == minute(11), "what passed meanwhile is not made up for"
    assert (await engine.schedules.resume("tick", Scope("bo"))).version == resumed.version
    acts = [(entry.actor, entry.act, entry.reason) for _, _, entry in await engine.audit()]
    assert acts == [
        ("bo", "schedule.resume", None),
        ("bo", "schedule.pause", "holiday"),
        ("ann", "schedule.add", None),
    ]


async def test_a_clock_that_was_set_back_fires_nothing_again(engine: Engine, clock: FakeClock) -> None:
    await add(engine)
    clock.advance(60)
    assert len(await fire(engine)) == 1
    clock.advance(-30)
    assert await fire(engine) == []
    await engine.schedules.pause("tick", Scope("ann"))
    assert (await engine.schedules.resume("tick", Scope("ann"))).next_fire_at == minute(2)
    assert (await engine.schedules.edit("tick", {"cron": "*/1 * * * *"}, Scope("ann"))).next_fire_at == minute(2)


async def test_edit(engine: Engine, clock: FakeClock) -> None:
    await add(engine, every="10m", payload={"a": 1})
    clock.advance(2 * MINUTE)
    edited = await engine.schedules.edit("tick", {"every": "5m"}, Scope("bo"), version=1)
    assert (edited.version, edited.next_fire_at) == (2, minute(7)), "a new interval is counted from now"
    error = await refused(
        engine.schedules.edit("tick", {"every": "1m"}, Scope("bo"), version=1), "VERSION_CONFLICT", 409
    )
    assert error.extra["version"] == 2
    clock.advance(5 * MINUTE)
    same = await engine.schedules.edit("tick", {"payload": {"a": 2}, "queue": "slow"}, Scope("bo"))
    assert same.next_fire_at == minute(7), "a fire that is due stays due"
    [job] = await fire(engine)
    assert (job.payload, job.queue) == ('{"a":2}', "slow")
    switched = await engine.schedules.edit("tick", {"cron": "0 9 * * *", "tz": "Asia/Shanghai"}, Scope("bo"))
    assert (switched.kind, iso(switched.next_fire_at)) == ("cron", "2026-02-26T01:00:00Z")
    [_, _, (_, _, first)] = (await engine.audit())[:3]
    assert first.data == {"every": {"from": "10m", "to": "5m"}}
    await refused(engine.schedules.edit("tick", {"name": "tock"}, Scope("bo")), "OPTION_UNKNOWN", 422)
    await refused(engine.schedules.edit("tick", {"cron": "nonsense"}, Scope("bo")), "SCHEDULE_INVALID", 422)
    assert await stored(engine) == switched


async def test_what_was_said_is_taken_back(engine: Engine) -> None:
    schedule = await add(engine, every="10m", queue="slow", priority=5, deadline=60, ends_at="2030-01-01T00:00:00Z")
    names = ("queue", "priority", "deadline", "ends_at")
    plain = await engine.schedules.edit("tick", dict.fromkeys(names), Scope("bo"))
    assert (plain.queue, plain.priority, plain.ends_at) == ("default", 0, None)
    assert plain.expression == schedule.expression and plain.kind == schedule.kind
    await refused(engine.schedules.edit("tick", {"every": None}, Scope("bo")), "SCHEDULE_INVALID", 422)
    await refused(engine.schedules.edit("tick", {"job_type": None}, Scope("bo")), "NAME_INVALID", 422)
    assert await stored(engine) == plain


async def test_fires_go_on_beside_edits(engine: Engine, clock: FakeClock) -> None:
    """Fires do not raise the version: who edits is refused only if somebody else edited."""
    await add(engine)
    clock.advance(60)
    await fire(engine)
    await engine.schedules.edit("tick", {"priority": 1}, Scope("ann"), version=1)
    clock.advance(60)
    assert len(await fire(engine)) == 1


async def test_remove(engine: Engine, clock: FakeClock) -> None:
    schedule = await add(engine)
    clock.advance(60)
    [job] = await fire(engine)
    await engine.schedules.remove(schedule.id, Scope("bo", "not needed"))
    clock.advance(60)
    assert await fire(engine) == []
    await refused(engine.schedules.get("tick"), "SCHEDULE_NOT_FOUND", 404)
    assert (await engine.jobs.get(job.id)).id == job.id
    again = await add(engine)
    assert again.id != schedule.id, "a schedule of the same name is another one"


async def test_at_and_end(engine: Engine, clock: FakeClock) -> None:
    await add(engine, "once", at="2026-02-25T12:01:00Z")
    await add(engine, "short", cron="* * * * *", ends_at="2026-02-25T12:01:30Z")
    clock.advance(60)
    assert [job.schedule_type for job in await fire(engine)] == ["at", "cron"]
    for name in ("once", "short"):
        assert (await stored(engine, name)).next_fire_at is None
    clock.advance(LONG)
    assert await fire(engine) == []


async def test_backfill(engine: Engine, clock: FakeClock) -> None:
    await add(engine, overlap="skip", cron="0 * * * *")
    span = ("2026-02-24T00:00:00Z", "2026-02-24T23:59:00Z")
    assert (await engine.schedules.backfill("tick", *span, Scope("ann"), dry_run=True)).made == 24
    assert await engine.jobs.list(Filter()) == []
    done = await engine.schedules.backfill("tick", *span, Scope("ann", "lost day"), rate=2)
    assert (done.fires, done.known, done.made, len(done.job_ids)) == (24, 0, 24, 24)
    jobs = sorted(await engine.jobs.list(Filter()), key=lambda job: job.scheduled_at or 0)
    assert [job.due_at for job in jobs] == [START + number * SECOND // 2 for number in range(24)], "two a second"
    assert (await engine.schedules.backfill("tick", *span, Scope("ann"))).made == 0
    [entry] = [entry for _, _, entry in await engine.audit() if entry.act == "schedule.backfill"]
    assert (entry.actor, entry.reason, entry.data and entry.data["jobs"]) == ("ann", "lost day", 24)
    for bad in (("2026-02-25T00:00:00Z", "2026-02-26T00:00:00Z"), ("2026-02-24T00:00:00Z", "2026-02-23T00:00:00Z")):
        await refused(engine.schedules.backfill("tick", *bad, Scope("ann")), "SCHEDULE_INVALID", 422)
    await engine.schedules.edit("tick", {"cron": "* * * * *"}, Scope("ann"))
    early = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
    await refused(engine.schedules.backfill("tick", *early, Scope("ann")), "BACKFILL_TOO_LARGE", 422)


async def test_a_backfill_up_to_now_and_the_fire_make_one_job(engine: Engine, clock: FakeClock) -> None:
    await add(engine)
    clock.advance(60)
    assert (
        await engine.schedules.backfill("tick", "2026-02-25T12:01:00Z", "2026-02-25T12:01:00Z", Scope("ann"))
    ).made == 1
    assert await fire(engine) == []
    assert (await stored(engine)).next_fire_at == minute(2)


async def test_preview(engine: Engine) -> None:
    await add(engine, cron="30 2 * * *", tz="Europe/Berlin", jitter=60)
    await engine.schedules.pause("tick", Scope("ann"))
    [first, second] = await engine.schedules.preview("tick", 2)
    assert (iso(first.fire_at), iso(second.fire_at)) == ("2026-02-26T01:30:00Z", "2026-02-27T01:30:00Z")
    assert 0 <= first.due_at - first.fire_at <= 60 * SECOND
    request = ScheduleRequest("later", "mail", every=90)
    assert [iso(one.fire_at) for one in await engine.schedules.preview(request, 2)] == [
        "2026-02-25T12:01:30Z",
        "2026-02-25T12:03:00Z",
    ]
    assert len(await engine.schedules.preview(ScheduleRequest("x", "mail", at="2027-01-01T00:00:00Z"), 5)) == 1


async def test_a_job_that_cannot_be_made_is_told_and_passed_over(engine: Engine, clock: FakeClock) -> None:
    await add(engine, payload={"text": "x" * 500})
    await add(engine, "fine")
    engine.max_payload = 100
    clock.advance(60)
    assert len(await fire(engine)) == 1
    now = await stored(engine)
    assert (now.misfires, now.last_misfire_at, now.fires, now.next_fire_at) == (1, minute(1), 0, minute(2))
    assert now.last_error is not None and now.last_error.startswith("PAYLOAD_TOO_LARGE")
    engine.max_payload = 1_000
    clock.advance(60)
    assert len(await fire(engine)) == 2
    assert (await stored(engine)).last_error is None


async def test_a_schedule_nobody_can_read_stops_no_other(engine: Engine, clock: FakeClock) -> None:
    broken = await add(engine, "broken")
    await add(engine, "fine")
    astray = replace(broken, timezone="Mars/Base", version=2)
    assert await engine.store.write(lambda tx: tx.schedules.change_schedule(broken, astray))
    clock.advance(60)
    runs = await engine.schedules.fire_due(10)
    assert [job.scheduled_at for job in runs.jobs] == [minute(1)] and runs.next == minute(1)
    assert (await stored(engine, "broken")).next_fire_at == minute(1), "it stays due for whoever can read it"


async def test_a_contract_we_do_not_know_is_left_to_others(engine: Engine, clock: FakeClock) -> None:
    await add(engine)
    known, engine.contracts = engine.contracts, {}
    clock.advance(60)
    assert await engine.schedules.fire_due(10) == ([], None, 0)
    engine.contracts = known
    assert len(await fire(engine)) == 1


async def test_declared_in_code(engine: Engine, clock: FakeClock) -> None:
    request = ScheduleRequest("nightly", "report", cron="0 2 * * *", tz="Europe/Berlin")
    [schedule] = await engine.schedules.declare([request])
    assert schedule.declared is not None and await engine.schedules.declare([request]) == [schedule]
    await engine.schedules.edit("nightly", {"priority": 9}, Scope("ann"))
    await engine.schedules.pause("nightly", Scope("ann"))
    [kept] = await engine.schedules.declare([request])
    assert (kept.priority, kept.version) == (9, 3), "an edit stands while the declaration is the same"
    [changed] = await engine.schedules.declare([ScheduleRequest("nightly", "report", cron="0 3 * * *")])
    assert (changed.id, changed.expression, changed.priority) == (schedule.id, "0 3 * * *", 0), "a new declaration wins"
    assert changed.paused_at is not None and changed.next_fire_at is None, "a pause is never undone by code"
    assert [entry.act for _, _, entry in await engine.audit() if entry.actor == "code"] == ["schedule.declare"] * 2
    await engine.schedules.declare([ScheduleRequest("past", "report", at="2020-01-01T00:00:00Z")])
    assert (await stored(engine, "past")).next_fire_at is None, "it has passed: no fire, and no error at every start"


async def test_tenants(engine: Engine, clock: FakeClock) -> None:
    one, other = await add(engine, tenant_id="a"), await add(engine, tenant_id="b")
    await refused(engine.schedules.get("tick"), "SCHEDULE_AMBIGUOUS", 422)
    assert (await engine.scoped(tenant="b").schedules.get("tick")).id == other.id
    await refused(engine.schedules.pause(one.id, Scope("x", tenant="b")), "TENANT_SCOPE_VIOLATION", 403)
    await refused(engine.scoped(tenant="c").schedules.get("tick"), "SCHEDULE_NOT_FOUND", 404)
    assert [s.id for s in await engine.schedules.list(Filter(tenant_id="a"))] == [one.id]
    clock.advance(60)
    assert sorted(job.tenant_id for job in await fire(engine)) == ["a", "b"]


async def test_lists(engine: Engine) -> None:
    for number in range(3):
        await add(engine, f"tick-{number}", job_type=f"type-{number}", queue="slow" if number else "default")
    assert [s.name for s in await engine.schedules.list(Filter())] == ["tick-2", "tick-1", "tick-0"]
    assert [s.name for s in await engine.schedules.list(Filter(queue="slow"))] == ["tick-2", "tick-1"]
    assert [s.name for s in await engine.schedules.list(Filter(text="type-0"))] == ["tick-0"]
    [first] = await engine.schedules.list(Filter(limit=1))
    assert [s.name for s in await engine.schedules.list(Filter(before=first.id))] == ["tick-1", "tick-0"]


async def test_a_schedule_that_a_quota_holds_back_says_so(engine: Engine, clock: FakeClock) -> None:
    await engine.limits.set_quota("full", Scope("ann"), max_backlog=0)
    await add(engine, tenant_id="full")
    assert not schedule_view(await stored(engine))["held_back"]
    clock.advance(60)
    assert await fire(engine) == []
    view = schedule_view(await stored(engine), payloads=False)
    assert view["held_back"] and view["last_error"] is None, "also for tokens that may not see errors"
    assert (view["next_fire_at"], view["retry_at"]) == (iso(clock.now()), iso(clock.now() + QUOTA_RETRY_DELAY))
    await engine.limits.set_quota("full", Scope("ann"), max_backlog=9)
    clock.advance(QUOTA_RETRY_DELAY / SECOND)
    assert len(await fire(engine)) == 1
    assert not schedule_view(await stored(engine))["held_back"]


BAD: list[tuple[Mapping[str, Any], str, str]] = [
    ({"cron": "* * * *"}, "SCHEDULE_INVALID", "cron"),
    ({"cron": "0 0 30 2 *"}, "SCHEDULE_INVALID", "cron"),
    ({"cron": 5}, "SCHEDULE_INVALID", "cron"),
    ({"cron": None}, "SCHEDULE_INVALID", "cron"),
    ({"every": "5m"}, "SCHEDULE_INVALID", "cron"),
    ({"cron": None, "every": 0.5}, "SCHEDULE_INVALID", "every"),
    ({"cron": None, "every": True}, "SCHEDULE_INVALID", "every"),
    ({"cron": None, "at": "tomorrow"}, "SCHEDULE_INVALID", "at"),
    ({"cron": None, "at": "2030-01-01T00:00:00"}, "SCHEDULE_INVALID", "at"),
    ({"cron": None, "at": "2020-01-01T00:00:00Z"}, "SCHEDULE_INVALID", "at"),
    ({"tz": "Mars/Base"}, "SCHEDULE_INVALID", "tz"),
    ({"misfire": "never"}, "SCHEDULE_INVALID", "misfire"),
    ({"misfire_limit": 0}, "SCHEDULE_INVALID", "misfire_limit"),
    ({"misfire_limit": 101}, "SCHEDULE_INVALID", "misfire_limit"),
    ({"misfire_grace": -1}, "SCHEDULE_INVALID", "misfire_grace"),
    ({"overlap": "maybe"}, "SCHEDULE_INVALID", "overlap"),
    ({"overlap": "cancel", "contract": "gate-b2"}, "SCHEDULE_INVALID", "overlap"),
    ({"jitter": "a lot"}, "SCHEDULE_INVALID", "jitter"),
    ({"ends_at": "2026-02-25T11:00:00Z"}, "SCHEDULE_INVALID", "at"),
    ({"starts_at": "2027-01-01T00:00:00Z", "ends_at": "2026-12-31T00:00:00Z"}, "SCHEDULE_INVALID", "ends_at"),
    ({"cron": "* * *", "contract": "men"}, "TASK_INVALID_SCHEDULE", "cron"),
    ({"name": " "}, "NAME_INVALID", "name"),
    ({"job_type": ""}, "NAME_INVALID", "job_type"),
    ({"priority": 1_000}, "PRIORITY_INVALID", "priority"),
    ({"max_retries": 5, "contract": "gate-b2"}, "MAX_RETRIES_FROZEN", "max_retries"),
]


async def test_bad_requests_change_nothing(engine: Engine, place: Place) -> None:
    for fields, code, field in BAD:
        request = {"name": "tick", "job_type": "mail", "cron": "* * * * *", **fields}
        error = await refused(engine.schedules.add(ScheduleRequest(**request), Scope("ann")), code, 422)
        assert error.extra["field"] == field, fields
    await refused(add(engine, payload=[1]), "PAYLOAD_NOT_OBJECT", 422)
    await refused(add(engine, contract="unheard"), "CONTRACT_UNKNOWN", 422)
    assert place.dump()["schedules"] == place.dump()["audit"] == []
    await add(engine)
    await refused(add(engine, every="5m", cron=None), "SCHEDULE_EXISTS", 409)


async def test_an_add_may_be_repeated(engine: Engine) -> None:
    request = ScheduleRequest("tick", "mail", every="5m")
    first = await engine.schedules.add(request, Scope("ann"), new_id=engine.ids.job())
    again = await engine.schedules.add(request, Scope("ann"), new_id=first.id)
    assert again == first and len(await engine.audit()) == 1


async def test_a_moment_without_offset_is_of_the_zone(engine: Engine) -> None:
    schedule = await add(engine, at="2026-03-29T02:30:00", tz="Europe/Berlin")
    assert schedule.expression == "2026-03-29T01:00:00Z", "the clock leaves it out: right after the gap"
    with pytest.raises(InvalidInput):
        await add(engine, "other", at="2026-03-29T02:30:00")


async def test_run_now_creates_a_job_and_leaves_later_runs(engine: Engine, clock: FakeClock) -> None:
    schedule = await engine.schedules.add(
        ScheduleRequest("nightly", "mail", cron="0 3 * * *"), Scope("ann"), paused=True
    )
    job = await engine.schedules.run_now("nightly", Scope("ann"))
    assert job.job_type == "mail" and job.due_at == engine.store.now()
    assert [run.job_id for run in await engine.schedules.fires(schedule.id)] == [job.id]
    after = await engine.schedules.get("nightly")
    assert after.paused_at is not None and after.next_fire_at is None
    clock.advance(1)
    assert (await engine.schedules.run_now("nightly", Scope("ann"))).id != job.id
