"""Settling: every outcome under every contract, as the tables of contracts.md say, typed in again."""

from typing import Any

import pytest

from detent.core.access import Scope
from detent.core.contract.model import Phase
from detent.core.contract.replay import replay
from detent.core.job import Failure, Wait
from detent.core.outcome import Cancelled, Failed, NotBound, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.engine import Engine
from detent.ports.listing import Filter
from detent.proof.verify.verify import verify
from support.acts import (
    LONG,
    NAMES,
    PERMANENT,
    claim,
    claim_one,
    events_of,
    notes_of,
    refused_noted,
    retryable,
    running,
)
from support.clock import START, FakeClock
from support.stores import Place, make_engine

pytestmark = pytest.mark.anyio
LACKS = "CONTRACT_LACKS_MOVE"


def outcome_named(name: str, contract: str) -> Outcome:
    return {
        "succeeded": Succeeded('{"n":1}'),
        "retryable": retryable(contract),
        "permanent": PERMANENT,
        "snoozed": Snoozed(5_000_000),
        "cancelled": Cancelled("no need"),
        "waits": Waits(Wait("answer", "human", 60_000_000)),
        "parks": Waits(Wait("answer", "human", 60_000_000, park=True)),
        "stopped": Stopped(),
        "not bound": NotBound(Failure("PAYLOAD_INVALID", "n: unknown", retryable=False), 20_000_000),
    }[name]


BURIED = ["dlq_pending", "dlq_recorded", "failed"]
# outcome -> contract -> the statuses passed after the leased one, or the code of the refusal
TABLE: dict[str, dict[str, list[str] | str]] = {
    "succeeded": {
        "gate-b2": ["succeeded"],
        "men": ["succeeded"],
        "p3c": ["succeeded"],
        "streams": ["succeeded"],
        "formal": ["Completed"],
        "standard": ["succeeded"],
    },
    "retryable": {
        "gate-b2": ["retrying"],
        "men": ["ready"],
        "p3c": ["retry_scheduled"],
        "streams": ["queued"],
        "formal": ["Queued"],
        "standard": ["retrying"],
    },
    "permanent": {
        "gate-b2": BURIED,
        "men": ["failed"],
        "p3c": ["failed"],
        "streams": ["failed"],
        "formal": ["Failed"],
        "standard": BURIED,
    },
    "snoozed": {
        "gate-b2": LACKS,
        "men": LACKS,
        "p3c": LACKS,
        "streams": LACKS,
        "formal": ["Queued"],
        "standard": ["queued"],
    },
    "cancelled": {
        "gate-b2": LACKS,
        "men": ["cancelled"],
        "p3c": ["cancelled"],
        "streams": LACKS,
        "formal": ["Cancelled"],
        "standard": ["cancelled"],
    },
    "waits": {
        "gate-b2": LACKS,
        "men": LACKS,
        "p3c": LACKS,
        "streams": LACKS,
        "formal": ["Waiting"],
        "standard": ["waiting"],
    },
    "parks": {
        "gate-b2": LACKS,
        "men": LACKS,
        "p3c": LACKS,
        "streams": LACKS,
        "formal": ["Waiting"],
        "standard": ["parked"],
    },
    "stopped": {
        "gate-b2": ["retrying"],
        "men": ["ready"],
        "p3c": ["interrupted"],
        "streams": [],
        "formal": ["Queued"],
        "standard": ["queued"],
    },
    "not bound": {
        "gate-b2": BURIED,
        "men": ["failed"],
        "p3c": ["failed"],
        "streams": ["failed"],
        "formal": ["Queued"],
        "standard": ["queued"],
    },
}


@pytest.mark.parametrize("outcome", TABLE)
async def test_every_outcome_under_every_contract(engine: Engine, outcome: str) -> None:
    assert set(TABLE[outcome]) == set(NAMES)
    for contract, expected in TABLE[outcome].items():
        await one_cell(engine, outcome, contract, expected)


