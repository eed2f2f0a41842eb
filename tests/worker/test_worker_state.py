"""The machine, method by method: no loop, no clock, no store."""

import pytest

from detent.core.errors import InvalidInput, NotSupported, StaleLease
from detent.core.job import Wait
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.engine import BatchResult, Settlement
from detent.ports.claims import Extended
from detent.worker.state import HeartbeatAnswer, Interrupt, WorkerState

from .claims import CODES, answer, claimed

DONE = Succeeded("1")


def with_jobs(*ids: str, slots: int = 4, start: bool = True) -> WorkerState:
    state = WorkerState(slots)
    assert state.order() is not None
    state.batch_done(answer(*ids))
    for job_id in ids if start else ():
        assert state.started(job_id, 0.0, None)
    return state


def outcomes(state: WorkerState) -> list[tuple[str, str, Outcome]]:
    return [(said.id, said.token, said.outcome) for said in state.finished]


def test_an_order_asks_for_the_free_slots_once() -> None:
    state = WorkerState(3)
    order = state.order()
    assert order is not None and (order.settled, order.want) == ([], 3)
    assert state.order() is None, "one order at a time"
    assert [c.id for c in state.batch_done(answer("a"))] == ["a"]
    assert state.free == 2
    assert not state.wants_jobs and state.order() is None, "fewer than asked for: there is no more"


def test_appetite_lasts_while_claims_come_back_full() -> None:
    state = WorkerState(2)
    state.order()
    state.batch_done(answer("a", "b"))
    assert state.wants_jobs and state.free == 0 and state.order() is None
    state.started("a", 0.0, None)
    assert state.ended("a", "t1", DONE)
    order = state.order()
    assert order is not None and order.want == 1
    assert order.settled == [Settlement("a", "t1", "standard", DONE)]
    state.batch_done(BatchResult())
    state.wants_jobs = True
    assert state.order() == type(order)([], 1)


def test_word_that_comes_while_a_claim_is_under_way_is_not_forgotten() -> None:
    state = WorkerState(2)
    state.order()
    state.heard_of_work()
    state.batch_done(BatchResult())
    assert state.order() is not None, "the claim may have looked before"
    state.batch_done(BatchResult())
    assert not state.wants_jobs, "this one has seen it"


def test_a_sated_machine_still_settles() -> None:
    state = with_jobs("a")
    assert not state.wants_jobs
    state.ended("a", "t1", DONE)
    order = state.order()
    assert order is not None and order.want == 0 and len(order.settled) == 1
    state.batch_done(BatchResult())
    assert state.order() is None and not state.finished


def test_a_failed_cycle_says_its_settlements_again_and_first() -> None:
    state = with_jobs("a", "b")
    state.ended("a", "t1", DONE)
    state.order()
    state.ended("b", "t1", DONE)
    state.batch_failed()
    assert [said.id for said in state.finished] == ["a", "b"]
    assert state.wants_jobs and not state.in_flight
    with pytest.raises(AssertionError):
        state.batch_failed()
    with pytest.raises(AssertionError):
        state.batch_done(BatchResult())


def test_what_another_holds_is_said_again_at_once_and_then_at_the_next_tick() -> None:
    state = with_jobs("a")
    state.ended("a", "t1", DONE)
    order = state.order()
    assert order is not None
    state.batch_done(BatchResult(later=list(order.settled)))
    assert state.finished == order.settled and not state.deferred
    assert state.leases(0.0, 30.0) == {"a": "t1"}
    order = state.order()
    assert order is not None
    state.batch_done(BatchResult(later=list(order.settled)))
    assert state.deferred and not state.finished
    assert state.leases(0.0, 30.0) == {"a": "t1"}
    state.stop()
    assert not state.done
    state.ticked(0.0, CODES)
    assert [said.id for said in state.finished] == ["a"] and not state.deferred


def test_only_what_is_ours_can_start() -> None:
    state = with_jobs("a", start=False)
    assert state.started("a", 0.0, None)
    assert not state.started("b", 0.0, None)


def test_the_deadline_wins_over_a_later_result() -> None:
    state = WorkerState(2)
    state.order()
    state.batch_done(BatchResult([claimed("a", timeout_ms=500), claimed("b", "t1", "men")]))
    state.started("a", 10.0, 0.5)
    state.started("b", 10.0, 0.7)
    assert state.next_deadline() == 10.5
    assert state.ticked(10.4, CODES) == []
    assert state.ticked(10.5, CODES) == [Interrupt("a", "timeout")]
    [(job_id, token, outcome)] = outcomes(state)
    assert (job_id, token) == ("a", "t1") and isinstance(outcome, Failed)
    assert outcome.failure.code == "TIMEOUT" and "0.5 s" in outcome.failure.message
    assert (state.abandoned, state.free) == (1, 0), "the handler still has its slot"
    assert not state.ended("a", "t1", DONE), "too late"
    assert state.free == 1 and len(state.finished) == 1
    assert state.ticked(10.7, CODES) == [Interrupt("b", "timeout")]
    assert isinstance(said := state.finished[-1].outcome, Failed) and said.failure.code == "TASK_TIMEOUT"


