"""One browser for the run, one server for each module; and a plain word at the end if there was no browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from web_pages.site import ARGUMENTS, Site, chromium, site

_MISSING = "no chromium: set DETENT_TEST_CHROMIUM or install one (apt install chromium)"
_not_run: set[str] = set()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Gone before tests of other packages begin: while it is there, no other event loop can run in this thread."""
    path = chromium()
    if path is None:
        pytest.skip(_MISSING)
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def running(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("site"), browser) as made:
        yield made


@pytest.fixture
def here(running: Site) -> Iterator[Site]:
    """The module's server; whatever this test opened in the browser is closed after it."""
    yield running
    running.close_contexts()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple) and _MISSING in str(report.longrepr[2]):
        _not_run.add(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _not_run:
        terminalreporter.section("the browser tests did not run", sep="!")
        terminalreporter.line(f"THE {len(_not_run)} BROWSER TESTS OF THE DASHBOARD DID NOT RUN: {_MISSING}")
