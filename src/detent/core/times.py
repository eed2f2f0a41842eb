"""Converts times: ISO-8601 text in UTC outside, microseconds since 1970 inside."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from .errors import InvalidInput, check_number
from .job import Micros

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND: Micros = 1_000_000
DAY: Micros = 86_400 * SECOND


def first_id(moment: Micros) -> str:
    """The lowest id that could be generated at this moment; ids begin with their time."""
    text = f"{max(0, moment) // 1_000:012x}"
    return f"{text[:8]}-{text[8:12]}-0000-0000-000000000000"


def moment_of_id(some_id: str) -> Micros | None:
    """When this id was generated, by the clock of its process; None if it does not begin with its time (no UUIDv7)."""
    digits = some_id[:8] + some_id[9:13]
    is_timed = len(some_id) == 36 and some_id[14] == "7" and all(digit in "0123456789abcdef" for digit in digits)
    return int(digits, 16) * 1_000 if is_timed else None


def iso(moment: Micros | None) -> str | None:
    if moment is None:
        return None
    seconds, micros = divmod(moment, SECOND)
    return f"{_second(seconds)}.{micros:06d}Z" if micros else f"{_second(seconds)}Z"


@lru_cache(maxsize=1_024)
def _second(seconds: int) -> str:
    """Cached, because a page of jobs or events has many times within the same second."""
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def columns(row: object, *names: str) -> dict[str, Any]:
    """These attributes of a row by name; those that end in _at are times, shown as ISO-8601 text."""
    return {name: iso(getattr(row, name)) if name.endswith("_at") else getattr(row, name) for name in names}


def to_datetime(moment: Micros) -> datetime:
    return _EPOCH + timedelta(microseconds=moment)


def from_datetime(moment: datetime) -> Micros:
    """Raises InvalidInput for a naive datetime, because its zone is unknown."""
    if moment.tzinfo is None:
        raise _invalid("a time without a zone is ambiguous; add one, e.g. datetime(..., tzinfo=UTC)")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_iso(text: str, *, field: str, utc_only: bool = False) -> Micros:
    """Parse an ISO-8601 time with a zone. utc_only: refuse other offsets instead of converting them."""
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        message = f"{field} {text!r} is not an ISO-8601 time; write it like 2026-02-25T12:00:00Z"
        raise _invalid(message, field=field) from None
    if utc_only and moment.utcoffset() != timedelta(0):
        raise _invalid(f"{field} {text!r} must be in UTC; end it with Z", field=field)
    if moment.tzinfo is None:
        raise _invalid(f"{field} {text!r} has no zone; end it with Z or an offset", field=field)
    try:
        return from_datetime(moment.astimezone(UTC))
    except OverflowError:
        raise _invalid(f"{field} {text!r} is outside the years 1 to 9999", field=field) from None


def _invalid(message: str, **extra: Any) -> InvalidInput:
    return InvalidInput(message, code="TIME_INVALID", **extra)


def interval_between_jobs(rate: float | None) -> Micros:
    """The delay between two jobs at `rate` jobs per second; None: no delay."""
    if rate is None:
        return 0
    check_number(rate, "rate", 0.001, 1_000_000, "RATE_INVALID", whole=False)
    return int(SECOND / rate)