async def one_cell(engine: Engine, outcome: str, contract: str, expected: list[str] | str) -> None:
    held = await running(engine, contract, job_type=contract)
    before = await engine.jobs.history(held.id)
    act = engine.settle(held.id, held.token, outcome_named(outcome, contract))
    if isinstance(expected, str):
        error = await refused_noted(engine, held.id, act, expected, "settle.refused")
        assert contract in error.message and error.http_status == 422
        return
    job = await act
    after = await engine.jobs.history(held.id)
    assert after.job == job
    assert [event.target for event in after.events[len(before.events) :]] == expected
    assert [event.seq for event in after.events] == list(range(1, job.version + 1))
    assert replay(engine.contract(contract), after.events).status == job.status == after.events[-1].target
    if expected:
        assert (job.worker, job.lease_until) == (None, None)
        assert {event.actor for event in after.events[len(before.events) :]} == {"w1"}


# contract -> executions in all, what the view counts and its value at the end, the code the job ends with
TO_THE_END = {
    "gate-b2": (4, "retry_count", 3, "BOOM", "failed"),
    "men": (3, "attempt", 3, "TASK_RETRY_EXHAUSTED", "failed"),
    "p3c": (4, "attempt", 1, "BOOM", "failed"),
    "streams": (4, "retry_count", 4, "BOOM", "failed"),
    "formal": (3, None, None, "BOOM", "Failed"),
    "standard": (4, "retries", 3, "BOOM", "failed"),
}


@pytest.mark.parametrize("contract", NAMES)
async def test_failing_to_the_end(engine: Engine, clock: FakeClock, contract: str) -> None:
    executions, counter, value, code, end = TO_THE_END[contract]
    held = await running(engine, contract)
    for number in range(1, executions + 1):
        assert held.execution_no == number
        job = await engine.settle(held.id, held.token, retryable(contract))
        clock.advance(LONG)
        if number < executions:
            assert job.phase is Phase.CLAIMABLE
            held = await claim_one(engine)
    assert (job.status, job.error_code, job.failures) == (end, code, executions)
    assert counter is None or engine.contract(contract).view(job)[counter] == value
    assert await claim(engine) == []


@pytest.mark.parametrize("contract", ["standard", "formal"])
async def test_handed_back_with_growing_delays_until_it_is_given_up(
    engine: Engine, clock: FakeClock, contract: str
) -> None:
    held = await running(engine, contract)
    since, delays = clock.now(), []
    while clock.now() < since + 20_000_000:
        outcome = outcome_named("not bound", contract)
        job = await engine.settle(held.id, held.token, outcome)
        assert await engine.settle(held.id, held.token, outcome) == job, "a repeated settlement changes nothing"
        assert (job.phase, job.failures, job.retries, job.error_code) == (Phase.CLAIMABLE, 0, 0, None)
        delays.append(((job.due_at or 0) - clock.now()) / 1_000_000)
        assert await claim(engine) == [], "the worker does not get it again at once"
        clock.advance(delays[-1])
        held = await claim_one(engine)
    assert [low <= delay <= 1.5 * low for low, delay in zip([1, 2, 4], delays, strict=False)] == [True] * 3
    assert sum(delays) == pytest.approx(20), "up to 20 s after the first one"
    job = await engine.settle(held.id, held.token, outcome_named("not bound", contract))
    assert (job.phase, job.error_code, job.error_message) == (Phase.FINAL, "PAYLOAD_INVALID", "n: unknown")
    report = await verify(engine.store)
    assert report.ok, report.violations


async def test_an_execution_between_two_deploys_starts_the_time_anew(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine)
    await engine.settle(held.id, held.token, outcome_named("not bound", "standard"))
    clock.advance(LONG)
    held = await claim_one(engine)
    await engine.settle(held.id, held.token, Snoozed(5_000_000))
    clock.advance(LONG)
    held = await claim_one(engine)
    job = await engine.settle(held.id, held.token, outcome_named("not bound", "standard"))
    assert job.phase is Phase.CLAIMABLE and 1_000_000 <= (job.due_at or 0) - clock.now() <= 1_500_000


