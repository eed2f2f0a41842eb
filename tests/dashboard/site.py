"""A server with a worker in its own process, tokens for several people, and a browser."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from detent.web.pages.pages import PAGES
from support import SUPPORT
from support.web.served import SOURCES, first_json

NO_BROWSER = "the dashboard is tested in chromium: set DETENT_TEST_CHROMIUM or install one (apt install chromium)"
HANDLERS = str(Path(__file__).parent / "handlers.py")
SECOND_WORKER_HANDLERS = str(Path(__file__).parent / "second_worker_handlers.py")
CHROMIUM_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LONGEST_JOB_SECONDS = 60.0
PEOPLE = {
    "boss": ("admin", {}),
    "ana": ("operator", {}),
    "ben": ("operator", {}),
    "rui": ("reviewer", {}),
    "vic": ("viewer", {}),
    "blind": ("viewer", {"payloads": False}),
    "tina": ("operator", {"tenant": "a"}),
}
"""Name -> role and further fields of the token."""


def find_chromium() -> str | None:
    """The browser that DETENT_TEST_CHROMIUM names, or the first one on PATH."""
    named = os.environ.get("DETENT_TEST_CHROMIUM")
    if named:
        return named
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass
class Site:
    """A running server, the tokens of its users, and the browser."""

    root_url: str
    browser: Browser
    folder: Path
    database_url: str = ""
    tokens: dict[str, str] = field(default_factory=dict)
    contexts: list[BrowserContext] = field(default_factory=list)

    def call(self, method: str, path: str, body: Any = None, person: str = "boss") -> Any:
        """Call the REST API without the browser."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.root_url}/api/v1/{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        if person in self.tokens:
            request.add_header("Authorization", f"Bearer {self.tokens[person]}")
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read() or b"{}")

    def submit(self, job_type: str, payload: dict[str, Any] | None = None, **fields: Any) -> str:
        submitted = self.call("POST", "jobs", {"job_type": job_type, "payload": payload or {}, **fields})
        return str(submitted["job"]["id"])

    def wait_until_final(self, job_id: str) -> dict[str, Any]:
        """The job after it has ended; follows the event stream instead of polling."""
        url = f"{self.root_url}/api/v1/events/stream?job_id={job_id}&after=0"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.tokens['boss']}"})
        end = time.monotonic() + LONGEST_JOB_SECONDS
        with urllib.request.urlopen(request, timeout=30) as stream:
            for line in stream:
                if line.startswith(b"data: "):
                    job: dict[str, Any] = self.call("GET", f"jobs/{job_id}")
                    if job["phase"] == "final":
                        return job
                # The stream sends a heartbeat every 15 s, so that its read never times out.
                assert time.monotonic() < end, f"job {job_id} has not finished: {self.call('GET', f'jobs/{job_id}')}"
        raise AssertionError("the stream ended")

    def create_dead_letter(self, card: str = "bad") -> str:
        """Submit a job that fails permanently; returns the id of its dead letter."""
        job = self.wait_until_final(self.submit("charge", {"card": card}, contract="gate-b2", queue="billing"))
        return str(job["dlq_id"])

    def new_context(self, **options: Any) -> BrowserContext:
        options.setdefault("viewport", {"width": 1280, "height": 900})
        options.setdefault("locale", "en-US")
        context = self.browser.new_context(**options)
        context.set_default_timeout(15_000)
        self.contexts.append(context)
        return context

    def sign_in(self, person: str, path: str = "", **options: Any) -> Page:
        """A page in a new browser context that has this person's session: its cookie, and its key in every tab."""
        context = self.new_context(**options)
        answer = context.request.post(f"{self.root_url}/api/v1/session", data={"token": self.tokens[person]}).json()
        stored = json.dumps(["detent-session /", json.dumps([answer["session"], answer["session_key"]])])
        context.add_init_script(f"if (location.protocol !== 'about:') sessionStorage.setItem(...{stored})")
        page = context.new_page()
        record_errors(page)
        self.open(page, path)
        return page

    def open(self, page: Page, path: str) -> None:
        page.goto(f"{self.root_url}/{path}")
        wait_until_drawn(page)

    def close_contexts(self) -> None:
        for context in self.contexts:
            context.close()
        self.contexts.clear()


def record_errors(page: Page) -> None:
    """Collect script errors and Content-Security-Policy violations in `page.script_errors`."""
    errors: list[str] = []
    page.script_errors = errors  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console", lambda message: errors.append(message.text) if "Content Security Policy" in message.text else None
    )


def wait_until_drawn(page: Page) -> None:
    expect(page.locator("#page[aria-busy]")).to_have_count(0)


def assert_no_errors(*pages: Page) -> None:
    for page in pages:
        assert page.script_errors == []  # type: ignore[attr-defined]


def status_badge(page: Page) -> Locator:
    """The status at the top of the page of a job or a dead letter."""
    return page.locator("#page .badge").first


def stop_process(process: "subprocess.Popen[str]") -> None:
    """Terminate the process; kill it if it does not exit within 60 seconds; a job of a failed test may take 25."""
    process.terminate()
    try:
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def child_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCES, str(SUPPORT.parent)]), "PYTHONUNBUFFERED": "1"}


@contextmanager
def second_worker(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own. Its lease is short, because it reads its commands with each heartbeat."""
    command = [sys.executable, "-m", "detent", "worker", f"{SECOND_WORKER_HANDLERS}:app", "--url", site.database_url]
    with (site.folder / "worker.log").open("w") as log:
        worker = subprocess.Popen(
            [*command, "--lease-seconds", "4"], cwd=site.folder, env=child_environment(), stdout=log, stderr=log
        )
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait(30)


@contextmanager
def running_site(folder: Path, browser: Browser, database_url: str | None = None) -> Iterator[Site]:
    """Run `detent up` with the handlers of these tests, by default on a new SQLite database."""
    database_url = database_url or f"sqlite:///{folder / 'pages.db'}"
    command = [sys.executable, "-m", "detent", "up", f"{HANDLERS}:app", "--port", "0", "--json", "--url", database_url]
    with (folder / "up.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=child_environment(), stdout=subprocess.PIPE, stderr=log, text=True
        )
        started = None
        try:
            started = Site(str(first_json(process)["at"]), browser, folder, database_url)
            for name, (role, fields) in PEOPLE.items():
                started.tokens[name] = started.call("POST", "tokens", {"name": name, "role": role, **fields})["token"]
                rotated = started.call("POST", "tokens/rotate", {"token": started.tokens[name]}, person=name)
                started.tokens[name] = rotated["token"]
            yield started
        finally:
            if started is not None:
                started.close_contexts()
            stop_process(process)


def page_paths(site: Site) -> dict[str, str]:
    """The path of every page by its name; pages of one object show a dead letter and its job."""
    dead_letter = site.create_dead_letter()
    job = site.call("GET", f"dlq/items/{dead_letter}")["job_id"]
    parameters = {"job_id": job, "dlq_id": dead_letter, "name": "standard"}
    paths = {page.name: page.path.lstrip("/").format(**parameters) for page in PAGES}
    worker = site.call("GET", "workers")["items"][0]["id"]
    return paths | {
        "queue": "queue?name=billing",
        "job_type": "type?name=charge",
        "worker": f"worker?name={worker}",
        "enqueue": "enqueue?name=purchase",
    }
