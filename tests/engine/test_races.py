"""Two at once, both orders forced: never two holders, never a lost signal, never a job settled twice."""

from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.errors import DetentError
from detent.core.job import Wait
from detent.core.outcome import Outcome, Succeeded, Waits
from detent.engine import Engine, Settlement, Submission
from detent.engine.dead_letters import requeue_dead_letter
from detent.engine.execution import sweep
from detent.engine.execution.settle import settle_job
from detent.engine.jobs import cancel_job, signal_job
from detent.engine.submit import prepare
from support.acts import LEASE_SECONDS, claim, claim_one, events_of, own_id, path_of, reach, running
from support.acts import submit as make
from support.clock import FakeClock
from support.rivals import Act, one_inside_the_other
from support.stores import Place

pytestmark = pytest.mark.anyio
FRESH = own_id(1)
WAITS = Waits(Wait("answer"))


def settling(job_id: str, token: str, outcome: Outcome) -> Act[Any]:
    async def act(engine: Engine, tx: Any) -> Any:
        job = (await tx.jobs.lock([job_id]))[job_id]
        return await settle_job(engine, tx, job, Settlement(job_id, token, job.contract, outcome))

    return act


def signalling(job_id: str) -> Act[Any]:
    return lambda engine, tx: signal_job(engine, tx, job_id, "answer", Scope("ann"), {"n": 1})


def beating(held: Any) -> Act[Any]:
    return lambda engine, tx: tx.claims.extend({held.id: held.token}, int(LEASE_SECONDS * 1_000_000))


def expiring(engine: Engine, tx: Any) -> Any:
    return sweep.expire(engine, tx, 100)


def claiming(reclaim: bool = False) -> Act[Any]:
    async def act(engine: Engine, tx: Any) -> Any:
        request = engine.claim_request("w2", 10, LEASE_SECONDS, reclaim=reclaim)
        return await (sweep.reclaim(engine, tx, request) if reclaim else tx.claims.claim(request))

    return act


async def answer(act: Any) -> Any:
    try:
        return await act
    except DetentError as error:
        return error.code


async def test_a_heartbeat_before_the_expiry_keeps_the_job(engine: Engine, place: Place, clock: FakeClock) -> None:
    held = await running(engine)
    clock.advance(LEASE_SECONDS)
    kept, expired = await one_inside_the_other(place, clock, beating(held), lambda e: e.expire())
    assert (kept.lost, expired) == (frozenset(), [])
    assert await claim(engine, worker="w2") == []
    assert (await engine.settle(held.id, held.token, Succeeded())).status == "succeeded"


async def test_a_heartbeat_after_the_expiry_learns_that_it_is_lost(
    engine: Engine, place: Place, clock: FakeClock
) -> None:
    held = await running(engine)
    clock.advance(LEASE_SECONDS)
    expired, beat = await one_inside_the_other(
        place, clock, expiring, lambda e: e.extend({held.id: held.token}, LEASE_SECONDS)
    )
    assert [change.after.id for change in expired] == [held.id]
    again = await engine.extend({held.id: held.token}, LEASE_SECONDS)  # a beat does not wait for a held row
    assert beat.lost | again.lost == {held.id}
    new = await claim_one(engine, worker="w2")
    job = await engine.jobs.get(held.id)
    assert (job.worker, job.token) == ("w2", new.token)
    assert await answer(engine.settle(held.id, held.token, Succeeded())) == "LEASE_STALE"


async def test_a_heartbeat_before_the_takeover_keeps_the_job(engine: Engine, place: Place, clock: FakeClock) -> None:
    held = await running(engine, "streams")
    clock.advance(LEASE_SECONDS)
    kept, taken = await one_inside_the_other(place, clock, beating(held), lambda e: claim(e, worker="w2", reclaim=True))
    assert (kept.lost, taken) == (frozenset(), [])
    assert (await engine.jobs.get(held.id)).token == held.token


async def test_a_heartbeat_after_the_takeover_is_lost(engine: Engine, place: Place, clock: FakeClock) -> None:
    held = await running(engine, "streams")
    clock.advance(LEASE_SECONDS)
    taken, beat = await one_inside_the_other(
        place, clock, claiming(reclaim=True), lambda e: e.extend({held.id: held.token}, LEASE_SECONDS)
    )
    again = await engine.extend({held.id: held.token}, LEASE_SECONDS)  # a beat does not wait for a held row
    assert ([c.after.id for c in taken], beat.lost | again.lost) == ([held.id], {held.id})
    assert (await engine.jobs.get(held.id)).token == taken[0].after.token


