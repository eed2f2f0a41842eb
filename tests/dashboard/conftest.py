"""One browser per package, one server per module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from dashboard.site import CHROMIUM_ARGUMENTS, NO_BROWSER, Site, find_chromium, running_site


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


@pytest.fixture(scope="module")
def module_site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("site"), browser) as started:
        yield started


@pytest.fixture
def site(module_site: Site) -> Iterator[Site]:
    """The module's server. Browser contexts that the test opened are closed after it."""
    yield module_site
    module_site.close_contexts()