async def test_men_keeps_the_cause_of_an_exhausted_task(engine: Engine) -> None:
    held = await running(engine, "men", max_retries=0)
    job = await engine.settle(held.id, held.token, Failed(Failure("TASK_TIMEOUT", "start_to_close")))
    view = engine.contract("men").view(job)
    assert (view["state"], view["last_error_code"], view["attempt"]) == ("failed", "TASK_RETRY_EXHAUSTED", 1)
    assert "TASK_TIMEOUT" in view["last_error_reason"] and "start_to_close" in view["last_error_reason"]


async def test_men_retries_two_codes_only(engine: Engine) -> None:
    for code, status in (("TASK_TIMEOUT", "ready"), ("TASK_EXECUTION_FAILED", "ready"), ("TASK_OTHER", "failed")):
        held = await running(engine, "men")
        job = await engine.settle(held.id, held.token, Failed(Failure(code, "x", retryable=True)))
        assert (job.status, job.error_code) == (status, code)
        if status == "ready":
            await engine.jobs.cancel(job.id, Scope("ann"))


async def test_men_counts_the_attempt_that_failed_and_the_one_that_starts(engine: Engine) -> None:
    held = await running(engine, "men")
    await engine.settle(held.id, held.token, retryable("men"))
    assert engine.contract("men").view(await engine.jobs.get(held.id))["attempt"] == 2
    await claim_one(engine)
    envelopes = [e["envelope"] for e in (await engine.jobs.history(held.id)).as_dict()["events"] if e["envelope"]]
    shown = [(t["payload"]["from_state"], t["payload"]["to_state"], t["payload"]["attempt"]) for t in envelopes]
    assert shown == [
        ("pending", "ready", 1),
        ("ready", "running", 1),
        ("running", "ready", 1),
        ("ready", "running", 2),
    ]


@pytest.mark.parametrize("contract", ["gate-b2", "standard"])
@pytest.mark.parametrize("jitter", [0, 300])
async def test_the_delays_grow_with_the_jitter_drawn(
    place: Place, clock: FakeClock, contract: str, jitter: int
) -> None:
    engine = make_engine(place, clock, jitter=lambda job, retry, upper: min(jitter, upper))
    await engine.open()
    held = await running(engine, contract)
    for base in (1_000, 2_000, 4_000):
        job = await engine.settle(held.id, held.token, retryable(contract))
        assert job.due_at == clock.now() + (base + jitter) * 1_000 == job.next_retry_at
        clock.advance(60)
        held = await claim_one(engine)
        assert (await engine.jobs.get(held.id)).next_retry_at is None
    await engine.close()


async def test_p3c_delays(engine: Engine, clock: FakeClock) -> None:
    held = await running(engine, "p3c")
    for seconds in (15, 30, 60):
        job = await engine.settle(held.id, held.token, retryable("p3c"))
        assert job.next_retry_at == clock.now() + seconds * 1_000_000
        clock.advance(seconds)
        held = await claim_one(engine)


@pytest.mark.parametrize("contract", [name for name in NAMES if name != "gate-b2"])
async def test_a_delay_that_was_asked_for_replaces_the_backoff(engine: Engine, clock: FakeClock, contract: str) -> None:
    held = await running(engine, contract, backoff="3")
    code = "TASK_EXECUTION_FAILED" if contract == "men" else "BOOM"
    job = await engine.settle(held.id, held.token, Failed(Failure(code, "later", after=7_000_000)))
    assert job.due_at == START + 7_000_000
    clock.advance(6.9)
    assert await claim(engine) == []
    clock.advance(0.1)
    assert (await claim_one(engine)).id == job.id