async def test_two_claimers_never_get_one_job(engine: Engine, place: Place, clock: FakeClock) -> None:
    await engine.jobs.submit_many([Submission("mail") for _ in range(5)])
    first, second = await one_inside_the_other(place, clock, claiming(), lambda e: claim(e, worker="w3"))
    assert (len(first), second) == (5, [])
    assert {(await engine.jobs.get(c.id)).worker for c in first} == {"w2"}


async def test_two_who_expire_one_job_charge_it_once(engine: Engine, place: Place, clock: FakeClock) -> None:
    held = await running(engine)
    clock.advance(LEASE_SECONDS)
    first, second = await one_inside_the_other(place, clock, expiring, lambda e: e.expire())
    assert (len(first), second) == (1, [])
    assert (await engine.jobs.get(held.id)).failures == 1


async def test_a_result_before_the_expiry_counts(engine: Engine, place: Place, clock: FakeClock) -> None:
    held = await running(engine)
    clock.advance(LEASE_SECONDS)
    _, expired = await one_inside_the_other(
        place, clock, settling(held.id, held.token, Succeeded("1")), lambda e: e.expire()
    )
    assert expired == []
    assert (await engine.jobs.get(held.id)).status == "succeeded"


async def test_a_result_after_the_expiry_is_refused(engine: Engine, place: Place, clock: FakeClock) -> None:
    held = await running(engine)
    clock.advance(LEASE_SECONDS)
    _, second_answer = await one_inside_the_other(
        place, clock, expiring, lambda e: answer(e.settle(held.id, held.token, Succeeded("1")))
    )
    assert second_answer == "LEASE_STALE"
    assert (await engine.jobs.get(held.id)).status == "interrupted"


WAITING = [("formal", "Waiting", "Queued"), ("standard", "waiting", "queued")]


@pytest.mark.parametrize(("contract", "waiting", "woken"), WAITING)
async def test_a_signal_that_runs_into_the_wait_wakes_the_job(
    engine: Engine, place: Place, clock: FakeClock, contract: str, waiting: str, woken: str
) -> None:
    held = await running(engine, contract)
    _, (job, news) = await one_inside_the_other(
        place,
        clock,
        settling(held.id, held.token, WAITS),
        lambda e: e.jobs.signal(held.id, "answer", Scope("test"), {"n": 1}),
    )
    assert (job.status, news) == (woken, True)
    assert (await path_of(engine, held.id))[-2:] == [waiting, woken]
    assert (await claim_one(engine)).id == held.id


@pytest.mark.parametrize(("contract", "waiting", "woken"), WAITING)
async def test_a_wait_that_runs_into_the_signal_does_not_sleep(
    engine: Engine, place: Place, clock: FakeClock, contract: str, waiting: str, woken: str
) -> None:
    held = await running(engine, contract)
    (_, news), job = await one_inside_the_other(
        place, clock, signalling(held.id), lambda e: e.settle(held.id, held.token, WAITS)
    )
    assert (news, job.status) == (True, woken)
    assert (await path_of(engine, held.id))[-2:] == [waiting, woken]
    assert len({event.at for event in (await events_of(engine, held.id))[-2:]}) == 1
    assert (await claim_one(engine)).id == held.id


async def test_two_signals_under_one_name_are_one(engine: Engine, place: Place, clock: FakeClock) -> None:
    job = await reach(engine, clock, "standard", "waiting")
    (_, first), (_, second) = await one_inside_the_other(
        place, clock, signalling(job.id), lambda e: e.jobs.signal(job.id, "answer", Scope("bob"), {"n": 2})
    )
    assert (first, second) == (True, False)
    kept = await engine.store.read(lambda tx: tx.signals.signal(job.id, "answer"))
    assert (kept.data, kept.actor) == ('{"n":1}', "ann")


