"""`transition` asks the table for one edge: every pair of statuses, legal ones made, others refused."""

import pytest

from detent.core.access import Scope
from detent.core.outcome import Succeeded
from detent.engine import Engine
from support.acts import (
    LONG,
    ROUTES,
    claim_one,
    events_of,
    path_of,
    reach,
    refused_noted,
    refused_untouched,
    retryable,
    running,
    submit,
)
from support.clock import FakeClock
from support.stores import Place

from .test_approvals import ILLEGAL

pytestmark = pytest.mark.anyio

# contract -> status -> statuses one edge away that the engine may issue; follow-ups are named where they end
EDGES: dict[str, dict[str, set[str]]] = {
    "gate-b2": {
        "queued": {"running"},
        "running": {"succeeded", "retrying", "dlq_pending"},
        "retrying": {"running", "dlq_pending"},
        "succeeded": set(),
        "failed": set(),
    },
    "men": {
        "pending": {"ready", "cancelled"},
        "ready": {"running", "cancelled"},
        "running": {"succeeded", "failed", "ready", "cancelled"},
        "succeeded": set(),
        "failed": set(),
        "cancelled": set(),
    },
    "p3c": {
        "queued": {"running", "cancelled"},
        "running": {"succeeded", "failed", "retry_scheduled", "interrupted", "cancelled"},
        "retry_scheduled": {"running", "cancelled"},
        "interrupted": {"running", "failed", "cancelled"},
        "succeeded": set(),
        "failed": set(),
        "cancelled": set(),
    },
    "streams": {
        "queued": {"running"},
        "running": {"succeeded", "queued", "failed"},  # to running again only by taking over a lost lease
        "waiting_approval": {"queued", "failed"},
        "succeeded": set(),
        "failed": set(),
    },
    "formal": {
        "Queued": {"Running"},
        "Running": {"Queued", "Waiting", "Completed", "Failed", "Cancelled"},
        "Waiting": {"Queued", "Cancelled"},
        "Completed": set(),
        "Failed": {"Queued"},
        "Cancelled": set(),
    },
}
ALL = {
    "gate-b2": ["queued", "running", "retrying", "succeeded", "dlq_pending", "dlq_recorded", "failed", "nowhere"],
    "men": ["pending", "ready", "running", "succeeded", "failed", "cancelled", "READY"],
    "p3c": ["queued", "running", "retry_scheduled", "interrupted", "succeeded", "failed", "cancelled", ""],
    "streams": ["queued", "running", "waiting_approval", "succeeded", "failed", "cancelled"],
    "formal": ["Queued", "Running", "Waiting", "Parked", "Retrying", "Completed", "Failed", "Cancelled", "Leased"],
}


@pytest.mark.parametrize("contract", EDGES)
async def test_every_status_to_every_other(engine: Engine, clock: FakeClock, contract: str) -> None:
    for status in EDGES[contract]:
        await move_from(engine, clock, contract, status)


async def move_from(engine: Engine, clock: FakeClock, contract: str, status: str) -> None:
    job = await reach(engine, clock, contract, status, job_type=f"kept-{status}")
    for target in ALL[contract]:
        if target in EDGES[contract][status] or (contract == "p3c" and target == status):
            continue
        act = engine.jobs.transition(job.id, target, Scope("ann"))
        error = await refused_noted(engine, job.id, act, ILLEGAL[contract], "move.refused")
        assert error.http_status == 409
    for number, target in enumerate(sorted(EDGES[contract][status])):
        job = await reach(engine, clock, contract, status, job_type=f"moved-{status}-{number}")
        after = await engine.jobs.transition(job.id, target, Scope("ann"))
        events = await events_of(engine, job.id)
        assert events[job.version].target == target
        assert events[job.version].source == status
        assert events[job.version].actor == "ann"
        assert after.status == events[-1].target
        assert (await engine.audit())[0][2].act == "job.transition"


async def test_standard_moves_too(engine: Engine, clock: FakeClock) -> None:
    job = await submit(engine)
    await refused_noted(
        engine,
        job.id,
        engine.jobs.transition(job.id, "succeeded", Scope("ann")),
        "JOB_TRANSITION_INVALID",
        "move.refused",
    )
    assert (await engine.jobs.transition(job.id, "running", Scope("ann"))).worker == "internal:ann"
    assert (await engine.jobs.transition(job.id, "succeeded", Scope("ann"))).status == "succeeded"


async def test_gate_b2_follows_the_dead_letter_to_its_end(engine: Engine, clock: FakeClock) -> None:
    job = await reach(engine, clock, "gate-b2", "running")
    after = await engine.jobs.transition(job.id, "dlq_pending", Scope("ann"))
    assert (after.status, after.retries) == ("failed", 0)
    assert (await path_of(engine, job.id))[-3:] == ["dlq_pending", "dlq_recorded", "failed"]
    assert (await engine.dead_letters.get(str(after.dlq_id))).job_id == job.id


async def test_p3c_saying_the_status_again_is_nothing(engine: Engine, place: Place, clock: FakeClock) -> None:
    for status in ROUTES["p3c"]:
        job = await reach(engine, clock, "p3c", status, job_type=f"in-{status}")
        before = place.dump()
        assert await engine.jobs.transition(job.id, status, Scope("ann")) == job
        assert place.dump() == before


async def test_a_holder_loses_the_job_that_was_moved(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine, "p3c")
    await engine.jobs.transition(held.id, "interrupted", Scope("ann"))
    await refused_noted(
        engine, held.id, engine.settle(held.id, held.token, Succeeded()), "LEASE_STALE", "settle.refused"
    )


async def test_the_frozen_number_of_retries_holds_by_hand_too(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine, "gate-b2")
    for _ in range(3):
        await engine.settle(held.id, held.token, retryable("gate-b2"))
        clock.advance(LONG)
        held = await claim_one(engine)
    act = engine.jobs.transition(held.id, "retrying", Scope("ann"))
    await refused_noted(engine, held.id, act, "WF_STATE_TRANSITION_INVALID", "move.refused")
    assert (await engine.settle(held.id, held.token, retryable("gate-b2"))).retries == 3


async def test_a_refused_move_is_nothing_but_a_note(engine: Engine, place: Place, clock: FakeClock) -> None:
    job = await reach(engine, clock, "gate-b2", "queued")
    before = place.dump()
    with pytest.raises(Exception, match="WF_STATE_TRANSITION_INVALID"):
        await engine.jobs.transition(job.id, "succeeded", Scope("ann"))
    after = place.dump()
    assert {table for table in after if after[table] != before[table]} == {"notes"}
    await refused_untouched(place, engine.jobs.transition("nobody", "running", Scope("ann")), "JOB_NOT_FOUND", 404)
