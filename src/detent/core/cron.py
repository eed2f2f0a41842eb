"""Cron times in a time zone: which instants an expression means, over every change of the zone's clock."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from .errors import InvalidInput
from .job import Micros
from .times import SECOND, from_datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)
_DAY: Micros = 86_400 * SECOND
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Cron:
    """An expression in a zone.

    One that names hours and minutes means a time of day: where the clock leaves it out, it fires right after the gap;
    where the clock shows it twice, at the first. One with a star in seconds, minutes or hours runs evenly with the
    clock as it is: not in a gap, and in both passes of a repeated hour.
    """

    def __init__(self, expression: str, zone: ZoneInfo) -> None:
        self._expression = _NICKNAMES.get(expression.strip().lower(), expression)
        self._zone = zone
        parts = self._expression.split()
        if len(parts) not in (5, 6):
            raise _bad(expression, f"it has {len(parts)} fields")
        try:
            CronSim(self._expression, _NAIVE_EPOCH)
        except CronSimError as error:
            raise _bad(expression, str(error).lower()) from None
        except Exception:  # its parser trips over some nonsense instead of refusing it
            raise _bad(expression, "one of its fields cannot be read") from None
        self._names_a_time = not any(part.startswith("*") for part in parts[: len(parts) - 3])

    def next(self, after: Micros) -> Micros | None:
        """The first instant behind this one; None if there is none in the next fifty years."""
        try:
            return self._next_time(after) if self._names_a_time else self._next_even(after)
        except (StopIteration, OverflowError):
            return None

    def _locals(self, start: Micros) -> Iterator[datetime]:
        """What a calendar that knows no zones says, behind a local moment."""
        return CronSim(self._expression, _NAIVE_EPOCH + timedelta(microseconds=start))

    def _next_time(self, after: Micros) -> Micros:
        locals_ = self._locals(after + self._offset(after))
        while True:
            moment = self._instant(next(locals_))
            if moment > after:
                return moment

    def _next_even(self, after: Micros) -> Micros:
        """Between two changes of its offset a clock runs evenly; what lies behind a change is looked for from there."""
        known, floor = after, after
        while True:
            offset = self._offset(known)
            moment = _micros(next(self._locals(floor + offset))) - offset
            change = self._first_change(known, moment)
            if change is None:
                return moment
            known, floor = change, change - SECOND

    def _instant(self, local: datetime) -> Micros:
        """The instant at which the clock first shows this, or the end of the gap that swallowed it."""
        early, late = (_micros(local) - self._offset_at(local, fold) for fold in (0, 1))
        if early + self._offset(early) == _micros(local):
            return early
        return self._bisect(late, early)

    def _first_change(self, after: Micros, until: Micros) -> Micros | None:
        offset = self._offset(after)
        while after < until:
            step = min(after + _DAY, until)
            if self._offset(step) != offset:
                return self._bisect(after, step)
            after = step
        return None

    def _bisect(self, before: Micros, behind: Micros) -> Micros:
        """The first second with another offset than `before`, known to lie up to `behind`."""
        offset = self._offset(before)
        low, high = before // SECOND, behind // SECOND
        while low + 1 < high:
            middle = (low + high) // 2
            if self._offset(middle * SECOND) == offset:
                low = middle
            else:
                high = middle
        return high * SECOND

    def _offset(self, moment: Micros) -> Micros:
        return _span((_EPOCH + timedelta(microseconds=moment)).astimezone(self._zone).utcoffset())

    def _offset_at(self, local: datetime, fold: int) -> Micros:
        return _span(local.replace(tzinfo=self._zone, fold=fold).utcoffset())


@lru_cache(maxsize=1_024)
def cron_of(expression: str, timezone: str) -> Cron:
    return Cron(expression, zone_of(timezone))


def zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except Exception:  # a directory, a path, no text: every kind of name that is none raises its own error
        raise InvalidInput(
            f"there is no time zone {str(name)[:80]!r}; write it like Europe/Berlin or UTC",
            code="SCHEDULE_INVALID",
            field="tz",
        ) from None


def local_instant(text: str, timezone: str) -> Micros:
    """A moment written without an offset, as the clock of a zone first shows it."""
    moment = datetime.fromisoformat(text)
    return from_datetime(moment) if moment.tzinfo else Cron("@daily", zone_of(timezone))._instant(moment)


def _micros(local: datetime) -> Micros:
    return (local - _NAIVE_EPOCH) // timedelta(microseconds=1)


def _span(offset: timedelta | None) -> Micros:
    return (offset or timedelta()) // timedelta(microseconds=1)


def _bad(expression: str, why: str) -> InvalidInput:
    form = "write minute hour day month weekday, like '30 2 * * MON-FRI', with seconds before them if you need six"
    return InvalidInput(f"cron {expression[:80]!r}: {why}; {form}", code="SCHEDULE_INVALID", field="cron")
