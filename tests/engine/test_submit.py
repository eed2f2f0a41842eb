"""Submitting: one row and its events, or nothing; said again after a lost reply, the same job."""

import asyncio

import pytest

from detent.engine import Engine, Submission
from detent.ports.listing import Filter
from support.acts import NAMES, claim, claim_one, events_of, own_id, path_of, refused, refused_untouched, submit
from support.clock import START, FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
ID = own_id(7)

BORN = {
    "gate-b2": [("job.queued", None, "queued")],
    "men": [("task.pending", None, "pending"), ("task.ready", "pending", "ready")],
    "p3c": [("created", None, "queued")],
    "streams": [("task.created", None, "queued")],
    "formal": [("job_created", None, "Queued")],
    "standard": [("job.created", None, "queued")],
}


@pytest.mark.parametrize("contract", NAMES)
async def test_a_job_due_now_is_one_row_and_its_birth_is_logged(engine: Engine, place: Place, contract: str) -> None:
    submitted = await engine.jobs.submit(
        Submission("mail", {"to": "ä"}, contract, actor="ann", timeout_ms=5_000, priority=3)
    )
    assert not submitted.hit
    job = await engine.jobs.get(submitted.job.id)
    assert (job.contract, job.job_type, job.queue, job.tenant_id) == (contract, "mail", "default", "default")
    assert (job.payload, job.timeout_ms, job.priority) == ('{"to":"ä"}', 5_000, 3)
    assert (job.created_at, job.due_at, job.execution_no, job.failures) == (START, START, 0, 0)
    events = await events_of(engine, job.id)
    assert [(e.event, e.source, e.target) for e in events] == BORN[contract]
    assert [e.seq for e in events] == list(range(1, job.version + 1))
    assert {(e.at, e.actor) for e in events} == {(START, "ann")}
    assert len(place.dump()["jobs"]) == 1
    assert submitted.job == job


BUDGETS = {"gate-b2": 3, "men": 2, "p3c": 3, "streams": 3, "formal": 2, "standard": 3}


@pytest.mark.parametrize("contract", NAMES)
async def test_what_is_not_said_is_the_contracts_default(engine: Engine, contract: str) -> None:
    job = await submit(engine, contract)
    assert (job.payload, job.max_retries, job.priority, job.timeout_ms) == ("{}", BUDGETS[contract], 0, None)
    assert job.effect_root == job.id
    assert job.trace_id


@pytest.mark.parametrize("contract", NAMES)
async def test_the_same_submission_again_is_the_same_job(engine: Engine, place: Place, contract: str) -> None:
    submission = Submission("mail", {"to": 1}, contract, id=ID, idempotency_key="k", idempotency_scope="s")
    first = await engine.jobs.submit(submission)
    before = place.dump()
    again = await engine.jobs.submit(submission)
    assert again.job == first.job
    assert not again.hit, "the caller never had an answer: for it the job is new"
    assert place.dump() == before
    assert len(before["jobs"]) == 1


@pytest.mark.parametrize("contract", NAMES)
async def test_the_same_submission_again_without_a_key(engine: Engine, place: Place, contract: str) -> None:
    submission = Submission("mail", {"to": 1}, contract, id=ID)
    first = await engine.jobs.submit(submission)
    before = place.dump()
    assert (await engine.jobs.submit(submission)).job == first.job
    assert place.dump() == before


async def test_a_repeat_finds_the_job_where_it_is_now(engine: Engine) -> None:
    await submit(engine, id=ID)
    await claim_one(engine)
    assert (await submit(engine, id=ID)).status == "running"


@pytest.mark.parametrize("contract", NAMES)
async def test_an_id_of_another_job_is_refused(engine: Engine, place: Place, contract: str) -> None:
    same = {"job_type": "mail", "payload": {"to": 1}, "contract": contract, "id": ID}
    await engine.jobs.submit(Submission(**same))
    for other in ({"payload": {"to": 2}}, {"job_type": "call"}, {"tenant_id": "rival"}):
        await refused_untouched(place, engine.jobs.submit(Submission(**(same | other))), "JOB_ID_CONFLICT", 409)


async def test_an_id_used_under_another_contract_is_refused(engine: Engine, place: Place) -> None:
    await submit(engine, "standard", id=ID)
    for contract in ("p3c", "men", "formal"):
        await refused_untouched(place, submit(engine, contract, id=ID), "JOB_ID_CONFLICT")


async def test_an_id_that_is_there_takes_no_new_key(engine: Engine, place: Place) -> None:
    """The row bears no key, so the key must not come to lead to it."""
    await submit(engine, id=ID)
    await refused_untouched(place, submit(engine, id=ID, idempotency_key="k"), "JOB_ID_CONFLICT")


@pytest.mark.parametrize("contract", NAMES)
async def test_bulk_makes_every_job_in_the_order_asked(engine: Engine, place: Place, contract: str) -> None:
    submissions = [Submission("mail", {"n": n}, contract) for n in range(50)]
    submitted = await engine.jobs.submit_many(submissions)
    assert [m.job.payload for m in submitted] == [f'{{"n":{n}}}' for n in range(50)]
    assert {m.job.id for m in submitted} == {job.id for job in await engine.jobs.list(Filter(limit=100))}
    assert len(place.dump()["events"]) == 50 * len(BORN[contract])


async def test_bulk_of_nothing(engine: Engine) -> None:
    assert await engine.jobs.submit_many([]) == []


async def test_bulk_over_several_contracts(engine: Engine) -> None:
    submitted = await engine.jobs.submit_many([Submission("mail", contract=contract) for contract in NAMES])
    assert [m.job.contract for m in submitted] == list(NAMES)
    assert len(await claim(engine)) == len(NAMES)


