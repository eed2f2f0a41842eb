"""Suspects: jobs whose last two executions were lost. They are claimed one at a time and end after their budget."""

from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Phase
from detent.core.errors import StoreUnavailable
from detent.core.job import Failure
from detent.core.outcome import Failed, Snoozed, Stopped, Succeeded
from detent.engine import Engine, Settlement, Submission
from detent.ports.claims import Claimed
from detent.proof.verify.verify import verify
from support.acts import LEASE_SECONDS, NAMES, claim, claim_one, submit
from support.clock import FakeClock

pytestmark = pytest.mark.anyio
BACKOFF_SECONDS = 40.0


async def lose(engine: Engine, clock: FakeClock, times: int, limit: int = 10) -> list[Claimed]:
    """Claim the jobs and let their leases run out; returns the claims of the last time."""
    claimed: list[Claimed] = []
    for _ in range(times):
        claimed = await claim(engine, limit)
        clock.advance(LEASE_SECONDS)
        await engine.expire()
        clock.advance(BACKOFF_SECONDS)
    return claimed


@pytest.mark.parametrize("contract", NAMES)
async def test_a_job_lost_twice_is_claimed_alone(engine: Engine, clock: FakeClock, contract: str) -> None:
    await engine.jobs.submit_many([Submission("mail", contract=contract) for _ in range(4)])
    assert len(await claim(engine, 10)) == 4
    clock.advance(LEASE_SECONDS)
    await engine.expire()
    clock.advance(BACKOFF_SECONDS)
    again = await claim(engine, 10, reclaim=True)
    assert len(again) == 4 and not any(claimed.suspect for claimed in again), "one loss is no reason for suspicion"
    clock.advance(LEASE_SECONDS)
    await engine.expire()
    clock.advance(BACKOFF_SECONDS)
    fresh = await submit(engine, contract)
    assert [c.id for c in await claim(engine, 10, reclaim=True, suspects=False)] == [fresh.id]
    for _ in range(4):
        (suspect,) = await claim(engine, 10, reclaim=True)
        assert suspect.suspect and (await engine.jobs.get(suspect.id)).losses == 2
        await engine.settle(suspect.id, suspect.token, Succeeded())
    report = await verify(engine.store, engine.contracts)
    assert report.ok, report.violations


async def test_a_worker_that_isolates_gets_one_suspect_beside_other_jobs(engine: Engine, clock: FakeClock) -> None:
    await engine.jobs.submit_many([Submission("mail") for _ in range(3)])
    await lose(engine, clock, 2)
    await engine.jobs.submit_many([Submission("mail") for _ in range(2)])
    assert [claimed.suspect for claimed in await claim(engine, 10, suspects=True)] == [False, False, True]
    assert [claimed.suspect for claimed in await claim(engine, 10, suspects=True)] == [True]


async def test_a_job_lost_between_the_parts_of_a_claim_is_returned_once(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim takes suspects in a later transaction, under the same token. With both claims in the answer, a worker
    would run the job twice at once, and count a slot as free that is not."""
    await submit(engine, "standard")
    await lose(engine, clock, 1)
    settle_rest = Engine._defer_rows_still_leased

    async def late(engine: Engine, *batch: Any) -> list[Settlement]:
        clock.advance(LEASE_SECONDS)
        await engine.expire()
        clock.advance(BACKOFF_SECONDS)
        return await settle_rest(engine, *batch)

    monkeypatch.setattr(Engine, "_defer_rows_still_leased", late)
    claimed = await claim(engine, 10, suspects=True)
    assert [(one.execution_no, one.suspect) for one in claimed] == [(3, True)]


async def test_an_outage_before_the_last_part_of_a_claim_leaves_one_claim_of_a_job(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first part another worker takes the job and is lost, too. The second part takes it back."""
    await submit(engine, "streams")
    settle_rest = Engine._defer_rows_still_leased
    other_claims: list[Claimed] = []

    def outage(*_: Any) -> bool:
        raise StoreUnavailable("planted outage")

    async def late(engine: Engine, *batch: Any) -> list[Settlement]:
        monkeypatch.setattr(Engine, "_defer_rows_still_leased", settle_rest)
        clock.advance(LEASE_SECONDS)
        other_claims.extend(await claim(engine, 10, worker="other", reclaim=True))
        clock.advance(LEASE_SECONDS)
        monkeypatch.setattr(Engine, "_may_claim_suspect", outage)
        return await settle_rest(engine, *batch)

    monkeypatch.setattr(Engine, "_defer_rows_still_leased", late)
    claimed = await claim(engine, 10, reclaim=True, suspects=True)
    assert [one.execution_no for one in (*other_claims, *claimed)] == [2, 3]


@pytest.mark.parametrize("limited", [False, True])
async def test_limits_and_pauses_hold_for_suspects(engine: Engine, clock: FakeClock, limited: bool) -> None:
    await engine.jobs.submit_many([Submission("mail", priority=9) for _ in range(3)])
    await lose(engine, clock, 2)
    if limited:
        await engine.limits.set(Scope("ann"), queue="default", concurrency=1)
    await engine.limits.pause("job_type", "mail", Scope("ann"))
    assert await claim(engine, 10) == []
    await engine.limits.resume("job_type", "mail", Scope("ann"))
    assert len(await claim(engine, 10)) == 1
    assert len(await claim(engine, 10)) == (0 if limited else 1)


@pytest.mark.parametrize("outcome", [Failed(Failure("E", "failed")), Snoozed(0)], ids=["failure", "snooze"])
async def test_an_execution_that_ends_clears_the_suspicion(engine: Engine, clock: FakeClock, outcome: object) -> None:
    await submit(engine, "standard")
    await lose(engine, clock, 2)
    suspect = await claim_one(engine)
    job = await engine.settle(suspect.id, suspect.token, outcome)  # type: ignore[arg-type]
    assert suspect.suspect and job.losses == 0
    clock.advance(BACKOFF_SECONDS)
    assert not (await claim_one(engine, suspects=False)).suspect


async def test_a_stop_in_good_order_neither_adds_nor_clears_suspicion(engine: Engine, clock: FakeClock) -> None:
    await submit(engine, "standard")
    await lose(engine, clock, 2)
    suspect = await claim_one(engine)
    assert (await engine.settle(suspect.id, suspect.token, Stopped())).losses == 2
    assert (await claim_one(engine)).suspect


@pytest.mark.parametrize("contract", NAMES)
async def test_a_job_that_is_always_lost_is_given_up(engine: Engine, clock: FakeClock, contract: str) -> None:
    job = await submit(engine, contract)
    losses = 0
    while (await engine.jobs.get(job.id)).phase is not Phase.FINAL:
        claimed = await claim(engine, 1, reclaim=True)
        losses += bool(claimed)
        clock.advance(LEASE_SECONDS)
        await engine.expire()
        clock.advance(BACKOFF_SECONDS)
    ended = await engine.jobs.get(job.id)
    assert (ended.result, ended.error_code) == (None, ended.error_code or "none")
    assert losses <= 10
    if CONTRACTS[contract].loss.charged:
        assert losses == ended.max_retries + 1
