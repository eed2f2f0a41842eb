"""Moments as text and back: ISO-8601 in UTC outside, microseconds inside."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from .errors import InvalidInput
from .job import Micros

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND: Micros = 1_000_000


def iso(moment: Micros | None) -> str | None:
    if moment is None:
        return None
    seconds, micros = divmod(moment, SECOND)
    return f"{_second(seconds)}.{micros:06d}Z" if micros else f"{_second(seconds)}Z"


@lru_cache(maxsize=1_024)
def _second(seconds: int) -> str:
    """Moments come in swarms: a page of jobs, a burst of events."""
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def from_datetime(moment: datetime) -> Micros:
    """A naive datetime is refused: nobody can say which zone it means."""
    if moment.tzinfo is None:
        raise InvalidInput(
            "a time without a zone is ambiguous; add one, e.g. datetime(..., tzinfo=UTC)", code="TIME_INVALID"
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_iso(text: str, *, field: str, utc_only: bool = False) -> Micros:
    """Read an ISO-8601 moment with a zone; utc_only refuses other offsets instead of converting them."""
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise InvalidInput(
            f"{field} {text!r} is not an ISO-8601 time; write it like 2026-02-25T12:00:00Z",
            code="TIME_INVALID",
            field=field,
        ) from None
    if moment.tzinfo is None or (utc_only and moment.utcoffset() != timedelta(0)):
        raise InvalidInput(
            f"{field} {text!r} must be in UTC; end it with Z"
            if utc_only
            else f"{field} {text!r} has no zone; end it with Z or an offset",
            code="TIME_INVALID",
            field=field,
        )
    try:
        return from_datetime(moment.astimezone(UTC))
    except OverflowError:
        raise InvalidInput(
            f"{field} {text!r} is outside the years 1 to 9999", code="TIME_INVALID", field=field
        ) from None
