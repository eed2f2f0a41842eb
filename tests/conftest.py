"""What every test of the project may ask for; and a plain word at the end about what did not run."""

import gc
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from servers.ending import AT_THE_END

_not_run: Counter[str] = Counter()
"""What was missing -> how many tests that needed it did not run."""
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: processes of ours would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.default_int_handler)  # who is told to stop takes its servers and folders along

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
"""Files that go first: were one of them the last, a processor would be idle while it runs. The longest first."""
_THROWING = {"proof", "testing", "children", "durable_execution"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {HERE / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


def pytest_collection_finish() -> None:
    """What is there now stays to the end: the collector of garbage need not look through it after every test."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    AT_THE_END.close()


@pytest.fixture(autouse=True)
def broken_off_coroutines_end_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """Played crashes leave coroutines behind. Collected while CPython 3.11 parses, they make it miscount its depth."""
    yield
    if _THROWING & set(request.node.path.parts):
        gc.collect()
        gc.freeze()  # what has survived need not be looked through after the next test


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Coroutine tests (marked anyio) share one asyncio loop."""
    return "asyncio"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        _not_run[report.longrepr[2].removeprefix("Skipped: ")] += 1


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _not_run:
        terminalreporter.section("not everything was tested", sep="!")
        for missing, number in sorted(_not_run.items()):
            terminalreporter.line(f"{number} {'TEST' if number == 1 else 'TESTS'} DID NOT RUN: {missing}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test printed travels to another process, and some print what is no Unicode."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
