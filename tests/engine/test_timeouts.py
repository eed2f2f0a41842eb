"""start_to_close: an execution that outlasts its timeout is ended by the database, however its worker behaves."""

import pytest

from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Move, Phase
from detent.core.job import TIMEOUT_GRACE, Failure
from detent.core.outcome import Failed, Outcome, Snoozed, Stopped, Succeeded
from detent.engine import Engine, Settlement
from detent.ports.claims import Claimed
from support.acts import LEASE_SECONDS, NAMES, claim_one, events_of, note_names, path_of, refused, running
from support.clock import FakeClock

pytestmark = pytest.mark.anyio
TIMEOUT_MS = 40_000
"""More than one lease, so that only heartbeats keep the job."""
GRACE_SECONDS = TIMEOUT_GRACE / 1_000_000


async def overstay(engine: Engine, clock: FakeClock, held: Claimed, seconds: float) -> None:
    """The worker is alive: it sends heartbeats, the last one right before the given time."""
    clock.advance(20)
    assert not (await engine.extend({held.id: held.token}, LEASE_SECONDS)).lost
    clock.advance(seconds - 20)
    await engine.extend({held.id: held.token}, LEASE_SECONDS)


@pytest.mark.parametrize("contract", NAMES)
async def test_the_sweep_ends_it_although_its_worker_sends_heartbeats(
    engine: Engine, clock: FakeClock, contract: str
) -> None:
    held = await running(engine, contract, timeout_ms=TIMEOUT_MS, max_retries=3)
    await overstay(engine, clock, held, TIMEOUT_MS / 1_000 + GRACE_SECONDS - 0.000_001)
    assert await engine.expire() == []
    clock.advance(0.000_001)
    (job,) = await engine.expire()
    rules = CONTRACTS[contract]
    retry = rules.edge(rules.in_phase(Phase.LEASED)[0], Move.RETRY)
    assert retry is not None and job.status == retry.target
    assert (job.error_code, job.failures, job.losses) == (rules.code("timeout"), 1, 0)
    last = (await events_of(engine, held.id))[-1]
    assert (last.actor, (last.data or {})["charged"]) == ("detent", True)
    assert (await engine.extend({held.id: held.token}, LEASE_SECONDS)).lost == {held.id}
    await refused(engine.settle(held.id, held.token, Succeeded('"late"')), "LEASE_STALE", 409)
    assert await note_names(engine, held.id) == ["settle.refused"]


LATE: dict[str, Outcome] = {
    "succeed": Succeeded('{"n":1}'),
    "fail": Failed(Failure("BOOM", "too late", "Boom")),
    "snooze": Snoozed(1_000_000),
    "stop": Stopped(),
}


@pytest.mark.parametrize("outcome", LATE)
async def test_what_comes_after_the_timeout_is_refused_before_any_sweep(
    engine: Engine, clock: FakeClock, outcome: str
) -> None:
    held = await running(engine, timeout_ms=TIMEOUT_MS)
    await overstay(engine, clock, held, TIMEOUT_MS / 1_000 + 0.000_001)
    await refused(engine.settle(held.id, held.token, LATE[outcome]), "LEASE_STALE", 409)
    assert (await engine.jobs.get(held.id)).phase is Phase.LEASED
    clock.advance(GRACE_SECONDS)
    (job,) = await engine.expire()
    assert (job.status, job.error_code) == ("retrying", "JOB_TIMEOUT")


async def test_a_late_success_in_a_batch_is_refused_and_the_others_are_settled(
    engine: Engine, clock: FakeClock
) -> None:
    late = await running(engine, timeout_ms=TIMEOUT_MS)
    clock.advance(1)
    in_time = await running(engine, timeout_ms=TIMEOUT_MS)
    without = await running(engine)
    clock.advance(TIMEOUT_MS / 1_000 - 1 + 0.000_001)
    settled = [Settlement(c.id, c.token, c.contract, Succeeded()) for c in (late, in_time, without)]
    result = await engine.settle_and_claim(settled, None)
    assert (list(result.refused), result.later) == ([late.id], [])
    assert result.refused[late.id].code == "LEASE_STALE"
    assert [(await engine.jobs.get(c.id)).status for c in (in_time, without)] == ["succeeded", "succeeded"]
    assert (await engine.jobs.get(late.id)).status == "running"


async def test_the_timeout_itself_is_in_time(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine, timeout_ms=TIMEOUT_MS)
    clock.advance(TIMEOUT_MS / 1_000)
    assert (await engine.settle(held.id, held.token, Succeeded())).status == "succeeded"


async def test_the_worker_may_report_the_timeout_itself(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine, "men", timeout_ms=1_000)
    clock.advance(1 + GRACE_SECONDS - 0.000_001)
    assert not (await engine.extend({held.id: held.token}, LEASE_SECONDS)).lost, "a report is still welcome"
    job = await engine.settle(held.id, held.token, Failed(Failure("TASK_TIMEOUT", "mine", "Timeout")))
    assert (job.status, job.error_message, job.failures) == ("ready", "mine", 1)
    assert await engine.expire() == []


async def test_a_heartbeat_after_the_grace_tells_that_the_job_is_lost(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine, timeout_ms=1_000)
    clock.advance(1 + GRACE_SECONDS)
    assert (await engine.extend({held.id: held.token}, LEASE_SECONDS)).lost == {held.id}


async def test_each_execution_has_its_own_timeout(engine: Engine, clock: FakeClock) -> None:
    first = await running(engine, "men", timeout_ms=1_000)
    clock.advance(2)
    await engine.expire()
    second = await claim_one(engine)
    assert second.token != first.token
    clock.advance(0.9)
    assert (await engine.settle(second.id, second.token, Succeeded())).status == "succeeded"
    assert await path_of(engine, first.id) == ["pending", "ready", "running", "ready", "running", "succeeded"]


async def test_the_last_timeout_is_exhausted_with_its_cause(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine, "men", timeout_ms=1_000, max_retries=0)
    clock.advance(2)
    (job,) = await engine.expire()
    assert (job.status, job.error_code) == ("failed", "TASK_RETRY_EXHAUSTED")
    assert (job.error_message or "").startswith("TASK_TIMEOUT: ")
    assert held.id == job.id


async def test_a_worker_lost_before_the_timeout_is_a_lost_worker(engine: Engine, clock: FakeClock) -> None:
    """Its lease ended first, so a p3c run is interrupted and not charged, also when nobody swept for a long time."""
    await running(engine, "p3c", timeout_ms=TIMEOUT_MS)
    clock.advance(3_600)
    (job,) = await engine.expire()
    assert (job.status, job.error_code, job.failures) == ("interrupted", "PROCESS_RESTARTED", 0)


async def test_a_requested_cancel_is_carried_out_at_the_timeout(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine, timeout_ms=1_000)
    await engine.jobs.cancel(held.id, Scope("ann"))
    clock.advance(2)
    (job,) = await engine.expire()
    assert job.status == "cancelled"


async def test_a_timeout_is_not_reclaimed_as_a_lost_worker(engine: Engine, clock: FakeClock) -> None:
    await running(engine, "streams", timeout_ms=1_000)
    clock.advance(2)
    assert (await engine.settle_and_claim([], engine.claim_request("w2", 5, LEASE_SECONDS, reclaim=True))).claimed == []
    (job,) = await engine.expire()
    assert (job.status, job.error_code) == ("queued", "JOB_TIMEOUT")
