"""Contracts that users declare: taught to the store at open, obeyed like our own, no trouble to those who lack them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.core.contract.io import contract_from_toml
from detent.core.contract.model import Contract, Edge, LossRule, Move, Phase, StopRule
from detent.core.outcome import Succeeded
from detent.core.retry import RetryRule, Table
from detent.engine import Engine

from .acts import LEASE_SECONDS, claim, claim_one, path_of, refused, retryable, running, submit
from .clock import FakeClock
from .stores import Place, make_engine

pytestmark = pytest.mark.anyio

OVEN_TOML = """
name = "oven's"
[statuses]
"it's cold" = "claimable"
hot = "leased"
done = "final"
burnt = "final"
[[edges]]
move = "SUBMIT"
event = "oven.bought"
target = "it's cold"
[[edges]]
move = "CLAIM"
source = "it's cold"
event = "oven.lit"
target = "hot"
[[edges]]
move = "SUCCEED"
source = "hot"
event = "oven.rang"
target = "done"
[[edges]]
move = "FAIL"
source = "hot"
event = "oven.smoked"
target = "burnt"
[[edges]]
move = "EXPIRE"
source = "hot"
event = "oven.cooled"
target = "it's cold"
[[edges]]
move = "RELEASE"
source = "hot"
event = "oven.opened"
target = "it's cold"
[[edges]]
move = "RETRY"
source = "hot"
event = "oven.reset"
target = "it's cold"
"""
OVEN = contract_from_toml(OVEN_TOML)


def kettle(**changes: Any) -> Contract:
    """Retries and schedules wait in a blocked status here."""
    options: dict[str, Any] = {
        "name": "kettle",
        "statuses": {
            "cool": Phase.BLOCKED,
            "full": Phase.CLAIMABLE,
            "boiling": Phase.LEASED,
            "poured": Phase.FINAL,
            "broken": Phase.FINAL,
        },
        "edges": (
            Edge(Move.SUBMIT, None, "kettle.filled", "full"),
            Edge(Move.DEFER, None, "kettle.shelved", "cool"),
            Edge(Move.CLAIM, "full", "kettle.lit", "boiling"),
            Edge(Move.SUCCEED, "boiling", "kettle.poured", "poured"),
            Edge(Move.RETRY, "boiling", "kettle.tripped", "cool"),
            Edge(Move.WAKE, "cool", "kettle.refilled", "full"),
            Edge(Move.FAIL, "boiling", "kettle.broke", "broken"),
        ),
        "retry": RetryRule(Table((5_000,)), max_retries=2),
        "loss": LossRule(Move.RETRY),
        "stop": StopRule(None),
    }
    return Contract(**(options | changes))


@pytest.fixture
async def taught(place: Place, clock: FakeClock) -> AsyncIterator[Engine]:
    engine = make_engine(place, clock, {OVEN.name: OVEN, "kettle": kettle()})
    await engine.open()
    yield engine
    await engine.close()


async def test_a_declared_contract_runs_its_own_table(taught: Engine, clock: FakeClock) -> None:
    held = await running(taught, OVEN.name)
    job = await taught.settle(held.id, held.token, Succeeded('"bread"'))
    assert (job.status, job.result) == ("done", '"bread"')
    assert await path_of(taught, job.id) == ["it's cold", "hot", "done"]
    held = await running(taught, OVEN.name)
    clock.advance(LEASE_SECONDS)
    assert [j.status for j in await taught.expire()] == ["it's cold"]
    await refused(taught.transition(held.id, "done", actor="ann"), "JOB_TRANSITION_INVALID", 409)


async def test_our_own_contracts_stay_beside_it(taught: Engine) -> None:
    for contract in ("gate-b2", "formal", "standard"):
        held = await running(taught, contract)
        assert (await taught.settle(held.id, held.token, Succeeded())).phase is Phase.FINAL


async def test_a_retry_that_waits_blocked_wakes_after_its_delay(taught: Engine, clock: FakeClock) -> None:
    held = await running(taught, "kettle")
    job = await taught.settle(held.id, held.token, retryable("kettle"))
    assert (job.status, job.due_at) == ("cool", clock.now() + 5_000_000)
    clock.advance(4.9)
    assert await taught.wake() == []
    clock.advance(0.1)
    assert [j.status for j in await taught.wake()] == ["full"]
    assert (await claim_one(taught)).execution_no == 2


async def test_a_blocked_retry_may_carry_next_retry_at(place: Place, clock: FakeClock) -> None:
    contract = kettle(
        statuses={**kettle().statuses, "tripped": Phase.BLOCKED},
        retry_at_statuses=frozenset({"tripped"}),
        edges=(
            *(e for e in kettle().edges if e.move is not Move.RETRY),
            Edge(Move.RETRY, "boiling", "kettle.tripped", "tripped"),
            Edge(Move.WAKE, "tripped", "kettle.reset", "full"),
        ),
    )
    engine = make_engine(place, clock, {"kettle": contract})
    await engine.open()
    held = await running(engine, "kettle")
    job = await engine.settle(held.id, held.token, retryable("kettle"))
    assert (job.status, job.next_retry_at) == ("tripped", clock.now() + 5_000_000)
    await engine.close()


async def test_before_it_is_taught_the_contract_is_unknown(engine: Engine) -> None:
    await refused(submit(engine, "kettle"), "CONTRACT_UNKNOWN", 422)


async def test_a_contract_may_grow_between_two_openings(place: Place, clock: FakeClock) -> None:
    first = make_engine(place, clock, {"kettle": kettle()})
    await first.open()
    old = await submit(first, "kettle")
    await first.close()
    grown = kettle(
        statuses={**kettle().statuses, "drunk": Phase.FINAL},
        edges=(*kettle().edges, Edge(Move.CANCEL, "full", "kettle.emptied", "drunk")),
    )
    second = make_engine(place, clock, {"kettle": grown})
    await second.open()
    assert (await second.cancel(old.id, actor="ann")).status == "drunk"
    await second.close()


async def test_a_process_that_opens_later_knows_the_contract_by_its_declaration(
    place: Place, clock: FakeClock, taught: Engine
) -> None:
    """The table is data: whoever opens the database obeys it, with or without the code that declared it."""
    theirs = await submit(taught, "kettle")
    plain = make_engine(place, clock, {})
    await plain.open()
    held = await claim_one(plain)
    assert held.id == theirs.id
    await plain.settle(held.id, held.token, Succeeded())
    assert (await taught.job(theirs.id)).phase is Phase.FINAL
    await plain.close()


async def test_a_process_that_opened_earlier_leaves_them_alone_too(
    place: Place, clock: FakeClock, engine: Engine
) -> None:
    later = make_engine(place, clock, {"kettle": kettle()})
    await later.open()
    theirs = await submit(later, "kettle")
    await submit(later, "kettle", delay=1)
    ours = await submit(engine)
    await submit(engine, delay=1)
    assert [c.id for c in await claim(engine)] == [ours.id]
    clock.advance(LEASE_SECONDS)
    assert len(await engine.wake()) == 1, "sweeping goes on past what it does not know"
    assert theirs.id in {c.id for c in await claim(later)}
    await later.close()


async def test_two_processes_keep_each_others_contracts(place: Place, clock: FakeClock) -> None:
    one, other = make_engine(place, clock, {OVEN.name: OVEN}), make_engine(place, clock, {"kettle": kettle()})
    await one.open()
    await other.open()
    for _ in range(2):
        assert (await submit(one, OVEN.name)).status == "it's cold"
        assert (await submit(other, "kettle")).status == "full"
    await one.close()
    await other.close()


async def test_names_that_run_together_are_not_confused(place: Place, clock: FakeClock) -> None:
    """`a/b` + `c` and `a` + `b/c` read alike when glued; the file must tell them apart."""
    options = {"statuses": {"c": Phase.CLAIMABLE, "run": Phase.LEASED, "end": Phase.FINAL}}
    edges = (
        Edge(Move.SUBMIT, None, "made", "c"),
        Edge(Move.CLAIM, "c", "taken", "run"),
        Edge(Move.SUCCEED, "run", "ended", "end"),
        Edge(Move.RETRY, "run", "again", "c"),
        Edge(Move.FAIL, "run", "failed", "end"),
    )
    odd = kettle(name="kettle/full", **options, edges=edges)
    engine = make_engine(place, clock, {odd.name: odd, "kettle": kettle()})
    await engine.open()
    held = await running(engine, odd.name)
    assert (await engine.settle(held.id, held.token, Succeeded())).status == "end"
    await engine.close()
