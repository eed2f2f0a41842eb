"""WorkerState method by method, without an event loop, a clock or a store."""

from functools import partial

import pytest

from detent.core.errors import InvalidInput, NotSupported, StaleLease
from detent.core.job import Wait
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.core.times import SECOND
from detent.engine import BatchResult, Settlement
from detent.handler.lease import Lease, LeaseClock, Reading
from detent.handler.stop_requests import StopKind
from detent.proof.controlled_store import ManualClock
from detent.worker.state import Batch, HeartbeatAnswer, Interrupt, WorkerState, seconds_until_due
from support.worker.claims import CODES, answer, at, claimed

DONE = Succeeded("1")


def with_jobs(*ids: str, slots: int = 4, start: bool = True) -> WorkerState:
    state = WorkerState(slots)
    assert state.next_batch() is not None
    state.batch_done(answer(*ids))
    for job_id in ids if start else ():
        assert state.handler_started(job_id, "t1", 0.0, None)
    return state


def outcomes(state: WorkerState) -> list[tuple[str, str, Outcome]]:
    return [(settlement.id, settlement.token, settlement.outcome) for settlement in state.finished]


def test_a_batch_claims_the_free_slots_once() -> None:
    state = WorkerState(3)
    batch = state.next_batch()
    assert batch is not None and (batch.settled, batch.claim_limit) == ([], 3)
    assert state.next_batch() is None, "one batch at a time"
    assert [c.id for c in state.batch_done(answer("a"))] == ["a"]
    assert state.free == 2
    assert not state.wants_jobs and state.next_batch() is None, "the claim was not full, so no more jobs are claimable"


def test_it_wants_jobs_while_claims_are_full() -> None:
    state = WorkerState(2)
    state.next_batch()
    state.batch_done(answer("a", "b"))
    assert state.wants_jobs and state.free == 0 and state.next_batch() is None
    state.handler_started("a", "t1", 0.0, None)
    assert state.handler_ended("a", "t1", DONE)
    batch = state.next_batch()
    assert batch is not None and batch.claim_limit == 1
    assert batch.settled == [Settlement("a", "t1", "standard", DONE, claimed=claimed("a"))]
    state.batch_done(BatchResult())
    state.wants_jobs = True
    assert state.next_batch() == Batch([], 1)


def test_a_notification_during_a_claim_is_not_lost() -> None:
    state = WorkerState(2)
    state.next_batch()
    state.notify_work_available()
    state.batch_done(BatchResult())
    assert state.next_batch() is not None, "the claim may have read before the notification"
    state.batch_done(BatchResult())
    assert not state.wants_jobs, "this claim read after the notification"


def test_an_idle_worker_still_settles() -> None:
    state = with_jobs("a")
    assert not state.wants_jobs
    state.handler_ended("a", "t1", DONE)
    batch = state.next_batch()
    assert batch is not None and batch.claim_limit == 0 and len(batch.settled) == 1
    state.batch_done(BatchResult())
    assert state.next_batch() is None and not state.finished


def test_a_failed_batch_sends_its_settlements_again_first() -> None:
    state = with_jobs("a", "b")
    state.handler_ended("a", "t1", DONE)
    state.next_batch()
    state.handler_ended("b", "t1", DONE)
    state.batch_failed()
    assert [settlement.id for settlement in state.finished] == ["a", "b"]
    assert state.wants_jobs and not state.in_flight
    with pytest.raises(AssertionError):
        state.batch_failed()
    with pytest.raises(AssertionError):
        state.batch_done(BatchResult())


def test_a_skipped_settlement_is_retried_at_once_and_then_at_the_next_tick() -> None:
    state = with_jobs("a")
    state.handler_ended("a", "t1", DONE)
    batch = state.next_batch()
    assert batch is not None
    state.batch_done(BatchResult(later=list(batch.settled)))
    assert state.finished == batch.settled and not state.deferred
    assert state.leases_to_extend(0.0) == {"a": "t1"}
    batch = state.next_batch()
    assert batch is not None
    state.batch_done(BatchResult(later=list(batch.settled)))
    assert state.deferred and not state.finished
    assert state.leases_to_extend(0.0) == {"a": "t1"}
    state.stop()
    assert not state.done
    state.tick(at(0.0), CODES)
    assert [settlement.id for settlement in state.finished] == ["a"] and not state.deferred


