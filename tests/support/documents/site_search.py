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


def first_result(page: Page, address: str, question: str) -> str:
    """The path and section of the first result for a question that is typed into the search field.

    If the page is found with its sections, the section with the highest score is the result.
    """
    page.goto(address)
    field = page.locator("input.md-search__input")
    field.click()
    expect(page.locator(".md-search-result__meta")).not_to_have_text("Initializing search", timeout=30_000)
    field.fill(question[:-1])
    field.press(question[-1])  # the page listens to keys; one key, so that there is one query
    expect(page.locator(".md-search-result__meta")).to_contain_text("match", timeout=8_000)
    item = page.locator(".md-search-result__item").first
    expect(item).to_be_attached()
    page.wait_for_timeout(300)
    links = [link.get_attribute("href") or "" for link in item.locator(".md-search-result__link").all()]
    sections = [link for link in links if "#" in link] or links
    path, _, anchor = sections[0].removeprefix(address).partition("#")
    return f"{path.partition('?')[0]}#{anchor}"
