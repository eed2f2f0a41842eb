"""Runs mutants: in forks of one warm pytest process, then those whose code runs at import in processes that load it.

    python -m support.proof.mutation_run FOLDER [NUMBER ...]     all mutants of `all_mutants`, or these

keeps the recorded tests and the results in the folder, for a look at survivors.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

from .mutants import Mutant, all_mutants, path
from .mutation_forks import in_forks
from .mutation_map import MeasuredTest, cheapest, nearest, read

TESTS = Path(__file__).parents[2]
EXPLAINED = TESTS / "proof" / "surviving_mutants.txt"
_ENGINE = (
    "settle leases cancel wake signals timeouts suspects dead_letters transition submit failure_codes backoff schedules"
    " limits keys task_ids approvals quotas output settle_again claim steps prune"
)
CHOSEN = (
    "core",
    *(f"engine/test_{name}.py" for name in _ENGINE.split()),
    "client/test_limits.py",
    "client/test_contract_options.py",
    "properties/test_corners.py",
    "proof/test_verify_contracts.py",
)
"""Below tests/. Of these, the cases that need no server."""
_WITHOUT = "not postgres and not thread and not process"
_OPTIONS = (
    "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "support.proof.mutation_plugin", "-k", _WITHOUT,
    "--hypothesis-seed=1", "--tb=no", "-o", "tmp_path_retention_policy=none",
)  # fmt: skip
UNCHANGED = -1
"""The number of a run of the second stage without a mutant, which must survive."""
SURVIVED = ("survived", "no test executes it")


def run(mutants: Iterable[Mutant], folder: Path, files: Sequence[str] = CHOSEN) -> dict[Mutant, str]:
    """The result of each of these mutants: `killed` and the test that failed, or one of SURVIVED."""
    numbers = {mutant: number for number, mutant in enumerate(all_mutants())}
    wanted = {numbers[mutant]: mutant for mutant in mutants}
    folder.mkdir(exist_ok=True)
    (folder / "results").unlink(missing_ok=True)
    (folder / "numbers").write_text(json.dumps(sorted(wanted)))
    _python(["-m", "pytest", *_OPTIONS, f"--basetemp={folder / 'warm'}", *_paths(files)], folder)
    results = _results(folder)
    anew = [number for number in wanted if results[number] == "at import"]
    (folder / "numbers").write_text(json.dumps(anew))
    _python(["-m", "support.proof.mutation_run", str(folder)], folder)
    results = _results(folder)
    errors = {number: result for number, result in results.items() if result.startswith("error")}
    assert results[UNCHANGED] == "survived" and not errors, (results[UNCHANGED], errors)
    return {mutant: results[number] for number, mutant in wanted.items()}


def explained() -> dict[str, str]:
    """Name of a mutant -> why no test can find it. One line each: the name, a tab, the reason."""
    lines = EXPLAINED.read_text("utf-8").splitlines()
    return dict(line.split("\t") for line in lines if line and not line.startswith("#"))


def _paths(files: Iterable[str]) -> list[str]:
    return [str(TESTS / file) for file in files]


def _python(arguments: list[str], folder: Path) -> None:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"MUTATION": str(folder), "PYTHONPATH": path, "PYTHONHASHSEED": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def _results(folder: Path) -> dict[int, str]:
    lines = [json.loads(line) for line in (folder / "results").read_text().splitlines()]
    return {line["number"]: line["result"] for line in lines}


class _MutantLoader(MetaPathFinder, Loader):
    """Finds and loads one module with its change."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.code = mutant.code()
        self.file = str(path(mutant.module))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self, origin=self.file) if fullname == self.mutant.module else None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = self.file
        exec(self.code, module.__dict__)  # noqa: S102


def _load_and_test(mutant: Mutant | None, tests: list[MeasuredTest], folder: Path) -> str:
    """In a fork that has not loaded Detent: load it with the change, collect the tests, and run them."""
    import pytest

    from . import mutation_plugin

    if mutant:
        sys.meta_path.insert(0, _MutantLoader(mutant))
    mutation_plugin.run_only(tests)
    files = list(dict.fromkeys(str(TESTS.parent / test.name.partition("::")[0]) for test in tests))
    # Detent is a plugin, so pytest would load it past the loader of the mutant to rewrite its assertions.
    no_rewriting = "--assert=plain"
    code = pytest.main([*_OPTIONS, no_rewriting, f"--basetemp={folder / f'alone-{os.getpid()}'}", *files])
    if code == pytest.ExitCode.OK:
        return "survived"
    return f"killed {mutation_plugin.first_failed() or 'when it was loaded'}"


def _second_stage(folder: Path) -> None:
    """First the files of tests nearest to the module, then, for mutants that survive them, all that were measured."""
    os.environ.pop("MUTATION")
    for name in json.loads((folder / "modules").read_text()):
        with suppress(Exception):
            import_module(name)
    assert not [name for name in sys.modules if name.partition(".")[0] == "detent"]
    mutants, tests = all_mutants(), read(folder / "map")
    numbers = json.loads((folder / "numbers").read_text())
    with (folder / "results").open("a") as results:

        def report(number: int, answer: str, seconds: float) -> None:
            row = {"number": number, "result": answer, "seconds": round(seconds, 2)}
            print(json.dumps(row), file=results, flush=True)

        near = {module: nearest(module, tests) for module in {mutants[number].module for number in numbers}}
        in_forks(((n, partial(_load_and_test, mutants[n], near[mutants[n].module], folder)) for n in numbers), report)
        every, survived = cheapest(tests), [n for n in numbers if _results(folder)[n] in SURVIVED]
        in_forks([(UNCHANGED, partial(_load_and_test, None, every, folder))], report)
        in_forks(((n, partial(_load_and_test, mutants[n], every, folder)) for n in survived), report)


if __name__ == "__main__":
    _second_stage(Path(sys.argv[1]))
