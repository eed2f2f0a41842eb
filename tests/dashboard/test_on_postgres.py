"""The same workflows on Postgres: one on every run, the others as drills."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from dashboard import test_flows, test_operator_actions
from dashboard.site import Site, running_site
from support.servers.databases import house, newest

EVERY_RUN = {test_operator_actions.test_bulk_actions_on_dead_letters}
"""The workflow that depends most on the SQL of the store."""
FLOWS = [
    flow
    for module in (test_flows, test_operator_actions)
    for name, flow in vars(module).items()
    if name.startswith("test_") and "site" in flow.__annotations__
]


@pytest.fixture(scope="module")
def module_site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    database = house(newest()).database()
    with running_site(tmp_path_factory.mktemp("site"), browser, database.url) as started:
        yield started
    database.release()


def _marks(flow: Callable[[Site], None]) -> list[pytest.MarkDecorator]:
    return [] if flow in EVERY_RUN else [pytest.mark.drill]


@pytest.mark.parametrize("flow", [pytest.param(flow, id=flow.__name__[5:], marks=_marks(flow)) for flow in FLOWS])
def test_on_postgres(site: Site, flow: Callable[[Site], None]) -> None:
    assert site.database_url.startswith("postgresql:")
    flow(site)
