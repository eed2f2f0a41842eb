"""The explorer: states reached, honest engine clean, the shortest path told, equal situations met once."""

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.proof.controlled_store import HONEST, run_all
from detent.proof.explore.explore import STATES, explore
from detent.proof.explore.frame import JOBS, NOW, Desk, Frame, next_moment
from detent.proof.explore.memory import NEWBORN, Call, Ghost, Hold, Memory, Reply, Said, copied, renamed, shape
from detent.proof.explore.stage import Stage, small
from detent.proof.explore.steps import Steps
from detent.proof.planted_bugs import BUGS

by_name = pytest.mark.parametrize("contract", CONTRACTS.values(), ids=list(CONTRACTS))


@by_name
def test_every_promise_holds_in_twenty_thousand_states(contract: Contract) -> None:
    found = explore(contract)
    assert found.ok, "\n".join(found.violation.path if found.violation else ())
    assert found.exhausted or found.states >= STATES >= 20_000
    assert found.depth >= 8 and found.places > 200


@pytest.mark.parametrize("name", ["gate-b2", "men"])
def test_one_job_and_two_workers_are_searched_to_the_end(name: str) -> None:
    found = explore(CONTRACTS[name], states=100_000, jobs=1)
    assert found.ok and found.exhausted
    assert found.depth >= 20, "every retry is used up somewhere on the way"


def test_a_worker_with_two_slots() -> None:
    found = explore(CONTRACTS["standard"], states=3_000, slots=2)
    assert found.ok and found.states >= 3_000


def test_the_same_search_twice_is_the_same() -> None:
    first, second = (explore(CONTRACTS["p3c"], states=1_500) for _ in range(2))
    assert first == second


def test_a_broken_promise_comes_with_the_shortest_path() -> None:
    found = explore(CONTRACTS["standard"], hooks=BUGS["dead-letter-forgotten"].hooks)
    assert found.violation is not None and not found.ok
    assert found.violation.rule == "dead_letter.missing"
    assert found.violation.path == [
        "1. job-1 is submitted",
        "2. worker 1 claims",
        "3. worker 1 hears what its cycle did",
        "4. worker 1 ends job-1 with permanent failure",
        "5. worker 1 settles job-1 (permanent failure) and claims",
    ]
    told = found.as_dict()
    assert told["ok"] is False and told["violation"]["path"] == found.violation.path


def test_a_tolerated_rule_does_not_end_the_search() -> None:
    bug = BUGS["dead-letter-forgotten"].hooks
    found = explore(CONTRACTS["standard"], states=500, hooks=bug, tolerated={"dead_letter.missing"})
    assert found.ok and found.states >= 500


def test_a_frame_is_loaded_as_it_was_read() -> None:
    stage = Stage(CONTRACTS["standard"], HONEST)
    run_all(stage.engine.submit(stage.submission(0)))
    run_all(stage.engine.settle_and_claim([], stage.engine.claim_request("worker", 1, 10.0)))
    frame = stage.desk.read()
    stage.desk.load(Frame((), (), (), (), ()))
    assert stage.desk.read().jobs == ()
    stage.desk.load(frame)
    assert stage.desk.read() == frame


def test_situations_that_differ_in_the_past_only_are_one() -> None:
    """The same job reached sooner or later looks the same; a lease keeps its distance."""
    looks = []
    for waited in (0, 3_000_000):
        stage = Stage(CONTRACTS["standard"], HONEST)
        stage.clock.wall += waited
        run_all(stage.engine.submit(stage.submission(0)))
        run_all(stage.engine.settle_and_claim([], stage.engine.claim_request("worker", 1, 10.0)))
        frame = stage.desk.timeless(stage.desk.read(), stage.clock.wall)
        looks.append(stage.desk.look(frame, {"fresh"}))
    assert looks[0] == looks[1]
    assert next_moment(looks[0]) == 10_000_000


def test_time_that_passed_a_lease_leaves_it_expired() -> None:
    stage = Stage(CONTRACTS["standard"], HONEST)
    run_all(stage.engine.submit(stage.submission(0)))
    run_all(stage.engine.settle_and_claim([], stage.engine.claim_request("worker", 1, 10.0)))
    later = stage.desk.timeless(stage.desk.read(), NOW + 10_000_000)
    (seen, nobody) = stage.desk.look(later, set())
    assert seen is not None and seen.lease == 0 and nobody is None
    assert next_moment((seen, nobody)) is None


def test_the_small_contract_is_the_same_machine() -> None:
    for contract in CONTRACTS.values():
        assert small(contract).edges == contract.edges
        assert small(contract).retry.max_retries == 1


def test_a_memory_survives_thawing_and_freezing() -> None:
    steps = Steps(small(CONTRACTS["standard"]), HONEST.state, 1)
    ordered = steps.order(NEWBORN)
    assert ordered is not None
    call, memory = ordered
    assert call.want == 1 and memory.call == call and steps.order(memory) == (call, memory)
    held = Memory(held=(Hold(0, "t0", False),))
    words = [step.words for step in steps.inside(held)]
    assert words[0] == "dies and starts anew" and "ends job-1 with success" in words and words[-1].startswith("stops")
    ended = next(step.after for step in steps.inside(held) if step.words == "ends job-1 with success")
    assert ended.finished == (Said(0, "t0", "success"),) and not ended.abandoned


def test_tokens_are_renamed_everywhere_and_twins_have_one_shape() -> None:
    call = Call((Said(0, "a", "success"),), 1, True, "fresh").answered({"token": "fresh", "old": ["a"]})
    memory = Memory((Hold(1, "b", True),), (Said(0, "a", "wait"),), (Ghost(0, "a"),), False, call)
    twin = renamed(memory, {"a": "t0", "b": "t1", "fresh": "t2"})
    assert shape(twin) == shape(memory) and twin != memory
    assert twin.call is not None and twin.call.answers() == [{"token": "t2", "old": ["t0"]}]
    assert twin.held == (Hold(1, "t1", True),) and twin.abandoned == (Ghost(0, "t0"),)


def test_an_answer_is_handed_out_as_a_copy() -> None:
    value = {"list": [1, 2]}
    assert copied(value, {}) == value and copied(value, {})["list"] is not value["list"]
    assert Reply(value) == Reply({"list": [1, 2]}) != Reply(lost=True)


def test_desk_reads_its_columns_from_the_schema() -> None:
    stage = Stage(CONTRACTS["men"], HONEST)
    assert isinstance(stage.desk, Desk)
    assert {"id", "token", "due_at", "lease_until"} <= set(stage.desk.at)
    assert len(JOBS) == 2