def test_only_held_jobs_can_start() -> None:
    state = with_jobs("a", start=False)
    assert state.handler_started("a", "t1", 0.0, None)
    assert not state.handler_started("b", "t1", 0.0, None)


def test_the_deadline_wins_over_a_later_result() -> None:
    state = WorkerState(2)
    state.next_batch()
    state.batch_done(BatchResult([claimed("a", timeout_ms=500), claimed("b", "t1", "men")]))
    state.handler_started("a", "t1", 10.0, 0.5)
    state.handler_started("b", "t1", 10.0, 0.7)
    assert state.next_deadline() == 10.5
    assert state.tick(at(10.4), CODES) == []
    assert state.tick(at(10.5), CODES) == [Interrupt("a", "timeout")]
    [(job_id, token, outcome)] = outcomes(state)
    assert (job_id, token) == ("a", "t1") and isinstance(outcome, Failed)
    assert outcome.failure.code == "TIMEOUT" and "0.5 s" in outcome.failure.message
    assert (state.abandoned, state.free) == (1, 0), "the handler still has its slot"
    assert not state.handler_ended("a", "t1", DONE), "too late"
    assert state.free == 1 and len(state.finished) == 1
    assert state.tick(at(10.7), CODES) == [Interrupt("b", "timeout")]
    assert isinstance(settlement := state.finished[-1].outcome, Failed) and settlement.failure.code == "TASK_TIMEOUT"


def test_after_a_late_answer_to_the_claim_the_timeout_counts_from_the_claim() -> None:
    """The store gives the job to another worker then, whatever heartbeats have confirmed meanwhile."""
    clock = ManualClock()
    state = WorkerState(1)
    state.next_batch()
    claim_sent = Reading.of(clock)
    new_lease = partial(Lease, clock=LeaseClock(clock, 3.0), confirmed=claim_sent)
    state.batch_done(BatchResult([claimed("a", timeout_ms=2_000)]), new_lease=new_lease)
    held = state.handler_started("a", "t1", claim_sent.monotonic + 2.5, 2.0)
    assert held is not None and held.deadline == claim_sent.monotonic + 3.0, "the timeout and a second"
    clock.wall, clock.mono = clock.wall + 2_900_000, clock.mono + 2.9
    state.heartbeat_answered(HeartbeatAnswer(tokens={"a": "t1"}, extended_at=Reading.of(clock)), 2.9)
    assert held.lease.is_sure
    clock.wall, clock.mono = clock.wall + 100_000, 3.0
    assert not held.lease.is_sure
    with pytest.raises(StaleLease, match="its timeout has passed"):
        held.lease.raise_if_lost("a", "a step")
    assert state.tick(Reading.of(clock), CODES) == [Interrupt("a", "timeout")]


def test_a_result_wins_over_a_later_deadline() -> None:
    state = with_jobs("a", start=False)
    state.handler_started("a", "t1", 0.0, 1.0)
    assert state.handler_ended("a", "t1", DONE)
    assert state.tick(at(5.0), CODES) == []
    assert outcomes(state) == [("a", "t1", DONE)]
    assert state.next_deadline() is None


def test_deadlines_of_ended_jobs_do_not_pile_up() -> None:
    state = WorkerState(8)
    for number in range(5_000):
        state.next_batch()
        state.batch_done(BatchResult([claimed(f"j{number}")]))
        state.handler_started(f"j{number}", "t1", 0.0, 3_600.0)
        state.handler_ended(f"j{number}", "t1", DONE)
        state.wants_jobs = True
    assert len(state._deadlines) < 200


def test_a_lost_lease_drops_the_job_without_a_settlement() -> None:
    state = with_jobs("a", "b", start=False)
    state.handler_started("a", "t1", 0.0, None)
    interrupts = state.heartbeat_answered(
        HeartbeatAnswer(frozenset({"a", "b", "unknown"}), {}, dict.fromkeys("ab", "t1")), 0.0
    )
    assert {(interrupt.id, interrupt.kind) for interrupt in interrupts} == {("a", StopKind.END), ("b", StopKind.END)}
    assert not state.held and not state.finished
    assert state.abandoned == 1, "b never started"
    state.handler_ended("a", "t1", DONE)
    assert state.abandoned == 0 and not state.finished and state.free == 4


