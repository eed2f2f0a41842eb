"""men's rules of the idempotent hit, in full: two ways to hit, and only what was said is compared."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.engine import Engine, Submission, Submitted
from support.acts import refused_untouched
from support.clock import FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio

SAID = {
    "task_id": "task_1",
    "schedule_type": "at",
    "scheduled_at": "2026-02-25T13:00:00Z",
    "timeout_ms": 30_000,
    "max_retries": 2,
    "idempotency_key": "order_1",
    "idempotency_scope": "tenant_a",
    "payload": {"channel": "dingtalk"},
}


async def submit_men(engine: Engine, **fields: Any) -> Submitted:
    return await engine.jobs.submit(Submission("task", contract="men", **fields))


async def is_hit(engine: Engine, place: Place, first: Submitted, **fields: Any) -> None:
    before = place.dump()
    again = await submit_men(engine, **fields)
    assert again.hit
    assert again.job == first.job
    assert place.dump() == before


async def is_duplicate(engine: Engine, place: Place, first: Submitted, conflict: list[str], **fields: Any) -> None:
    error = await refused_untouched(place, submit_men(engine, **fields), "TASK_DUPLICATE", 409)
    assert error.extra["conflict_fields"] == conflict
    assert error.extra["task"] == engine.contract("men").view(first.job)
    assert set(error.extra["task"]) == {
        "task_id",
        "schedule_type",
        "state",
        "attempt",
        "max_retries",
        "timeout_ms",
        "idempotency_key",
        "last_error_code",
        "last_error_reason",
        "created_at",
        "updated_at",
        "started_at",
        "finished_at",
    }


async def test_all_of_it_again(engine: Engine, place: Place) -> None:
    await is_hit(engine, place, await submit_men(engine, **SAID), **SAID)


async def test_the_task_id_alone_hits(engine: Engine, place: Place) -> None:
    first = await submit_men(engine, **SAID)
    await is_hit(engine, place, first, task_id="task_1")
    await is_hit(engine, place, first, task_id="task_1", idempotency_scope="tenant_b")


async def test_a_new_key_with_a_known_task_id_hits(engine: Engine, place: Place) -> None:
    first = await submit_men(engine, **SAID)
    await is_hit(engine, place, first, task_id="task_1", idempotency_key="order_2", idempotency_scope="tenant_a")


async def test_a_known_key_with_a_new_task_id_hits(engine: Engine, place: Place) -> None:
    first = await submit_men(engine, **SAID)
    await is_hit(engine, place, first, **(SAID | {"task_id": "task_2"}))
    await is_hit(engine, place, first, idempotency_key="order_1", idempotency_scope="tenant_a")


async def test_the_id_a_task_was_given_hits_too(engine: Engine, place: Place) -> None:
    """Who named no task_id was told one; asking for it again is asking for that task."""
    first = await submit_men(engine, payload={"a": 1})
    assert first.job.task_id
    await is_hit(engine, place, first, task_id=first.job.task_id)


async def test_a_key_in_another_scope_is_another_task(engine: Engine) -> None:
    scopes = ("a", "b", None)
    submitted = [await submit_men(engine, idempotency_key="k", idempotency_scope=scope) for scope in scopes]
    assert not any(m.hit for m in submitted)
    assert len({m.job.id for m in submitted}) == 3


async def test_no_scope_is_a_scope_of_its_own(engine: Engine, place: Place) -> None:
    first = await submit_men(engine, idempotency_key="k")
    await is_hit(engine, place, first, idempotency_key="k", idempotency_scope=None)


@pytest.mark.parametrize("blank", ["", " ", "\t"])
async def test_a_blank_key_never_hits(engine: Engine, place: Place, blank: str) -> None:
    submitted = [await submit_men(engine, idempotency_key=blank, idempotency_scope="s") for _ in range(2)]
    assert not any(m.hit for m in submitted)
    assert [row for row in place.dump()["keys"] if "task_id" not in row[0]] == []


async def test_the_payload_is_not_compared(engine: Engine, place: Place) -> None:
    await is_hit(engine, place, await submit_men(engine, **SAID), **(SAID | {"payload": {"other": 1}}))


@pytest.mark.parametrize(
    ("field", "other"),
    [("scheduled_at", "2026-02-25T13:00:01Z"), ("timeout_ms", 30_001), ("max_retries", 3)],
)
async def test_another_critical_field_is_a_duplicate(engine: Engine, place: Place, field: str, other: Any) -> None:
    first = await submit_men(engine, **SAID)
    await is_duplicate(engine, place, first, [field], **(SAID | {field: other}))
    await is_duplicate(engine, place, first, [field], task_id="task_1", **{field: other})


async def test_every_differing_field_is_named(engine: Engine, place: Place) -> None:
    first = await submit_men(engine, **SAID)
    others = {"scheduled_at": "2026-03-01T00:00:00Z", "timeout_ms": 1, "max_retries": 0}
    await is_duplicate(engine, place, first, ["scheduled_at", "timeout_ms", "max_retries"], **(SAID | others))


@pytest.mark.parametrize("field", ["schedule_type", "scheduled_at", "timeout_ms", "max_retries"])
async def test_a_field_that_is_not_said_is_not_compared(engine: Engine, place: Place, field: str) -> None:
    first = await submit_men(engine, **SAID)
    await is_hit(engine, place, first, **{name: value for name, value in SAID.items() if name != field})


async def test_a_field_said_now_and_not_then_differs_unless_it_is_the_default(engine: Engine, place: Place) -> None:
    first = await submit_men(engine, task_id="task_1")
    await is_hit(engine, place, first, task_id="task_1", schedule_type="at", max_retries=2)
    await is_duplicate(engine, place, first, ["timeout_ms"], task_id="task_1", timeout_ms=1_000)
    await is_duplicate(engine, place, first, ["scheduled_at"], task_id="task_1", scheduled_at="2026-02-25T13:00:00Z")


@pytest.mark.parametrize(
    "same",
    [
        "2026-02-25T13:00:00+00:00",
        "2026-02-25T13:00:00.000Z",
        "2026-02-25 13:00:00Z",
        "20260225T130000Z",
        datetime(2026, 2, 25, 13, tzinfo=UTC),
    ],
)
async def test_instants_are_compared_not_strings(engine: Engine, place: Place, same: Any) -> None:
    await is_hit(engine, place, await submit_men(engine, **SAID), **(SAID | {"scheduled_at": same}))


async def test_task_id_and_key_of_different_tasks(engine: Engine, place: Place) -> None:
    first = await submit_men(engine, task_id="task_1", idempotency_key="a")
    await submit_men(engine, task_id="task_2", idempotency_key="b")
    await is_duplicate(
        engine, place, first, ["task_id", "idempotency_key"], task_id="task_1", idempotency_key="b", max_retries=2
    )


async def test_a_foreign_task_of_the_two_is_not_shown(engine: Engine, place: Place) -> None:
    """task_id of a stranger's task, key of one's own: still a stranger's task."""
    await submit_men(engine, task_id="task_1", tenant_id="rival")
    await submit_men(engine, task_id="task_2", idempotency_key="b")
    both = submit_men(engine, task_id="task_1", idempotency_key="b")
    await refused_untouched(place, both, "TENANT_SCOPE_VIOLATION", 403)
    swapped = submit_men(engine, task_id="task_2", idempotency_key="c", tenant_id="rival")
    await refused_untouched(place, swapped, "TENANT_SCOPE_VIOLATION", 403)


