"""The machine, method by method: no loop, no clock, no store."""

import pytest

from detent.core.errors import InvalidInput, NotSupported, StaleLease
from detent.core.job import Wait
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.engine import Cycled, Settlement
from detent.ports.claims import Extended
from detent.worker.state import Interrupt, Machine, Told

from .claims import CODES, answer, claimed

DONE = Succeeded("1")


def with_jobs(*ids: str, slots: int = 4, start: bool = True) -> Machine:
    machine = Machine(slots)
    assert machine.order() is not None
    machine.cycled(answer(*ids))
    for job_id in ids if start else ():
        assert machine.started(job_id, 0.0, None)
    return machine


def outcomes(machine: Machine) -> list[tuple[str, str, Outcome]]:
    return [(said.id, said.token, said.outcome) for said in machine.finished]


def test_an_order_asks_for_the_free_slots_once() -> None:
    machine = Machine(3)
    order = machine.order()
    assert order is not None and (order.settled, order.want) == ([], 3)
    assert machine.order() is None, "one order at a time"
    assert [c.id for c in machine.cycled(answer("a"))] == ["a"]
    assert machine.free == 2
    assert not machine.hungry and machine.order() is None, "fewer than asked for: there is no more"


def test_appetite_lasts_while_claims_come_back_full() -> None:
    machine = Machine(2)
    machine.order()
    machine.cycled(answer("a", "b"))
    assert machine.hungry and machine.free == 0 and machine.order() is None
    machine.started("a", 0.0, None)
    assert machine.ended("a", "t1", DONE)
    order = machine.order()
    assert order is not None and order.want == 1
    assert order.settled == [Settlement("a", "t1", "standard", DONE)]
    machine.cycled(Cycled())
    machine.hungry = True
    assert machine.order() == type(order)([], 1)


def test_word_that_comes_while_a_claim_is_under_way_is_not_forgotten() -> None:
    machine = Machine(2)
    machine.order()
    machine.heard_of_work()
    machine.cycled(Cycled())
    assert machine.order() is not None, "the claim may have looked before"
    machine.cycled(Cycled())
    assert not machine.hungry, "this one has seen it"


def test_a_sated_machine_still_settles() -> None:
    machine = with_jobs("a")
    assert not machine.hungry
    machine.ended("a", "t1", DONE)
    order = machine.order()
    assert order is not None and order.want == 0 and len(order.settled) == 1
    machine.cycled(Cycled())
    assert machine.order() is None and not machine.finished


def test_a_failed_cycle_says_its_settlements_again_and_first() -> None:
    machine = with_jobs("a", "b")
    machine.ended("a", "t1", DONE)
    machine.order()
    machine.ended("b", "t1", DONE)
    machine.cycle_failed()
    assert [said.id for said in machine.finished] == ["a", "b"]
    assert machine.hungry and not machine.out
    with pytest.raises(AssertionError):
        machine.cycle_failed()
    with pytest.raises(AssertionError):
        machine.cycled(Cycled())


def test_what_another_holds_is_said_again_at_once_and_then_at_the_next_tick() -> None:
    machine = with_jobs("a")
    machine.ended("a", "t1", DONE)
    order = machine.order()
    assert order is not None
    machine.cycled(Cycled(later=list(order.settled)))
    assert machine.finished == order.settled and not machine.deferred
    assert machine.leases(0.0, 30.0) == {"a": "t1"}
    order = machine.order()
    assert order is not None
    machine.cycled(Cycled(later=list(order.settled)))
    assert machine.deferred and not machine.finished
    assert machine.leases(0.0, 30.0) == {"a": "t1"}
    machine.stop()
    assert not machine.done
    machine.ticked(0.0, CODES)
    assert [said.id for said in machine.finished] == ["a"] and not machine.deferred


def test_only_what_is_ours_can_start() -> None:
    machine = with_jobs("a", start=False)
    assert machine.started("a", 0.0, None)
    assert not machine.started("b", 0.0, None)


def test_the_deadline_wins_over_a_later_result() -> None:
    machine = Machine(2)
    machine.order()
    machine.cycled(Cycled([claimed("a", timeout_ms=500), claimed("b", "t1", "men")]))
    machine.started("a", 10.0, 0.5)
    machine.started("b", 10.0, 0.7)
    assert machine.next_deadline() == 10.5
    assert machine.ticked(10.4, CODES) == []
    assert machine.ticked(10.5, CODES) == [Interrupt("a", "timeout")]
    [(job_id, token, outcome)] = outcomes(machine)
    assert (job_id, token) == ("a", "t1") and isinstance(outcome, Failed)
    assert outcome.failure.code == "TIMEOUT" and "0.5 s" in outcome.failure.message
    assert (machine.ghosts, machine.free) == (1, 0), "the handler still has its slot"
    assert not machine.ended("a", "t1", DONE), "too late"
    assert machine.free == 1 and len(machine.finished) == 1
    assert machine.ticked(10.7, CODES) == [Interrupt("b", "timeout")]
    assert isinstance(said := machine.finished[-1].outcome, Failed) and said.failure.code == "TASK_TIMEOUT"


