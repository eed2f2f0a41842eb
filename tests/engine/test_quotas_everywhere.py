"""Quotas hold whoever makes the job: fires wait or are passed over, backfills, requeues and reopens are refused."""

import logging

import pytest

from detent.core.access import Scope
from detent.core.outcome import Succeeded
from detent.core.schedule import Schedule
from detent.core.times import SECOND
from detent.engine import Engine
from detent.engine.schedules import schedules
from detent.engine.schedules.firing import QUOTA_RETRY_DELAY
from detent.engine.schedules.request import ScheduleRequest
from detent.ports.listing import Filter
from detent.proof.verify.verify import verify
from support.acts import PERMANENT, claim_one, refused, refused_untouched, submit
from support.clock import START, FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
AGAIN = QUOTA_RETRY_DELAY // SECOND


async def add(engine: Engine, name: str = "tick", tenant: str = "acme", **fields: object) -> Schedule:
    options = {"cron": "* * * * *", "tenant_id": tenant, **fields}
    return await engine.schedules.add(ScheduleRequest(name, "mail", **options), Scope("ann"))  # type: ignore[arg-type]


async def stands(engine: Engine, name: str = "tick") -> Schedule:
    report = await verify(engine.store, engine.contracts)
    assert report.ok, report.violations
    return await engine.schedules.get(name)


async def fired(engine: Engine) -> list[int | None]:
    return [job.scheduled_at for job in (await engine.schedules.fire_due(100)).jobs]


async def end_one(engine: Engine) -> None:
    held = await claim_one(engine, job_types={"filler"})
    await engine.settle(held.id, held.token, Succeeded(None))


def minute(number: int) -> int:
    return START + number * 60 * SECOND


async def full(engine: Engine, backlog: int = 1) -> None:
    await engine.limits.set_quota("acme", Scope("ann"), max_backlog=backlog)
    await submit(engine, tenant_id="acme", job_type="filler")


