"""Limits on requests: size, time and nesting of JSON bodies, and a request rate for each caller."""

import asyncio
import json
from collections import Counter
from math import ceil, floor
from typing import TYPE_CHECKING, Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from detent.core.errors import DetentError, InvalidInput
from detent.system.clock import SystemClock

from .problems import RetryLater

if TYPE_CHECKING:
    from .state import Web

_MAX_CALLERS = 10_000
_ROUNDING_SECONDS = 1e-6


async def read_body(request: Request, web: "Web", *, anonymous: bool) -> bytes:
    """The whole body. Raises an error as soon as it exceeds a limit, or after `Settings.body_seconds`."""
    settings = web.settings
    max_bytes, seconds = settings.max_anonymous_body if anonymous else settings.max_body, settings.body_seconds
    length = request.headers.get("content-length")
    if length is not None and (not length.isdigit() or int(length[:19]) > max_bytes):
        raise _too_large(max_bytes)
    parts, size, more = [], 0, True
    try:
        async with asyncio.timeout(seconds):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                web.unfinished_bytes += len(parts[-1])
                if size > max_bytes:
                    raise _too_large(max_bytes)
                if web.unfinished_bytes > settings.max_unfinished:
                    raise RetryLater("too many request bodies arrive at once", code="BODIES_FULL", http_status=503)
                more = message.get("more_body", False)
    except TimeoutError:
        slow = f"the request body did not arrive within {seconds:g} seconds"
        raise DetentError(slow, code="BODY_TOO_SLOW", http_status=408) from None
    finally:
        web.unfinished_bytes -= size
    return b"".join(parts)


def _too_large(max_bytes: int) -> DetentError:
    message = f"the request body must be at most {max_bytes} bytes"
    return DetentError(message, code="BODY_TOO_LARGE", http_status=413, limit=max_bytes)


def strict_json(body: bytes, max_depth: int) -> Any:
    """Parse JSON by the standard: no NaN or Infinity, no member twice, nesting up to `max_depth`, Python's limit on
    digits."""
    try:
        value = _decode(body.decode())
        if body.count(b"[") + body.count(b"{") > max_depth and _deeper_than(value, max_depth):
            raise RecursionError
    except RecursionError:
        message = f"the request body must be nested at most {max_depth} levels deep"
        raise InvalidInput(message, code="BODY_TOO_DEEP", limit=max_depth) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the request body is not JSON: {str(error)[:200]}", code="BODY_NOT_JSON") from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _unique_members(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) < len(members):
        names = Counter(name for name, _ in members)
        raise ValueError(f"an object has the member {names.most_common(1)[0][0]!r} twice; send it once")
    return value


_decode = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_members).decode


def _deeper_than(value: Any, levels: int) -> bool:
    """Whether objects and lists are nested deeper than this; checked level by level, without recursion."""
    layer = [value]
    for _ in range(levels + 1):
        values = (inner for outer in layer for inner in (outer.values() if isinstance(outer, dict) else outer))
        layer = [inner for inner in values if isinstance(inner, dict | list)]
        if not layer:
            return False
    return True


def is_json(media_type: str | None) -> bool:
    plain = (media_type or "").partition(";")[0].strip().lower()
    return plain == "application/json" or (plain.startswith("application/") and plain.endswith("+json"))


class RateLimiter:
    """A token bucket for each caller; a burst may be `burst_seconds` worth of requests."""

    def __init__(self, per_second: float, burst_seconds: float = 2.0) -> None:
        self._rate = per_second
        self._burst_seconds = burst_seconds
        self._clock = SystemClock()
        self._full_at: dict[str, float] = {}

    def take(self, caller: str) -> None:
        """Count one request. Raises RetryLater if the caller's bucket is empty."""
        if not self.try_take(caller):
            message = f"more than {self._rate:g} requests per second with this token; retry later"
            raise RetryLater(message, code="RATE_LIMITED", http_status=429)

    def try_take(self, caller: str) -> bool:
        """Count one request; False if the caller's bucket is empty."""
        now = self._clock.monotonic()
        full_at = max(now, self._full_at.get(caller, 0.0)) + 1 / self._rate
        if full_at - now > self._burst_seconds + _ROUNDING_SECONDS:
            return False
        if len(self._full_at) >= _MAX_CALLERS:
            self._full_at = {name: at for name, at in self._full_at.items() if at > now}
        self._full_at[caller] = full_at
        return True

    def headers(self, caller: str) -> list[tuple[bytes, bytes]]:
        """RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers): how many requests the caller has left,
        and in how many seconds it has all of them again."""
        wait = max(0.0, self._full_at.get(caller, 0.0) - self._clock.monotonic())
        left = max(0, floor((self._burst_seconds - wait) * self._rate + _ROUNDING_SECONDS))
        policy = f'"requests";q={floor(self._rate * self._burst_seconds)};w={ceil(self._burst_seconds)}'
        state = f'"requests";r={left};t={ceil(wait)}'
        return [(b"ratelimit-policy", policy.encode()), (b"ratelimit", state.encode())]

    def give_back(self, *callers: str) -> None:
        """Count one request less of each caller."""
        for caller in callers:
            self._full_at[caller] = self._full_at.get(caller, 0.0) - 1 / self._rate
