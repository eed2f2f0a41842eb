"""Every planted bug is detected: by the explorer within a budget of states, by the simulator within one of seeds."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.proof.explore.explore import explore
from detent.proof.planted_bugs import BUGS
from detent.proof.simulate.simulate import Run, run_seed, shrink
from support.proof.bug_budgets import BEGIN, BUDGETS, END, Budget, table
from support.proof.exploration_table import PAGE

LONG = {
    "settle-without-token", "lost-job-runs-on", "lost-twice-forgotten", "parent-misses-child", "batch-torn",
    "restart-not-noticed", "once-not-begun", "outbox-deleted-early", "retry-not-published", "signal-replaced",
    "cancel-request-forgotten", "suspect-not-alone", "overlap-ignored", "missed-run-made", "suspect-forgotten",
    "wait-timeout-not-recorded", "cancel-not-passed-on", "signal-wakes-nobody", "rejection-forgotten",
    "slot-freed-early", "dead-letter-reopened", "newest-first", "children-run-on",
    "signal-data-lost", "vote-not-written", "open-dead-letter-pruned", "expiry-approves",
}  # fmt: skip


def _named(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in names]


def test_every_bug_has_a_budget() -> None:
    assert BUDGETS.keys() == BUGS.keys() and len(BUGS) >= 30


def test_the_guarantees_page_has_every_bug_and_its_budget() -> None:
    assert BEGIN + table() + END in PAGE.read_text(), "`make explored` writes the table"


@pytest.mark.parametrize("name", _named(name for name, budget in BUDGETS.items() if budget.states))
def test_the_explorer_detects(name: str) -> None:
    budget = BUDGETS[name]
    assert budget.states is not None
    size: dict[str, Any] = {"states": budget.states, "slots": budget.slots, "jobs": budget.jobs}
    result = explore(CONTRACTS[budget.contract], hooks=BUGS[name].hooks, scenario=budget.scenario, **size)
    assert result.violation is not None, f"{name} was not detected in {result.states} states"
    assert 0 < len(result.path) <= budget.steps, result.path


@pytest.mark.parametrize("name", _named(name for name, budget in BUDGETS.items() if budget.seeds))
def test_the_simulator_detects(name: str) -> None:
    runs = list(_until_violation(name, BUDGETS[name]))
    assert not runs[-1].ok, f"{name} was not detected with {len(runs)} seeds"
    assert runs[-1].violations[0].rule


def _until_violation(name: str, budget: Budget) -> Iterator[Run]:
    for seed in range(budget.seeds or 0):
        run = run_seed(seed, contract=budget.simulated, hooks=BUGS[name].hooks)
        yield run
        if not run.ok:
            return


def test_a_failing_seed_is_shrunk() -> None:
    bug = BUGS["retry-count-not-raised"].hooks
    run = run_seed(0, hooks=bug)
    small = shrink(run, bug)
    assert not small.ok and small.violations[0].rule == run.violations[0].rule
    assert small.config.jobs <= 2 and small.config.workers == 1 and small.config.seconds <= 4
    assert not small.config.faults and not small.config.operators
    assert run_seed(0, hooks=bug).digest == run.digest


def test_bugs_are_subclasses_and_do_not_patch_the_real_classes() -> None:
    from detent.proof.controlled_store import DEFAULT_HOOKS
    from detent.stores.sqlite.claim import SqliteTx
    from detent.worker.state import WorkerState

    assert DEFAULT_HOOKS.transaction is SqliteTx and DEFAULT_HOOKS.state is WorkerState
    for bug in BUGS.values():
        if bug.hooks.acknowledges_early:  # a bug of the simulated stream worker
            assert bug.hooks == replace(DEFAULT_HOOKS, acknowledges_early=True)
            continue
        real = SqliteTx if bug.hooks.state is WorkerState else WorkerState
        planted = bug.hooks.transaction if real is SqliteTx else bug.hooks.state
        assert issubclass(planted, real) and planted is not real
        assert bug.description and planted.__module__.startswith("detent.proof.planted_")
