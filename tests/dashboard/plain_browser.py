"""A browser that nobody observes: pages are opened over Chromium's debugging pipe, and the connection is detached.

Playwright observes the network of its pages, so that their processes keep the body of every response.
"""

import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.site import CHROMIUM_ARGUMENTS, NO_BROWSER, Site, find_chromium, stop_process


class PlainBrowser:
    """Sends commands of the Chrome DevTools Protocol, one at a time."""

    def __init__(self, commands: int, messages: int) -> None:
        self._commands, self._messages = commands, messages
        self._rest = b""
        self._number = 0

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        os.write(self._commands, json.dumps(command | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                result: dict[str, Any] = message["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._messages, 1 << 16)
            assert read, "the browser has ended"
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    @contextlib.contextmanager
    def attached(self, target: str) -> Iterator[str]:
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        try:
            yield session
        finally:
            self.send("Target.detachFromTarget", sessionId=session)

    def evaluate(self, session: str, script: str) -> Any:
        return self.send("Runtime.evaluate", session, expression=script, returnByValue=True)["result"].get("value")

    def open(self, site: Site, person: str, path: str) -> str:
        """Open a page in a browser context of its own, signed in, and wait until it is drawn; returns its target."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target: str = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        body = json.dumps({"token": site.tokens[person]}).encode()
        url, headers = f"{site.root_url}/api/v1/session", {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as response:
            answer = json.loads(response.read())
            name, _, value = response.headers["Set-Cookie"].partition(";")[0].partition("=")
        cookie = {"name": name, "value": value, "url": site.root_url, "httpOnly": True}
        self.send("Storage.setCookies", cookies=[cookie], browserContextId=context)
        entry = json.dumps(["detent-session /", json.dumps([answer["session"], answer["session_key"]])])
        with self.attached(target) as session:
            self._navigate(session, f"{site.root_url}/sign-in", "document.readyState === 'complete'")
            self.evaluate(session, f"sessionStorage.setItem(...{entry})")
            drawn = "document.querySelector('#page') !== null && !document.querySelector('#page[aria-busy]')"
            self._navigate(
                session, f"{site.root_url}/{path}", f"{drawn} && document.body.dataset.connection === 'live'"
            )
        return target

    def _navigate(self, session: str, url: str, is_ready: str) -> None:
        self.send("Page.navigate", session, url=url)
        deadline = time.monotonic() + 60
        while not self.evaluate(session, f"location.href === {json.dumps(url)} && {is_ready}"):
            assert time.monotonic() < deadline, f"{url} is not drawn"
            time.sleep(0.1)


@contextlib.contextmanager
def plain_browser(folder: Path) -> Iterator[PlainBrowser]:
    program = find_chromium()
    if program is None:
        pytest.skip(NO_BROWSER)
    commands, messages = os.pipe(), os.pipe()
    arguments = [program, *CHROMIUM_ARGUMENTS, f"--user-data-dir={folder / 'browser'}", "--remote-debugging-pipe"]
    shell = ["sh", "-c", f'exec "$@" 3<&{commands[0]} 4>&{messages[1]}', "sh", *arguments]
    with (folder / "browser.log").open("w") as log:
        process = subprocess.Popen(shell, pass_fds=(commands[0], messages[1]), stdout=log, stderr=log, text=True)
    os.close(commands[0])
    os.close(messages[1])
    try:
        yield PlainBrowser(commands[1], messages[0])
    finally:
        stop_process(process)
        os.close(commands[1])
        os.close(messages[0])
