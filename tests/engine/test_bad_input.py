"""What is refused at the door: a stable code, a sentence that says what to do, and not a row written."""

import asyncio
import json
from datetime import datetime
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.job import Failure, Job, Wait
from detent.core.outcome import Failed, Snoozed, Succeeded, Waits
from detent.engine import Engine, Submission
from support.acts import NAMES, claim_one, reach, refused, refused_untouched, running, submit
from support.clock import FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio
MIB = 1 << 20


def deep(levels: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return {"deep": value}


PAYLOADS = {
    "PAYLOAD_NOT_OBJECT": ["text", [1, 2], 7, [], 0, "", False],
    "PAYLOAD_NOT_JSON": [
        {"x": float("nan")},
        {"x": float("-inf")},
        {"x": {1, 2}},
        {"x": b"bytes"},
        {"x": datetime(2026, 1, 1)},
        {"x": "\ud800"},
        {"\udfff": 1},
        {("a", "b"): 1},
    ],
    "PAYLOAD_TOO_LARGE": [{"x": "y" * MIB}, {"x": "ä" * (MIB // 2)}],
}


@pytest.mark.parametrize("code", PAYLOADS)
async def test_a_payload_must_be_a_json_object_within_the_limit(engine: Engine, place: Place, code: str) -> None:
    for payload in PAYLOADS[code]:
        await refused_untouched(place, submit(engine, payload=payload), code, 422)


async def test_the_largest_payload_passes(engine: Engine, place: Place) -> None:
    frame = len('{"x":""}')
    job = await submit(engine, payload={"x": "y" * (MIB - frame)})
    assert len((await engine.jobs.get(job.id)).payload) == MIB
    error = await refused_untouched(place, submit(engine, payload={"x": "y" * (MIB - frame + 1)}), "PAYLOAD_TOO_LARGE")
    assert (error.extra["size"], error.extra["limit"]) == (MIB + 1, MIB)


async def test_the_limit_is_an_option(place: Place, clock: FakeClock) -> None:
    engine = make_engine(place, clock, max_payload=10)
    await engine.open()
    await submit(engine, payload={"x": "yy"})
    await refused_untouched(place, submit(engine, payload={"x": "yyy"}), "PAYLOAD_TOO_LARGE")
    await engine.close()


@pytest.mark.parametrize("levels", [900, 990, 1_500, 100_000])
async def test_a_nested_payload_is_stored_or_refused_by_code(engine: Engine, place: Place, levels: int) -> None:
    """Python and the database count depth differently; neither may answer with an error of its own."""
    (answer,) = await asyncio.gather(submit(engine, payload=deep(levels)), return_exceptions=True)
    if isinstance(answer, Job):
        assert (await claim_one(engine)).payload == answer.payload
    else:
        assert getattr(answer, "code", None) == "PAYLOAD_NOT_JSON", repr(answer)
        assert place.dump()["jobs"] == []


EXACT = [
    {"nul": "\x00", "line": "\u2028", "emoji": "👩‍🚀", "quote": '"\\'},
    {"big": 12345678901234567890123, "small": 1e-300, "true": True, "none": None, "zero": -0.0},
    {"": {}, "a": [[], {}, ""]},
]


@pytest.mark.parametrize("payload", EXACT, ids=lambda p: next(iter(p)))
async def test_what_is_stored_is_what_was_sent(engine: Engine, payload: dict) -> None:
    await submit(engine, payload=payload)
    back = json.loads((await claim_one(engine)).payload)
    assert repr(back) == repr(payload)


FIELDS: dict[str, tuple[str, list[Any]]] = {
    "contract": ("CONTRACT_UNKNOWN", ["gate-b3", "Standard", "", 7]),
    "timeout_ms": ("TIMEOUT_INVALID", [-1, 0, 1.5, True, "30", 1 << 63]),
    "max_retries": ("MAX_RETRIES_INVALID", [-1, "3", True, 1 << 40]),
    "priority": ("PRIORITY_INVALID", [101, -101, 0.5, "high", None]),
    "delay": ("DELAY_INVALID", [-1, float("nan"), float("inf"), "1", None]),
    "scheduled_at": (
        "TIME_INVALID",
        [datetime(2026, 2, 25), "2026-02-25T12:00:00", "tomorrow", "", 1_772_000_000, "0001-01-01T00:00:00+23:00"],
    ),
    "schedule_type": ("SCHEDULE_INVALID", ["cron", "every", ""]),
    "idempotency_key": ("KEY_INVALID", ["", " ", "a\x00b", "\ud800", 7]),
}


@pytest.mark.parametrize("field", FIELDS)
async def test_a_bad_field_is_refused(engine: Engine, place: Place, field: str) -> None:
    code, values = FIELDS[field]
    for value in values:
        await refused_untouched(place, submit(engine, **{field: value}), code, 422)


NAMED = ("job_type", "queue", "tenant_id", "idempotency_scope", "task_id", "trace_id", "parent_id", "id", "limit_key")


@pytest.mark.parametrize("field", NAMED)
async def test_names_are_short_and_printable(engine: Engine, place: Place, field: str) -> None:
    for value in ("a\nb", "a\x00b", "\x7f", "x" * 201, "\ud800", 5):
        error = await refused_untouched(place, submit(engine, **{field: value}), "NAME_INVALID", 422)
        assert error.extra["field"] == field


@pytest.mark.parametrize("field", ["job_type", "queue", "tenant_id", "idempotency_scope", "task_id", "trace_id"])
async def test_names_are_not_blank(engine: Engine, place: Place, field: str) -> None:
    for blank in ("", " "):
        error = await refused_untouched(place, submit(engine, **{field: blank}), "NAME_INVALID", 422)
        assert error.extra["field"] == field


@pytest.mark.parametrize("retries", [0, 2, 4])
async def test_gate_b2_freezes_the_budget(engine: Engine, place: Place, retries: int) -> None:
    error = await refused_untouched(place, submit(engine, "gate-b2", max_retries=retries), "MAX_RETRIES_FROZEN", 422)
    assert "3" in error.message
    assert (await submit(engine, "gate-b2", max_retries=3)).max_retries == 3


@pytest.mark.parametrize("contract", NAMES)
async def test_one_bad_job_of_a_bulk_names_the_fault(engine: Engine, place: Place, contract: str) -> None:
    submissions = [Submission("mail", contract=contract), Submission("mail", contract=contract, timeout_ms=-1)]
    await refused_untouched(place, engine.jobs.submit_many(submissions), "TIMEOUT_INVALID")


ACTS = {
    "cancel": lambda e, i: e.jobs.cancel(i, Scope("ann")),
    "abort": lambda e, i: e.jobs.abort(i, Scope("ann")),
    "reopen": lambda e, i: e.jobs.reopen(i, Scope("ann")),
    "approve": lambda e, i: e.approvals.approve(i, Scope("ann")),
    "reject": lambda e, i: e.approvals.reject(i, Scope("ann")),
    "signal": lambda e, i: e.jobs.signal(i, "answer", Scope("test")),
    "transition": lambda e, i: e.jobs.transition(i, "running", Scope("ann")),
    "job": lambda e, i: e.jobs.get(i),
    "history": lambda e, i: e.jobs.history(i),
}


@pytest.mark.parametrize("act", ACTS)
async def test_an_unknown_job_is_not_found(engine: Engine, place: Place, act: str) -> None:
    for job_id in ("nobody", "", "\x00", "'; DROP TABLE detent_jobs; --"):
        await refused_untouched(place, ACTS[act](engine, job_id), "JOB_NOT_FOUND", 404)


async def test_settling_an_unknown_job_is_stale(engine: Engine, place: Place) -> None:
    await refused_untouched(place, engine.settle("nobody", "t", Succeeded()), "LEASE_STALE", 409)


@pytest.mark.parametrize("act", ["requeue", "discard", "dead_letter"])
async def test_an_unknown_dead_letter_is_not_found(engine: Engine, place: Place, act: str) -> None:
    calls = {
        "requeue": engine.dead_letters.requeue("nothing", Scope("ann")),
        "discard": engine.dead_letters.discard("nothing", Scope("ann", "old")),
        "dead_letter": engine.dead_letters.get("nothing"),
    }
    chosen = calls.pop(act)
    for call in calls.values():
        call.close()
    await refused_untouched(place, chosen, "DLQ_ITEM_NOT_FOUND", 404)


@pytest.mark.parametrize("payload", [[1], {"x": float("nan")}, {"x": "y" * MIB}], ids=["list", "nan", "large"])
async def test_a_repaired_payload_is_checked_like_any_other(
    engine: Engine, place: Place, clock: FakeClock, payload: Any
) -> None:
    job = await reach(engine, clock, "gate-b2", "failed")
    before = place.dump()
    assert job.dlq_id
    with pytest.raises(Exception, match="PAYLOAD_"):
        await engine.dead_letters.requeue(job.dlq_id, Scope("ann"), payload=payload)
    assert place.dump() == before


@pytest.mark.parametrize(("limit", "lease"), [(-1, 30), (1, 0), (1, -5), (1, float("nan"))])
async def test_a_claim_needs_a_limit_and_a_lease(engine: Engine, limit: int, lease: float) -> None:
    async def request_claim() -> None:
        engine.claim_request("w1", limit, lease)

    await refused(request_claim(), "CLAIM_INVALID", 422)


@pytest.mark.parametrize(
    ("data", "code"),
    [({1, 2}, "SIGNAL_NOT_JSON"), (float("nan"), "SIGNAL_NOT_JSON"), ("y" * (1 << 16), "SIGNAL_TOO_LARGE")],
    ids=["set", "nan", "large"],
)
async def test_a_signal_must_be_json_and_small(engine: Engine, place: Place, data: Any, code: str) -> None:
    job = await submit(engine)
    await refused_untouched(place, engine.jobs.signal(job.id, "answer", Scope("test"), data), code, 422)


async def test_a_signal_has_a_name(engine: Engine, place: Place) -> None:
    job = await submit(engine)
    for name in ("", " ", "a\nb", "x" * 201, None):
        await refused_untouched(place, engine.jobs.signal(job.id, name, Scope("test")), "NAME_INVALID", 422)  # type: ignore[arg-type]


async def test_only_queues_types_and_tenants_pause(engine: Engine, place: Place) -> None:
    before = place.dump()
    for kind in ("planet", "", "QUEUE"):
        with pytest.raises(Exception) as caught:
            await engine.limits.pause(kind, "x", Scope("ann"))
        assert getattr(caught.value, "http_status", None) == 422, repr(caught.value)
    assert place.dump() == before


BAD_OUTCOMES = {
    "result is no JSON": Succeeded("{not json"),
    "result has a lone surrogate": Succeeded('"\ud800"'),
    "wait without a name": Waits(Wait("")),
    "wait that ends before it begins": Waits(Wait("answer", timeout=-1)),
    "snooze into the past": Snoozed(-1),
}


@pytest.mark.parametrize("outcome", BAD_OUTCOMES.values(), ids=BAD_OUTCOMES)
async def test_a_bad_outcome_is_refused_by_code_and_the_job_stays_held(engine: Engine, outcome: Any) -> None:
    held = await running(engine)
    before = await engine.jobs.get(held.id)
    with pytest.raises(Exception) as caught:
        await engine.settle(held.id, held.token, outcome)
    assert getattr(caught.value, "code", None), f"no code: {caught.value!r}"
    assert await engine.jobs.get(held.id) == before
    assert (await engine.settle(held.id, held.token, Succeeded())).status == "succeeded"


async def test_an_error_text_that_is_no_unicode_still_ends_the_execution(engine: Engine) -> None:
    """File names decoded with surrogateescape end up in messages; the failure must be kept all the same."""
    held = await running(engine)
    job = await engine.settle(held.id, held.token, Failed(Failure("BOOM", "no such file: \udcff", "OSError")))
    assert (job.status, job.error_code) == ("retrying", "BOOM")
    assert "no such file" in str((await engine.jobs.get(job.id)).error_message)
