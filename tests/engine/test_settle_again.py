"""Said twice, done once; said too late, refused and noted; one bad result in a batch is nobody else's trouble."""

import pytest

from detent.core.access import Scope
from detent.core.job import Failure, Wait
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.engine import Engine, Settlement, Submission
from support.acts import (
    LEASE_SECONDS,
    LONG,
    NAMES,
    PERMANENT,
    claim,
    claim_one,
    note_names,
    refused_noted,
    refused_untouched,
    retryable,
    running,
    submit,
)
from support.clock import FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
WAITS = Waits(Wait("answer"))
SAID: list[tuple[str, Outcome]] = [
    *((name, Succeeded('{"n":1}')) for name in NAMES),
    *((name, Succeeded()) for name in NAMES),
    *((name, retryable(name)) for name in NAMES),
    *((name, PERMANENT) for name in NAMES),
    *((name, Stopped()) for name in NAMES if name != "streams"),
    *((name, Cancelled("no need")) for name in ("men", "p3c", "formal", "standard")),
    *((name, Snoozed(1)) for name in ("formal", "standard")),
    *((name, WAITS) for name in ("formal", "standard")),
]


@pytest.mark.parametrize("contract", NAMES)
async def test_settled_again_is_settled_once(engine: Engine, place: Place, clock: FakeClock, contract: str) -> None:
    for number, outcome in enumerate(outcome for name, outcome in SAID if name == contract):
        held = await running(engine, contract, job_type=f"type-{number}")
        first = await engine.settle(held.id, held.token, outcome)
        before = place.dump()
        clock.advance(1)
        assert await engine.settle(held.id, held.token, outcome) == first, outcome
        done = await engine.settle_and_claim([Settlement(held.id, held.token, contract, outcome)], None)
        assert done.refused == {}
        assert place.dump() == before


OTHER = [
    (Succeeded('{"n":1}'), Succeeded('{"n":2}')),
    (Succeeded('{"n":1}'), Succeeded()),
    (Succeeded(), Failed(Failure("BOOM", "try again"))),
    (Failed(Failure("BOOM", "try again")), Failed(Failure("BOOM", "another"))),
    (Failed(Failure("BOOM", "try again")), Succeeded()),
    (Snoozed(1), Snoozed(2)),
    (WAITS, Waits(Wait("question"))),
]


@pytest.mark.parametrize(("first", "second"), OTHER, ids=lambda v: type(v).__name__)
async def test_settled_again_otherwise_is_stale(engine: Engine, first: Outcome, second: Outcome) -> None:
    held = await running(engine)
    await engine.settle(held.id, held.token, first)
    error = await refused_noted(
        engine, held.id, engine.settle(held.id, held.token, second), "LEASE_STALE", "settle.refused"
    )
    assert error.http_status == 409


@pytest.mark.parametrize("contract", NAMES)
async def test_a_token_that_never_stood_on_the_row_is_refused(engine: Engine, contract: str) -> None:
    held = await running(engine, contract)
    for outcome in (Succeeded(), PERMANENT, Stopped(), Cancelled()):
        await refused_noted(engine, held.id, engine.settle(held.id, "forged", outcome), "LEASE_STALE", "settle.refused")
    assert (await engine.settle(held.id, held.token, Succeeded())).phase == "final"


@pytest.mark.parametrize("token", ["", "forged"])
async def test_a_job_nobody_holds_cannot_be_settled(engine: Engine, token: str) -> None:
    job = await submit(engine)
    await refused_noted(engine, job.id, engine.settle(job.id, token, Succeeded()), "LEASE_STALE", "settle.refused")


@pytest.mark.parametrize("contract", [name for name in NAMES if name != "streams"])
async def test_the_late_result_of_a_lost_worker_is_refused(engine: Engine, clock: FakeClock, contract: str) -> None:
    old = await running(engine, contract)
    clock.advance(LEASE_SECONDS)
    assert len(await engine.expire()) == 1
    for outcome in (Succeeded(), retryable(contract)):
        await refused_noted(engine, old.id, engine.settle(old.id, old.token, outcome), "LEASE_STALE", "settle.refused")
    clock.advance(LONG)
    new = await claim_one(engine, worker="w2")
    await refused_noted(engine, old.id, engine.settle(old.id, old.token, Succeeded()), "LEASE_STALE", "settle.refused")
    assert (await engine.settle(new.id, new.token, Succeeded('"new"'))).result == '"new"'