def test_a_result_wins_over_a_later_deadline() -> None:
    state = with_jobs("a", start=False)
    state.started("a", 0.0, 1.0)
    assert state.ended("a", "t1", DONE)
    assert state.ticked(5.0, CODES) == []
    assert outcomes(state) == [("a", "t1", DONE)]
    assert state.next_deadline() is None


def test_deadlines_of_ended_jobs_do_not_pile_up() -> None:
    state = WorkerState(8)
    for number in range(5_000):
        state.order()
        state.batch_done(BatchResult([claimed(f"j{number}")]))
        state.started(f"j{number}", 0.0, 3_600.0)
        state.ended(f"j{number}", "t1", DONE)
        state.wants_jobs = True
    assert len(state._deadlines) < 200


def test_a_lost_lease_takes_the_job_away_without_a_word() -> None:
    state = with_jobs("a", "b", start=False)
    state.started("a", 0.0, None)
    told = state.extended(Extended(frozenset({"a", "b", "unknown"})), 0.0)
    assert {(order.id, order.gentle) for order in told} == {("a", False), ("b", False)}
    assert not state.held and not state.finished
    assert state.abandoned == 1, "b never started"
    state.ended("a", "t1", DONE)
    assert state.abandoned == 0 and not state.finished and state.free == 4


def test_news_of_an_old_token_does_not_touch_the_new_one() -> None:
    """Settled, retried and claimed again while the heartbeat was under way."""
    state = with_jobs("a")
    state.ended("a", "t1", DONE)
    state.wants_jobs = True
    state.order()
    state.batch_done(answer("a", token="t2"))
    old = HeartbeatAnswer(frozenset({"a"}), {"a": '{"actor":"ann"}'}, {"a": "t1"})
    assert state.extended(old, 0.0) == [] and "a" in state.held
    assert state.extended(HeartbeatAnswer(frozenset({"a"}), {}, {"a": "t2"}), 0.0) == [Interrupt("a", "lease lost")]


def test_a_job_that_comes_back_before_its_loss_is_known_stops_the_old_handler() -> None:
    state = with_jobs("a", "b", start=False)
    state.started("a", 0.0, None)
    state.wants_jobs = True
    state.order()
    assert [c.token for c in state.batch_done(answer("a", "b", token="t2"))] == ["t2", "t2"]
    assert state.superseded() == [Interrupt("a", "lease lost"), Interrupt("b", "lease lost")]
    assert state.superseded() == []
    assert (state.abandoned, state.free) == (1, 1)
    assert not state.ended("a", "t1", DONE) and state.abandoned == 0
    assert state.held["a"].claimed.token == "t2" and not state.held["a"].started


def test_a_cancel_is_asked_gently_once_then_forced() -> None:
    state = WorkerState(2, cancel_grace=5.0)
    state.order()
    state.batch_done(answer("a"))
    state.started("a", 0.0, None)
    asked = Extended(cancels={"a": '{"actor":"ann"}', "unknown": "{}"})
    assert state.extended(asked, 1.0) == [Interrupt("a", '{"actor":"ann"}', gentle=True)]
    assert state.extended(asked, 2.0) == [], "once"
    assert state.next_deadline() == 6.0
    assert state.ticked(5.9, CODES) == []
    assert state.ticked(6.0, CODES) == [Interrupt("a", "timeout")]
    assert outcomes(state) == [("a", "t1", Cancelled("forced at the end of the grace"))]


def test_leases_cover_everything_that_is_not_settled() -> None:
    state = with_jobs("queued", "running", "ended", "ordered", start=False)
    for job_id in ("running", "ended", "ordered"):
        state.started(job_id, 0.0, None)
    state.ended("ordered", "t1", DONE)
    state.order()
    state.ended("ended", "t1", DONE)
    assert state.leases(0.0, 30.0) == dict.fromkeys(("queued", "running", "ended", "ordered"), "t1")
    state.batch_done(BatchResult())
    assert "ordered" not in state.leases(0.0, 30.0)


def test_a_job_long_past_its_deadline_is_left_to_its_lease() -> None:
    """Only a loop that is blocked for good lets a deadline pass by a whole lease."""
    state = with_jobs("a", "b", start=False)
    state.started("a", 0.0, 1.0)
    state.started("b", 0.0, None)
    assert set(state.leases(30.9, 30.0)) == {"a", "b"}
    assert set(state.leases(31.0, 30.0)) == {"b"}


