"""Cron expressions in a time zone: the instants they denote, across changes of the UTC offset."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from .errors import InvalidInput, InvalidSchedule
from .job import Micros
from .times import SECOND, from_datetime, to_datetime

_NAIVE_EPOCH = to_datetime(0).replace(tzinfo=None)
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
    """An expression in a time zone.

    With fixed hours and minutes it denotes a time of day: in a DST gap it fires right after the gap, in a repeated
    hour at the first occurrence. With a star in seconds, minutes or hours it denotes an interval: it does not fire in
    a gap, and fires in both passes of a repeated hour.
    """

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression = _NICKNAMES.get(expression.strip().lower(), expression)
        self._zone = zone
        parts = self._expression.split()
        if len(parts) not in (5, 6):
            raise _invalid(expression, f"it has {len(parts)} fields")
        try:
            CronSim(self._expression, _NAIVE_EPOCH)
        except CronSimError as error:
            raise _invalid(expression, str(error).lower()) from None
        except Exception:  # CronSim raises other errors for some malformed input
            raise _invalid(expression, "one of its fields cannot be read") from None
        self._is_time_of_day = not any(part.startswith("*") for part in parts[: len(parts) - 3])

    def next(self, after: Micros) -> Micros | None:
        """The first instant after this one; None if there is none in the next fifty years."""
        try:
            return self._next_time(after) if self._is_time_of_day else self._next_interval(after)
        except (StopIteration, OverflowError):
            return None

    def _local_times(self, start: Micros) -> Iterator[datetime]:
        """The naive local times of the expression after a local time."""
        return CronSim(self._expression, _NAIVE_EPOCH + timedelta(microseconds=start))

    def _next_time(self, after: Micros) -> Micros:
        local_times = self._local_times(after + self._offset(after))
        while True:
            moment = self._instant(next(local_times))
            if moment > after:
                return moment

    def _next_interval(self, after: Micros) -> Micros:
        """Search with a constant UTC offset; if the offset changes before the result, search again from the change."""
        base, floor = after, after
        while True:
            offset = self._offset(base)
            moment = _micros(next(self._local_times(floor + offset))) - offset
            change = self._first_change(base, moment)
            if change is None:
                return moment
            base, floor = change, change - SECOND

    def _instant(self, local: datetime) -> Micros:
        """The first instant with this local time, or the end of the gap that skips it."""
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

    def _bisect(self, before: Micros, after: Micros) -> Micros:
        """The first second whose offset differs from that at `before`; `after` has another offset."""
        offset = self._offset(before)
        low, high = before // SECOND, after // SECOND
        while low + 1 < high:
            middle = (low + high) // 2
            if self._offset(middle * SECOND) == offset:
                low = middle
            else:
                high = middle
        return high * SECOND

    def _offset(self, moment: Micros) -> Micros:
        return _span(to_datetime(moment).astimezone(self._zone).utcoffset())

    def _offset_at(self, local: datetime, fold: int) -> Micros:
        return _span(local.replace(tzinfo=self._zone, fold=fold).utcoffset())


@lru_cache(maxsize=1_024)
def cron_of(expression: str, timezone: str) -> Cron:
    return Cron(expression, zone_of(timezone))


@lru_cache(maxsize=4_096)
def next_cron_fire(expression: str, timezone: str, after: Micros) -> Micros | None:
    """Cached: schedules that are due together often have the same expression."""
    return cron_of(expression, timezone).next(after)


def zone_of(name: str) -> tzinfo:
    """UTC needs no time zone database, which a small container may lack. Raises InvalidSchedule."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except Exception:  # ZoneInfo raises different errors for a directory, a path or a value that is not text
        advice = "use a name like Europe/Berlin or UTC"
        if not available_timezones():
            advice = "this system has no time zone database: install the package tzdata, also with `pip install tzdata`"
        text = f"unknown time zone {str(name)[:80]!r}; {advice}"
        raise InvalidSchedule(text, field="tz") from None


def local_instant(text: str, timezone: str) -> Micros:
    """The first instant with this local time in the zone; a time with an offset is converted as it is."""
    moment = datetime.fromisoformat(text)
    return from_datetime(moment) if moment.tzinfo else Cron("@daily", zone_of(timezone))._instant(moment)


def _micros(local: datetime) -> Micros:
    return (local - _NAIVE_EPOCH) // timedelta(microseconds=1)


