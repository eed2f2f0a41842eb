"""axe-core finds nothing on any view of the dashboard. The npm package is installed into a temporary folder."""

import itertools
from collections.abc import Iterable, Iterator

import pytest
from playwright.sync_api import Browser, Page

from dashboard.views import VIEWS, Data, View, sites_with_data
from detent.web.pages import pages
from support.servers.programs import node_packages

AXE = "axe-core@4.11.0"
RUN = """async (options) => (await axe.run(document, {resultTypes: ["violations"], ...options})).violations.map(
  ({id, nodes}) => `${id}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""
CONTRAST = {"runOnly": ["color-contrast"]}


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = node_packages(tmp_path_factory.mktemp("axe"), AXE)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def data(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    with sites_with_data(tmp_path_factory.mktemp("sites"), browser) as started:
        yield started


def problems_of(data: Data, views: Iterable[View], axe: str, locale: str) -> dict[str, list[str]]:
    """What axe finds in each view; in the dark theme its contrast only."""
    problems: dict[str, list[str]] = {}
    for (is_empty, person), group in itertools.groupby(views, lambda view: (view.is_empty, view.person)):
        site = data.empty if is_empty else data.full
        page = site.sign_in(person, "", locale=locale, color_scheme="light")
        page.context.add_init_script(axe)
        for view in group:
            page.emulate_media(color_scheme="light")
            data.show(page, view)
            found: list[str] = page.evaluate(RUN, {})
            page.emulate_media(color_scheme="dark")
            found += page.evaluate(RUN, CONTRAST)
            if found:
                problems[view.name] = found
        site.close_contexts()
    return problems


def test_every_route_of_the_dashboard_has_a_view() -> None:
    routes = {route.path for route in pages.router.routes if "{name:path}" not in route.path}
    assert len(routes) > 15 and {view.route for view in VIEWS} == {*routes, "/docs"}
    assert len({view.name for view in VIEWS}) == len(VIEWS)


@pytest.mark.drill
def test_axe_finds_a_control_without_a_name(data: Data, axe: str) -> None:
    def plant(page: Page) -> None:
        page.evaluate("document.querySelector('#keys-button').removeAttribute('aria-label')")
        page.evaluate("document.querySelector('#keys-button').removeAttribute('title')")

    assert list(problems_of(data, [View("planted", "/", "", plant)], axe, "en-US")) == ["planted"]


@pytest.mark.drill
def test_axe_finds_nothing_on_any_view(data: Data, axe: str) -> None:
    assert problems_of(data, VIEWS, axe, "en-US") == {}


@pytest.mark.drill
def test_axe_finds_nothing_in_chinese(data: Data, axe: str) -> None:
    assert problems_of(data, [view for view in VIEWS if view.is_main], axe, "zh-CN") == {}
