"""The signature of a request to a webhook, as Standard Webhooks describe it (v1), and how a receiver checks it."""

import base64
import binascii
import hmac
from collections.abc import Mapping

from detent.core.errors import InvalidInput

PREFIX = "whsec_"
"""Before the base64 text of a secret."""
MIN_SECRET, MAX_SECRET = 24, 64
"""Bytes of a secret, as the Standard Webhooks document says."""
WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"


def secret_bytes(secret: str) -> bytes:
    """The key in a secret. Raises InvalidInput (WEBHOOK_SECRET_INVALID)."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not MIN_SECRET <= len(key) <= MAX_SECRET:
        message = f"secret must be {PREFIX} and base64 of {MIN_SECRET} to {MAX_SECRET} bytes; leave it out to get one"
        raise InvalidInput(message, code="WEBHOOK_SECRET_INVALID", field="secret")
    return key


def sign(secret: str, message_id: str, seconds: int, body: bytes) -> str:
    """A signature: v1,<base64 of HMAC-SHA256 over "<id>.<unix seconds>.<body>">. The header webhook-signature has one
    or several, separated by spaces."""
    mac = hmac.new(secret_bytes(secret), f"{message_id}.{seconds}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(mac.digest()).decode()


def verify_webhook(
    secret: str, headers: Mapping[str, str], body: bytes, *, now: float, tolerance_seconds: float = 300
) -> bool:
    """For receivers in Python: was this body signed with the secret, and sent at most `tolerance_seconds` from now?

    now: unix seconds, for example time.time(). headers: their names may have any case.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    message_id, sent_at = lower.get(WEBHOOK_ID, ""), lower.get(WEBHOOK_TIMESTAMP, "")
    if not message_id or not sent_at.isdecimal() or abs(now - float(sent_at)) > tolerance_seconds:
        return False
    expected = sign(secret, message_id, int(sent_at), body).encode()
    signatures = lower.get(WEBHOOK_SIGNATURE, "").split()
    return any(hmac.compare_digest(expected, signature.encode()) for signature in signatures)
