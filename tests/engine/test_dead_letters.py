"""Dead letters: requeued as a new, linked job, or discarded by as many people as the contract asks for."""

import json

import pytest

from detent.core.access import Scope
from detent.core.job import Job, Step
from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.ports.listing import Filter
from support.acts import (
    LONG,
    PERMANENT,
    claim_one,
    events_of,
    own_id,
    reach,
    refused,
    refused_untouched,
    retryable,
    running,
)
from support.clock import START, FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
FRESH = own_id(1)
BURYING = ["gate-b2", "streams", "standard"]
BORN = {"gate-b2": "queued", "streams": "queued", "standard": "queued"}


async def buried(engine: Engine, clock: FakeClock, contract: str = "gate-b2", **fields: object) -> tuple[Job, str]:
    job = await reach(engine, clock, contract, "failed", **fields)
    assert job.dlq_id
    return job, job.dlq_id


@pytest.mark.parametrize("contract", BURYING)
async def test_a_requeue_is_a_new_job_with_fresh_counters(engine: Engine, clock: FakeClock, contract: str) -> None:
    fields = {"payload": {"a": 1}, "queue": "q", "tenant_id": "t", "priority": 5, "timeout_ms": 9, "trace_id": "tr"}
    job, dlq_id = await buried(engine, clock, contract, idempotency_key="k", **fields)
    clock.advance(60)
    submitted = await engine.dead_letters.requeue(dlq_id, Scope("ann", "fixed"))
    new = await engine.jobs.get(submitted.job.id)
    assert new.id != job.id and not submitted.hit
    assert (new.status, new.requeued_from, new.effect_root) == (BORN[contract], dlq_id, job.id)
    assert (new.failures, new.retries, new.execution_no, new.error_code, new.dlq_id) == (0, 0, 0, None, None)
    assert (new.payload, new.queue, new.tenant_id, new.priority) == ('{"a":1}', "q", "t", 5)
    assert (new.timeout_ms, new.trace_id, new.contract, new.job_type) == (9, "tr", contract, "mail")
    assert (new.idempotency_key == "k") == (contract == "streams"), "the streams document keeps the key"
    assert (new.created_at, new.due_at) == (START + 60_000_000, START + 60_000_000)
    item = await engine.dead_letters.get(dlq_id)
    assert (item.status, item.requeued_as, item.updated_at) == ("requeued", new.id, clock.now())
    assert (await engine.jobs.get(job.id)) == job
    assert (await events_of(engine, new.id))[0].actor == "ann"
    assert (await claim_one(engine)).effect_root == job.id


@pytest.mark.parametrize("contract", BURYING)
async def test_an_item_is_requeued_once(engine: Engine, place: Place, clock: FakeClock, contract: str) -> None:
    _, dlq_id = await buried(engine, clock, contract)
    await engine.dead_letters.requeue(dlq_id, Scope("ann"))
    await refused_untouched(place, engine.dead_letters.requeue(dlq_id, Scope("ann")), "DLQ_REQUEUE_CONFLICT", 409)
    await refused_untouched(
        place, engine.dead_letters.discard(dlq_id, Scope("ann", "old")), "DLQ_DISCARD_CONFLICT", 409
    )


async def test_the_budget_of_a_requeued_job_is_whole(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine, "gate-b2")
    for _ in range(4):
        job = await engine.settle(held.id, held.token, retryable("gate-b2"))
        clock.advance(LONG)
        if job.dlq_id is None:
            held = await claim_one(engine)
    assert job.dlq_id
    await engine.dead_letters.requeue(job.dlq_id, Scope("ann"))
    for number in range(1, 5):
        held = await claim_one(engine)
        assert held.execution_no == number
        job = await engine.settle(held.id, held.token, retryable("gate-b2"))
        clock.advance(LONG)
    assert job.status == "failed"


async def test_effect_keys_are_the_first_jobs_through_a_chain_of_requeues(engine: Engine, clock: FakeClock) -> None:
    first, dlq_id = await buried(engine, clock)
    await engine.dead_letters.requeue(dlq_id, Scope("ann"))
    held = await claim_one(engine)
    second = await engine.settle(held.id, held.token, PERMANENT)
    assert second.dlq_id
    third = (await engine.dead_letters.requeue(second.dlq_id, Scope("ann"))).job
    assert (second.effect_root, third.effect_root) == (first.id, first.id)


