"""Leases: lengthened in one batch, taken when their time is over, charged as the contract says."""

from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import LossRule, Move, Phase
from detent.core.outcome import Succeeded
from detent.engine import Engine, Submission
from support.acts import (
    LEASE_SECONDS,
    LONG,
    NAMES,
    ROUTES,
    claim,
    claim_one,
    events_of,
    reach,
    refused,
    running,
    submit,
)
from support.clock import START, FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio
EXPIRING = [name for name in NAMES if name != "streams"]


async def test_a_lease_is_lengthened_from_now(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine)
    before = await engine.jobs.get(held.id)
    clock.advance(20)
    assert not (await engine.extend({held.id: held.token}, LEASE_SECONDS)).lost
    job = await engine.jobs.get(held.id)
    assert job.lease_until == START + 50_000_000
    assert (job.version, job.updated_at) == (before.version, before.updated_at), "a heartbeat is no event"


async def test_a_lease_is_never_shortened(engine: Engine) -> None:
    held = await running(engine)
    await engine.extend({held.id: held.token}, 1)
    assert (await engine.jobs.get(held.id)).lease_until == START + 30_000_000


async def test_a_batch_tells_which_leases_are_lost(engine: Engine, clock: FakeClock) -> None:
    await engine.jobs.submit_many([Submission("mail") for _ in range(5)])
    kept, done, cancelled, forged, lost = await claim(engine)
    clock.advance(20)
    rest = {c.id: c.token for c in (kept, done, cancelled, forged)}
    await engine.extend(rest, LEASE_SECONDS)
    clock.advance(10)
    assert [job.id for job in await engine.expire()] == [lost.id]
    await engine.settle(done.id, done.token, Succeeded())
    await engine.jobs.cancel(cancelled.id, Scope("ann"), force=True)
    answer = await engine.extend(rest | {forged.id: "x", lost.id: lost.token, "nobody": "t"}, LEASE_SECONDS)
    assert answer.lost == {done.id, cancelled.id, forged.id, lost.id, "nobody"}
    assert (await engine.jobs.get(kept.id)).lease_until == clock.now() + 30_000_000
    assert (await engine.jobs.get(forged.id)).lease_until == START + 50_000_000


async def test_extending_nothing(engine: Engine) -> None:
    assert not (await engine.extend({}, LEASE_SECONDS)).lost


async def test_a_heartbeat_tells_of_a_cancel_request(engine: Engine) -> None:
    await engine.jobs.submit_many([Submission("mail"), Submission("mail")])
    to_cancel, free = await claim(engine)
    await engine.jobs.cancel(to_cancel.id, Scope("ann", "stop"))
    answer = await engine.extend({to_cancel.id: to_cancel.token, free.id: free.token}, LEASE_SECONDS)
    assert (answer.lost, set(answer.cancels)) == (frozenset(), {to_cancel.id})
    assert '"ann"' in answer.cancels[to_cancel.id]


@pytest.mark.parametrize("contract", EXPIRING)
async def test_a_lease_runs_out_at_its_moment_and_not_before(engine: Engine, clock: FakeClock, contract: str) -> None:
    held = await running(engine, contract)
    clock.advance(29.999_999)
    assert await engine.expire() == []
    clock.advance(0.000_001)
    assert [job.id for job in await engine.expire()] == [held.id]
    assert await engine.expire() == []


# contract -> status, failures, retries, interruptions, code, seconds until it is due, event
LOST: dict[str, tuple[str, int, int, int, str, float, str]] = {
    "gate-b2": ("retrying", 1, 1, 0, "WORKER_LOST", 1.0, "job.retrying"),
    "men": ("ready", 1, 1, 0, "TASK_TIMEOUT", 0.0, "task.ready"),
    "p3c": ("interrupted", 0, 0, 1, "PROCESS_RESTARTED", 0.0, "process_restart"),
    "formal": ("Queued", 1, 0, 0, "WORKER_LOST", 0.0, "job_requeued"),
    "standard": ("interrupted", 1, 0, 0, "WORKER_LOST", 0.0, "job.interrupted"),
}


