"""The explorer: number of states, no violation in the real engine, the shortest path, normalization of states."""

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.proof.controlled_store import DEFAULT_HOOKS, run_all
from detent.proof.explore.engine_calls import EngineCalls, small_contract
from detent.proof.explore.explore import STATES, explore
from detent.proof.explore.handlers import Scenario
from detent.proof.explore.snapshot import JOBS, NOW, StateSnapshot, next_deadline
from detent.proof.explore.worker_memory import (
    NEW_WORKER,
    BatchCall,
    HeldJob,
    JobOutcome,
    LeaseRef,
    StoreReply,
    WorkerMemory,
    copy_renamed,
    rename_tokens,
    sort_key,
)
from detent.proof.explore.worker_steps import WorkerSteps
from detent.proof.planted_bugs import BUGS
from support.proof.exploration_table import DEPTHS, SEARCHES, row, search, stored_rows

for_each_contract = pytest.mark.parametrize("contract", CONTRACTS.values(), ids=list(CONTRACTS))


@pytest.mark.long
@for_each_contract
def test_no_invariant_is_broken_in_twenty_thousand_states(contract: Contract) -> None:
    result = explore(contract)
    assert result.ok, "\n".join(result.path)
    assert result.exhausted or result.states >= STATES >= 20_000
    assert result.depth >= 8 and result.places > 200


@pytest.mark.parametrize("name", ["gate-b2", "men"])
def test_one_job_and_two_workers_are_searched_exhaustively(name: str) -> None:
    result = explore(CONTRACTS[name], states=100_000, jobs=1)
    assert result.ok and result.exhausted
    assert result.depth >= 20, "on some path every retry is used up"


def test_a_worker_with_two_slots() -> None:
    result = explore(CONTRACTS["standard"], states=3_000, slots=2)
    assert result.ok and result.states >= 3_000


@pytest.mark.parametrize(("name", "scenario"), SEARCHES)
def test_small_searches_are_complete_and_on_the_guarantees_page(name: str, scenario: Scenario) -> None:
    small = search(name, scenario, DEPTHS[scenario].small)
    assert small.ok and small.exhausted and small.depth == DEPTHS[scenario].small, "\n".join(small.path)
    cells = stored_rows()[SEARCHES.index((name, scenario))]
    assert cells[:4] == [name, scenario.words, str(small.depth), f"{small.states:,}"], "run `make explored`"
    assert int(cells[5].replace(",", "")) > small.states and cells[4] == str(DEPTHS[scenario].large)


def test_the_guarantees_page_has_every_search() -> None:
    assert len(stored_rows()) == len(SEARCHES) and {name for name, _ in SEARCHES} == set(CONTRACTS)
    assert all(len(cells) == 7 for cells in stored_rows())


@pytest.mark.drill
@pytest.mark.parametrize(("name", "scenario"), SEARCHES)
def test_large_searches_are_complete_and_on_the_guarantees_page(name: str, scenario: Scenario) -> None:
    small, large = (search(name, scenario, depth) for depth in DEPTHS[scenario])
    assert large.ok and large.exhausted, "\n".join(large.path)
    cells = stored_rows()[SEARCHES.index((name, scenario))]
    assert row(small, large, scenario) == f"| {' | '.join(cells)} |\n", "run `make explored`"


def test_a_once_and_a_child_are_part_of_the_stories() -> None:
    hooks = BUGS["zombie-step"].hooks
    once = explore(CONTRACTS["standard"], states=3_000, hooks=hooks, scenario=Scenario.ONCE)
    assert once.violation is not None and once.violation.rule == "step.stale"
    assert once.path[-1] == "7. worker 1 records the start of the once of job-1"
    hooks = BUGS["parent-misses-child"].hooks
    child = explore(CONTRACTS["standard"], states=3_000, hooks=hooks, scenario=Scenario.CHILD)
    assert child.violation is not None and child.violation.rule == "child.missed"
    assert "4. worker 1 enqueues job-2 as a child of job-1" in child.path


def test_a_search_is_deterministic() -> None:
    first, second = (explore(CONTRACTS["p3c"], states=1_500) for _ in range(2))
    assert first == second


def test_a_violation_comes_with_the_shortest_path() -> None:
    result = explore(CONTRACTS["standard"], hooks=BUGS["dead-letter-forgotten"].hooks)
    assert result.violation is not None and not result.ok
    assert result.violation.rule == "dead-letter-missing"
    assert result.path == [
        "1. job-1 is submitted",
        "2. worker 1 claims",
        "3. worker 1 receives the result of its settle_and_claim",
        "4. worker 1 ends job-1 with permanent failure",
        "5. worker 1 settles job-1 (permanent failure) and claims",
    ]
    data = result.as_dict()
    assert data["ok"] is False and data["violation"]["path"] == result.path


