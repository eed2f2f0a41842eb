"""The same flows over Postgres: the one that leans on its SQL the most each time, all others among the drills."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser
from servers.databases import house, newest

from dashboard import test_flows, test_operating
from dashboard.site import Site, site

EACH_TIME = {test_operating.test_dead_letters_by_the_dozen}
FLOWS = [
    flow
    for module in (test_flows, test_operating)
    for name, flow in vars(module).items()
    if name.startswith("test_") and "here" in flow.__annotations__
]


@pytest.fixture(scope="module")
def running(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    database = house(newest()).database()
    with site(tmp_path_factory.mktemp("site"), browser, database.url) as made:
        yield made
    database.release()


def _marks(flow: Callable[[Site], None]) -> list[pytest.MarkDecorator]:
    return [] if flow in EACH_TIME else [pytest.mark.drill]


@pytest.mark.parametrize("flow", [pytest.param(flow, id=flow.__name__[5:], marks=_marks(flow)) for flow in FLOWS])
def test_on_postgres(here: Site, flow: Callable[[Site], None]) -> None:
    assert here.url.startswith("postgresql:")
    flow(here)