@pytest.mark.parametrize("jitter", [0, 300])
@pytest.mark.parametrize("contract", EXPIRING)
async def test_a_lost_worker_is_charged_as_the_contract_says(
    place: Place, clock: FakeClock, contract: str, jitter: int
) -> None:
    engine = make_engine(place, clock, jitter=lambda job, retry, upper: min(upper, jitter))
    await engine.open()
    status, failures, retries, interruptions, code, seconds, name = LOST[contract]
    held = await running(engine, contract)
    clock.advance(LEASE_SECONDS)
    (job,) = await engine.expire()
    assert await engine.jobs.get(held.id) == job
    assert (job.status, job.failures, job.retries, job.interruptions) == (status, failures, retries, interruptions)
    assert (job.error_code, job.worker, job.lease_until) == (code, None, None)
    drawn = jitter / 1_000 if contract == "gate-b2" else 0
    assert job.due_at == clock.now() + round((seconds + drawn) * 1_000_000)
    event = (await events_of(engine, job.id))[-1]
    assert (event.event, event.target) == (name, status)
    assert (event.data or {})["reason"] == "lease_expired"
    await engine.close()


# contract -> executions until it is given up, where it ends, its code, whether a dead letter is left
GIVEN_UP = {
    "gate-b2": (4, "failed", "WORKER_LOST", True),
    "men": (3, "failed", "TASK_RETRY_EXHAUSTED", False),
    "formal": (3, "Failed", "WORKER_LOST", False),
    "standard": (4, "failed", "WORKER_LOST", True),
}


@pytest.mark.parametrize("contract", GIVEN_UP)
async def test_a_job_that_kills_its_workers_ends(engine: Engine, clock: FakeClock, contract: str) -> None:
    executions, end, code, buried = GIVEN_UP[contract]
    await submit(engine, contract)
    for number in range(1, executions + 1):
        assert (await claim_one(engine)).execution_no == number
        clock.advance(LONG)
        (job,) = await engine.expire()
        clock.advance(LONG)
    assert (job.status, job.error_code, job.phase) == (end, code, Phase.FINAL)
    assert (job.dlq_id is not None) is buried
    if buried:
        item = await engine.dead_letters.get(str(job.dlq_id))
        assert (item.error_code, item.error_class, item.retries) == (code, "WorkerLost", job.retries)


async def test_an_interrupted_run_loses_no_retry(engine: Engine, clock: FakeClock) -> None:
    await submit(engine, "p3c")
    for _ in range(8):
        await claim_one(engine)
        clock.advance(LEASE_SECONDS)
        (job,) = await engine.expire()
    assert (job.status, job.failures, job.interruptions) == ("interrupted", 0, 8)


async def test_interruptions_may_be_limited(place: Place, clock: FakeClock) -> None:
    loss = LossRule(Move.EXPIRE, charged=False, max_interruptions=1)
    engine = make_engine(place, clock, {"p3c": CONTRACTS["p3c"].with_options(loss=loss)})
    await engine.open()
    await submit(engine, "p3c")
    path = []
    for _ in range(2):
        await claim_one(engine)
        clock.advance(LEASE_SECONDS)
        (job,) = await engine.expire()
        path.append(job.status)
    assert path == ["interrupted", "failed"]
    assert [e.event for e in await events_of(engine, job.id)][-2:] == ["process_restart", "recovery_abort"]
    await engine.close()


async def test_a_pass_is_bounded(engine: Engine, clock: FakeClock) -> None:
    await engine.jobs.submit_many([Submission("mail") for _ in range(7)])
    await claim(engine)
    clock.advance(LEASE_SECONDS)
    assert [len(await engine.expire(limit=3)) for _ in range(4)] == [3, 3, 1, 0]