def _span(offset: timedelta | None) -> Micros:
    return (offset or timedelta()) // timedelta(microseconds=1)


def _invalid(expression: str, problem: str) -> InvalidInput:
    hint = "write minute hour day month weekday, like '30 2 * * MON-FRI', optionally with seconds as the first field"
    return InvalidSchedule(f"cron {expression[:80]!r}: {problem}; {hint}", field="cron")


_WORDS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "minute": "every minute",
        "minutes": "every {0} minutes",
        "second": "every second",
        "seconds": "every {0} seconds",
        "hour": "every hour at minute {0}",
        "hours": "every {1} hours at minute {0}",
        "at": "at {0}",
        "other": "at minute {0}, hour {1}",
        "every day": "every day",
        "weekday": "on {0}",
        "day": "on day {0} of the month",
        "last": "on the last day of the month",
        "or": " or ",
        "month": "in {0}",
        "and": " and ",
        "to": " to ",
        "join": " ",
    },
    "zh": {
        "minute": "每分钟",
        "minutes": "每 {0} 分钟",
        "second": "每秒",
        "seconds": "每 {0} 秒",
        "hour": "每小时的第 {0} 分",
        "hours": "每 {1} 小时的第 {0} 分",
        "at": "{0}",
        "other": "第 {1} 时的第 {0} 分",
        "every day": "每天",
        "weekday": "{0}",
        "day": "每月 {0} 日",
        "last": "每月最后一天",
        "or": "或",
        "month": "{0}",
        "and": "、",
        "to": "至",
        "join": " ",
    },
}
_DAYS = {
    "en": ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "zh": ("周日", "周一", "周二", "周三", "周四", "周五", "周六", "周日"),
}
_MONTHS = {
    "en": ("", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
        "November", "December"),
    "zh": ("", *(f"{number} 月" for number in range(1, 13))),
}  # fmt: skip
_SHORT_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SHORT_MONTHS = tuple(name[:3].upper() for name in _MONTHS["en"])
_NUMBERS = {name: names.index(name) for names in (_SHORT_DAYS, _SHORT_MONTHS) for name in names if name}


def describe_cron(expression: str, language: str = "en") -> str:
    """A valid expression in words, in English ("en") or Chinese ("zh"): "every day at 03:00", "每天 03:00"."""
    fields = _NICKNAMES.get(expression.strip().lower(), expression).upper().split()
    second, (minute, hour, day, month, weekday) = fields[0] if len(fields) == 6 else "0", fields[-5:]
    words = _WORDS[language]
    time, is_moment = _time_in_words(second, minute, hour, words)
    days = []
    if day != "*":
        days.append(words["last"] if day == "L" else words["day"].format(_listed(day, None, words)))
    if weekday != "*":
        days.append(words["weekday"].format(_listed(weekday, _DAYS[language], words)))
    parts = [words["or"].join(days)] if days else [words["every day"]] if is_moment else []
    if month != "*":
        parts.insert(
            0 if language == "zh" else len(parts), words["month"].format(_listed(month, _MONTHS[language], words))
        )
    return words["join"].join([*parts, time] if is_moment or language == "zh" else [time, *parts])


def _time_in_words(second: str, minute: str, hour: str, words: Mapping[str, str]) -> tuple[str, bool]:
    """(the time, whether it is one or more moments of a day)"""
    if second != "0":
        every = second.removeprefix("*/")
        return (words["second"] if second == "*" else words["seconds"].format(every)), False
    if minute == "*" and hour == "*":
        return words["minute"], False
    if minute.startswith("*/") and hour == "*":
        return words["minutes"].format(minute[2:]), False
    if minute.isdecimal() and (hour == "*" or hour.startswith("*/")):
        return words["hour" if hour == "*" else "hours"].format(int(minute), hour[2:]), False
    hours = hour.split(",")
    if minute.isdecimal() and all(part.isdecimal() for part in hours):
        return words["at"].format(words["and"].join(f"{int(part):02}:{int(minute):02}" for part in hours)), True
    return words["other"].format(minute, hour), True


def _listed(field: str, names: Sequence[str] | None, words: Mapping[str, str]) -> str:
    """The entries of a field; what has no name, for example 5L or 1#2, stays as it is."""

    def named(text: str) -> str:
        number = _NUMBERS.get(text, int(text) if text.isdecimal() else None)
        return text if names is None or number is None else names[number]

    return words["and"].join(words["to"].join(map(named, part.split("-"))) for part in field.split(","))
