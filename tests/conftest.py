"""Fixtures for all tests, the order in which files run, and the list of skipped tests at the end of a run."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from support.fixtures import url as url
from support.servers.ending import AT_THE_END

_not_run: dict[str, list[str]] = {}
"""What was missing -> the tests that needed it and did not run."""
NOT_RUN_FILE = "DETENT_NOT_RUN_FILE"
"""Names a file for the ids of tests that did not run; CI runs them again where the missing programs are on PATH."""
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # the run was started in the background; child processes would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops the servers that the tests started

HERE = Path(__file__).parent
LONG = (
    "proof/test_simulate.py",
    "proof/test_explore.py",
    "proof/test_planted_bugs.py",
    "properties/test_machine.py",
    "postgres/test_large_tables.py",
    "dashboard/test_flows.py",
    "postgres/test_outage.py",
)
"""Long files start first, the longest first of all: one that starts last would leave a core idle."""
_THROWING = {"proof", "testing", "children", "durable_execution"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {HERE / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


def pytest_collection_finish() -> None:
    """Excludes what exists after collection from garbage collection, which saves time after every test."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    AT_THE_END.close()


@pytest.fixture(autouse=True)
def collect_abandoned_coroutines(request: pytest.FixtureRequest) -> Iterator[None]:
    """Simulated crashes leave coroutines behind. Collected while CPython 3.11 parses, it miscounts its depth."""
    yield
    if _THROWING & set(request.node.path.parts):
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Coroutine tests (marked anyio) share one asyncio loop."""
    return "asyncio"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        _not_run.setdefault(report.longrepr[2].removeprefix("Skipped: "), []).append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if file := os.environ.get(NOT_RUN_FILE):
        Path(file).write_text("".join(f"{test}\n" for tests in _not_run.values() for test in tests))
    if _not_run:
        terminalreporter.section("not everything was tested", sep="!")
        for missing, tests in sorted(_not_run.items()):
            terminalreporter.line(f"{len(tests)} {'TEST' if len(tests) == 1 else 'TESTS'} DID NOT RUN: {missing}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Captured output travels to the xdist controller as UTF-8; some tests print bytes that are not."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