@pytest.mark.parametrize(("contract", "status"), [("formal", "Queued"), ("standard", "queued")])
async def test_a_snooze_is_no_failure(engine: Engine, clock: FakeClock, contract: str, status: str) -> None:
    held = await running(engine, contract)
    job = await engine.settle(held.id, held.token, Snoozed(5_000_000))
    assert (job.status, job.failures, job.retries, job.error_code) == (status, 0, 0, None)
    assert await claim(engine) == []
    clock.advance(5)
    assert (await claim_one(engine)).execution_no == 2


# contract -> failures, retries, interruptions, error code after a worker stopped in good order
STOPPED: dict[str, tuple[int, int, int, Any]] = {
    "gate-b2": (1, 1, 0, "WORKER_STOPPED"),
    "men": (1, 1, 0, "TASK_EXECUTION_FAILED"),
    "p3c": (0, 0, 1, "PROCESS_RESTARTED"),
    "formal": (0, 0, 0, None),
    "standard": (0, 0, 0, None),
}


@pytest.mark.parametrize("contract", STOPPED)
async def test_a_stop_in_good_order_is_charged_as_the_contract_says(engine: Engine, contract: str) -> None:
    held = await running(engine, contract)
    job = await engine.settle(held.id, held.token, Stopped())
    assert (job.failures, job.retries, job.interruptions, job.error_code) == STOPPED[contract]
    event = (await events_of(engine, job.id))[-1]
    assert (event.data or {})["reason"] == "worker_stopped"


async def test_a_stopped_streams_worker_leaves_the_job_to_its_lease(engine: Engine, place: Place) -> None:
    held = await running(engine, "streams")
    before = place.dump()
    job = await engine.settle(held.id, held.token, Stopped())
    assert (job.status, job.token) == ("running", held.token)
    assert place.dump() == before


@pytest.mark.parametrize(("contract", "people", "count"), [("gate-b2", 2, 0), ("standard", 2, 0), ("streams", 1, 1)])
async def test_a_failure_and_its_dead_letter_are_one_commit(
    engine: Engine, clock: FakeClock, contract: str, people: int, count: int
) -> None:
    held = await running(engine, contract, payload={"a": 1}, tenant_id="acme", trace_id="tr")
    clock.advance(2)
    job = await engine.settle(held.id, held.token, PERMANENT)
    assert job.dlq_id
    item = await engine.dead_letters.get(job.dlq_id)
    assert (item.job_id, item.tenant_id, item.contract, item.job_type) == (job.id, "acme", contract, "mail")
    assert (item.error_class, item.error_code, item.payload) == ("Broken", "BROKEN", '{"a":1}')
    assert (item.status, item.retries, item.first_failed_at) == ("open", count, START + 2_000_000)
    assert '"trace_id": "tr"' in item.context
    noted = [(n.name, (n.data or {}).get("dlq_id")) for n in await notes_of(engine, job.id)]
    assert noted == ([("task.dlq", item.id)] if contract == "streams" else [])
    assert engine.contract(contract).dead_letters.discard_people == people  # type: ignore[union-attr]


@pytest.mark.parametrize("contract", ["men", "p3c", "formal"])
async def test_elsewhere_a_failure_leaves_no_dead_letter(engine: Engine, contract: str) -> None:
    held = await running(engine, contract)
    job = await engine.settle(held.id, held.token, PERMANENT)
    assert job.dlq_id is None
    assert await engine.dead_letters.list(Filter()) == []


@pytest.mark.parametrize("contract", NAMES)
async def test_a_result_is_kept_and_an_old_error_forgotten(engine: Engine, clock: FakeClock, contract: str) -> None:
    held = await running(engine, contract)
    await engine.settle(held.id, held.token, retryable(contract))
    clock.advance(LONG)
    again = await claim_one(engine)
    job = await engine.settle(again.id, again.token, Succeeded('{"n":1}'))
    assert (job.result, job.error_code, job.error_message, job.finished_at) == ('{"n":1}', None, None, clock.now())