@pytest.mark.parametrize("outcome", [retryable("standard"), Stopped(), Snoozed(0)], ids=lambda v: type(v).__name__)
async def test_a_result_repeated_after_the_next_claim_is_refused(
    engine: Engine, clock: FakeClock, outcome: Outcome
) -> None:
    """It counts, but its token no longer stands on the row."""
    old = await running(engine, "standard")
    await engine.settle(old.id, old.token, outcome)
    clock.advance(LONG)
    new = await claim_one(engine, worker="w2")
    await refused_noted(engine, old.id, engine.settle(old.id, old.token, outcome), "LEASE_STALE", "settle.refused")
    assert (await engine.settle(new.id, new.token, Succeeded('"new"'))).result == '"new"'


async def test_a_result_after_the_lease_time_counts_while_nobody_took_the_job(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine)
    clock.advance(LONG)
    assert (await engine.settle(held.id, held.token, Succeeded())).status == "succeeded"


@pytest.mark.parametrize("contract", ["men", "p3c"])
async def test_the_late_result_of_a_cancelled_run_is_refused(engine: Engine, contract: str) -> None:
    held = await running(engine, contract)
    await engine.jobs.cancel(held.id, Scope("ann"))
    for outcome in (Succeeded(), retryable(contract), Cancelled()):
        await refused_noted(
            engine, held.id, engine.settle(held.id, held.token, outcome), "LEASE_STALE", "settle.refused"
        )


async def test_a_batch_of_good_stale_failing_and_unsupported(engine: Engine, clock: FakeClock) -> None:
    await engine.jobs.submit_many([Submission("mail", {"n": n}) for n in range(6)])
    await engine.jobs.submit_many([Submission("mail", contract="gate-b2")])
    good, lost, failing, waiting, forged, again, snoozing = await claim(engine)
    clock.advance(1)
    await engine.settle(again.id, again.token, Succeeded('"x"'))
    await engine.jobs.cancel(lost.id, Scope("ann"), force=True)
    settled = [
        Settlement(good.id, good.token, "standard", Succeeded('"good"')),
        Settlement(lost.id, lost.token, "standard", Succeeded('"lost"')),
        Settlement(failing.id, failing.token, "standard", retryable("standard")),
        Settlement(waiting.id, waiting.token, "standard", WAITS),
        Settlement(forged.id, "forged", "standard", PERMANENT),
        Settlement(again.id, again.token, "standard", Succeeded('"x"')),
        Settlement(snoozing.id, snoozing.token, "gate-b2", Snoozed(1)),
        Settlement("nobody", "t", "standard", Succeeded()),
    ]
    next_one = await submit(engine, job_type="next")
    done = await engine.settle_and_claim(settled, engine.claim_request("w1", 10, 30))
    codes = {job_id: error.code for job_id, error in done.refused.items()}
    assert codes == {
        lost.id: "LEASE_STALE",
        forged.id: "LEASE_STALE",
        snoozing.id: "CONTRACT_LACKS_MOVE",
        "nobody": "LEASE_STALE",
    }
    statuses = [(await engine.jobs.get(c.id)).status for c in (good, lost, failing, waiting, forged, again, snoozing)]
    assert statuses == ["succeeded", "cancelled", "retrying", "waiting", "running", "succeeded", "running"]
    assert (await engine.jobs.get(good.id)).result == '"good"'
    for job in (lost, forged, snoozing):
        assert await note_names(engine, job.id) == ["settle.refused"]
    assert [c.id for c in done.claimed] == [next_one.id]


