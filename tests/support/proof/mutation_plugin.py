"""A pytest plugin that runs the collected tests against mutants: `-p support.proof.mutation_plugin`.

$MUTATION is the folder of the run. The collected tests run once, and the lines that each one executes are recorded.
Then each mutant is a fork of this process, in which the live function gets its changed code and the tests that execute
the changed lines run, the cheapest first, until one fails. The interpreter, Detent and the tests are loaded only once.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from support.proof.mutants import Mutant, all_mutants, patch
from support.proof.mutation_forks import PROCESSES, in_forks
from support.proof.mutation_map import Contracts, Line, MeasuredTest, Trace, choose, cpu, lines_of, read, write

CPU_SECONDS, CPU_FACTOR = 3.0, 10
"""A test that needs this many seconds more, and times as many, does not end: the mutant is killed."""
AT_IMPORT, UNREACHED = "at import", "no test executes it"
_failed: list[str] = []
_only: dict[str, float] = {}
"""Name of a test -> its seconds; if not empty, these tests run, the cheapest first."""
# An example that fails is not made smaller, and not stored for the next mutant. A busy machine kills no mutant.
settings.register_profile(
    "mutation",
    phases=(Phase.explicit, Phase.generate),
    database=None,
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("mutation")
_import_trace = Trace()
if "MUTATION" in os.environ:
    _import_trace.start()
_imported: set[Line] = set()


def run_only(tests: Sequence[MeasuredTest]) -> None:
    _only.update({test.name: test.seconds for test in tests})


def first_failed() -> str | None:
    return _failed[0] if _failed else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _only:
        items[:] = sorted((item for item in items if item.nodeid in _only), key=lambda item: _only[item.nodeid])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if "MUTATION" in os.environ:
        _imported.update(_import_trace.stop())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.append(report.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if _only:
        end_after(_only[item.nodeid])


def end_after(seconds: float) -> None:
    """End this process if the next test needs much more CPU time than it should."""
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS + CPU_FACTOR * seconds)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if "MUTATION" not in os.environ:
        return None
    run = WarmRun(session, Path(os.environ["MUTATION"]))
    run.measure()
    run.write_modules()
    run.mutate(json.loads((run.folder / "numbers").read_text()))
    return True


class WarmRun:
    """Mutants in forks of a process that has collected the tests."""

    def __init__(self, session: pytest.Session, folder: Path) -> None:
        self.items = {item.nodeid: item for item in session.items}
        self.folder = folder
        self.tests: list[MeasuredTest] = []
        self.contracts = Contracts()
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # shared: a fork would empty it
        if stores := sys.modules.get("support.stores"):
            stores._migrated()  # the file that tests on SQLite copy

    def measure(self) -> None:
        """Run all tests once. They pass, or every mutant would be killed."""
        file = self.folder / "map"
        names = sorted(self.items.keys() - {test.name for test in read(file)})
        parts = [names[number::PROCESSES] for number in range(PROCESSES)]
        answers: list[str] = []
        in_forks(
            [(number, partial(self._measure, part, file)) for number, part in enumerate(parts)],
            lambda key, answer, seconds: answers.append(answer),
            wall_seconds=3_000,
        )
        assert all(answer == "passed" for answer in answers), answers
        self.tests = [test for test in read(file) if test.name in self.items]

    def _measure(self, names: list[str], file: Path) -> str:
        trace, measured = Trace(), []
        for name, following in zip(names, [*names[1:], ""], strict=False):
            self.contracts.forget_tables()
            begun = cpu()
            trace.start()
            self._run(name, following)
            lines = trace.stop()
            measured.append(MeasuredTest(name, round(cpu() - begun, 4), frozenset(lines)))
            if _failed:
                return f"without a change: {_failed[0]}"
        write(file, measured)
        return "passed"

    def _run(self, name: str, following: str) -> None:
        item = self.items[name]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=self.items.get(following))

    def write_modules(self) -> None:
        """For the second stage: what a process can load before it loads the changed module."""
        own = ("detent", "support", "conftest", "__main__")
        folders = {item.path.parent.name for item in self.items.values()}
        names = [name for name in sys.modules if name.partition(".")[0] not in {*own, *folders}]
        (self.folder / "modules").write_text(json.dumps(names))

    def mutate(self, numbers: list[int]) -> None:
        mutants = all_mutants()
        with (self.folder / "results").open("a") as results:

            def report(number: int, answer: str, seconds: float) -> None:
                row = {"number": number, "result": answer, "seconds": round(seconds, 2)}
                print(json.dumps(row), file=results, flush=True)

            in_forks(self._tasks([(number, mutants[number]) for number in numbers]), report)

    def _tasks(self, mutants: list[tuple[int, Mutant]]) -> Iterator[tuple[int, Callable[[], str]]]:
        for number, mutant in mutants:
            yield number, partial(self._first_failure, mutant, choose(mutant, self.tests))

    def _first_failure(self, mutant: Mutant, tests: list[MeasuredTest]) -> str:
        """The test that fails. "at import": the changed code ran before it was changed, or cannot be replaced."""
        at_import = not _imported.isdisjoint(lines_of(mutant))
        if not patch(mutant):
            return AT_IMPORT
        for test, following in zip(tests, [*tests[1:], None], strict=False):
            self.contracts.forget_tables()
            end_after(test.seconds)
            self._run(test.name, following.name if following else "")
            if _failed:
                return f"killed {_failed[0]}"
        return AT_IMPORT if at_import else "survived" if tests else UNREACHED