BAD_BULKS = {
    "invalid": [Submission("mail"), Submission("mail", {"x": float("nan")})],
    "key taken twice": [
        Submission("mail", {"a": 1}, idempotency_key="k"),
        Submission("mail", {"a": 2}, idempotency_key="k"),
    ],
    "keyed and foreign id": [Submission("mail", idempotency_key="k"), Submission("call", id=ID)],
    "plain and foreign id": [Submission("mail"), Submission("call", id=ID)],
    "p3c and foreign id": [Submission("mail", contract="p3c"), Submission("call", contract="p3c", id=ID)],
}


@pytest.mark.parametrize("submissions", BAD_BULKS.values(), ids=BAD_BULKS)
async def test_bulk_is_all_or_none(engine: Engine, place: Place, submissions: list[Submission]) -> None:
    await submit(engine, job_type="there", id=ID)
    before = place.dump()
    with pytest.raises(Exception, match=r"PAYLOAD_NOT_JSON|IDEMPOTENCY_CONFLICT|JOB_ID_CONFLICT"):
        await engine.jobs.submit_many(submissions)
    assert place.dump() == before


@pytest.mark.parametrize("key", [None, "k-{}"])
async def test_bulk_again_after_a_lost_reply(engine: Engine, place: Place, key: str | None) -> None:
    submissions = [Submission("mail", {"n": n}, id=own_id(n), idempotency_key=key and key.format(n)) for n in range(5)]
    await engine.jobs.submit_many(submissions[:3])
    submitted = await engine.jobs.submit_many(submissions)
    assert [m.job.id for m in submitted] == [submission.id for submission in submissions]
    dump = place.dump()
    assert (len(dump["jobs"]), len(dump["events"])) == (5, 5)


async def test_one_key_twice_in_a_bulk_is_one_job(engine: Engine) -> None:
    first, second = await engine.jobs.submit_many([Submission("mail", idempotency_key="k")] * 2)
    assert (first.hit, second.hit) == (False, True)
    assert first.job.id == second.job.id


async def test_many_callers_at_once_with_one_key_make_one_job(engine: Engine, place: Place) -> None:
    submitted = await asyncio.gather(*(engine.jobs.submit(Submission("mail", idempotency_key="k")) for _ in range(20)))
    assert len({m.job.id for m in submitted}) == 1
    assert [m.hit for m in submitted].count(False) == 1
    assert len(place.dump()["jobs"]) == 1


async def test_a_bad_submission_among_many_callers_spoils_only_itself(engine: Engine) -> None:
    await submit(engine, id=ID)
    foreign = engine.jobs.submit(Submission("call", id=ID, idempotency_key="k"))
    submitted = await asyncio.gather(*(submit(engine) for _ in range(10)), foreign, return_exceptions=True)
    assert [type(m).__name__ for m in submitted] == ["Job"] * 10 + ["IdempotencyConflict"]
    assert len(await engine.jobs.list(Filter())) == 11


LATER = {
    "gate-b2": "queued",
    "men": "pending",
    "p3c": "queued",
    "streams": "queued",
    "formal": "Queued",
    "standard": "scheduled",
}


@pytest.mark.parametrize("contract", NAMES)
async def test_a_later_job_shows_it_where_the_contract_has_a_status_for_it(engine: Engine, contract: str) -> None:
    job = await submit(engine, contract, scheduled_at="2026-02-25T13:00:00Z")
    assert (job.status, job.due_at) == (LATER[contract], START + 3_600_000_000)
    assert await path_of(engine, job.id) == [LATER[contract]]
    assert await claim(engine) == []


@pytest.mark.parametrize("contract", ["gate-b2", "men", "p3c", "formal"])
async def test_holding_is_refused_where_the_contract_has_no_status_for_it(
    engine: Engine, place: Place, contract: str
) -> None:
    error = await refused_untouched(place, submit(engine, contract, hold=True), "CONTRACT_LACKS_MOVE", 422)
    assert contract in error.message


async def test_a_moment_in_the_past_is_due_now(engine: Engine, clock: FakeClock) -> None:
    for contract in NAMES:
        job = await submit(engine, contract, scheduled_at="2020-01-01T00:00:00Z")
        assert (await claim_one(engine)).id == job.id
    clock.advance(1)


async def test_p3c_makes_a_trace_of_run_and_something_unique(engine: Engine) -> None:
    one, other = await submit(engine, "p3c"), await submit(engine, "p3c")
    prefix = f"trace-run-{one.id}-"
    assert one.trace_id and one.trace_id.startswith(prefix) and len(one.trace_id) >= len(prefix) + 32
    assert other.trace_id != one.trace_id
    assert (await submit(engine, "p3c", trace_id="mine")).trace_id == "mine"


async def test_streams_names_the_task_by_the_job(engine: Engine, place: Place) -> None:
    job = await submit(engine, "streams")
    assert job.task_id == job.id
    await refused_untouched(place, submit(engine, "streams", task_id="t-1"), "TASK_ID_FIXED", 422)


async def test_a_closed_engine_says_so(engine: Engine) -> None:
    await engine.close()
    await refused(asyncio.wait_for(submit(engine), 2), "STORE_UNAVAILABLE", 503)


async def test_a_caller_that_went_away_stops_nobody(engine: Engine) -> None:
    calls = [asyncio.ensure_future(submit(engine, id=own_id(n))) for n in range(20)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert (await submit(engine, id=own_id(99))).id == own_id(99)
    assert {own_id(n) for n in range(1, 20, 2)} <= {job.id for job in await engine.jobs.list(Filter())}