async def test_a_hit_shows_the_task_as_it_is_now(engine: Engine, clock: FakeClock) -> None:
    await submit_men(engine, **SAID)
    clock.advance(3600)
    await engine.wake()
    await engine.claim(engine.claim_request("w1", 1))
    again = await submit_men(engine, **SAID)
    assert (again.hit, again.job.status) == (True, "running")


@pytest.mark.parametrize(
    ("moment", "why"),
    [
        ("2026-02-25T13:00:00+02:00", "another offset"),
        ("2026-02-25T13:00:00", "no offset"),
        ("2026-02-25", "no time"),
        ("soon", "no time at all"),
        (datetime(2026, 2, 25, 13), "no zone"),
        (datetime.fromisoformat("2026-02-25T13:00:00+02:00"), "another zone"),
    ],
    ids=str,
)
async def test_only_utc_is_a_time(engine: Engine, place: Place, moment: Any, why: str) -> None:
    await refused_untouched(place, submit_men(engine, scheduled_at=moment), "TIME_INVALID", 422)


@pytest.mark.parametrize("kind", ["cron", "every", "", "AT"])
async def test_another_schedule_is_refused_with_the_field(engine: Engine, place: Place, kind: str) -> None:
    error = await refused_untouched(place, submit_men(engine, schedule_type=kind), "TASK_INVALID_SCHEDULE", 422)
    assert error.extra["field"] == "schedule_type"


async def test_a_task_due_now_is_woken_in_the_commit_that_makes_it(engine: Engine) -> None:
    first = await submit_men(engine, task_id="task_1")
    history = (await engine.jobs.history(first.job.id)).as_dict()["events"]
    assert [event["envelope"] and event["envelope"]["payload"]["to_state"] for event in history] == [None, "ready"]
    assert history[1]["envelope"]["payload"] == {
        "task_id": "task_1",
        "from_state": "pending",
        "to_state": "ready",
        "occurred_at": "2026-02-25T12:00:00Z",
        "attempt": 1,
        "reason_code": None,
        "reason_message": None,
        "idempotent_hit": False,
    }


async def test_instants_differ_by_a_microsecond(engine: Engine, place: Place) -> None:
    first = await submit_men(engine, **SAID)
    later = datetime(2026, 2, 25, 13, tzinfo=UTC) + timedelta(microseconds=1)
    await is_duplicate(engine, place, first, ["scheduled_at"], task_id="task_1", scheduled_at=later)