def test_a_tolerated_rule_does_not_end_the_search() -> None:
    hooks = BUGS["dead-letter-forgotten"].hooks
    result = explore(CONTRACTS["standard"], states=500, hooks=hooks, tolerated={"dead-letter-missing"})
    assert result.ok and result.states >= 500


def calls_with_a_leased_job(waited: int = 0) -> EngineCalls:
    calls = EngineCalls(CONTRACTS["standard"], DEFAULT_HOOKS)
    calls.clock.wall += waited
    run_all(calls.engine.jobs.submit(calls.submission(0)))
    run_all(calls.engine.settle_and_claim([], calls.engine.claim_request("worker", 1, 10.0)))
    return calls


def test_a_snapshot_is_loaded_as_it_was_read() -> None:
    database = calls_with_a_leased_job().database
    snapshot = database.read()
    database.load(StateSnapshot((), (), (), (), ()))
    assert database.read().jobs == ()
    database.load(snapshot)
    assert database.read() == snapshot


def test_states_that_differ_only_in_past_times_are_equal() -> None:
    """A job leased sooner or later gives the same state; the lease keeps its distance from now."""
    states = []
    for waited in (0, 3_000_000):
        calls = calls_with_a_leased_job(waited)
        snapshot = calls.database.normalize(calls.database.read(), calls.clock.wall)
        states.append(calls.database.job_states(snapshot, {"fresh"}))
    assert states[0] == states[1]
    assert next_deadline(states[0]) == 10_000_000


def test_a_lease_is_expired_after_its_end() -> None:
    database = calls_with_a_leased_job().database
    later = database.normalize(database.read(), NOW + 10_000_000)
    (first, second) = database.job_states(later, set())
    assert first is not None and first.lease == 0 and second is None
    assert next_deadline((first, second)) is None


def test_the_small_contract_has_the_same_edges_and_one_retry() -> None:
    for contract in CONTRACTS.values():
        assert small_contract(contract).edges == contract.edges
        assert small_contract(contract).retry.max_retries == 1


def test_memory_survives_restore_and_capture() -> None:
    steps = WorkerSteps(small_contract(CONTRACTS["standard"]), DEFAULT_HOOKS.state, 1)
    next_call = steps.next_call(NEW_WORKER)
    assert next_call is not None
    call, memory = next_call
    assert call.want == 1 and memory.call == call and steps.next_call(memory) == (call, memory)
    held = WorkerMemory(held=(HeldJob(0, "t0", False),))
    words = [step.words for step in steps.internal(held)]
    assert words[0] == "dies and restarts" and "ends job-1 with success" in words and words[-1].startswith("stops")
    ended = next(step.after for step in steps.internal(held) if step.words == "ends job-1 with success")
    assert ended.finished == (JobOutcome(0, "t0", "success"),) and not ended.abandoned


def test_tokens_are_renamed_everywhere_and_do_not_change_the_sort_key() -> None:
    call = BatchCall((JobOutcome(0, "a", "success"),), 1, True, "fresh").with_reply({"token": "fresh", "old": ["a"]})
    memory = WorkerMemory((HeldJob(1, "b", True),), (JobOutcome(0, "a", "wait"),), (LeaseRef(0, "a"),), False, call)
    renamed = rename_tokens(memory, {"a": "t0", "b": "t1", "fresh": "t2"})
    assert sort_key(renamed) == sort_key(memory) and renamed != memory
    assert renamed.call is not None and renamed.call.reply_values() == [{"token": "t2", "old": ["t0"]}]
    assert renamed.held == (HeldJob(1, "t1", True),) and renamed.abandoned == (LeaseRef(0, "t0"),)


def test_replies_are_copied() -> None:
    value = {"list": [1, 2]}
    assert copy_renamed(value, {}) == value and copy_renamed(value, {})["list"] is not value["list"]
    assert StoreReply(value) == StoreReply({"list": [1, 2]}) != StoreReply(lost=True)


def test_column_positions_come_from_the_schema() -> None:
    calls = EngineCalls(CONTRACTS["men"], DEFAULT_HOOKS)
    assert {"id", "token", "due_at", "lease_until"} <= set(calls.database.positions)
    assert len(JOBS) == 2