def test_an_answer_about_an_old_token_does_not_affect_the_new_one() -> None:
    """Settled, retried and claimed again while the heartbeat was in flight."""
    state = with_jobs("a")
    state.handler_ended("a", "t1", DONE)
    state.wants_jobs = True
    state.next_batch()
    state.batch_done(answer("a", token="t2"))
    old = HeartbeatAnswer(frozenset({"a"}), {"a": '{"actor":"ann"}'}, {"a": "t1"})
    assert state.heartbeat_answered(old, 0.0) == [] and "a" in state.held
    assert state.heartbeat_answered(HeartbeatAnswer(frozenset({"a"}), {}, {"a": "t2"}), 0.0) == [
        Interrupt("a", "lease lost")
    ]


def test_a_job_claimed_again_before_its_loss_is_known_stops_the_old_handler() -> None:
    state = with_jobs("a", "b", start=False)
    state.handler_started("a", "t1", 0.0, None)
    state.wants_jobs = True
    state.next_batch()
    assert [c.token for c in state.batch_done(answer("a", "b", token="t2"))] == ["t2", "t2"]
    assert state.pop_superseded() == [Interrupt("a", "lease lost"), Interrupt("b", "lease lost")]
    assert state.pop_superseded() == []
    assert (state.abandoned, state.free) == (1, 1)
    assert not state.handler_ended("a", "t1", DONE) and state.abandoned == 0
    assert state.held["a"].claimed.token == "t2" and not state.held["a"].started


def test_one_answer_with_two_claims_of_a_job_starts_the_newer_one() -> None:
    """A batch that was sent in parts: the lease of the first part ran out before the last part claimed the job again.

    The handler of the old claim would run under a stale token, and its end would free a slot that it never took.
    """
    state = WorkerState(4)
    assert state.next_batch() is not None
    first, second = answer("a", token="t1").claimed[0], answer("a", token="t2").claimed[0]
    to_start = state.batch_done(BatchResult(claimed=[first, second]))
    started = [claim.token for claim in to_start if state.handler_started(claim.id, claim.token, 0.0, None)]
    assert started == ["t2"] and (state.free, state.abandoned) == (3, 0)


def test_a_cancel_is_requested_once_then_forced() -> None:
    state = WorkerState(2, cancel_grace=5.0)
    state.next_batch()
    state.batch_done(answer("a"))
    state.handler_started("a", "t1", 0.0, None)
    cancel_answer = HeartbeatAnswer(cancels={"a": '{"actor":"ann"}', "unknown": "{}"}, tokens={"a": "t1"})
    assert state.heartbeat_answered(cancel_answer, 1.0) == [Interrupt("a", '{"actor":"ann"}', StopKind.CANCEL)]
    assert state.heartbeat_answered(cancel_answer, 2.0) == [], "once"
    assert state.next_deadline() == 6.0
    assert state.tick(at(5.9), CODES) == []
    assert state.tick(at(6.0), CODES) == [Interrupt("a", "timeout")]
    assert outcomes(state) == [("a", "t1", Cancelled("forced at the end of the grace"))]


def test_a_job_whose_handler_has_not_started_is_cancelled_at_once() -> None:
    state = with_suspect("a")
    state.handler_started("a", "t1", 0.0, None)
    cancel_answer = HeartbeatAnswer(cancels={"suspect": '{"actor":"ann"}'}, tokens={"a": "t1", "suspect": "t1"})
    assert state.heartbeat_answered(cancel_answer, 1.0) == [Interrupt("suspect", "cancel")]
    assert outcomes(state) == [("suspect", "t1", Cancelled("cancelled by ann"))]
    assert not state.isolating and state.abandoned == 0 and state.handler_started("suspect", "t1", 2.0, None) is None


def test_leases_cover_everything_that_is_not_settled() -> None:
    state = with_jobs("queued", "running", "ended", "in flight", start=False)
    for job_id in ("running", "ended", "in flight"):
        state.handler_started(job_id, "t1", 0.0, None)
    state.handler_ended("in flight", "t1", DONE)
    state.next_batch()
    state.handler_ended("ended", "t1", DONE)
    assert state.leases_to_extend(0.0) == dict.fromkeys(("queued", "running", "ended", "in flight"), "t1")
    state.batch_done(BatchResult())
    assert "in flight" not in state.leases_to_extend(0.0)