async def test_a_fire_waits_for_room(engine: Engine, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    await full(engine)
    await add(engine)
    clock.advance(61)
    with caplog.at_level(logging.WARNING, "detent.schedules"):
        assert await fired(engine) == []
    assert "postponed" in caplog.text
    schedule = await stands(engine)
    assert schedule.last_error is not None and schedule.last_error.startswith("TENANT_BACKLOG_FULL: ")
    assert (schedule.next_fire_at, schedule.retry_at, schedule.fires, schedule.misfires) == (
        minute(1),
        clock.now() + QUOTA_RETRY_DELAY,
        0,
        0,
    )
    await end_one(engine)
    assert (await engine.schedules.fire_due(100)).next == schedule.retry_at
    clock.advance(AGAIN)
    assert await fired(engine) == [minute(1)]
    schedule = await stands(engine)
    assert (schedule.last_error, schedule.retry_at, schedule.fires, schedule.misfires) == (None, None, 1, 0)


@pytest.mark.parametrize(("misfire", "made_up"), [("skip", []), ("once", [3]), ("all", [1, 2, 3])])
async def test_a_fire_that_found_no_room_in_time_is_missed(
    engine: Engine, clock: FakeClock, misfire: str, made_up: list[int]
) -> None:
    await full(engine, 3)
    for _ in range(2):
        await submit(engine, tenant_id="acme", job_type="filler")
    await add(engine, cron="* * * * *", misfire=misfire, misfire_grace=10)
    for _ in range(18):
        clock.advance(AGAIN)
        assert await fired(engine) == []
    while clock.now() < minute(3) + 20 * SECOND:
        clock.advance(AGAIN)
        assert await fired(engine) == []
    assert (await stands(engine)).misfires == (3 if misfire == "skip" else 0)
    held = await engine.claim(engine.claim_request("w1", 10))
    for one in held:
        await engine.settle(one.id, one.token, Succeeded(None))
    clock.advance(AGAIN)
    assert await fired(engine) == [minute(number) for number in made_up]
    schedule = await stands(engine)
    assert (schedule.fires, schedule.misfires) == (len(made_up), 3)
    assert (schedule.last_error is None) == bool(made_up), "what was passed over for good is told"


async def test_as_many_as_there_is_room_for_the_oldest_first(engine: Engine, clock: FakeClock) -> None:
    await full(engine, 2)
    await add(engine, misfire="all", misfire_limit=5)
    clock.advance(4 * 60 + 1)
    assert await fired(engine) == [minute(1)]
    assert await fired(engine) == []
    schedule = await stands(engine)
    assert (schedule.next_fire_at, schedule.last_fire_at, schedule.misfires) == (minute(2), minute(1), 1)
    await engine.limits.set_quota("acme", Scope("ann"), max_backlog=10)
    clock.advance(AGAIN)
    assert await fired(engine) == [minute(2), minute(3), minute(4)]
    schedule = await stands(engine)
    assert (schedule.fires, schedule.misfires) == (4, 3)


async def test_a_full_tenant_does_not_hold_up_the_others(engine: Engine, clock: FakeClock) -> None:
    await full(engine)
    for number in range(5):
        await add(engine, f"full-{number}")
    clock.advance(1)
    await add(engine, "other", tenant="rival")
    clock.advance(60)
    assert [job.tenant_id for _ in range(3) for job in (await engine.schedules.fire_due(2)).jobs] == ["rival"]


async def test_a_payload_over_the_quota_is_a_missed_fire(engine: Engine, clock: FakeClock) -> None:
    await add(engine, payload={"text": "x" * 100})
    await engine.limits.set_quota("acme", Scope("ann"), max_payload=20)
    clock.advance(61)
    assert await fired(engine) == []
    schedule = await stands(engine)
    assert schedule.last_error is not None and schedule.last_error.startswith("TENANT_PAYLOAD_TOO_LARGE: ")
    assert (schedule.misfires, schedule.next_fire_at, schedule.retry_at) == (1, minute(2), None)


async def test_an_edit_tries_again_at_once(engine: Engine, clock: FakeClock) -> None:
    await full(engine)
    await add(engine)
    clock.advance(61)
    assert await fired(engine) == []
    await end_one(engine)
    await engine.schedules.edit("tick", {"priority": 5}, Scope("ann"))
    assert await fired(engine) == [minute(1)]


async def test_a_backfill_is_refused_and_goes_on_later(engine: Engine, place: Place, clock: FakeClock) -> None:
    await full(engine, 3)
    await add(engine)
    await engine.schedules.pause("tick", Scope("ann"))
    clock.advance(5 * 60)
    whole = ("2026-02-25T12:01:00Z", "2026-02-25T12:05:00Z")
    filling = engine.schedules.backfill("tick", *whole, Scope("ann"))
    error = await refused_untouched(place, filling, "TENANT_BACKLOG_FULL", 429)
    assert error.extra["made"] == 0 and "repeat it to continue" in error.message
    await engine.schedules.backfill("tick", whole[0], "2026-02-25T12:02:00Z", Scope("ann"))
    await engine.limits.remove_quota("acme", Scope("ann"))
    done = await engine.schedules.backfill("tick", *whole, Scope("ann"))
    assert (done.known, done.made) == (2, 3)


async def dead(engine: Engine, **fields: object) -> str:
    await submit(engine, tenant_id="acme", job_type="broken", **fields)
    held = await claim_one(engine, job_types={"broken"})
    return (await engine.settle(held.id, held.token, PERMANENT)).dlq_id or ""


async def test_a_requeue_is_refused_and_changes_nothing(engine: Engine, place: Place) -> None:
    dead_letter = await dead(engine)
    await full(engine)
    await refused_untouched(place, engine.dead_letters.requeue(dead_letter, Scope("ann")), "TENANT_BACKLOG_FULL", 429)
    job_id = (await engine.dead_letters.get(dead_letter)).job_id
    await refused_untouched(place, engine.jobs.requeue(job_id, Scope("ann")), "TENANT_BACKLOG_FULL", 429)
    await end_one(engine)
    await engine.dead_letters.requeue(dead_letter, Scope("ann"))
    assert (await engine.dead_letters.get(dead_letter)).status == "requeued"


async def test_a_repaired_payload_is_measured(engine: Engine, place: Place) -> None:
    dead_letter = await dead(engine)
    await engine.limits.set_quota("acme", Scope("ann"), max_payload=20)
    large = engine.dead_letters.requeue(dead_letter, Scope("ann"), payload={"text": "x" * 30})
    await refused_untouched(place, large, "TENANT_PAYLOAD_TOO_LARGE", 422)
    await engine.dead_letters.requeue(dead_letter, Scope("ann"), payload={"text": "x"})


async def test_a_bulk_requeue_does_what_fits_and_names_the_rest(engine: Engine) -> None:
    for _ in range(4):
        await dead(engine)
    await full(engine, 3)
    done = await engine.dead_letters.requeue_many(Filter(tenant_id="acme"), Scope("ann"))
    assert (done.matched, done.done, done.refused) == (4, 2, 2)
    assert {one["code"] for one in done.refusals} == {"TENANT_BACKLOG_FULL"}


async def test_a_reopen_is_refused_too(engine: Engine, place: Place) -> None:
    job = await submit(engine, "formal", tenant_id="acme", job_type="broken")
    held = await claim_one(engine, job_types={"broken"})
    await engine.settle(held.id, held.token, PERMANENT)
    await full(engine)
    await refused(engine.jobs.reopen(job.id, Scope("ann")), "TENANT_BACKLOG_FULL", 429)
    assert (await engine.jobs.get(job.id)).phase == "final"


async def test_jobs_of_a_schedule_have_its_deadline(engine: Engine, clock: FakeClock) -> None:
    schedule = await add(engine, deadline=30, jitter=20)
    assert schedules.schedule_view(schedule)["deadline_seconds"] == 30
    clock.advance(60)
    (job,) = (await engine.schedules.fire_due(10)).jobs
    assert job.deadline_at == (job.due_at or 0) + 30 * SECOND and (job.due_at or 0) > minute(1)
    clock.advance(59)
    assert [one.id for one in await engine.wake()] == [job.id]
    assert (await engine.jobs.get(job.id)).error_code == "DEADLINE_EXCEEDED"
    await engine.schedules.edit("tick", {"deadline": None}, Scope("ann"))
    clock.advance(1)
    assert [one.deadline_at for one in (await engine.schedules.fire_due(10)).jobs] == [None]


@pytest.mark.parametrize(
    ("deadline", "contract", "code"),
    [(0, "standard", "DEADLINE_INVALID"), (-1, "standard", "DEADLINE_INVALID"), (True, "standard", "DEADLINE_INVALID"),
     ("2030-01-01T00:00:00Z", "standard", "DEADLINE_INVALID"), (30, "gate-b2", "DEADLINE_UNSUPPORTED")],
)  # fmt: skip
async def test_deadlines_that_cannot_be(
    engine: Engine, place: Place, deadline: object, contract: str, code: str
) -> None:
    await refused_untouched(place, add(engine, deadline=deadline, contract=contract), code, 422)
