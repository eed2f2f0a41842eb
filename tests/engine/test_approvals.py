"""Approvals: nothing runs before a person said yes, and who said what stands in the log and the audit."""

import pytest

from detent.core.access import Scope
from detent.engine import Engine
from detent.ports.listing import Filter
from support.acts import ROUTES, claim, claim_one, events_of, notes_of, reach, refused_noted, refused_untouched, submit
from support.clock import START, FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
HOLDING = ["streams", "standard"]
EVENTS = {
    "streams": ("task.created", "approval.approved", "task.failed"),
    "standard": ("job.held", "job.decided", "job.rejected"),
}
ILLEGAL = {
    "gate-b2": "WF_STATE_TRANSITION_INVALID",
    "men": "TASK_INVALID_TRANSITION",
    "p3c": "RUN_INVALID_TRANSITION",
    "streams": "TASK_TRANSITION_INVALID",
    "formal": "JOB_TRANSITION_INVALID",
    "standard": "JOB_TRANSITION_INVALID",
}


@pytest.mark.parametrize("contract", HOLDING)
async def test_a_held_job_waits_for_a_person(engine: Engine, contract: str) -> None:
    job = await submit(engine, contract, hold=True, actor="guard")
    assert (job.status, job.phase) == ("waiting_approval", "blocked")
    assert [e.event for e in await events_of(engine, job.id)] == [EVENTS[contract][0]]
    assert [(n.name, n.actor, n.seq) for n in await notes_of(engine, job.id)] == [("approval.requested", "guard", 1)]
    assert await claim(engine, reclaim=True) == []


@pytest.mark.parametrize("contract", HOLDING)
async def test_approved_it_runs(engine: Engine, clock: FakeClock, contract: str) -> None:
    job = await submit(engine, contract, hold=True, tenant_id="acme")
    clock.advance(5)
    after = await engine.approvals.approve(job.id, Scope("ann", "looks fine", "acme"))
    assert (after.status, after.due_at) == ("queued", clock.now())
    event = (await events_of(engine, job.id))[-1]
    assert (event.event, event.actor) == (EVENTS[contract][1], "ann")
    assert event.data == {"approved": True, "reason": "looks fine"}
    (_, at, entry), *rest = await engine.audit()
    assert (entry.actor, entry.act, entry.subject) == ("ann", "job.approve", job.id)
    assert (entry.tenant_id, entry.reason, at, rest) == ("acme", "looks fine", clock.now(), [])
    assert (await claim_one(engine)).id == job.id


@pytest.mark.parametrize("contract", HOLDING)
async def test_rejected_it_ends_without_having_run(engine: Engine, contract: str) -> None:
    job = await submit(engine, contract, hold=True)
    after = await engine.approvals.reject(job.id, Scope("ann", "too risky"))
    assert (after.status, after.phase, after.execution_no) == ("failed", "final", 0)
    assert (after.error_code, after.error_message) == ("APPROVAL_REJECTED", "too risky")
    event = (await events_of(engine, job.id))[-1]
    assert (event.event, event.actor, (event.data or {})["reason"]) == (EVENTS[contract][2], "ann", "too risky")
    entries = [(n.name, n.actor, (n.data or {}).get("reason")) for n in await notes_of(engine, job.id)]
    assert entries[-1] == ("approval.rejected", "ann", "too risky")
    (_, _, entry), *rest = await engine.audit()
    assert (entry.actor, entry.act, entry.reason, rest) == ("ann", "job.reject", "too risky", [])
    assert await engine.dead_letters.list(Filter()) == [], "a refusal is no failure"


@pytest.mark.parametrize("contract", ROUTES)
async def test_deciding_what_does_not_wait_is_refused(engine: Engine, clock: FakeClock, contract: str) -> None:
    for status in ROUTES[contract]:
        if status == "waiting_approval":
            continue
        job = await reach(engine, clock, contract, status, job_type=f"in-{status}")
        for act in (engine.approvals.approve(job.id, Scope("ann")), engine.approvals.reject(job.id, Scope("ann"))):
            error = await refused_noted(engine, job.id, act, ILLEGAL[contract], "move.refused")
            assert error.http_status == 409
    assert not {"job.approve", "job.reject"} & {entry.act for _, _, entry in await engine.audit()}


@pytest.mark.parametrize("contract", HOLDING)
async def test_a_decision_is_made_once(engine: Engine, contract: str) -> None:
    job = await submit(engine, contract, hold=True)
    await engine.approvals.approve(job.id, Scope("ann"))
    for act in (engine.approvals.approve(job.id, Scope("ann")), engine.approvals.reject(job.id, Scope("bob"))):
        await refused_noted(engine, job.id, act, ILLEGAL[contract], "move.refused")


@pytest.mark.parametrize("actor", ["", "  "])
async def test_a_decision_has_a_name(engine: Engine, place: Place, actor: str) -> None:
    job = await submit(engine, hold=True)
    await refused_untouched(place, engine.approvals.approve(job.id, Scope(actor)), "APPROVAL_REQUIRED", 400)
    await refused_untouched(place, engine.approvals.reject(job.id, Scope(actor)), "APPROVAL_REQUIRED", 400)


@pytest.mark.parametrize("contract", HOLDING)
async def test_approval_does_not_bring_the_moment_forward(engine: Engine, clock: FakeClock, contract: str) -> None:
    """A job asked for at one o'clock and approved at noon still runs at one."""
    job = await submit(engine, contract, hold=True, scheduled_at="2026-02-25T13:00:00Z")
    after = await engine.approvals.approve(job.id, Scope("ann"))
    assert after.due_at == START + 3_600_000_000
    assert await claim(engine) == []
    clock.advance(3600)
    await engine.wake()
    assert (await claim_one(engine)).id == job.id


async def test_inside_a_handler_the_decision_comes_back_to_it(engine: Engine, clock: FakeClock) -> None:
    job = await reach(engine, clock, "standard", "running")
    held = await engine.jobs.transition(job.id, "waiting_approval", Scope("handler"))
    assert held.status == "waiting_approval"
    after = await engine.approvals.reject(job.id, Scope("ann", "no"))
    assert (after.status, after.error_code) == ("queued", None)
    signal = await engine.store.read(lambda tx: tx.signals.signal(job.id, "approval"))
    assert (signal.actor, signal.data) == ("ann", '{"approved": false, "actor": "ann", "reason": "no"}')


async def test_a_handler_may_be_held_twice(engine: Engine, clock: FakeClock) -> None:
    job = await reach(engine, clock, "standard", "running")
    for actor in ("ann", "bob"):
        await engine.jobs.transition(job.id, "waiting_approval", Scope("handler"))
        assert (await engine.approvals.approve(job.id, Scope(actor))).status == "queued"
        await claim_one(engine)