def test_a_job_long_past_its_deadline_is_left_to_its_lease() -> None:
    """Only a permanently blocked event loop lets a deadline pass by a whole lease."""
    state = with_jobs("a", "b", start=False)
    state.handler_started("a", "t1", 0.0, 1.0)
    state.handler_started("b", "t1", 0.0, None)
    assert set(state.leases_to_extend(30.9)) == {"a", "b"}
    assert set(state.leases_to_extend(31.0)) == {"b"}


def test_stop_hands_back_what_waits_and_claims_no_more() -> None:
    state = with_jobs("a", "b", start=False)
    state.handler_started("a", "t1", 0.0, None)
    state.wants_jobs = True
    state.stop()
    assert outcomes(state) == [("b", "t1", Stopped())] and list(state.held) == ["a"]
    batch = state.next_batch()
    assert batch is not None and batch.claim_limit == 0
    state.batch_done(BatchResult())
    assert not state.done
    state.handler_ended("a", "t1", DONE)
    state.next_batch()
    assert not state.done, "the last settlement is still in flight"
    state.batch_done(BatchResult())
    assert state.done


def test_jobs_claimed_while_stopping_are_handed_back() -> None:
    state = WorkerState(2)
    state.next_batch()
    state.stop()
    assert state.batch_done(answer("a", "b")) == []
    assert [(settlement.id, settlement.outcome) for settlement in state.finished] == [
        ("a", Stopped()),
        ("b", Stopped()),
    ]
    assert not state.held and not state.abandoned


def test_running_jobs_are_handed_back_after_the_grace() -> None:
    state = with_jobs("a", "b", start=False)
    state.handler_started("a", "t1", 0.0, None)
    state.stopping = True
    assert {interrupt.id for interrupt in state.hand_back_running()} == {"a", "b"}
    assert {settlement.id for settlement in state.finished} == {"a", "b"} and state.abandoned == 1
    assert state.hand_back_running() == []


@pytest.mark.parametrize("outcome", [Snoozed(1), Waits(Wait("x")), Cancelled("no"), Succeeded("NaN")])
def test_an_outcome_the_engine_refuses_becomes_a_permanent_failure(outcome: Outcome) -> None:
    state = with_jobs("a")
    state.handler_ended("a", "t1", outcome)
    state.next_batch()
    state.batch_done(BatchResult(refused={"a": NotSupported("the contract has no status for it")}))
    [(job_id, token, settlement)] = outcomes(state)
    assert (job_id, token) == ("a", "t1") and isinstance(settlement, Failed)
    assert settlement.failure.code == "CONTRACT_LACKS_MOVE" and settlement.failure.retryable is False
    state.next_batch()
    state.batch_done(BatchResult(refused={"a": InvalidInput("the failure is refused too")}))
    assert not state.finished, "settled as a failure once, then the lease expires"


@pytest.mark.parametrize("outcome", [DONE, Stopped()])
def test_a_stale_lease_causes_no_failure(outcome: Outcome) -> None:
    state = with_jobs("a")
    state.handler_ended("a", "t1", outcome)
    state.next_batch()
    state.batch_done(BatchResult(refused={"a": StaleLease("another worker holds it")}))
    assert not state.finished


def names(prefix: str, number: int) -> list[str]:
    return [f"{prefix}{n}" for n in range(number)]


def test_two_batches_share_the_slots_and_end_in_any_order() -> None:
    state = WorkerState(40, max_in_flight=2)
    opening = state.next_batch()
    assert opening is not None and opening.claim_limit == 14
    state.batch_done(answer(*names("a", 14)), opening)
    first, second = state.next_batch(), state.next_batch()
    assert first is not None and second is not None and (first.claim_limit, second.claim_limit) == (14, 12)
    assert state.next_batch() is None, "at most two batches in flight"
    assert len(state.batch_done(answer(*names("c", 12)), second)) == 12
    assert state.next_batch() is None, "slots of a claim in flight stay reserved"
    state.batch_done(answer(*names("b", 14)), first)
    assert state.free == 0 and state.next_batch() is None


def test_a_second_claim_waits_until_the_last_claim_was_full() -> None:
    state = WorkerState(30, max_in_flight=2)
    first = state.next_batch()
    assert first is not None and state.next_batch() is None, "no claim was full yet"
    state.batch_done(answer(*names("a", 3)), first)
    state.notify_work_available()
    second = state.next_batch()
    assert second is not None and state.next_batch() is None, "the last claim was not full"
    state.batch_done(answer(*names("b", 10)), second)
    assert state.next_batch() is not None and state.next_batch() is not None, "this claim was full"


