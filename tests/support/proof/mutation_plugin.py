"""A pytest plugin that runs the collected tests against mutants: `-p support.proof.mutation_plugin`.

$MUTANTS names a file of numbers of `draw`, $RESULTS a file for the results (one JSON line for each mutant).

The interpreter, Detent and the tests are loaded once. Each mutant is a fork in which the live function gets its changed
code; tests run until the first one fails. Tests that found the most mutants of a module run first. A mutant that cannot
be patched in (constants, code that ran at import) is loaded by an import hook: $MUTANT is its number then.
"""

import json
import os
import resource
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

import pytest

from support.proof.mutants import COUNT, PROCESSES, TESTS, Mutant, draw, patch, path, tests_of

CPU_SECONDS, LIMIT_SECONDS = 120, 900
"""A mutant that takes longer is killed: it loops, or waits for something that does not come."""
OTHERS = ("gate-b2", "-men", "p3c", "streams", "formal")
_failed: list[str] = []


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


def _install() -> None:
    """Load the mutant of $MUTANT. `draw` has imported packages of Detent: they are loaded anew."""
    number = os.environ.get("MUTANT")
    if number is not None:
        mutant = draw(COUNT)[int(number)]
        finder = _MutantLoader(mutant)
        for name in [name for name in sys.modules if name.partition(".")[0] == "detent"]:
            del sys.modules[name]
        sys.meta_path.insert(0, finder)


_install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the engine's tests with one case for each contract, those of `standard`: the core's tests have the others."""
    items[:] = [
        item for item in items if item.path.parent.name != "engine" or not any(name in item.name for name in OTHERS)
    ]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.append(report.nodeid)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if "MUTANTS" not in os.environ:
        return None
    with open(os.environ["MUTANTS"]) as file:
        numbers = json.load(file)
    mutants = draw(COUNT)
    with open(os.environ["RESULTS"], "a") as results:
        Forks(session, results).run([(number, mutants[number]) for number in numbers])
    return True


class Forks:
    """Runs mutants in forks, as many at once as there are cores."""

    def __init__(self, session: pytest.Session, results) -> None:  # type: ignore[no-untyped-def]
        self.session = session
        self.results = results
        self.kills: dict[str, Counter[str]] = {}
        self.running: dict[int, tuple[int, Mutant | None, int, float]] = {}
        """Read end of the pipe -> number, mutant, process, start."""

    def run(self, mutants: list[tuple[int, Mutant]]) -> None:
        waiting: list[tuple[int, Mutant | None]] = [(-1, None), *reversed(mutants)]
        self.start(*waiting.pop(0))  # without a change: all tests pass, or every result would be wrong
        while waiting or self.running:
            while waiting and len(self.running) < PROCESSES:
                self.start(*waiting.pop())
            ready, _, _ = select.select(list(self.running), [], [], 1.0)
            for pipe in ready:
                self.finish(pipe)
            for *_, process, begun in self.running.values():
                if time.monotonic() - begun > LIMIT_SECONDS:
                    os.kill(process, signal.SIGKILL)  # its pipe is closed, which `finish` reads as a kill

    def start(self, number: int, mutant: Mutant | None) -> None:
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(read)
            self.child(write, mutant)
        os.close(write)
        self.running[read] = (number, mutant, process, time.monotonic())

    def child(self, write: int, mutant: Mutant | None) -> None:
        """Run the tests and answer: the name of the one that failed, "survived", or "unpatched"."""
        answer = "unpatched"
        try:
            if mutant is not None:
                resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            if mutant is None or patch(mutant):
                answer = self.first_failure(self.ordered(mutant))
        except BaseException as error:
            answer = f"killed {type(error).__name__}"
        finally:
            os.write(write, answer.encode())
            os._exit(0)

    def first_failure(self, items: list[pytest.Item]) -> str:
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if _failed:
                return f"killed {_failed[0]}"
        return "survived"

    def ordered(self, mutant: Mutant | None) -> list[pytest.Item]:
        """The tests of the module: those with kills first, then those of the core."""
        if mutant is None:
            return self.session.items
        files, kills = tests_of(mutant.module), self.kills.get(mutant.module, Counter())
        items = [item for item in self.session.items if item.path.relative_to(TESTS).as_posix() in files]
        return sorted(
            items, key=lambda item: (-kills[item.nodeid], files.index(item.path.relative_to(TESTS).as_posix()))
        )

    def finish(self, pipe: int) -> None:
        number, mutant, process, begun = self.running.pop(pipe)
        answer = os.read(pipe, 10_000).decode() or "killed by a crash or a timeout"
        os.close(pipe)
        os.waitpid(process, 0)
        seconds = round(time.monotonic() - begun, 2)
        if mutant is None:
            assert answer == "survived", f"without a change: {answer}"
        else:
            self.kills.setdefault(mutant.module, Counter())[answer.removeprefix("killed ")] += 1
        print(json.dumps({"number": number, "result": answer, "seconds": seconds}), file=self.results, flush=True)
