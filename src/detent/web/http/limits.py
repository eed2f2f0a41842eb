"""What a request may weigh and how often one may come: strict JSON, bounded bodies, a bucket for each caller."""

import asyncio
import json
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from detent.core.errors import DetentError, InvalidInput
from detent.system.clock import SystemClock

_BUCKETS_AT_MOST = 10_000


class TooLarge(DetentError):
    code = "BODY_TOO_LARGE"
    http_status = 413


class WrongMedia(DetentError):
    code = "MEDIA_TYPE_UNSUPPORTED"
    http_status = 415


class TooSlow(DetentError):
    code = "BODY_TOO_SLOW"
    http_status = 408


class TooMany(DetentError):
    code = "RATE_LIMITED"
    http_status = 429
    retryable = True


async def read_body(request: Request, at_most: int, seconds: float) -> bytes:
    """The whole body; a client that sends too much or too slowly is let go before it costs anything."""
    said = request.headers.get("content-length")
    if said is not None and (not said.isdigit() or int(said[:19]) > at_most):
        raise _too_large(at_most)
    first = await _receive(request, seconds)
    body: bytes = first.get("body", b"")
    if first["type"] == "http.disconnect":
        raise ClientDisconnect
    if first.get("more_body", False):
        body = await _rest(request, body, at_most, seconds)
    if len(body) > at_most:
        raise _too_large(at_most)
    return body


async def _receive(request: Request, seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await request.receive()
    except TimeoutError:
        raise TooSlow("the body did not arrive in time; send it at once") from None


async def _rest(request: Request, body: bytes, at_most: int, seconds: float) -> bytes:
    parts, size = [body], len(body)
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > at_most:
                    raise _too_large(at_most)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise TooSlow("the body did not arrive in time; send it at once") from None


def _too_large(at_most: int) -> TooLarge:
    return TooLarge(f"the body may have {at_most} bytes; send less, or a reference", limit=at_most)


def strict_json(body: bytes, max_depth: int) -> Any:
    """JSON as the standard has it: no NaN, no endless nesting, no numbers of a million digits."""
    try:
        value = _decode(body.decode())
    except RecursionError:
        raise _too_deep(max_depth) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the body is not JSON: {str(error)[:200]}", code="BODY_NOT_JSON") from None
    if body.count(b"[") + body.count(b"{") > max_depth and _deeper_than(value, max_depth):
        raise _too_deep(max_depth)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_decode = json.JSONDecoder(parse_constant=_no_constant).decode


def _too_deep(max_depth: int) -> InvalidInput:
    return InvalidInput(f"the body is nested deeper than {max_depth} levels", code="BODY_TOO_DEEP", limit=max_depth)


def _deeper_than(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels + 1):
        layer = [
            inner
            for one in layer
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not layer:
            return False
    return True


def is_json(media: str | None) -> bool:
    plain = (media or "").partition(";")[0].strip().lower()
    return plain == "application/json" or (plain.startswith("application/") and plain.endswith("+json"))


class Buckets:
    """Each caller's bucket refills steadily and holds two seconds' worth."""

    def __init__(self, per_second: float) -> None:
        self._rate = per_second
        self._clock = SystemClock()
        self._full_at: dict[str, float] = {}

    def take(self, caller: str) -> None:
        now = self._clock.monotonic()
        full_at = max(now, self._full_at.get(caller, 0.0)) + 1 / self._rate
        if full_at - now > 2.0:
            raise TooMany(f"more than {self._rate:g} requests a second for this token; slow down")
        if len(self._full_at) >= _BUCKETS_AT_MOST:
            self._full_at = {name: at for name, at in self._full_at.items() if at > now}
        self._full_at[caller] = full_at
