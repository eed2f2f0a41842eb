"""Where news of alerts goes: the log, a webhook, a command. Each tells whether it got there; nobody retries here."""

import asyncio
import hmac
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from detent.core.alerts import SEVERITIES, Delivery, State
from detent.core.errors import InvalidInput

log = logging.getLogger("detent.alerts")
SIGNATURE = "Detent-Signature"
DELIVERY = "Detent-Delivery"


class Sink(Protocol):
    """One way to tell people."""

    def wants(self, severity: str) -> bool: ...

    async def tell(self, told: Delivery, now: int) -> str | None:
        """None: it arrived; else why not."""
        ...


@dataclass(frozen=True, slots=True)
class LogSink:
    severities: tuple[str, ...] = SEVERITIES

    def wants(self, severity: str) -> bool:
        return severity in self.severities

    async def tell(self, told: Delivery, now: int) -> str | None:
        body = json.loads(told.body)
        level = logging.INFO if body["state"] == State.RESOLVED else logging.WARNING
        log.log(level, "%s %s %s (%s): %s", body["severity"], told.rule, body["state"], told.subject, body["summary"])
        return None


@dataclass(frozen=True, slots=True)
class WebhookSink:
    """POST of the alert as JSON. Signed over time and body, so that a receiver can refuse forged and old ones."""

    url: str
    secret: str = ""
    timeout_seconds: float = 5.0
    severities: tuple[str, ...] = SEVERITIES

    def checked(self, name: str) -> "WebhookSink":
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            told = f"alerts.sinks.{name}: url must be http://… or https://…, got {self.url!r}"
            raise InvalidInput(told, code="SETTINGS_INVALID")
        return self

    def wants(self, severity: str) -> bool:
        return severity in self.severities

    async def tell(self, told: Delivery, now: int) -> str | None:
        body = told.body.encode()
        headers = {"Content-Type": "application/json", DELIVERY: told.id, "User-Agent": "detent"}
        if self.secret:
            headers[SIGNATURE] = sign(self.secret, now // 1_000_000, body)
        try:
            async with asyncio.timeout(2 * self.timeout_seconds):
                status = await asyncio.to_thread(self._post, body, headers)
        except TimeoutError:
            return f"no answer within {2 * self.timeout_seconds:g} s"
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return None if 200 <= status < 300 else f"answered with status {status}"

    def _post(self, body: bytes, headers: Mapping[str, str]) -> int:
        import http.client  # slow to import, and few processes ever tell a webhook

        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self.timeout_seconds)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, dict(headers))
            return connection.getresponse().status
        except http.client.HTTPException as error:
            raise ConnectionError(f"no HTTP answer: {error!r}") from error
        finally:
            connection.close()


def sign(secret: str, seconds: int, body: bytes) -> str:
    """t=<unix seconds>,v1=<hex of HMAC-SHA256 over "<t>.<body>">"""
    mac = hmac.new(secret.encode(), f"{seconds}.".encode() + body, "sha256")
    return f"t={seconds},v1={mac.hexdigest()}"


def signature_holds(secret: str, header: str, body: bytes, *, now: int, tolerance: int = 300) -> bool:
    """For receivers in Python: is this body ours, and not an old one sent again? now: unix seconds."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    if not parts.get("t", "").isdigit() or abs(now - int(parts["t"])) > tolerance:
        return False
    return hmac.compare_digest(sign(secret, int(parts["t"]), body), header)


@dataclass(frozen=True, slots=True)
class CommandSink:
    """Runs a program with the alert as JSON on its standard input; exit code 0 means it arrived."""

    command: tuple[str, ...]
    timeout_seconds: float = 10.0
    severities: tuple[str, ...] = SEVERITIES

    def checked(self, name: str) -> "CommandSink":
        if not self.command:
            raise InvalidInput(f"alerts.sinks.{name}: command names no program", code="SETTINGS_INVALID")
        return self

    def wants(self, severity: str) -> bool:
        return severity in self.severities

    async def tell(self, told: Delivery, now: int) -> str | None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            return f"{self.command[0]} cannot be started: {error}"
        try:
            async with asyncio.timeout(self.timeout_seconds):
                _, said = await process.communicate(told.body.encode())
        except TimeoutError:
            process.kill()
            await process.wait()
            return f"{self.command[0]} did not end within {self.timeout_seconds:g} s"
        if process.returncode == 0:
            return None
        return f"{self.command[0]} exited with {process.returncode}: {said.decode(errors='replace')[-200:].strip()}"
