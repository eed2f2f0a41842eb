"""Faults planted in the rules of the core: the tests find at least nine of ten, and each other one is explained."""

import ast
import json
import os
import re
import resource
from collections import Counter
from pathlib import Path

import pytest

from support.proof.mutants import COUNT, MODULES, _sites, _text, all_mutants, draw
from support.proof.mutation_map import MeasuredTest, choose
from support.proof.mutation_run import SURVIVED, explained, run

SHARE = 0.9
RECORDED = Path(__file__).with_name("mutation_result.json")
"""The result of the last drill, written by it."""
PAGE = Path(__file__).parents[2] / "docs" / "understand" / "guarantees.md"


@pytest.mark.long
def test_faults_in_the_counters_of_a_job_are_found(tmp_path: Path) -> None:
    """Few mutants and one file of tests: counters, a constant, which only a new import changes, and unreached code."""
    texts = ("after.failures += 1", "after.retries += 1", "MAX_COUNTED_FIRES = 1000", "_FIRST_HAND_BACK << min(len")
    mutants = [mutant for mutant in all_mutants() if mutant.before in texts[:3] or texts[3] in mutant.before]
    results = run(mutants, tmp_path / "run", ["core/test_decide.py"])
    for mutant, result in results.items():
        counter = mutant.before in texts[:2]
        unreached = "no test executes it" if mutant.function else "survived"
        assert result.startswith("killed tests/core/test_decide.py") if counter else result == unreached, mutant.name
    assert {mutant.function for mutant in mutants} == {"_charge", None, "after_not_bound"}


def test_a_mutant_meets_the_cheapest_tests_that_execute_its_lines() -> None:
    mutant = next(mutant for mutant in all_mutants() if mutant.before == "after.retries += 1")
    line = (mutant.module, mutant.lines.start)
    tests = [
        MeasuredTest("dear", 1.0, frozenset({line})),
        MeasuredTest("cases[1]", 0.001, frozenset({line})),
        MeasuredTest("cases[2]", 0.001, frozenset({line})),
        MeasuredTest("cheap", 0.002, frozenset({line})),
        MeasuredTest("elsewhere", 0.001, frozenset({(mutant.module, 1)})),
        MeasuredTest("endless", 100.0, frozenset({line})),
    ]
    assert [test.name for test in choose(mutant, tests)] == ["cases[1]", "cheap", "cases[2]", "dear"]


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


def test_the_draw_covers_every_module_and_explanations_name_mutants() -> None:
    drawn = draw(COUNT)
    assert len(drawn) == COUNT and {mutant.module for mutant in drawn} == set(MODULES)
    names = {mutant.name for mutant in all_mutants()}
    assert not explained().keys() - names, "this code has changed: remove the explanations"
    assert all(explained().values())


def test_the_guarantees_page_has_the_recorded_result() -> None:
    recorded = json.loads(RECORDED.read_text())
    text = " ".join(PAGE.read_text().split())
    match = re.search(r"of (\d+) mutants, (\d+) are killed and (\d+) survive", text)
    assert match, "the sentence with the result"
    assert [int(number) for number in match.groups()] == [recorded[name] for name in ("mutants", "killed", "survived")]
    assert recorded["mutants"] == COUNT and recorded["killed"] >= SHARE * COUNT


@pytest.mark.drill
def test_five_hundred_mutants(tmp_path: Path) -> None:
    """$MUTATION_FOLDER: keeps the measured tests for the next run, for as long as the mutated modules stay the same."""
    results = run(draw(COUNT), Path(os.environ.get("MUTATION_FOLDER") or tmp_path / "run"))
    survivors = [mutant for mutant, result in results.items() if result in SURVIVED]
    killed = len(results) - len(survivors)
    modules = {
        module: Counter(
            "survived" if result in SURVIVED else "killed"
            for mutant, result in results.items()
            if mutant.module == module
        )
        for module in MODULES
    }
    recorded = {"mutants": len(results), "killed": killed, "survived": len(survivors), "modules": modules}
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{(usage.ru_utime + usage.ru_stime) / 60:.1f} minutes of CPU time")
    print(json.dumps(recorded, indent=1), *(f"{results[mutant]}: {mutant.name}" for mutant in survivors), sep="\n")
    assert killed >= SHARE * COUNT == SHARE * len(results)
    assert not {mutant.name for mutant in survivors} - explained().keys(), "survivors that nobody has explained"
