"""Cancel, abort and reopen: which statuses each contract lets go, at once or by asking the holder."""

import json

import pytest

from detent.core.access import Scope
from detent.core.job import Wait
from detent.core.outcome import Cancelled, Snoozed, Succeeded, Waits
from detent.engine import Engine
from support.acts import (
    LEASE_SECONDS,
    ROUTES,
    claim,
    claim_one,
    events_of,
    note_names,
    path_of,
    reach,
    refused_noted,
    retryable,
    running,
    submit,
)
from support.clock import FakeClock
from support.stores import Place

from .test_approvals import ILLEGAL

pytestmark = pytest.mark.anyio
AT_ONCE = {
    "men": {"pending", "ready", "running"},
    "p3c": {"queued", "running", "retry_scheduled", "interrupted"},
    "formal": {"Waiting"},
    "standard": {
        "scheduled",
        "queued",
        "retrying",
        "interrupted",
        "waiting",
        "parked",
        "waiting_approval",
    },
}
ASKED = {"formal": {"Queued", "Running"}, "standard": {"running"}}


@pytest.mark.parametrize("contract", ROUTES)
async def test_cancel_of_every_status(engine: Engine, clock: FakeClock, contract: str) -> None:
    for status in ROUTES[contract]:
        await cancel_from(engine, clock, contract, status)


async def cancel_from(engine: Engine, clock: FakeClock, contract: str, status: str) -> None:
    job = await reach(engine, clock, contract, status, job_type=f"in-{status}")
    act = engine.jobs.cancel(job.id, Scope("ann", "not needed"))
    if status in AT_ONCE.get(contract, ()):
        after = await act
        assert (after.status.lower(), after.phase, after.finished_at) == ("cancelled", "final", clock.now())
        event = (await events_of(engine, job.id))[-1]
        assert (event.actor, (event.data or {})["reason"], event.source) == ("ann", "not needed", status)
    elif status in ASKED.get(contract, ()):
        after = await act
        assert (after.status, after.version) == (status, job.version)
        cancel_request = json.loads(after.cancel_requested or "{}")
        assert (cancel_request["actor"], cancel_request["reason"]) == ("ann", "not needed")
        assert (await note_names(engine, job.id))[-1] == "cancel.requested"
    else:
        error = await refused_noted(engine, job.id, act, ILLEGAL[contract], "move.refused")
        assert error.http_status == 409
        return
    audited = [(e.actor, e.reason) for _, _, e in await engine.audit() if e.act == "job.cancel"]
    assert audited[0] == ("ann", "not needed")


@pytest.mark.parametrize(("contract", "status"), [("formal", "Queued"), ("formal", "Running"), ("standard", "running")])
async def test_asking_twice_is_asking_once(
    engine: Engine, place: Place, clock: FakeClock, contract: str, status: str
) -> None:
    job = await reach(engine, clock, contract, status)
    first = await engine.jobs.cancel(job.id, Scope("ann", "one"))
    before = place.dump()
    assert await engine.jobs.cancel(job.id, Scope("bob", "two")) == first
    assert place.dump() == before


async def test_a_queued_formal_job_is_cancelled_by_the_next_claim(engine: Engine) -> None:
    cancel_request = await submit(engine, "formal")
    other = await submit(engine, "formal")
    await engine.jobs.cancel(cancel_request.id, Scope("ann", "not needed"))
    assert [c.id for c in await claim(engine)] == [other.id]
    assert await path_of(engine, cancel_request.id) == ["Queued", "Running", "Cancelled"]
    last = (await events_of(engine, cancel_request.id))[-1]
    assert last.event == "job_cancelled"
    assert last.actor == "ann", "the one who asked, not the worker that made it true"
    assert (last.data or {})["reason"] == "not needed"


@pytest.mark.parametrize(("contract", "end"), [("formal", "Cancelled"), ("standard", "cancelled")])
async def test_a_holder_that_obeys_ends_the_job(engine: Engine, contract: str, end: str) -> None:
    held = await running(engine, contract)
    await engine.jobs.cancel(held.id, Scope("ann"))
    assert (await engine.settle(held.id, held.token, Cancelled("as asked"))).status == end


@pytest.mark.parametrize(("contract", "end"), [("formal", "Completed"), ("standard", "succeeded")])
async def test_a_holder_that_was_faster_succeeds(engine: Engine, contract: str, end: str) -> None:
    held = await running(engine, contract)
    await engine.jobs.cancel(held.id, Scope("ann"))
    job = await engine.settle(held.id, held.token, Succeeded())
    assert (job.status, job.cancel_requested) == (end, None)


