"""Contracts that users declare: taught to the store at open, obeyed like our own, no trouble to those who lack them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.contract.io import contract_from_toml
from detent.core.contract.model import Contract, Edge, LossRule, Move, Phase, StopRule
from detent.core.outcome import Succeeded
from detent.core.retry import RetryRule, Table
from detent.engine import Engine
from detent.ports.tx import StatusCount
from detent.proof.verify.verify import verify
from support.acts import LEASE_SECONDS, claim, claim_one, path_of, refused, retryable, running, submit
from support.clock import FakeClock
from support.stores import Place, make_engine

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
    await refused(taught.jobs.transition(held.id, "done", Scope("ann")), "JOB_TRANSITION_INVALID", 409)


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
    assert (await second.jobs.cancel(old.id, Scope("ann"))).status == "drunk"
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
    assert (await taught.jobs.get(theirs.id)).phase is Phase.FINAL
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


def renamed() -> Contract:
    """A kettle whose leased status has another name: not compatible with jobs that are full or boiling."""
    edges = tuple(
        replace(
            edge,
            source="heating" if edge.source == "boiling" else edge.source,
            target="heating" if edge.target == "boiling" else edge.target,
        )
        for edge in kettle().edges
    )
    statuses = {("heating" if name == "boiling" else name): phase for name, phase in kettle().statuses.items()}
    return kettle(statuses=statuses, edges=edges)


async def test_a_status_that_unfinished_jobs_use_must_not_go(place: Place, clock: FakeClock) -> None:
    """A rolling deploy: the old process goes on, the new one is refused until no job is in the old table."""
    old, new = make_engine(place, clock, {"kettle": kettle()}), make_engine(place, clock, {"kettle": renamed()})
    await old.open()
    held = await running(old, "kettle")
    error = await refused(new.open(), "CONTRACT_CHANGED", 409)
    assert "status 'boiling'" in error.message and "under a new name" in error.message
    assert error.extra["contract"] == "kettle" and error.extra["lost"][0] == "status 'boiling'"
    await old.settle(held.id, held.token, Succeeded())
    waiting = await submit(old, "kettle")
    error = await refused(new.open(), "CONTRACT_CHANGED", 409)
    assert "edge CLAIM full -> boiling (kettle.lit)" in error.message, "its next move has gone"
    held = await claim_one(old)
    assert held.id == waiting.id
    await old.settle(held.id, held.token, Succeeded())
    report = await verify(old.store, old.contracts)
    assert report.ok, report.violations
    await new.open()
    assert (await submit(new, "kettle")).status == "full"
    await new.close()
    await old.close()


async def test_a_new_name_beside_the_old_contract(place: Place, clock: FakeClock, taught: Engine) -> None:
    old = await running(taught, "kettle")
    later = make_engine(place, clock, {"kettle": kettle(), "kettle-2": renamed().with_options(name="kettle-2")})
    await later.open()
    held = await running(later, "kettle-2", job_type="new")
    assert (await later.jobs.get(held.id)).status == "heating"
    await taught.settle(old.id, old.token, Succeeded())
    await later.close()


async def test_compatible_changes_are_accepted(place: Place, clock: FakeClock, taught: Engine) -> None:
    """New statuses, edges and rules, and the loss of what no unfinished job uses."""
    held = await running(taught, "kettle")
    grown = kettle(
        statuses={**kettle().statuses, "drunk": Phase.FINAL},
        edges=(*kettle().edges, Edge(Move.CANCEL, "full", "kettle.emptied", "drunk")),
        retry=RetryRule(Table((1_000, 2_000)), max_retries=5),
    )
    for contract in (grown, kettle()):
        other = make_engine(place, clock, {"kettle": contract})
        await other.open()
        assert (await other.jobs.get(held.id)).status == "boiling"
        await other.close()


async def test_a_status_with_two_states_is_counted_once(place: Place, clock: FakeClock) -> None:
    """Jobs keep the state of the table they ended under; a status that may be reopened now has a second one."""
    reopens = kettle(edges=(*kettle().edges, Edge(Move.REOPEN, "poured", "kettle.poured_back", "full")))
    for contract in (kettle(), reopens):
        engine = make_engine(place, clock, {"kettle": contract})
        await engine.open()
        held = await running(engine, "kettle")
        await engine.settle(held.id, held.token, Succeeded())
        counts = [row for tenant in (None, held.tenant_id) for row in await counted(engine, tenant)]
        await engine.close()
    assert counts == [("kettle", "poured", "final", 2)] * 2


async def counted(engine: Engine, tenant: str | None) -> list[StatusCount]:
    return await engine.store.read(lambda tx: tx.stats.counts(tenant))