@pytest.mark.parametrize("contract", BURYING)
async def test_a_payload_may_be_repaired(engine: Engine, clock: FakeClock, contract: str) -> None:
    _, dlq_id = await buried(engine, clock, contract, payload={"a": "bad"})
    new = (await engine.dead_letters.requeue(dlq_id, Scope("ann"), payload={"a": "good"})).job
    assert json.loads(new.payload) == {"a": "good"}
    assert json.loads((await engine.dead_letters.get(dlq_id)).payload) == {"a": "bad"}
    entry = (await engine.audit())[0][2]
    assert entry.data == {"requeued_as": new.id, "repaired": True}


async def test_a_requeue_is_audited(engine: Engine, clock: FakeClock) -> None:
    _, dlq_id = await buried(engine, clock, tenant_id="acme")
    new = (await engine.dead_letters.requeue(dlq_id, Scope("ann", "fixed"))).job
    ((_, at, entry),) = await engine.audit()
    assert (entry.actor, entry.act, entry.subject, entry.tenant_id) == ("ann", "dlq.requeue", dlq_id, "acme")
    assert (entry.reason, entry.data, at) == ("fixed", {"requeued_as": new.id, "repaired": False}, clock.now())


async def test_steps_are_taken_over_on_request(engine: Engine, clock: FakeClock) -> None:
    for take, expected in ((True, {"charge"}), (False, set())):
        job, dlq_id = await buried(engine, clock, job_type=f"take-{take}")
        step = Step(job.id, "charge", "digest", '"receipt"', True, 1, clock.now())
        await engine.store.write(lambda tx, step=step: tx.steps.put_step(step))
        new = (await engine.dead_letters.requeue(dlq_id, Scope("ann"), take_steps=take)).job
        steps = await engine.store.read(lambda tx, new=new: tx.steps.list_steps(new.id))
        assert {s.name for s in steps} == expected
        assert all((s.digest, s.result, s.finished) == ("digest", '"receipt"', True) for s in steps)


@pytest.mark.parametrize("contract", ["gate-b2", "standard"])
async def test_a_discard_needs_two_people(engine: Engine, clock: FakeClock, contract: str) -> None:
    job, dlq_id = await buried(engine, clock, contract)
    clock.advance(1)
    proposed = await engine.dead_letters.discard(dlq_id, Scope("ann", "duplicate order"))
    assert (proposed.confirmed, proposed.item.status, proposed.item.proposed_by) == (False, "open", "ann")
    assert (await engine.dead_letters.get(dlq_id)).proposed_reason == "duplicate order"
    clock.advance(1)
    confirmed = await engine.dead_letters.discard(dlq_id, Scope("bob", "I agree"))
    assert (confirmed.confirmed, confirmed.item.status) == (True, "discarded")
    assert await engine.dead_letters.get(dlq_id) == confirmed.item
    assert await engine.jobs.get(job.id) == job
    entries = [(e.actor, e.act, e.reason, e.data) for _, _, e in reversed(await engine.audit())]
    assert entries == [
        ("ann", "dlq.discard.propose", "duplicate order", None),
        ("bob", "dlq.discard", "I agree", {"proposed_by": "ann", "proposed_reason": "duplicate order"}),
    ]


@pytest.mark.parametrize(
    ("first", "again"),
    [
        *(("ann", again) for again in ("ann", " ann", "ann ", "Ann", "ANN", "Ａｎｎ", "an\u200bn", "ａＮＮ\u3000")),
        ("Straße", "STRASSE"),
        ("王ｱﾝ", "王アン"),
        ("e\u0301va", "Éva"),
    ],
)
async def test_one_person_is_not_two(engine: Engine, place: Place, clock: FakeClock, first: str, again: str) -> None:
    _, dlq_id = await buried(engine, clock)
    await engine.dead_letters.discard(dlq_id, Scope(first, "old"))
    await refused_untouched(
        place, engine.dead_letters.discard(dlq_id, Scope(again, "really")), "APPROVAL_REQUIRED", 400
    )


