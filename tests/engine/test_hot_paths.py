"""What the store decides in SQL, claim and plain success, is field by field what `decide` would have done."""

from dataclasses import asdict, replace

import pytest

from detent.core.access import Scope
from detent.core.contract.model import Move, Phase
from detent.core.decide import decide
from detent.core.job import Facts
from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement
from support.acts import LEASE_SECONDS, LONG, NAMES, RESTING, ROUTES, claim_one, events_of, reach
from support.clock import FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio
LEASE = int(LEASE_SECONDS * 1_000_000)


def claimable() -> list[tuple[str, str]]:
    """Every status of the tables from which a claim can start a rested job."""
    return [
        ("gate-b2", "queued"),
        ("gate-b2", "retrying"),
        ("men", "ready"),
        ("p3c", "queued"),
        ("p3c", "retry_scheduled"),
        ("p3c", "interrupted"),
        ("streams", "queued"),
        ("formal", "Queued"),
        ("standard", "queued"),
        ("standard", "retrying"),
        ("standard", "interrupted"),
    ]


async def test_no_claimable_status_is_forgotten(engine: Engine) -> None:
    found = {
        (name, status)
        for name in NAMES
        for status in engine.contract(name).in_phase(Phase.CLAIMABLE)
        if status not in engine.contract(name).unreachable
    }
    assert found == set(claimable())
    assert found <= set(RESTING)


@pytest.mark.parametrize("contract", NAMES)
@pytest.mark.parametrize("backwards", [False, True], ids=["on time", "clock set back"])
async def test_a_claim_in_sql_is_the_decided_one(
    engine: Engine, clock: FakeClock, contract: str, backwards: bool
) -> None:
    for status in (status for name, status in claimable() if name == contract):
        before = await reach(engine, clock, contract, status, job_type=f"in-{status}")
        clock.advance(-5 if backwards and before.ready else LONG)
        logged = await events_of(engine, before.id)
        held = await claim_one(engine, worker="w9", job_types={before.job_type})
        facts = Facts(worker="w9", token=held.token, lease=LEASE)
        decided = decide(engine.contract(contract), replace(before, ready=True), Move.CLAIM, clock.now(), facts)
        assert asdict(await engine.jobs.get(before.id)) == asdict(decided.after)
        assert await events_of(engine, before.id) == logged + decided.events
        assert (await engine.jobs.history(before.id)).notes == decided.notes
        after = decided.after
        assert (held.execution_no, held.version, held.retries) == (after.execution_no, after.version, after.retries)


LEASED = {name: next(s for s in routes if s.lower() == "running") for name, routes in ROUTES.items()}


@pytest.mark.parametrize("contract", NAMES)
async def test_a_success_in_sql_is_the_decided_one(engine: Engine, clock: FakeClock, contract: str) -> None:
    for number, result in enumerate((None, '{"a":[1,"ä\\u0000\\"","\\\\"]}', "null")):
        before = await reach(engine, clock, contract, LEASED[contract], job_type=f"type-{number}")
        assert before.token
        logged = await events_of(engine, before.id)
        clock.advance(3)
        done = await engine.settle_and_claim([Settlement(before.id, before.token, contract, Succeeded(result))], None)
        assert done.refused == {}
        facts = Facts(actor=before.worker, result=result)
        decided = decide(engine.contract(contract), before, Move.SUCCEED, clock.now(), facts)
        assert asdict(await engine.jobs.get(before.id)) == asdict(decided.after)
        assert await events_of(engine, before.id) == logged + decided.events


@pytest.mark.parametrize("contract", ["standard", "formal"])
async def test_a_success_after_trouble_is_the_decided_one(engine: Engine, clock: FakeClock, contract: str) -> None:
    """Errors, counters, a cancel request and a clock set back: all that a success must clear or keep."""
    job = await reach(engine, clock, contract, "retrying" if contract == "standard" else "Queued")
    clock.advance(LONG)
    held = await claim_one(engine)
    before = await engine.jobs.cancel(job.id, Scope("ann", "late"))
    assert before.cancel_requested
    logged = await events_of(engine, job.id)
    clock.advance(-LONG)
    await engine.settle_and_claim([Settlement(job.id, held.token, contract, Succeeded("1"))], None)
    decided = decide(engine.contract(contract), before, Move.SUCCEED, clock.now(), Facts(actor="w1", result="1"))
    assert asdict(await engine.jobs.get(job.id)) == asdict(decided.after)
    assert await events_of(engine, job.id) == logged + decided.events


async def test_one_cycle_over_every_contract(place: Place, clock: FakeClock) -> None:
    engine = make_engine(place, clock)
    await engine.open()
    held = []
    for contract in NAMES:
        job = await reach(engine, clock, contract, LEASED[contract])
        assert job.token
        held.append(Settlement(job.id, job.token, contract, Succeeded(f'"{contract}"')))
    done = await engine.settle_and_claim(held, None)
    assert done.refused == {}
    for claimed in held:
        job = await engine.jobs.get(claimed.id)
        assert (job.phase, job.result) == (Phase.FINAL, claimed.outcome.result)  # type: ignore[union-attr]
    await engine.close()