@pytest.mark.parametrize(
    "outcome", [retryable("standard"), Snoozed(1), Waits(Wait("answer"))], ids=lambda o: type(o).__name__
)
async def test_a_request_is_made_true_as_soon_as_nobody_holds_the_job(engine: Engine, outcome: object) -> None:
    held = await running(engine)
    await engine.jobs.cancel(held.id, Scope("ann", "not needed"))
    job = await engine.settle(held.id, held.token, outcome)  # type: ignore[arg-type]
    assert (job.status, job.cancel_requested) == ("cancelled", None)
    last = (await events_of(engine, held.id))[-1]
    assert (last.actor, (last.data or {})["reason"]) == ("ann", "not needed")


async def test_a_request_outlives_the_worker(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine)
    await engine.jobs.cancel(held.id, Scope("ann"))
    clock.advance(LEASE_SECONDS)
    await engine.expire()
    assert await claim(engine, worker="w2") == []
    assert (await engine.jobs.get(held.id)).status == "cancelled"


@pytest.mark.parametrize(("contract", "end"), [("formal", "Cancelled"), ("standard", "cancelled")])
async def test_force_does_not_wait_for_the_holder(engine: Engine, contract: str, end: str) -> None:
    held = await running(engine, contract)
    await engine.jobs.cancel(held.id, Scope("ann"))
    assert (await engine.jobs.cancel(held.id, Scope("ann"), force=True)).status == end
    await refused_noted(
        engine, held.id, engine.settle(held.id, held.token, Succeeded()), "LEASE_STALE", "settle.refused"
    )


async def test_force_knows_no_edge_the_table_lacks(engine: Engine) -> None:
    job = await submit(engine, "formal")
    act = engine.jobs.cancel(job.id, Scope("ann"), force=True)
    await refused_noted(engine, job.id, act, "JOB_TRANSITION_INVALID", "move.refused")


ABORTED = {"gate-b2": {"retrying"}, "p3c": {"interrupted"}, "standard": {"retrying", "interrupted"}}


@pytest.mark.parametrize("contract", ROUTES)
async def test_abort_of_every_status(engine: Engine, clock: FakeClock, contract: str) -> None:
    for status in ROUTES[contract]:
        await abort_from(engine, clock, contract, status)


async def abort_from(engine: Engine, clock: FakeClock, contract: str, status: str) -> None:
    job = await reach(engine, clock, contract, status, job_type=f"in-{status}")
    act = engine.jobs.abort(job.id, Scope("ann", "hopeless"))
    if status not in ABORTED.get(contract, ()):
        await refused_noted(engine, job.id, act, ILLEGAL[contract], "move.refused")
        return
    after = await act
    assert (after.status, after.failures, after.error_code) == ("failed", job.failures, job.error_code)
    edge = (await events_of(engine, job.id))[job.version]
    assert (edge.actor, (edge.data or {})["reason"]) == ("ann", "hopeless")
    assert (after.dlq_id is not None) is (contract != "p3c")
    _, _, entry = (await engine.audit())[0]
    assert (entry.actor, entry.act, entry.subject, entry.reason) == ("ann", "job.abort", job.id, "hopeless")
    clock.advance(10)
    assert await claim(engine, job_types={job.job_type}) == []


async def test_an_aborted_run_logs_the_seeds_event(engine: Engine, clock: FakeClock) -> None:
    job = await reach(engine, clock, "p3c", "interrupted")
    await engine.jobs.abort(job.id, Scope("ann"))
    assert (await events_of(engine, job.id))[-1].event == "recovery_abort"


@pytest.mark.parametrize("contract", ROUTES)
async def test_only_a_failed_formal_job_is_reopened(engine: Engine, clock: FakeClock, contract: str) -> None:
    for status in ROUTES[contract]:
        if (contract, status) == ("formal", "Failed"):
            continue
        job = await reach(engine, clock, contract, status, job_type=f"in-{status}")
        act = engine.jobs.reopen(job.id, Scope("ann"))
        await refused_noted(engine, job.id, act, ILLEGAL[contract], "move.refused")


async def test_a_reopened_job_has_a_fresh_budget(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine, "formal")
    for _ in range(2):
        await engine.settle(held.id, held.token, retryable("formal"))
        clock.advance(10)
        held = await claim_one(engine)
    failed = await engine.settle(held.id, held.token, retryable("formal"))
    assert (failed.status, failed.failures) == ("Failed", 3)
    job = await engine.jobs.reopen(held.id, Scope("ann", "fixed"))
    assert (job.id, job.status, job.failures, job.retries) == (held.id, "Queued", 0, 0)
    assert (job.error_code, job.finished_at, job.due_at) == (None, None, clock.now())
    event = (await events_of(engine, job.id))[-1]
    assert (event.event, event.actor, (event.data or {})["reason"]) == ("job_requeued", "ann", "fixed")
    assert [(e.actor, e.act, e.reason) for _, _, e in await engine.audit()] == [("ann", "job.reopen", "fixed")]
    held = await claim_one(engine)
    assert held.execution_no == 4
    assert (await engine.settle(held.id, held.token, retryable("formal"))).status == "Queued"
