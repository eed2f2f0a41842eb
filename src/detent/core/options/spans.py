"""Spans of time in Python: numbers of seconds, timedeltas, and text like 90s, 5m or 1h30m."""

import re
from datetime import timedelta
from typing import Any

from detent.core.errors import InvalidInput

SECOND = 1_000_000
SPAN_UNITS = {"w": 7 * 86_400 * SECOND, "d": 86_400 * SECOND, "h": 3_600 * SECOND, "m": 60 * SECOND, "s": SECOND}
_SPAN = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d{1,6})?)s)?", re.ASCII)
MAX_SECONDS = 1e9


def parse_span(text: str) -> int | None:
    """Microseconds from text like 90s, 5m, 1h30m, 2d; None if it is no span."""
    match = _SPAN.fullmatch(text.strip().lower())
    if match is None or not any(match.groups()):
        return None
    sizes = zip(match.groups(), SPAN_UNITS.values(), strict=True)
    return sum(round(float(number) * size) if "." in number else int(number) * size for number, size in sizes if number)


def seconds_of(value: Any, field: str, *, low: float = 0.0, high: float = MAX_SECONDS, code: str) -> float:
    """A span of time in seconds: from a number, a timedelta, or text like 30, 90s, 5m. Raises InvalidInput."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(value, str):
        span = parse_span(value)
        try:
            seconds = float(value) if span is None else span / SECOND
        except ValueError:
            seconds = None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not low <= seconds <= high:
        message = f"{field} must be a number of seconds from {low:g} to {high:g}, a timedelta, or text like 90s or 5m"
        raise InvalidInput(f"{message}, got {value!r:.60}", code=code, field=field)
    return seconds
