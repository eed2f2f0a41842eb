"""One browser for the run, one server for each module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from dashboard.site import ARGUMENTS, NO_BROWSER, Site, chromium, site


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Gone before tests of other packages begin: while it is there, no other event loop can run in this thread."""
    path = chromium()
    if path is None:
        pytest.skip(NO_BROWSER)
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
