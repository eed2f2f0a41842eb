"""Runs mutants: all in forks of one pytest process, then those that survived in processes of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .mutants import COUNT, MODULES, PROCESSES, TESTS, Mutant, draw, tests_of

EXPLAINED = TESTS / "proof" / "surviving_mutants.txt"
_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "not postgres and not thread")
_PLUGIN = ("-p", "support.proof.mutation_plugin")
_SECONDS = 600


def run(numbers: Iterable[int], folder: Path) -> dict[Mutant, str]:
    """The result of each of these mutants of `draw`: the test that failed, or `survived`."""
    drawn, numbers = draw(COUNT), list(numbers)
    results = run_in_forks(numbers, folder, _all_tests())
    unclear = [
        n for n in numbers if results[n] == "unpatched" or (results[n] == "survived" and _runs_at_import(drawn[n]))
    ]
    with ThreadPoolExecutor(PROCESSES) as pool:
        for number, result in zip(unclear, pool.map(lambda n: _alone(n, drawn[n]), unclear), strict=True):
            results[number] = result
    return {drawn[number]: results[number] for number in numbers}


def _runs_at_import(mutant: Mutant) -> bool:
    """Contracts are built, and their tables cached, when they are imported: a fork has those of the unchanged code."""
    return mutant.module.endswith((".model", ".retry"))


def explained() -> dict[str, str]:
    """Name of a mutant -> why no test can or should find it. One line each: the name, a tab, the reason."""
    lines = EXPLAINED.read_text("utf-8").splitlines()
    return dict(line.split("\t") for line in lines if line and not line.startswith("#"))


def _all_tests() -> list[str]:
    return list(dict.fromkeys(file for module in MODULES for file in tests_of(module)))


def run_in_forks(numbers: list[int], folder: Path, files: list[str]) -> dict[int, str]:
    """Number -> the test that failed, `survived`, or `unpatched`."""
    (folder / "mutants").write_text(json.dumps(numbers))
    results = folder / "results"
    environment = os.environ | {"MUTANTS": str(folder / "mutants"), "RESULTS": str(results)}
    done = _pytest(files, environment, None)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    return {line["number"]: line["result"] for line in lines}


def _alone(number: int, mutant: Mutant) -> str:
    """With a new interpreter, so that constants and what runs at import are changed too."""
    result = _run_alone(number, mutant)
    if file := os.environ.get("MUTATION_LOG"):
        with open(file, "a") as log:
            print(json.dumps({"number": number, "result": result}), file=log)
    return result


def _run_alone(number: int, mutant: Mutant) -> str:
    try:
        done = _pytest(tests_of(mutant.module), os.environ | {"MUTANT": str(number)}, _SECONDS)
    except subprocess.TimeoutExpired:
        return "killed by a timeout"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "survived" if done.returncode == 0 else f"killed {(failed or ['when it was loaded'])[0]}"


def _pytest(files: list[str], environment: dict[str, str], seconds: float | None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *_PLUGIN, *_OPTIONS, *(str(TESTS / file) for file in files)]
    environment = environment | {"PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(command, env=environment, cwd=TESTS.parent, capture_output=True, text=True, timeout=seconds)
