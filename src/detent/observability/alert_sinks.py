"""Where alerts are delivered: the log, a webhook, a command. A sink tries once; the caller retries."""

import asyncio
import hmac
import json
import logging
from dataclasses import dataclass
from typing import Protocol

from detent.core.alerts import SEVERITIES, Delivery, State

from .http_post import post

log = logging.getLogger("detent.alerts")
SIGNATURE = "Detent-Signature"
DELIVERY = "Detent-Delivery"


class Sink(Protocol):
    """A way to notify people of alerts."""

    def accepts(self, severity: str) -> bool:
        """Are alerts of this severity delivered here?"""
        ...

    async def deliver(self, delivery: Delivery, now: int) -> str | None:
        """Try once to deliver; the error message, or None if it was delivered. now: microseconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _BySeverity:
    """A sink for alerts of some severities."""

    severities: tuple[str, ...] = SEVERITIES

    def accepts(self, severity: str) -> bool:
        return severity in self.severities


@dataclass(frozen=True, slots=True)
class LogSink(_BySeverity):
    """Writes each alert to the logger `detent.alerts`."""

    async def deliver(self, delivery: Delivery, now: int) -> str | None:
        alert = json.loads(delivery.body)
        level = logging.INFO if alert["state"] == State.RESOLVED else logging.WARNING
        fields = (alert["severity"], delivery.rule, alert["state"], delivery.subject, alert["summary"])
        log.log(level, "%s %s %s (%s): %s", *fields)
        return None


@dataclass(frozen=True, slots=True)
class WebhookSink(_BySeverity):
    """POSTs the alert as JSON. A secret signs time and body, so that a receiver can refuse forged and old requests."""

    url: str
    secret: str = ""
    timeout_seconds: float = 5.0

    async def deliver(self, delivery: Delivery, now: int) -> str | None:
        body = delivery.body.encode()
        headers = {"Content-Type": "application/json", DELIVERY: delivery.id, "User-Agent": "detent"}
        if self.secret:
            headers[SIGNATURE] = sign(self.secret, now // 1_000_000, body)
        error = (await post(self.url, body, headers, timeout=self.timeout_seconds)).error
        return error


def sign(secret: str, seconds: int, body: bytes) -> str:
    """The header Detent-Signature: t=<unix seconds>,v1=<hex of HMAC-SHA256 over "<t>.<body>">"""
    mac = hmac.new(secret.encode(), f"{seconds}.".encode() + body, "sha256")
    return f"t={seconds},v1={mac.hexdigest()}"


def verify_signature(secret: str, header: str, body: bytes, *, now: int, tolerance: int = 300) -> bool:
    """For webhook receivers in Python: was this body signed with the secret, at most `tolerance` seconds from now?

    header: the value of Detent-Signature. now: unix seconds.
    """
    signed_at = next((part[2:] for part in header.split(",") if part.startswith("t=")), "")
    if not signed_at.isdigit() or abs(now - int(signed_at)) > tolerance:
        return False
    return hmac.compare_digest(sign(secret, int(signed_at), body), header)


@dataclass(frozen=True, slots=True)
class CommandSink(_BySeverity):
    """Runs a program with the alert as JSON on its standard input; exit code 0 means it was delivered."""

    command: tuple[str, ...]
    timeout_seconds: float = 10.0

    async def deliver(self, delivery: Delivery, now: int) -> str | None:
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
                _, stderr = await process.communicate(delivery.body.encode())
        except TimeoutError:
            process.kill()
            await process.wait()
            return f"{self.command[0]} did not end within {self.timeout_seconds:g} s"
        if process.returncode == 0:
            return None
        return f"{self.command[0]} exited with {process.returncode}: {stderr.decode(errors='replace')[-200:].strip()}"
