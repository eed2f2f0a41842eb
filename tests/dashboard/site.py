"""A server with a worker in a process of its own, people with tokens, and a browser that looks at it."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect
from web.served import SOURCES, first_json

from detent.web.pages.pages import PAGES

NO_BROWSER = "the dashboard is tested in chromium: set DETENT_TEST_CHROMIUM or install one (apt install chromium)"
HANDLERS = str(Path(__file__).parent / "handlers.py")
SIDE_HANDLERS = str(Path(__file__).parent / "side_handlers.py")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PEOPLE = {
    "boss": ("admin", {}),
    "ana": ("operator", {}),
    "ben": ("operator", {}),
    "rui": ("reviewer", {}),
    "vic": ("viewer", {}),
    "blind": ("viewer", {"payloads": False}),
    "tina": ("operator", {"tenant": "a"}),
}


def chromium() -> str | None:
    """The browser: named, or on the path; None where there is none."""
    named = os.environ.get("DETENT_TEST_CHROMIUM")
    if named:
        return named
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass
class Site:
    """A running server as its people see it."""

    at: str
    browser: Browser
    folder: Path
    url: str = ""
    tokens: dict[str, str] = field(default_factory=dict)
    contexts: list[BrowserContext] = field(default_factory=list)

    def call(self, method: str, path: str, body: Any = None, who: str = "boss") -> Any:
        """The API, past the browser."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.at}/api/v1/{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        if who in self.tokens:
            request.add_header("Authorization", f"Bearer {self.tokens[who]}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"{}")

    def submit(self, job_type: str, payload: dict[str, Any] | None = None, **more: Any) -> str:
        made = self.call("POST", "jobs", {"job_type": job_type, "payload": payload or {}, **more})
        return str(made["job"]["id"])

    def ended(self, job_id: str) -> dict[str, Any]:
        """The job once it has ended; the server tells when, nobody sleeps."""
        url = f"{self.at}/api/v1/events/stream?job_id={job_id}&after=0"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.tokens['boss']}"})
        with urllib.request.urlopen(request, timeout=30) as stream:
            for line in stream:
                if line.startswith(b"data: "):
                    job: dict[str, Any] = self.call("GET", f"jobs/{job_id}")
                    if job["phase"] == "final":
                        return job
        raise AssertionError("the stream ended")

    def dead_letter(self, card: str = "bad") -> str:
        """A dead letter of a job that failed for good."""
        job = self.ended(self.submit("charge", {"card": card}, contract="gate-b2", queue="billing"))
        return str(job["dlq_id"])

    def context(self, **options: Any) -> BrowserContext:
        options.setdefault("viewport", {"width": 1280, "height": 900})
        options.setdefault("locale", "en-US")
        made = self.browser.new_context(**options)
        made.set_default_timeout(15_000)
        self.contexts.append(made)
        return made

    def signed_in(self, who: str, path: str = "", **options: Any) -> Page:
        """A page in a browser context of this person's own, with the cookie that signing in gives."""
        context = self.context(**options)
        cookie = {"name": "detent_session", "value": self.tokens[who], "url": self.at, "httpOnly": True}
        context.add_cookies([{**cookie, "sameSite": "Strict"}])  # type: ignore[list-item]
        page = context.new_page()
        watch(page)
        self.open(page, path)
        return page

    def open(self, page: Page, path: str) -> None:
        page.goto(f"{self.at}/{path}")
        settled(page)

    def close_contexts(self) -> None:
        for context in self.contexts:
            context.close()
        self.contexts.clear()


def watch(page: Page) -> None:
    """Scripts that break or are refused make the test fail, when it looks at `page.troubles`."""
    troubles: list[str] = []
    page.troubles = troubles  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.append(said.text) if "Content Security Policy" in said.text else None)


def settled(page: Page) -> None:
    """The page has drawn what it loads."""
    expect(page.locator("#page[aria-busy]")).to_have_count(0)


def untroubled(*pages: Page) -> None:
    for page in pages:
        assert page.troubles == []  # type: ignore[attr-defined]


def status(page: Page) -> Locator:
    """The job's or the letter's status at the head of its page."""
    return page.locator("#page .badge").first


def ended(process: "subprocess.Popen[str]") -> None:
    """Gone, in good order or not: nothing here waits for ever, and nothing is left behind."""
    process.terminate()
    try:
        process.wait(30)
    finally:
        process.kill()
        if process.stdout is not None:
            process.stdout.close()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCES, "PYTHONUNBUFFERED": "1"}


@contextmanager
def site(folder: Path, browser: Browser, url: str | None = None, *, people: bool = True) -> Iterator[Site]:
    """`detent up` with the handlers of these tests on a database of its own."""
    command = [sys.executable, "-m", "detent", "up", f"{HANDLERS}:app", "--port", "0", "--json"]
    url = url or f"sqlite:///{folder / 'pages.db'}"
    command += ["--url", url]
    with (folder / "up.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True
        )
        made = None
        try:
            made = Site(str(first_json(process)["at"]), browser, folder, url)
            for name, (role, more) in PEOPLE.items() if people else ():
                body = {"name": name, "role": role, **more}
                made.tokens[name] = made.call("POST", "tokens", body)["token"]
            yield made
        finally:
            if made is not None:
                made.close_contexts()
            ended(process)


def addresses(site: Site) -> dict[str, str]:
    """Every page by name, with something to look at where its address names one."""
    dead_letter = site.dead_letter()
    job = site.call("GET", f"dlq/items/{dead_letter}")["job_id"]
    fill = {"job_id": job, "dlq_id": dead_letter, "name": "standard"}
    return {page.name: page.path.lstrip("/").format(**fill) for page in PAGES}