async def test_a_signal_before_the_timeout_is_the_answer(engine: Engine, place: Place, clock: FakeClock) -> None:
    held = await running(engine, "formal")
    await engine.settle(held.id, held.token, Waits(Wait("answer", timeout=1_000_000)))
    clock.advance(1)
    _, woken = await one_inside_the_other(place, clock, signalling(held.id), lambda e: e.wake())
    assert woken == []
    kept = await engine.store.read(lambda tx: tx.signals.signal(held.id, "answer"))
    assert (kept.data, kept.timed_out) == ('{"n":1}', False)


async def test_a_signal_after_the_timeout_is_not_news(engine: Engine, place: Place, clock: FakeClock) -> None:
    held = await running(engine, "formal")
    await engine.settle(held.id, held.token, Waits(Wait("answer", timeout=1_000_000)))
    clock.advance(1)
    woken, (_, news) = await one_inside_the_other(
        place, clock, lambda e, tx: sweep.wake(e, tx, 100), lambda e: e.jobs.signal(held.id, "answer", Scope("test"))
    )
    assert ([change.after.id for change in woken], news) == ([held.id], False)
    assert [e.event for e in await events_of(engine, held.id)][-1] == "wait_completed"


@pytest.mark.parametrize("contract", ["men", "p3c"])
async def test_a_cancel_before_the_result_stands(engine: Engine, place: Place, clock: FakeClock, contract: str) -> None:
    held = await running(engine, contract)
    _, second_answer = await one_inside_the_other(
        place,
        clock,
        lambda e, tx: cancel_job(e, tx, held.id, Scope("ann")),
        lambda e: answer(e.settle(held.id, held.token, Succeeded())),
    )
    assert (second_answer, (await engine.jobs.get(held.id)).status) == ("LEASE_STALE", "cancelled")


@pytest.mark.parametrize(("contract", "code"), [("men", "TASK_INVALID_TRANSITION"), ("p3c", "RUN_INVALID_TRANSITION")])
async def test_a_result_before_the_cancel_stands(
    engine: Engine, place: Place, clock: FakeClock, contract: str, code: str
) -> None:
    held = await running(engine, contract)
    _, second_answer = await one_inside_the_other(
        place,
        clock,
        settling(held.id, held.token, Succeeded()),
        lambda e: answer(e.jobs.cancel(held.id, Scope("ann"))),
    )
    assert (second_answer, (await engine.jobs.get(held.id)).status) == (code, "succeeded")


@pytest.mark.parametrize("contract", ["gate-b2", "p3c", "men"])
async def test_one_key_from_two_processes_is_one_job(
    engine: Engine, place: Place, clock: FakeClock, contract: str
) -> None:
    submission = Submission("mail", contract=contract, idempotency_key="k", task_id="t")
    first, second = await one_inside_the_other(
        place,
        clock,
        lambda e, tx: prepare.submit_in_transaction(tx, prepare.prepare(e, submission, tx.now)),
        lambda e: e.jobs.submit(submission),
    )
    assert (first.hit, second.hit) == (False, True)
    assert first.job.id == second.job.id


async def test_runs_of_one_task_from_two_processes_have_two_numbers(
    engine: Engine, place: Place, clock: FakeClock
) -> None:
    submission = Submission("mail", contract="p3c", task_id="t")
    first, second = await one_inside_the_other(
        place,
        clock,
        lambda e, tx: prepare.submit_in_transaction(tx, prepare.prepare(e, submission, tx.now)),
        lambda e: e.jobs.submit(submission),
    )
    assert (first.job.task_attempt, second.job.task_attempt) == (1, 2)


async def test_a_dead_letter_is_requeued_once(engine: Engine, place: Place, clock: FakeClock) -> None:
    job = await reach(engine, clock, "gate-b2", "failed")
    dlq_id = str(job.dlq_id)
    _, second_answer = await one_inside_the_other(
        place,
        clock,
        lambda e, tx: requeue_dead_letter(e, tx, dlq_id, Scope("ann"), new_id=FRESH),
        lambda e: answer(e.dead_letters.requeue(dlq_id, Scope("bob"))),
    )
    assert second_answer == "DLQ_REQUEUE_CONFLICT"
    assert (await engine.dead_letters.get(dlq_id)).requeued_as == FRESH


async def test_a_job_submitted_meanwhile_is_claimed_next(engine: Engine, place: Place, clock: FakeClock) -> None:
    await one_inside_the_other(place, clock, claiming(), lambda e: make(e))
    assert len(await claim(engine)) == 1
