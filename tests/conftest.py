"""What every test of the project may ask for; and a plain word at the end if there was no browser."""

import gc
import signal
from collections.abc import Generator, Iterator

import pytest
from web_pages.missing import NO_BROWSER

_not_run: set[str] = set()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: processes of ours would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)


_THROWING = {"proof", "contrib", "family", "durable"}


@pytest.fixture(autouse=True)
def broken_off_coroutines_end_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """Played crashes leave coroutines behind. Collected while CPython 3.11 parses, they make it miscount its depth."""
    yield
    if _THROWING & set(request.node.path.parts):
        gc.collect()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Coroutine tests (marked anyio) share one asyncio loop."""
    return "asyncio"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple) and NO_BROWSER in str(report.longrepr[2]):
        _not_run.add(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _not_run:
        terminalreporter.section("the browser tests did not run", sep="!")
        terminalreporter.line(f"THE {len(_not_run)} BROWSER TESTS OF THE DASHBOARD DID NOT RUN: {NO_BROWSER}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test printed travels to another process, and some print what is no Unicode."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