def test_stop_hands_back_what_waits_and_claims_no_more() -> None:
    state = with_jobs("a", "b", start=False)
    state.started("a", 0.0, None)
    state.wants_jobs = True
    state.stop()
    assert outcomes(state) == [("b", "t1", Stopped())] and list(state.held) == ["a"]
    order = state.order()
    assert order is not None and order.want == 0
    state.batch_done(BatchResult())
    assert not state.done
    state.ended("a", "t1", DONE)
    state.order()
    assert not state.done, "the last settlement is still under way"
    state.batch_done(BatchResult())
    assert state.done


def test_jobs_claimed_while_stopping_go_straight_back() -> None:
    state = WorkerState(2)
    state.order()
    state.stop()
    assert state.batch_done(answer("a", "b")) == []
    assert [(said.id, said.outcome) for said in state.finished] == [("a", Stopped()), ("b", Stopped())]
    assert not state.held and not state.abandoned


def test_giving_up_hands_back_what_runs() -> None:
    state = with_jobs("a", "b", start=False)
    state.started("a", 0.0, None)
    state.stopping = True
    assert {order.id for order in state.give_up()} == {"a", "b"}
    assert {said.id for said in state.finished} == {"a", "b"} and state.abandoned == 1
    assert state.give_up() == []


@pytest.mark.parametrize("outcome", [Snoozed(1), Waits(Wait("x")), Cancelled("no"), Succeeded("NaN")])
def test_an_end_the_engine_refuses_becomes_a_permanent_failure(outcome: Outcome) -> None:
    state = with_jobs("a")
    state.ended("a", "t1", outcome)
    state.order()
    state.batch_done(BatchResult(refused={"a": NotSupported("the contract has no status for it")}))
    [(job_id, token, said)] = outcomes(state)
    assert (job_id, token) == ("a", "t1") and isinstance(said, Failed)
    assert said.failure.code == "CONTRACT_LACKS_MOVE" and said.failure.retryable is False
    state.order()
    state.batch_done(BatchResult(refused={"a": InvalidInput("not even that")}))
    assert not state.finished, "said once, then the lease decides"


@pytest.mark.parametrize("outcome", [DONE, Stopped()])
def test_a_stale_lease_is_not_answered_with_a_failure(outcome: Outcome) -> None:
    state = with_jobs("a")
    state.ended("a", "t1", outcome)
    state.order()
    state.batch_done(BatchResult(refused={"a": StaleLease("not ours")}))
    assert not state.finished


def test_adopting_a_claim_nobody_heard_of() -> None:
    state = with_jobs("a")
    assert [c.id for c in state.adopt([claimed("a", "t9"), claimed("b", "t9")])] == ["b"]
    assert state.held["a"].claimed.token == "t1" and state.free == 2


def names(prefix: str, number: int) -> list[str]:
    return [f"{prefix}{n}" for n in range(number)]


def test_two_orders_share_the_slots_and_are_answered_in_any_order() -> None:
    state = WorkerState(40, max_in_flight=2)
    opening = state.order()
    assert opening is not None and opening.want == 14
    state.batch_done(answer(*names("a", 14)), opening)
    first, second = state.order(), state.order()
    assert first is not None and second is not None and (first.want, second.want) == (14, 12)
    assert state.order() is None, "two at once, no more"
    assert len(state.batch_done(answer(*names("c", 12)), second)) == 12
    assert state.order() is None, "what is asked for and not answered yet keeps its room"
    state.batch_done(answer(*names("b", 14)), first)
    assert state.free == 0 and state.order() is None


def test_a_second_claim_waits_until_the_first_has_found_plenty() -> None:
    state = WorkerState(30, max_in_flight=2)
    first = state.order()
    assert first is not None and state.order() is None, "who knows whether there is anything at all"
    state.batch_done(answer(*names("a", 3)), first)
    state.heard_of_work()
    second = state.order()
    assert second is not None and state.order() is None, "the last claim came back with less than it asked for"
    state.batch_done(answer(*names("b", 10)), second)
    assert state.order() is not None and state.order() is not None, "this one had plenty"


def test_a_second_order_waits_until_it_is_worth_a_transaction() -> None:
    state = with_jobs(*names("a", 10), slots=30)
    state.max_in_flight, state.wants_jobs = 2, False
    state.ended("a0", "t1", DONE)
    first = state.order()
    assert first is not None and [said.id for said in first.settled] == ["a0"], "the first goes at once, however small"
    state.ended("a1", "t1", DONE)
    assert state.order() is None
    for number in range(2, 6):
        state.ended(f"a{number}", "t1", DONE)
    second = state.order()
    assert second is not None and len(second.settled) == 5, "half a batch"
    assert len(state.leases(0.0, 1.0)) == 10, "what is under way is still ours"
    state.batch_failed(second)
    assert [said.id for said in state.finished] == names("a", 6)[1:] and state.in_flight == [first]
