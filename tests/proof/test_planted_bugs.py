"""Every planted bug is found: by the explorer within so many states, by the simulator within so many seeds."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.proof.explore.explore import explore
from detent.proof.planted_bugs import BUGS
from detent.proof.simulate.simulate import Run, run_seed, shrink


@dataclass(frozen=True)
class Found:
    """Where a bug is found at the latest; None: that instrument does not see it (or, for `under`, any contract)."""

    contract: str = "standard"
    states: int | None = 3_000
    steps: int = 12
    seeds: int = 2
    under: str | None = None


FOUND = {
    "settle-without-token": Found(states=20_000, seeds=20, under="formal"),
    "event-without-row": Found(),
    "row-without-event": Found(),
    "version-not-raised": Found(),
    "retry-count-not-raised": Found(),
    "loss-not-charged": Found(seeds=10),
    "live-lease-expired": Found(),
    "lost-twice-forgotten": Found(states=None, seeds=10),
    "wait-misses-signal": Found(seeds=10, under="formal"),
    "zombie-step": Found(states=None, seeds=15, under="streams"),
    "once-not-begun": Found(states=None, seeds=15, under="streams"),
    "parent-misses-child": Found(states=None, seeds=12, under="formal"),
    "dead-letter-forgotten": Found(),
    "second-final-event": Found(),
    "lost-submit": Found(),
    "heartbeat-revives": Found(seeds=10, under="formal"),
    "backoff-ignored": Found(),
    "time-runs-back": Found(states=None, seeds=10),
    "limit-counted-early": Found(states=None, seeds=10),
    "late-cancel": Found(seeds=6, under="formal"),
    "fire-without-compare": Found(states=None, seeds=10),
}
"""Budgets are two to three times what was measured, so that other luck does not matter."""


def test_every_bug_is_in_the_table_and_somebody_finds_it() -> None:
    assert FOUND.keys() == BUGS.keys() and len(BUGS) >= 8


@pytest.mark.parametrize("name", [name for name, found in FOUND.items() if found.states])
def test_the_explorer_finds(name: str) -> None:
    budget = FOUND[name]
    assert budget.states is not None
    found = explore(CONTRACTS[budget.contract], states=budget.states, hooks=BUGS[name].hooks)
    assert found.violation is not None, f"{found.states} states, and {name} was not found"
    assert 0 < len(found.violation.path) <= budget.steps, found.violation.path


@pytest.mark.parametrize("name", FOUND)
def test_the_simulator_finds(name: str) -> None:
    runs = list(_until_broken(name, FOUND[name]))
    assert not runs[-1].ok, f"{len(runs)} seeds, and {name} was not found"
    assert runs[-1].violations[0].rule


def _until_broken(name: str, budget: Found) -> Iterator[Run]:
    for seed in range(budget.seeds):
        run = run_seed(seed, contract=budget.under, hooks=BUGS[name].hooks)
        yield run
        if not run.ok:
            return


def test_a_failing_seed_is_made_small() -> None:
    bug = BUGS["retry-count-not-raised"].hooks
    run = run_seed(0, hooks=bug)
    small = shrink(run, bug)
    assert not small.ok and small.violations[0].rule == run.violations[0].rule
    assert small.config.jobs <= 2 and small.config.workers == 1 and small.config.seconds <= 4
    assert not small.config.faults and not small.config.operators
    assert run_seed(0, hooks=bug).digest == run.digest


def test_bugs_are_not_in_the_honest_parts() -> None:
    """A bug is a subclass of its own; the classes everyone else uses are left as they are."""
    from detent.proof.controlled_store import HONEST
    from detent.stores.sqlite.claim import SqliteTx

    assert HONEST.transaction is SqliteTx
    for bug in BUGS.values():
        assert issubclass(bug.hooks.transaction, SqliteTx) and bug.hooks.transaction is not SqliteTx
        assert bug.says and bug.hooks.transaction.__module__ == "detent.proof.bugs"