async def test_a_name_without_authentication_does_not_confirm(engine: Engine, place: Place, clock: FakeClock) -> None:
    """A typed name proposes at most, and the next proven person proposes again: the typed name may be theirs."""
    _, dlq_id = await buried(engine, clock)
    discard = engine.dead_letters.discard
    assert not (await discard(dlq_id, Scope("ann", "old", shared_with=None))).confirmed
    act = discard(dlq_id, Scope("bob", "really", shared_with=None))
    await refused_untouched(place, act, "APPROVAL_REQUIRED", 400)
    proposed = await discard(dlq_id, Scope("bob", "really", shared_with=("root",)))
    assert not proposed.confirmed and proposed.item.proposed_by == "bob"
    for scope in (Scope("cy", "too", shared_with=None), Scope("cy", "too", shared_with=("Root",)), Scope("root", "me")):
        await refused_untouched(place, discard(dlq_id, scope), "APPROVAL_REQUIRED", 400)
    assert not (await discard(dlq_id, Scope("Bob", "my own now"))).confirmed
    assert (await discard(dlq_id, Scope("cy", "too", shared_with=("Root",)))).confirmed


@pytest.mark.parametrize("contract", BURYING)
async def test_a_discard_has_a_reason_and_a_name(engine: Engine, place: Place, clock: FakeClock, contract: str) -> None:
    _, dlq_id = await buried(engine, clock, contract)
    for person, reason in (("ann", ""), ("ann", " \n"), ("ann", None), ("", "old"), (" ", "old")):
        act = engine.dead_letters.discard(dlq_id, Scope(person, reason))
        await refused_untouched(place, act, "APPROVAL_REQUIRED", 400)
    await engine.dead_letters.discard(dlq_id, Scope("ann", "old"))
    if contract != "streams":
        act = engine.dead_letters.discard(dlq_id, Scope("bob", " "))
        await refused_untouched(place, act, "APPROVAL_REQUIRED", 400)


async def test_a_streams_discard_needs_one_person(engine: Engine, place: Place, clock: FakeClock) -> None:
    _, dlq_id = await buried(engine, clock, "streams")
    done = await engine.dead_letters.discard(dlq_id, Scope("ann", "abandoned"))
    assert (done.confirmed, done.item.status) == (True, "discarded")
    assert [(e.actor, e.act, e.reason) for _, _, e in await engine.audit()] == [("ann", "dlq.discard", "abandoned")]
    await refused_untouched(
        place, engine.dead_letters.discard(dlq_id, Scope("bob", "again")), "DLQ_DISCARD_CONFLICT", 409
    )
    await refused_untouched(place, engine.dead_letters.requeue(dlq_id, Scope("ann")), "DLQ_REQUEUE_CONFLICT", 409)


async def test_a_proposed_discard_can_still_be_requeued(engine: Engine, clock: FakeClock) -> None:
    _, dlq_id = await buried(engine, clock)
    await engine.dead_letters.discard(dlq_id, Scope("ann", "old"))
    await engine.dead_letters.requeue(dlq_id, Scope("bob"))
    await refused(engine.dead_letters.discard(dlq_id, Scope("bob", "late")), "DLQ_DISCARD_CONFLICT", 409)


async def test_lists_of_dead_letters(engine: Engine, clock: FakeClock) -> None:
    submitted = [await buried(engine, clock, contract, job_type=contract) for contract in BURYING]
    ids = [dlq_id for _, dlq_id in submitted]
    assert {d.id for d in await engine.dead_letters.list(Filter())} == set(ids)
    assert [d.id for d in await engine.dead_letters.list(Filter(contract="streams"))] == [ids[1]]
    await engine.dead_letters.requeue(ids[0], Scope("ann"))
    assert {d.id for d in await engine.dead_letters.list(Filter(status="open"))} == set(ids[1:])


async def test_a_requeue_whose_reply_was_lost_is_repeated_with_the_same_id(
    engine: Engine, place: Place, clock: FakeClock
) -> None:
    _, dlq_id = await buried(engine, clock)
    first = await engine.dead_letters.requeue(dlq_id, Scope("ann"), new_id=FRESH)
    before = place.dump()
    again = await engine.dead_letters.requeue(dlq_id, Scope("ann"), new_id=FRESH)
    assert again.job == first.job and place.dump() == before


async def test_a_requeued_job_ends_as_its_own(engine: Engine, clock: FakeClock) -> None:
    job, dlq_id = await buried(engine, clock)
    await engine.dead_letters.requeue(dlq_id, Scope("ann"), new_id=FRESH)
    held = await claim_one(engine)
    assert held.id == FRESH
    assert (await engine.settle(held.id, held.token, Succeeded())).status == "succeeded"
    assert (await engine.jobs.get(job.id)).status == "failed"