def test_a_result_wins_over_a_later_deadline() -> None:
    machine = with_jobs("a", start=False)
    machine.started("a", 0.0, 1.0)
    assert machine.ended("a", "t1", DONE)
    assert machine.ticked(5.0, CODES) == []
    assert outcomes(machine) == [("a", "t1", DONE)]
    assert machine.next_deadline() is None


def test_deadlines_of_ended_jobs_do_not_pile_up() -> None:
    machine = Machine(8)
    for number in range(5_000):
        machine.order()
        machine.cycled(Cycled([claimed(f"j{number}")]))
        machine.started(f"j{number}", 0.0, 3_600.0)
        machine.ended(f"j{number}", "t1", DONE)
        machine.hungry = True
    assert len(machine._deadlines) < 200


def test_a_lost_lease_takes_the_job_away_without_a_word() -> None:
    machine = with_jobs("a", "b", start=False)
    machine.started("a", 0.0, None)
    told = machine.extended(Extended(frozenset({"a", "b", "unknown"})), 0.0)
    assert {(order.id, order.gentle) for order in told} == {("a", False), ("b", False)}
    assert not machine.held and not machine.finished
    assert machine.ghosts == 1, "b never started"
    machine.ended("a", "t1", DONE)
    assert machine.ghosts == 0 and not machine.finished and machine.free == 4


def test_news_of_an_old_token_does_not_touch_the_new_one() -> None:
    """Settled, retried and claimed again while the heartbeat was under way."""
    machine = with_jobs("a")
    machine.ended("a", "t1", DONE)
    machine.hungry = True
    machine.order()
    machine.cycled(answer("a", token="t2"))
    old = Told(frozenset({"a"}), {"a": '{"actor":"ann"}'}, {"a": "t1"})
    assert machine.extended(old, 0.0) == [] and "a" in machine.held
    assert machine.extended(Told(frozenset({"a"}), {}, {"a": "t2"}), 0.0) == [Interrupt("a", "lease lost")]


def test_a_job_that_comes_back_before_its_loss_is_known_stops_the_old_handler() -> None:
    machine = with_jobs("a", "b", start=False)
    machine.started("a", 0.0, None)
    machine.hungry = True
    machine.order()
    assert [c.token for c in machine.cycled(answer("a", "b", token="t2"))] == ["t2", "t2"]
    assert machine.superseded() == [Interrupt("a", "lease lost"), Interrupt("b", "lease lost")]
    assert machine.superseded() == []
    assert (machine.ghosts, machine.free) == (1, 1)
    assert not machine.ended("a", "t1", DONE) and machine.ghosts == 0
    assert machine.held["a"].claimed.token == "t2" and not machine.held["a"].started


def test_a_cancel_is_asked_gently_once_then_forced() -> None:
    machine = Machine(2, cancel_grace=5.0)
    machine.order()
    machine.cycled(answer("a"))
    machine.started("a", 0.0, None)
    asked = Extended(cancels={"a": '{"actor":"ann"}', "unknown": "{}"})
    assert machine.extended(asked, 1.0) == [Interrupt("a", '{"actor":"ann"}', gentle=True)]
    assert machine.extended(asked, 2.0) == [], "once"
    assert machine.next_deadline() == 6.0
    assert machine.ticked(5.9, CODES) == []
    assert machine.ticked(6.0, CODES) == [Interrupt("a", "timeout")]
    assert outcomes(machine) == [("a", "t1", Cancelled("forced at the end of the grace"))]


def test_leases_cover_everything_that_is_not_settled() -> None:
    machine = with_jobs("queued", "running", "ended", "ordered", start=False)
    for job_id in ("running", "ended", "ordered"):
        machine.started(job_id, 0.0, None)
    machine.ended("ordered", "t1", DONE)
    machine.order()
    machine.ended("ended", "t1", DONE)
    assert machine.leases(0.0, 30.0) == dict.fromkeys(("queued", "running", "ended", "ordered"), "t1")
    machine.cycled(Cycled())
    assert "ordered" not in machine.leases(0.0, 30.0)


def test_a_job_long_past_its_deadline_is_left_to_its_lease() -> None:
    """Only a loop that is blocked for good lets a deadline pass by a whole lease."""
    machine = with_jobs("a", "b", start=False)
    machine.started("a", 0.0, 1.0)
    machine.started("b", 0.0, None)
    assert set(machine.leases(30.9, 30.0)) == {"a", "b"}
    assert set(machine.leases(31.0, 30.0)) == {"b"}


