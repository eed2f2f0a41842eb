"""Every planted bug is detected: by the explorer within a budget of states, by the simulator within one of seeds."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.proof.explore.explore import explore
from detent.proof.explore.handlers import Scenario
from detent.proof.planted_bugs import BUGS
from detent.proof.simulate.simulate import Run, run_seed, shrink


@dataclass(frozen=True)
class Budget:
    """The effort within which a bug must be detected."""

    contract: str = "standard"
    """The contract explored."""
    states: int | None = 3_000
    """None: the explorer does not detect it."""
    steps: int = 12
    slots: int = 1
    jobs: int | None = None
    scenario: Scenario = Scenario.JOBS
    """The size of the exploration."""
    seeds: int | None = 2
    """None: the simulator does not detect it."""
    simulated: str | None = None
    """The contract simulated; None: drawn by the seed."""


BUDGETS = {
    "settle-without-token": Budget(states=20_000, seeds=100, simulated="men"),
    "event-without-row": Budget(),
    "row-without-event": Budget(),
    "version-not-raised": Budget(),
    "retry-count-not-raised": Budget(),
    "loss-not-charged": Budget(seeds=10),
    "live-lease-expired": Budget(),
    "lost-twice-forgotten": Budget(states=None, seeds=60),
    "wait-misses-signal": Budget(seeds=10, simulated="formal"),
    "zombie-step": Budget(scenario=Scenario.ONCE, seeds=15, simulated="streams"),
    "lost-job-runs-on": Budget(states=None, seeds=100),
    "lease-reclaimed-early": Budget(states=None, seeds=4),
    "late-result-accepted": Budget(states=6_000, slots=2, jobs=1, seeds=None),
    "reply-of-another-lease": Budget("men", 6_000, slots=2, jobs=1, seeds=None),
    "once-not-begun": Budget("men", 30_000, 13, scenario=Scenario.ONCE, seeds=30, simulated="streams"),
    "step-not-found": Budget("men", 10_000, scenario=Scenario.STEP, seeds=2),
    "quorum-ignored": Budget(scenario=Scenario.APPROVAL, seeds=10, simulated="standard"),
    "parent-misses-child": Budget(scenario=Scenario.CHILD, seeds=12, simulated="formal"),
    "dead-letter-forgotten": Budget(),
    "second-final-event": Budget(),
    "lost-submit": Budget(),
    "heartbeat-revives": Budget(seeds=10, simulated="formal"),
    "backoff-ignored": Budget(),
    "time-runs-back": Budget(states=None, seeds=10),
    "limit-counted-early": Budget(states=None, seeds=10),
    "late-cancel": Budget(seeds=6, simulated="formal"),
    "fire-without-compare": Budget(states=None, seeds=10),
    "prune-too-early": Budget(states=None, seeds=10),
    "interruption-not-counted": Budget(states=None, seeds=10),
    "requeue-not-marked": Budget(states=None, seeds=10),
    "quota-counted-early": Budget(states=None, seeds=15),
    "batch-torn": Budget(states=None, seeds=60),
    "other-version-fails": Budget(states=None, seeds=15),
    "heartbeat-trusted-late": Budget(states=None, seeds=2),
    "restart-not-noticed": Budget(states=None, seeds=30, simulated="streams"),
    "outbox-deleted-early": Budget(states=None, seeds=10, simulated="streams"),
    "retry-not-published": Budget(states=None, seeds=10, simulated="streams"),
    "pause-ignored": Budget(states=None, seeds=2),
    "signal-replaced": Budget(states=None, seeds=20),
    "backoff-halved": Budget(states=None, seeds=2),
    "dead-letter-not-noted": Budget(states=None, seeds=2, simulated="streams"),
    "refusal-not-noted": Budget(states=None, seeds=10),
    "result-not-stored": Budget(states=None, seeds=2),
    "payload-of-another": Budget(states=None, seeds=2),
    "option-forgotten": Budget(states=None, seeds=2),
    "cancel-request-forgotten": Budget(states=None, seeds=30, simulated="standard"),
    "lease-outlasts-timeout": Budget(states=None, seeds=2),
    "claim-too-large": Budget(states=None, seeds=2),
    "stopped-worker-claims": Budget(states=None, seeds=6),
    "suspect-not-alone": Budget(states=None, seeds=25, simulated="men"),
    "retry-given-up": Budget(states=None, seeds=2),
    "failure-for-good-retried": Budget(states=None, seeds=2),
    "cancel-not-passed-on": Budget(states=None, seeds=10),
    "slot-freed-early": Budget(states=None, seeds=6),
    "requeue-loses-effect-keys": Budget(states=None, seeds=2),
    "requeue-loses-payload": Budget(states=None, seeds=2),
    "dead-letter-reopened": Budget(states=None, seeds=4, simulated="streams"),
    "newest-first": Budget(states=None, seeds=6),
    "wait-timeout-not-recorded": Budget(states=None, seeds=15),
    "signal-wakes-nobody": Budget(seeds=10),
    "overlap-ignored": Budget(states=None, seeds=25),
    "missed-run-made": Budget(states=None, seeds=120),
    "suspect-forgotten": Budget(states=None, seeds=30),
    "parent-woken-early": Budget(states=None, seeds=4, simulated="standard"),
    "children-run-on": Budget(states=None, seeds=10, simulated="standard"),
    "rejection-forgotten": Budget(scenario=Scenario.APPROVAL, seeds=None),
    "ack-before-commit": Budget(states=None, seeds=10, simulated="streams"),
    "retry-delay-dropped": Budget(states=None, seeds=10),
    "signal-not-written": Budget(states=None, seeds=10),
    "signal-data-lost": Budget(states=None, seeds=30, simulated="standard"),
    "child-results-swapped": Budget(states=None, seeds=4, simulated="standard"),
    "decision-inverted": Budget(states=None, seeds=4, simulated="standard"),
    "vote-not-written": Budget(states=None, seeds=80, simulated="standard"),
    "cancel-not-written": Budget(states=None, seeds=10, simulated="standard"),
    "wait-cut-short": Budget(states=None, seeds=15),
    "open-dead-letter-pruned": Budget(states=None, seeds=90),
}
"""Two to three times what was measured, so that other random numbers do not matter."""
LONG = {
    "settle-without-token", "lost-job-runs-on", "lost-twice-forgotten", "parent-misses-child", "batch-torn",
    "restart-not-noticed", "once-not-begun", "outbox-deleted-early", "retry-not-published", "signal-replaced",
    "cancel-request-forgotten", "suspect-not-alone", "overlap-ignored", "missed-run-made", "suspect-forgotten",
    "wait-timeout-not-recorded", "cancel-not-passed-on", "signal-wakes-nobody", "rejection-forgotten",
    "slot-freed-early", "dead-letter-reopened", "newest-first", "children-run-on",
    "signal-data-lost", "vote-not-written", "open-dead-letter-pruned",
}  # fmt: skip


def _named(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in names]


def test_every_bug_has_a_budget() -> None:
    assert BUDGETS.keys() == BUGS.keys() and len(BUGS) >= 30


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
