"""Sessions in the browser: reload, new tabs, sign-out, expiry, revocation, and servers on other ports of the host."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import apsw
import pytest
from playwright.sync_api import Browser, Page, expect

from dashboard.site import Site, assert_no_errors, record_errors, wait_until_drawn
from support.web.served import serving

STORED = "sessionStorage.getItem('detent-session /')"


def sign_in(page: Page, site: Site, person: str, path: str = "jobs") -> None:
    """Sign in as a person does, on the sign-in page."""
    record_errors(page)
    page.goto(f"{site.root_url}/{path}")
    page.fill("#token", site.tokens[person])
    page.press("#token", "Enter")
    page.wait_for_url(f"{site.root_url}/{path}")
    wait_until_drawn(page)


def expect_live(page: Page) -> None:
    """The page shows data and follows the event stream."""
    wait_until_drawn(page)
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")


@pytest.mark.long
def test_reload_and_new_tabs(site: Site) -> None:
    context = site.new_context()
    page = context.new_page()
    sign_in(page, site, "ana")
    expect_live(page)
    page.reload()
    expect_live(page)
    tab = context.new_page()  # gets the key from the first one
    record_errors(tab)
    site.open(tab, "queues")
    expect_live(tab)
    assert tab.evaluate(STORED) == page.evaluate(STORED)
    assert_no_errors(page, tab)
    page.close()
    tab.close()
    alone = context.new_page()  # no tab has the key any more
    alone.goto(f"{site.root_url}/queues")
    alone.wait_for_url(f"{site.root_url}/sign-in?next=queues")
    sign_in(alone, site, "ana", "queues")
    expect_live(alone)


@pytest.mark.drill
def test_signing_out_ends_the_session_in_all_tabs(site: Site) -> None:
    context = site.new_context()
    page, tab = context.new_page(), context.new_page()
    sign_in(page, site, "ana")
    site.open(tab, "queues")
    expect_live(tab)
    cookies, stored = context.cookies(), page.evaluate(STORED)
    page.click(".user-menu summary")
    page.click("#sign-out")
    page.wait_for_url(f"{site.root_url}/sign-in")
    assert page.evaluate(STORED) is None
    tab.reload()
    tab.wait_for_url(f"{site.root_url}/sign-in?next=queues")
    thief = site.new_context()
    thief.add_cookies(cookies)  # type: ignore[arg-type]
    thief.add_init_script(f"sessionStorage.setItem('detent-session /', {stored!r})")
    old = thief.new_page()
    old.goto(f"{site.root_url}/jobs")
    assert "/sign-in?next=jobs" in old.url


@pytest.mark.drill
def test_signing_in_again_moves_the_other_tabs_to_the_new_session(site: Site) -> None:
    context = site.new_context()
    page, tab = context.new_page(), context.new_page()
    sign_in(page, site, "ana")
    site.open(tab, "jobs")
    expect_live(tab)
    page.goto(f"{site.root_url}/sign-in?next=jobs")
    page.fill("#token", site.tokens["ben"])
    page.press("#token", "Enter")
    page.wait_for_url(f"{site.root_url}/jobs")
    # The old session has ended: the other tab goes to the sign-in, which gets the new key and returns.
    tab.fill("#filter", "queue:mail")
    expect(tab.locator(".user-name")).to_have_text("ben")
    expect_live(tab)
    expect(tab).to_have_url(re.compile("/jobs"))


@pytest.mark.parametrize("end", ["expiry", "revocation"])
def test_an_ended_session_returns_to_the_sign_in(site: Site, end: str) -> None:
    created = site.call("POST", "tokens", {"name": "guest", "role": "operator"})
    site.tokens["guest"] = created["token"]
    page = site.new_context().new_page()
    sign_in(page, site, "guest")
    expect_live(page)
    if end == "revocation":
        site.call("POST", f"tokens/{created['id']}/revoke", {})
    else:
        expire_sessions(site, created["id"])
    page.locator("#filter").fill("queue:mail")
    page.wait_for_url(re.compile("/sign-in"))
    assert page.evaluate(STORED) is None
    expect(page.locator("#token")).to_be_visible()


def expire_sessions(site: Site, token_id: str) -> None:
    connection = apsw.Connection(site.database_url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(10_000)
    connection.execute("UPDATE detent_sessions SET expires_at = 0 WHERE token_id = ?", (token_id,))
    assert connection.changes() == 1
    connection.close()


@pytest.mark.drill
def test_a_server_on_another_port_cannot_use_the_session(site: Site) -> None:
    """It gets the cookie, as all ports of a host do, but not the key."""
    context = site.new_context()
    page = context.new_page()
    sign_in(page, site, "boss")
    with other_server() as (at, requests):
        tab = context.new_page()
        tab.goto(at)
        expect(tab.locator("h1")).to_have_text("other")
        cookie = requests[0]["Cookie"]
        assert "detent_session=" in cookie, "the test needs a browser that sends the cookie"
        assert tab.evaluate(STORED) is None
        # Its pages cannot ask the tabs of the dashboard for the key either: channels belong to an origin.
        answer = """async (label) => {
          const channel = new BroadcastChannel("detent-session /");
          const answered = new Promise((resolve) => channel.onmessage = ({ data }) => resolve(data));
          channel.postMessage({ wanted: label });
          return Promise.race([answered, new Promise((resolve) => setTimeout(() => resolve("none"), 700))]);
        }"""
        label = page.locator("body").get_attribute("data-session")
        assert label and tab.evaluate(answer, label) == "none"
        for path in ("jobs", "tokens", "events/stream"):
            with pytest.raises(HTTPError, match="401"):
                urlopen(Request(f"{site.root_url}/api/v1/{path}", headers={"Cookie": cookie}), timeout=10)
    page.reload()
    expect_live(page)


@pytest.mark.drill
def test_behind_a_trusted_proxy(browser: Browser, tmp_path: Path) -> None:
    """A person whom the proxy has signed in needs no session. Over HTTPS the cookie is bound to the host."""
    settings = {
        "DETENT_TRUSTED_PROXIES": "127.0.0.1",
        "DETENT_PROXY_PERSON_HEADER": "X-Forwarded-Email",
        "DETENT_PROXY_ROLE_HEADER": "X-Forwarded-Groups",
    }
    with serving(tmp_path, f"sqlite:///{tmp_path}/jobs.db", **settings) as at:
        site = Site(at, browser, tmp_path)
        try:
            admin = {"X-Forwarded-Email": "ann@x.example", "X-Forwarded-Groups": "admin"}
            page = site.new_context(extra_http_headers=admin).new_page()
            record_errors(page)
            site.open(page, "tokens")
            expect_live(page)
            expect(page.locator(".user-name")).to_have_text("ann@x.example")
            created = page.request.post(f"{at}/api/v1/tokens", data={"name": "ben", "role": "operator"}, headers=admin)
            site.tokens["ben"] = created.json()["token"]
            other = site.new_context(extra_http_headers={"X-Forwarded-Proto": "https"}).new_page()
            sign_in(other, site, "ben")
            expect_live(other)
            (cookie,) = other.context.cookies()
            assert cookie["name"] == "__Host-detent_session" and cookie["secure"] and cookie["path"] == "/"
            assert_no_errors(page, other)
        finally:
            site.close_contexts()


@contextmanager
def other_server() -> Iterator[tuple[str, list[Any]]]:
    """A server on another port of 127.0.0.1; yields its URL and the headers of the requests it gets."""
    requests: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.headers)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<h1>other</h1>")

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