def test_stop_hands_back_what_waits_and_claims_no_more() -> None:
    machine = with_jobs("a", "b", start=False)
    machine.started("a", 0.0, None)
    machine.hungry = True
    machine.stop()
    assert outcomes(machine) == [("b", "t1", Stopped())] and list(machine.held) == ["a"]
    order = machine.order()
    assert order is not None and order.want == 0
    machine.cycled(Cycled())
    assert not machine.done
    machine.ended("a", "t1", DONE)
    machine.order()
    assert not machine.done, "the last settlement is still under way"
    machine.cycled(Cycled())
    assert machine.done


def test_jobs_claimed_while_stopping_go_straight_back() -> None:
    machine = Machine(2)
    machine.order()
    machine.stop()
    assert machine.cycled(answer("a", "b")) == []
    assert [(said.id, said.outcome) for said in machine.finished] == [("a", Stopped()), ("b", Stopped())]
    assert not machine.held and not machine.ghosts


def test_giving_up_hands_back_what_runs() -> None:
    machine = with_jobs("a", "b", start=False)
    machine.started("a", 0.0, None)
    machine.stopping = True
    assert {order.id for order in machine.give_up()} == {"a", "b"}
    assert {said.id for said in machine.finished} == {"a", "b"} and machine.ghosts == 1
    assert machine.give_up() == []


@pytest.mark.parametrize("outcome", [Snoozed(1), Waits(Wait("x")), Cancelled("no"), Succeeded("NaN")])
def test_an_end_the_engine_refuses_becomes_a_permanent_failure(outcome: Outcome) -> None:
    machine = with_jobs("a")
    machine.ended("a", "t1", outcome)
    machine.order()
    machine.cycled(Cycled(refused={"a": NotSupported("the contract has no status for it")}))
    [(job_id, token, said)] = outcomes(machine)
    assert (job_id, token) == ("a", "t1") and isinstance(said, Failed)
    assert said.failure.code == "CONTRACT_LACKS_MOVE" and said.failure.retryable is False
    machine.order()
    machine.cycled(Cycled(refused={"a": InvalidInput("not even that")}))
    assert not machine.finished, "said once, then the lease decides"


@pytest.mark.parametrize("outcome", [DONE, Stopped()])
def test_a_stale_lease_is_not_answered_with_a_failure(outcome: Outcome) -> None:
    machine = with_jobs("a")
    machine.ended("a", "t1", outcome)
    machine.order()
    machine.cycled(Cycled(refused={"a": StaleLease("not ours")}))
    assert not machine.finished


def test_adopting_a_claim_nobody_heard_of() -> None:
    machine = with_jobs("a")
    assert [c.id for c in machine.adopt([claimed("a", "t9"), claimed("b", "t9")])] == ["b"]
    assert machine.held["a"].claimed.token == "t1" and machine.free == 2


def names(prefix: str, number: int) -> list[str]:
    return [f"{prefix}{n}" for n in range(number)]


def test_two_orders_share_the_slots_and_are_answered_in_any_order() -> None:
    machine = Machine(40, orders_at_once=2)
    opening = machine.order()
    assert opening is not None and opening.want == 14
    machine.cycled(answer(*names("a", 14)), opening)
    first, second = machine.order(), machine.order()
    assert first is not None and second is not None and (first.want, second.want) == (14, 12)
    assert machine.order() is None, "two at once, no more"
    assert len(machine.cycled(answer(*names("c", 12)), second)) == 12
    assert machine.order() is None, "what is asked for and not answered yet keeps its room"
    machine.cycled(answer(*names("b", 14)), first)
    assert machine.free == 0 and machine.order() is None


def test_a_second_claim_waits_until_the_first_has_found_plenty() -> None:
    machine = Machine(30, orders_at_once=2)
    first = machine.order()
    assert first is not None and machine.order() is None, "who knows whether there is anything at all"
    machine.cycled(answer(*names("a", 3)), first)
    machine.heard_of_work()
    second = machine.order()
    assert second is not None and machine.order() is None, "the last claim came back with less than it asked for"
    machine.cycled(answer(*names("b", 10)), second)
    assert machine.order() is not None and machine.order() is not None, "this one had plenty"


def test_a_second_order_waits_until_it_is_worth_a_transaction() -> None:
    machine = with_jobs(*names("a", 10), slots=30)
    machine.orders_at_once, machine.hungry = 2, False
    machine.ended("a0", "t1", DONE)
    first = machine.order()
    assert first is not None and [said.id for said in first.settled] == ["a0"], "the first goes at once, however small"
    machine.ended("a1", "t1", DONE)
    assert machine.order() is None
    for number in range(2, 6):
        machine.ended(f"a{number}", "t1", DONE)
    second = machine.order()
    assert second is not None and len(second.settled) == 5, "half a batch"
    assert len(machine.leases(0.0, 1.0)) == 10, "what is under way is still ours"
    machine.cycle_failed(second)
    assert [said.id for said in machine.finished] == names("a", 6)[1:] and machine.out == [first]