def test_a_second_batch_waits_until_it_is_half_full() -> None:
    state = with_jobs(*names("a", 10), slots=30)
    state.max_in_flight, state.wants_jobs = 2, False
    state.handler_ended("a0", "t1", DONE)
    first = state.next_batch()
    assert first is not None and [settlement.id for settlement in first.settled] == ["a0"], (
        "the first batch is sent at once, however small"
    )
    state.handler_ended("a1", "t1", DONE)
    assert state.next_batch() is None
    for number in range(2, 6):
        state.handler_ended(f"a{number}", "t1", DONE)
    second = state.next_batch()
    assert second is not None and len(second.settled) == 5, "half a batch"
    assert len(state.leases_to_extend(0.0)) == 10, "leases of settlements in flight are extended"
    state.batch_failed(second)
    assert [settlement.id for settlement in state.finished] == names("a", 6)[1:] and state.in_flight == [first]


def with_suspect(*others: str) -> WorkerState:
    state = WorkerState(8)
    assert state.next_batch() is not None
    suspect = claimed("suspect")._replace(suspect=True)
    started = state.batch_done(BatchResult([suspect, *(claimed(job_id) for job_id in others)]))
    assert [job.id for job in started] == list(others), "the suspect does not start beside others"
    return state


def test_a_suspect_starts_when_everything_else_is_settled() -> None:
    state = with_suspect("a", "b")
    for job_id in ("a", "b"):
        state.handler_started(job_id, "t1", 0.0, None)
    state.notify_work_available()
    assert state.next_batch() is None and state.next_suspect() is None, "nothing more is claimed"
    state.handler_ended("a", "t1", DONE)
    state.handler_ended("b", "t1", DONE)
    assert state.next_suspect() is None, "results that are not committed would be lost with it"
    batch = state.next_batch()
    assert batch is not None and batch.claim_limit == 0 and state.next_suspect() is None
    state.batch_done(BatchResult())
    suspect = state.next_suspect()
    assert suspect is not None and suspect.id == "suspect" and state.next_suspect() is None
    state.handler_started("suspect", "t1", 0.0, None)
    assert state.isolating and state.next_batch() is None
    state.handler_ended("suspect", "t1", DONE)
    batch = state.next_batch()
    assert batch is not None and batch.claim_limit == 8 and not state.isolating


def test_only_one_claim_in_flight_may_bring_a_suspect() -> None:
    state = WorkerState(32, max_in_flight=2, last_claim_full=True)
    first, second = state.next_batch(), state.next_batch()
    assert first is not None and second is not None
    assert (first.may_claim_suspect, second.may_claim_suspect) == (True, False)


@pytest.mark.parametrize("act", ["stop", "lost"])
def test_a_suspect_that_waits_is_handed_back_or_lost_like_any_other(act: str) -> None:
    state = with_suspect("a")
    state.handler_started("a", "t1", 0.0, None)
    if act == "stop":
        state.stop()
        assert outcomes(state) == [("suspect", "t1", Stopped())]
    else:
        state.heartbeat_answered(HeartbeatAnswer(frozenset({"suspect"}), {}, {"suspect": "t1"}), 0.0)
    assert not state.isolating
    state.handler_ended("a", "t1", DONE)
    state.next_batch()
    state.batch_done(BatchResult())
    assert state.next_suspect() is None


def test_a_worker_that_runs_until_idle_claims_once_more_before_it_stops() -> None:
    state = WorkerState(2)
    state.next_batch()
    state.batch_done(BatchResult())
    assert state.waits_for_change(idle=False), "there is work for other workers"
    assert not state.waits_for_change(idle=True)
    assert state.wants_jobs and not state.stopping, "a job may have become claimable before the check"
    state.next_batch()
    state.batch_done(BatchResult())
    assert not state.waits_for_change(idle=True)
    assert state.stopping and state.done


@pytest.mark.parametrize("interruption", ["work", "notification"])
def test_work_that_arrives_keeps_a_worker_that_runs_until_idle(interruption: str) -> None:
    state = WorkerState(2)
    state.next_batch()
    state.batch_done(BatchResult())
    assert not state.waits_for_change(idle=True)
    if interruption == "notification":
        assert state.wants_jobs and not state.waits_for_change(idle=True)
        assert not state.stopping, "the last claim is still to be sent"
        return
    state.next_batch()
    state.batch_done(BatchResult())
    assert state.waits_for_change(idle=False)
    assert not state.waits_for_change(idle=True) and not state.stopping, "one more claim, as at the beginning"