async def test_final_and_waiting_jobs_have_no_lease_to_lose(engine: Engine, clock: FakeClock) -> None:
    for contract, routes in ROUTES.items():
        for status in routes:
            if status.lower() != "running":
                await reach(engine, clock, contract, status, job_type=f"{contract}-{status}")
    clock.advance(LONG)
    assert await engine.expire() == []


async def test_streams_jobs_are_not_expired_but_taken_over(engine: Engine, clock: FakeClock) -> None:
    old = await running(engine, "streams")
    clock.advance(LEASE_SECONDS)
    assert await engine.expire() == []
    assert await claim(engine, worker="w2") == []
    new = await claim_one(engine, worker="w2", reclaim=True)
    job = await engine.jobs.get(old.id)
    assert (new.id, new.execution_no, job.worker, job.token) == (old.id, 2, "w2", new.token)
    assert (job.failures, job.retries, job.lease_until) == (0, 0, clock.now() + 30_000_000)
    event = (await events_of(engine, old.id))[-1]
    assert (event.event, event.source, event.target) == ("task.reclaimed", "running", "running")
    assert event.data == {"old_consumer": "w1", "new_consumer": "w2", "message_id": old.token}
    await refused(engine.settle(old.id, old.token, Succeeded('"old"')), "LEASE_STALE")
    assert (await engine.extend({old.id: old.token}, LEASE_SECONDS)).lost == {old.id}
    assert (await engine.settle(new.id, new.token, Succeeded('"new"'))).result == '"new"'


async def test_a_claim_does_not_take_over_its_own_job(engine: Engine, clock: FakeClock) -> None:
    """A process that is stopped between the two parts of a claim would get one job twice, under one token."""
    await engine.jobs.submit(Submission("mail", contract="streams"))
    request = engine.claim_request("w1", 2, LEASE_SECONDS, reclaim=True)
    (claimed,) = await engine.claim(request)
    clock.advance(LEASE_SECONDS)
    assert await engine.claim(request) == []
    assert (await engine.jobs.get(claimed.id)).execution_no == 1


@pytest.mark.parametrize(
    "options", [{"job_types": {"other"}}, {"queues": {"other"}}, {"exclude_contracts": frozenset({"streams"})}], ids=str
)
async def test_only_what_was_asked_for_is_taken_over(engine: Engine, clock: FakeClock, options: Any) -> None:
    await running(engine, "streams")
    clock.advance(LEASE_SECONDS)
    assert await claim(engine, worker="w2", reclaim=True, **options) == []


@pytest.mark.parametrize("kind", ["queue", "job_type", "tenant"])
async def test_what_is_paused_is_not_taken_over(engine: Engine, clock: FakeClock, kind: str) -> None:
    await running(engine, "streams", queue="x", job_type="x", tenant_id="x")
    clock.advance(LEASE_SECONDS)
    await engine.limits.pause(kind, "x", Scope("ann"))
    assert await claim(engine, worker="w2", reclaim=True) == []
    await engine.limits.resume(kind, "x", Scope("ann"))
    assert len(await claim(engine, worker="w2", reclaim=True)) == 1


async def test_taking_over_keeps_the_limit(engine: Engine, clock: FakeClock) -> None:
    await engine.jobs.submit_many([Submission("mail", contract="streams") for _ in range(5)])
    await claim(engine)
    clock.advance(LEASE_SECONDS)
    await engine.jobs.submit_many([Submission("mail", contract="streams") for _ in range(2)])
    assert len(await claim(engine, 3, worker="w2", reclaim=True)) == 3


async def test_lost_jobs_of_other_types_do_not_stand_in_the_way(engine: Engine, clock: FakeClock) -> None:
    await engine.jobs.submit_many([Submission("other", contract="streams") for _ in range(3)])
    await claim(engine)
    await running(engine, "streams", job_type="mine")
    clock.advance(LEASE_SECONDS)
    taken = await claim(engine, 1, worker="w2", reclaim=True, job_types={"mine"})
    assert [c.job_type for c in taken] == ["mine"]
