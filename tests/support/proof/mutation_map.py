"""Which test executes which lines of the mutated modules, and its CPU time; recorded by `sys.settrace`."""

import gc
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from .mutants import MODULES, Mutant, path

Line = tuple[str, int]
"""Module and line number."""
CPU_OF_A_MUTANT = 6.0
"""Seconds. A mutant is shown the cheapest tests that execute its lines, up to this much CPU time."""
CPU_OF_ANOTHER_CASE = 0.002
"""Seconds by which another case of the same test is put back."""
NEAREST_FILES = 4
CPU_OF_A_TEST = 2.0
"""Seconds. A test that takes longer is not used."""


class Trace:
    """Records the executed lines of the mutated modules, in all threads that start later."""

    def __init__(self) -> None:
        self._lines: set[Line] = set()
        self._modules = {os.path.realpath(path(module)): module for module in MODULES}
        self._module_of_code: dict[CodeType, str | None] = {}

    def start(self) -> None:
        self._lines = set()
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)

    def stop(self) -> set[Line]:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        return self._lines

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if code not in self._module_of_code:
            self._module_of_code[code] = self._modules.get(os.path.realpath(code.co_filename))
        module = self._module_of_code[code]
        if module is None:
            return None
        add = self._lines.add

        def on_line(frame: FrameType, event: str, argument: object) -> Any:
            add((module, frame.f_lineno))
            return on_line

        return on_line


@dataclass(frozen=True)
class MeasuredTest:
    """seconds: of CPU, while it was traced."""

    name: str
    seconds: float
    lines: frozenset[Line]


class Contracts:
    """The contracts that exist after collection. Their tables are cached, so a changed function would not be called."""

    def __init__(self) -> None:
        model = sys.modules["detent.core.contract.model"]
        self._all = [value for value in gc.get_objects() if isinstance(value, model.Contract)]
        self._tables = [name for name, value in vars(model.Contract).items() if isinstance(value, cached_property)]
        self._key_space = model.key_space

    def forget_tables(self) -> None:
        self._key_space.cache_clear()
        for contract in self._all:
            for name in self._tables:
                vars(contract).pop(name, None)


def lines_of(mutant: Mutant) -> set[Line]:
    return {(mutant.module, line) for line in mutant.lines}


def choose(mutant: Mutant, tests: Iterable[MeasuredTest]) -> list[MeasuredTest]:
    """The tests that execute the changed lines, the cheapest first, within the CPU time of a mutant."""
    lines = lines_of(mutant)
    return cheapest(test for test in tests if not lines.isdisjoint(test.lines))


def cheapest(tests: Iterable[MeasuredTest]) -> list[MeasuredTest]:
    """The cheapest tests first. Of a test with many cases a few, before tests that take longer."""
    cases: Counter[str] = Counter()
    order = []
    for test in sorted(tests, key=lambda test: test.seconds):
        function = test.name.partition("[")[0]
        order.append((test.seconds + cases[function] * CPU_OF_ANOTHER_CASE, test.name, test))
        cases[function] += 1
    chosen, left = [], CPU_OF_A_MUTANT
    for _, _, test in sorted(order, key=lambda row: row[:2]):
        left -= test.seconds
        if left < 0 or test.seconds > CPU_OF_A_TEST:
            break
        chosen.append(test)
    return chosen


def nearest(module: str, tests: Iterable[MeasuredTest]) -> list[MeasuredTest]:
    """The tests of the files that execute the most lines of this module."""
    tests = list(tests)
    lines: dict[str, set[Line]] = {}
    for test in tests:
        lines.setdefault(_file(test), set()).update(line for line in test.lines if line[0] == module)
    files = sorted(lines, key=lambda file: -len(lines[file]))[:NEAREST_FILES]
    return cheapest(test for test in tests if _file(test) in files)


def _file(test: MeasuredTest) -> str:
    return test.name.partition("::")[0]


def read(file: Path) -> list[MeasuredTest]:
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [MeasuredTest(name, seconds, frozenset(map(tuple, rows))) for name, seconds, rows in lines]


def write(file: Path, tests: Iterable[MeasuredTest]) -> None:
    with file.open("a") as opened:
        for test in tests:
            print(json.dumps([test.name, test.seconds, sorted(test.lines)]), file=opened)


def cpu() -> float:
    return time.process_time()