def test_the_pause_after_a_failed_batch_doubles_until_the_store_answers() -> None:
    state = WorkerState(2)

    def fail() -> float | None:
        state.notify_work_available()
        assert state.next_batch() is not None
        return state.batch_failed()

    assert [fail() for _ in range(8)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert state.store_failing
    state.next_batch()
    state.batch_done(BatchResult())
    assert not state.store_failing and fail() == 0.05


def test_a_worker_past_its_grace_gives_up_a_store_that_keeps_failing() -> None:
    state = with_jobs("a")
    state.stop()
    state.hand_back_running()
    pauses = []
    for _ in range(5):
        assert state.next_batch() is not None
        pauses.append(state.batch_failed())
    assert pauses == [0.05, 0.1, 0.2, 0.4, None]


def test_a_late_result_is_reported_once_the_own_settlement_is_committed() -> None:
    state = with_jobs("a")
    state.handler_started("a", "t1", 0.0, 1.0)
    state.tick(at(1.0), CODES)
    assert not state.handler_ended("a", "t1", DONE)
    assert not state.reports_late("a", DONE), "the timeout is not settled yet"
    batch = state.next_batch()
    assert batch is not None and not state.reports_late("a", DONE), "it is in flight"
    state.batch_done(BatchResult(), batch)
    assert state.reports_late("a", DONE)
    assert not state.reports_late("a", Stopped()), "a stopped handler has no result"


def test_the_pause_until_something_is_due() -> None:
    now = 100 * SECOND
    assert seconds_until_due((), now, 1.0) == seconds_until_due((None, None), now, 1.0) == 1.0
    assert seconds_until_due((now + SECOND // 4, None), now, 1.0) == 0.25
    assert seconds_until_due((now + 9 * SECOND,), now, 1.0) == 1.0, "at most the poll interval"
    assert seconds_until_due((now,), now, 1.0) == 0.001, "never without a pause"
    assert seconds_until_due((now - SECOND // 2,), now, 1.0) == 0.5, "overdue and not taken: less and less often"


def test_leases_are_reclaimed_from_time_to_time_and_not_during_the_grace() -> None:
    state = WorkerState(4, lease_seconds=6.0)

    def reclaims(seconds: float, *, wall: float | None = None) -> bool:
        state.notify_work_available(notified=False)
        batch = state.next_batch(Reading(seconds, at(seconds if wall is None else wall).wall))
        assert batch is not None
        state.batch_done(BatchResult(), batch, seconds)
        return batch.reclaim

    assert [reclaims(seconds) for seconds in (0.0, 0.2, 0.5, 0.9, 1.0)] == [True, False, True, False, True]
    assert not reclaims(2.0, wall=60.0), "the wall clock jumped"
    assert not reclaims(7.9, wall=65.9) and reclaims(8.0, wall=66.0), "one lease later"
    state.notify_work_available()
    state.next_batch(Reading(9.0, at(67.0).wall))
    state.batch_failed()
    assert not reclaims(20.0, wall=78.0), "the store was lost until now"


def test_after_a_notification_new_jobs_start_before_leases_are_reclaimed() -> None:
    state = WorkerState(4, lease_seconds=6.0)
    state.notify_work_available(notified=True)
    first = state.next_batch(at(0.0))
    assert first is not None and not first.reclaim and not first.may_claim_suspect
    state.batch_done(BatchResult(), first, 0.0)
    assert state.wants_jobs, "the claim that reclaims follows at once"
    second = state.next_batch(at(0.0))
    assert second is not None and second.reclaim and second.may_claim_suspect
    state.batch_done(BatchResult(), second, 0.0)
    assert not state.wants_jobs


def test_the_state_chooses_between_extending_and_checking_the_leases() -> None:
    state = WorkerState(4, lease_seconds=9.0)
    assert (state.beat_seconds, state.check_seconds) == (3.0, 1.0)
    assert state.extends_leases(0.0)
    assert state.extends_leases(0.5), "one that failed is repeated"
    state.leases_extended(0.5)
    assert [state.extends_leases(seconds) for seconds in (1.5, 2.5, 2.9, 3.0)] == [False, False, False, True]
