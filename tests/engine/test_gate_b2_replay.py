"""RP-001 to RP-005 of gate-b2, played against the real store; each step records what the seed asks for."""

import pytest

from detent.core.access import Scope
from detent.core.contract.replay import replay
from detent.core.outcome import Succeeded
from detent.engine import Engine
from support.acts import claim, claim_one, events_of, note_names, refused_noted, retryable, submit
from support.clock import FakeClock
from support.stores import Place

pytestmark = pytest.mark.anyio
TRY_AGAIN = retryable("gate-b2", "transient")


async def play(engine: Engine, clock: FakeClock, failures: int, then_succeed: bool) -> str:
    """One job: claimed, failed this many times, each time claimed again when due; then a success if asked for."""
    job_id = (await submit(engine, "gate-b2", trace_id="tr-1")).id
    for _ in range(failures):
        held = await claim_one(engine)
        job = await engine.settle(job_id, held.token, TRY_AGAIN)
        if job.due_at is not None:
            assert await claim(engine) == [], "not before its delay"
            clock.advance((job.due_at - clock.now()) / 1_000_000)
    if then_succeed:
        held = await claim_one(engine)
        await engine.settle(job_id, held.token, Succeeded())
    return job_id


async def records(engine: Engine, job_id: str) -> list[tuple[str, int]]:
    """(status_transition, retry_count) of every step, after checking the other two fields."""
    history = (await engine.jobs.history(job_id)).as_dict()["events"]
    envelopes = [entry["envelope"] for entry in history if not entry["note"]]
    for record in envelopes:
        assert set(record) == {"trace_id", "job_id", "retry_count", "status_transition"}
        assert (record["trace_id"], record["job_id"]) == ("tr-1", job_id)
    return [(record["status_transition"].removeprefix("-> "), record["retry_count"]) for record in envelopes]


FIRST = [("queued", 0), ("queued -> running", 0)]


def retried(times: int) -> list[tuple[str, int]]:
    return [step for n in range(1, times + 1) for step in (("running -> retrying", n), ("retrying -> running", n))]


async def test_rp_001_a_worker_takes_the_job_and_succeeds(engine: Engine, clock: FakeClock) -> None:
    job_id = await play(engine, clock, failures=0, then_succeed=True)
    assert await records(engine, job_id) == [*FIRST, ("running -> succeeded", 0)]


async def test_rp_002_one_transient_error_then_success(engine: Engine, clock: FakeClock) -> None:
    job_id = await play(engine, clock, failures=1, then_succeed=True)
    assert await records(engine, job_id) == [*FIRST, *retried(1), ("running -> succeeded", 1)]
    assert (await engine.jobs.get(job_id)).retries == 1


async def test_rp_003_three_transient_errors_then_success(engine: Engine, clock: FakeClock) -> None:
    job_id = await play(engine, clock, failures=3, then_succeed=True)
    assert await records(engine, job_id) == [*FIRST, *retried(3), ("running -> succeeded", 3)]
    assert (await engine.jobs.get(job_id)).retries == 3


async def test_rp_004_the_fourth_failure_goes_to_the_dead_letters(engine: Engine, clock: FakeClock) -> None:
    job_id = await play(engine, clock, failures=4, then_succeed=False)
    end = ["running -> dlq_pending", "dlq_pending -> dlq_recorded", "dlq_recorded -> failed"]
    assert await records(engine, job_id) == [*FIRST, *retried(3), *((step, 3) for step in end)]
    job = await engine.jobs.get(job_id)
    assert (job.status, job.retries) == ("failed", 3)
    item = await engine.dead_letters.get(str(job.dlq_id))
    assert (item.job_id, item.retries, item.status) == (job_id, 3, "open")
    events = await events_of(engine, job_id)
    assert len({event.at for event in events[-3:]}) == 1, "one commit, one moment"
    first = next(event.at for event in events if event.target == "retrying")
    assert (item.first_failed_at, item.created_at) == (first, events[-1].at)


async def test_rp_005_a_final_status_is_not_written_again(engine: Engine, clock: FakeClock) -> None:
    job_id = await play(engine, clock, failures=0, then_succeed=True)
    for status in ("succeeded", "failed", "running", "queued", "retrying", "dlq_pending"):
        act = engine.jobs.transition(job_id, status, Scope("ann"))
        error = await refused_noted(engine, job_id, act, "WF_STATE_TRANSITION_INVALID", "move.refused")
        assert error.http_status == 409
    assert await note_names(engine, job_id) == ["move.refused"] * 6


async def test_the_log_replays_to_the_row(engine: Engine, clock: FakeClock) -> None:
    for failures, succeed in ((0, True), (2, True), (4, False)):
        job_id = await play(engine, clock, failures, succeed)
        answer = replay(engine.contract("gate-b2"), await events_of(engine, job_id))
        assert (answer.ok, answer.status) == (True, (await engine.jobs.get(job_id)).status)


async def test_the_delays_are_the_same_in_every_run(engine: Engine, place: Place, clock: FakeClock) -> None:
    """The default jitter is drawn from job and retry, so a replay reproduces it, within the seed's bounds."""
    job_id = await play(engine, clock, failures=3, then_succeed=True)
    events = [event for event in await events_of(engine, job_id) if event.target == "retrying"]
    delays = [((event.data or {})["due_at"] - event.at) / 1_000 for event in events]
    for delay, base in zip(delays, (1_000, 2_000, 4_000), strict=True):
        assert base <= delay <= base + 300
        assert delay == int(delay)
    backoff = engine.contract("gate-b2").retry.backoff
    assert delays == [backoff.delay_ms(job_id, retry, engine.jitter) for retry in (1, 2, 3)]
