"""One browser per package, one server per module."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from dashboard.site import CHROMIUM_ARGUMENTS, NO_BROWSER, Site, find_chromium, running_site

TEST_SECONDS, DRILL_SECONDS = 200.0, 2_600.0
"""Less than the timeout of faulthandler, which ends the whole run."""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Closed before the tests of other packages start: while it is open, no other event loop can run in this thread."""
    path = find_chromium()
    if path is None:
        pytest.skip(NO_BROWSER)
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(autouse=True)
def _bounded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kill the browser of a test that takes too long.

    Opening and closing pages and evaluating scripts have no timeout of their own: they would wait forever for a browser
    that does not answer. With the browser gone they raise, and the test fails with the line it waited in.
    """
    if "browser" not in request.fixturenames:
        yield
        return
    session = request.getfixturevalue("browser").new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    (pid,) = (process["id"] for process in processes if process["type"] == "browser")
    seconds = DRILL_SECONDS if request.node.get_closest_marker("drill") else TEST_SECONDS
    watchdog = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


@pytest.fixture(scope="module")
def module_site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("site"), browser) as started:
        yield started


@pytest.fixture
def site(module_site: Site) -> Iterator[Site]:
    """The module's server. Browser contexts that the test opened are closed after it."""
    yield module_site
    module_site.close_contexts()
