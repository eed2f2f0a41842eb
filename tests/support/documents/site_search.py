"""Asks the search of the built site, in Chromium, as a reader does."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Page, expect


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *values: object) -> None:
        """Requests are not logged."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of the files of this folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def first_results(page: Page, address: str, question: str) -> list[str]:
    """The paths of the first five results for a question that is typed into the search field."""
    page.goto(address)
    field = page.locator("input.md-search__input")
    field.click()
    expect(page.locator(".md-search-result__meta")).not_to_have_text("Initializing search", timeout=30_000)
    field.press_sequentially(question)  # the page listens to keys
    expect(page.locator(".md-search-result__meta")).to_contain_text("match", timeout=8_000)
    links = page.locator(".md-search-result__item > .md-search-result__link")
    expect(links.first).to_be_attached()
    page.wait_for_timeout(700)  # results of the last letters replace those of the first
    found = [links.nth(number).get_attribute("href") or "" for number in range(min(5, links.count()))]
    return [link.partition("?")[0].removeprefix(address).strip("/") for link in found]