async def test_a_batch_that_says_the_same_twice(engine: Engine) -> None:
    await engine.jobs.submit_many([Submission("mail"), Submission("mail")])
    one, two = await claim(engine)
    fails = Settlement(one.id, one.token, "standard", retryable("standard"))
    ends = Settlement(two.id, two.token, "standard", Succeeded("1"))
    done = await engine.settle_and_claim([fails, ends, fails, ends], None)
    assert done.refused == {}
    assert [(await engine.jobs.get(c.id)).status for c in (one, two)] == ["retrying", "succeeded"]
    assert (await engine.jobs.get(one.id)).failures == 1


@pytest.mark.parametrize("mixed", [False, True], ids=["plain", "mixed"])
@pytest.mark.parametrize("bad", ["{not json", '"\ud800"'], ids=["no JSON", "no Unicode"])
async def test_a_bad_result_does_not_stall_the_batch(engine: Engine, mixed: bool, bad: str) -> None:
    await engine.jobs.submit_many([Submission("mail") for _ in range(4)])
    held = await claim(engine)
    results = ['"a"', bad, '"c"', None]
    settlements = [Settlement(c.id, c.token, "standard", Succeeded(r)) for c, r in zip(held, results, strict=True)]
    if mixed:
        settlements[3] = Settlement(held[3].id, held[3].token, "standard", retryable("standard"))
    done = await engine.settle_and_claim(settlements, None)
    assert list(done.refused) == [held[1].id]
    statuses = [(await engine.jobs.get(c.id)).status for c in held]
    assert statuses == ["succeeded", "running", "succeeded", "retrying" if mixed else "succeeded"]


async def test_a_settlement_that_names_the_wrong_contract_is_still_the_jobs(engine: Engine) -> None:
    """A worker may be wrong about the contract; the row knows."""
    held = await running(engine, "formal")
    done = await engine.settle_and_claim([Settlement(held.id, held.token, "gate-b2", Succeeded("1"))], None)
    assert done.refused == {}
    assert (await engine.jobs.get(held.id)).status == "Completed"


async def test_an_empty_cycle(engine: Engine, place: Place) -> None:
    before = place.dump()
    done = await engine.settle_and_claim([], None)
    assert (done.claimed, done.refused) == ([], {})
    assert place.dump() == before


async def test_settle_and_claim_share_a_cycle(engine: Engine) -> None:
    await engine.jobs.submit_many([Submission("mail") for _ in range(3)])
    first = await claim(engine, 2)
    settlements = [Settlement(c.id, c.token, c.contract, Succeeded()) for c in first]
    done = await engine.settle_and_claim(settlements, engine.claim_request("w1", 2, 30))
    assert len(done.claimed) == 1
    assert done.claimed[0].id not in {c.id for c in first}


async def test_refusals_by_code_are_written_even_when_others_of_the_commit_fail(engine: Engine, place: Place) -> None:
    held = await running(engine)
    await refused_untouched(place, submit(engine, payload={"x": float("nan")}), "PAYLOAD_NOT_JSON")
    await refused_noted(engine, held.id, engine.settle(held.id, "forged", Succeeded()), "LEASE_STALE", "settle.refused")


async def test_a_former_holders_success_in_a_batch_takes_nothing_from_the_new_one(
    engine: Engine, clock: FakeClock
) -> None:
    await engine.jobs.submit_many([Submission("mail"), Submission("mail")])
    first, second = await claim(engine)
    clock.advance(LEASE_SECONDS)
    await engine.extend({second.id: second.token}, LEASE_SECONDS)
    await engine.expire()
    new = await claim_one(engine, worker="w2")
    before = await engine.jobs.get(new.id)
    done = await engine.settle_and_claim(
        [
            Settlement(first.id, first.token, "standard", Succeeded('"old"')),
            Settlement(second.id, second.token, "standard", Succeeded('"good"')),
        ],
        None,
    )
    assert {job_id: error.code for job_id, error in done.refused.items()} == {first.id: "LEASE_STALE"}
    assert await engine.jobs.get(new.id) == before
    assert (await engine.jobs.get(second.id)).result == '"good"'
