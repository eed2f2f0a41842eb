"""Faults planted in the rules of the core: the tests find at least nine of ten, and each other one is explained."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from support.proof.mutants import COUNT, MODULES, _sites, _text, draw
from support.proof.mutation_run import explained, run, run_in_forks

SHARE = 0.9


def test_faults_in_the_counters_of_a_job_are_found(tmp_path: Path) -> None:
    """The first stage, with few mutants and one file of tests. A fork cannot change a constant of a module."""
    drawn = draw(COUNT)
    numbers = [n for n, mutant in enumerate(drawn) if mutant.before in ("after.failures += 1", "after.retries += 1")]
    constant = next(n for n, mutant in enumerate(drawn) if mutant.function is None)
    results = run_in_forks([*numbers, constant], tmp_path, ["core/test_decide.py"])
    assert len(numbers) > 2 and results.pop(-1) == "survived", "without a change the tests pass"
    assert results.pop(constant) == "unpatched"
    assert all(result.startswith("killed tests/core/test_decide.py") for result in results.values()), results


def test_the_kinds_of_faults() -> None:
    changed = set()
    text = "def f(a, b):\n    if a < 1 and not b:\n        a.x = 'key'\n        g(a)\n    return a + 1 if b else True\n"
    for statement, change in _sites(ast.parse(text)):
        before = _text(statement.node)
        undo = change()
        changed.add((before, "pass" if statement.deleted else _text(statement.node)))
        undo()
    condition, result = "if a < 1 and (not b)", "return a + 1 if b else True"
    assert changed == {
        (condition, "if a <= 1 and (not b)"),
        (condition, "if a < 1 or not b"),
        (condition, "if a < 2 and (not b)"),
        (condition, "if a < 1 and (not not b)"),
        ("a.x = 'key'", "a.x = 'XXkey'"),
        ("a.x = 'key'", "pass"),
        ("g(a)", "pass"),
        (result, "return None"),
        (result, "return a - 1 if b else True"),
        (result, "return a + 2 if b else True"),
        (result, "return a + 1 if not b else True"),
        (result, "return a + 1 if b else False"),
    }


def test_the_draw_covers_every_module_and_explanations_name_drawn_mutants() -> None:
    drawn = draw(COUNT)
    assert len(drawn) == COUNT and {mutant.module for mutant in drawn} == set(MODULES)
    names = {mutant.name for mutant in drawn}
    assert not explained().keys() - names, "these mutants are no longer drawn: remove their explanations"
    assert all(explained().values())


@pytest.mark.drill
def test_five_hundred_mutants(tmp_path: Path) -> None:
    results = run(range(COUNT), tmp_path)
    survivors = [mutant.name for mutant, result in results.items() if result == "survived"]
    kinds = Counter(mutant.module for mutant, result in results.items() if result == "survived")
    print(f"\n{len(results)} mutants, {len(results) - len(survivors)} killed; survivors: {dict(kinds)}")
    print("\n".join(survivors))
    assert len(results) - len(survivors) >= SHARE * len(results)
    assert not set(survivors) - explained().keys(), "survivors that nobody has explained"
