"""Cron expressions in a time zone: the instants they denote, across changes of the UTC offset."""

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from .errors import InvalidInput, InvalidSchedule
from .job import Micros
from .times import DAY, SECOND, from_datetime, to_datetime

_NAIVE_EPOCH = to_datetime(0).replace(tzinfo=None)
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
            step = min(after + DAY, until)
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


_WORDS: Mapping[str, tuple[str, str]] = {
    "minute": ("every minute", "每分钟"),
    "minutes": ("every {0} minutes", "每 {0} 分钟"),
    "second": ("every second", "每秒"),
    "seconds": ("every {0} seconds", "每 {0} 秒"),
    "at second": ("at second {0}", "第 {0} 秒"),
    "hour": ("every hour at minute {0}", "每小时的第 {0} 分"),
    "hours": ("every {1} hours at minute {0}", "每 {1} 小时的第 {0} 分"),
    "at": ("at {0}", "{0}"),
    "in hours": ("{0}, hour {1}", "第 {1} 时{0}"),
    "other": ("at minute {0}, hour {1}", "第 {1} 时的第 {0} 分"),
    "every day": ("every day", "每天"),
    "weekday": ("on {0}", "{0}"),
    "numbered": ("the {0} {1} of the month", "每月{0}{1}"),
    "ordinals": ("first second third fourth fifth last", "第一个 第二个 第三个 第四个 第五个 最后一个"),
    "day": ("on day {0} of the month", "每月 {0} 日"),
    "last": ("on the last day of the month", "每月最后一天"),
    "last working day": ("on the last weekday of the month", "每月最后一个工作日"),
    "or": (" or ", "或"),
    "only": (", only ", "，且为"),
    "month": ("in {0}", "每年 {0} 月"),
    "comma": (", ", "、"),
    "and": (" and ", "、"),
    "to": (" to ", "至"),
}
"""Key -> its text in English and Chinese."""
_DAYS = {
    "en": ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "zh": ("周日", "周一", "周二", "周三", "周四", "周五", "周六", "周日"),
}
_MONTHS = ("", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December")  # fmt: skip
_MOST_MOMENTS, _MOST_NUMBERS = 6, 5
"""More moments of a day are shown as minutes and hours; of more equidistant numbers the middle is left out."""


def _words(language: str) -> dict[str, str]:
    return {key: texts[language == "zh"] for key, texts in _WORDS.items()}


def describe_cron(expression: str, language: str = "en") -> str:
    """A valid expression in words, in English ("en") or Chinese ("zh"): "every day at 03:00", "每天 03:00"."""
    parsed = CronSim(_NICKNAMES.get(expression.strip().lower(), expression), _NAIVE_EPOCH)
    words = _words(language)
    time, is_moment = _time_in_words(parsed, words)
    days = []
    if len(parsed.days) < 31:
        special = {CronSim.LAST: "last", CronSim.LAST_WEEKDAY: "last working day"}
        names = [words[special[day]] for day in sorted(parsed.days & special.keys())]
        if numbers := parsed.days - special.keys():
            names.insert(0, words["day"].format(_listed(numbers, words)))
        days.append(words["or"].join(names))
    if not set(range(1, 7)) <= parsed.weekdays or not parsed.weekdays & {0, 7}:  # 0 and 7 are Sunday
        days.append(words["weekday"].format(_weekdays_in_words(parsed.weekdays, language)))
    parts = [words["only" if parsed.day_and else "or"].join(days)] if days else [words["every day"]] * is_moment
    if len(parsed.months) < 12:
        month = words["month"].format(_listed(parsed.months, words, None if language == "zh" else _MONTHS))
        if language == "zh":  # 每月 before a day is wrong in some months
            parts = [month, *(part.replace("每月", "").strip() for part in parts)]
        else:
            parts.append(month)
    return " ".join([*parts, time] if is_moment or language == "zh" else [time, *parts])


def _time_in_words(parsed: CronSim, words: Mapping[str, str]) -> tuple[str, bool]:
    """(the time, whether it is one or more moments of a day)"""
    minutes, is_moment = _minutes_in_words(parsed.minutes, parsed.hours, words)
    step = _step(parsed.seconds, 60)
    if parsed.seconds == {0}:
        return minutes, is_moment
    if step is None:
        return f"{minutes}{words['comma']}{words['at second'].format(_listed(parsed.seconds, words))}", is_moment
    seconds = words["second" if step == 1 else "seconds"].format(step)
    return (seconds, False) if minutes == words["minute"] else (f"{minutes}{words['comma']}{seconds}", is_moment)


def _minutes_in_words(minutes: Set[int], hours: Set[int], words: Mapping[str, str]) -> tuple[str, bool]:
    minute_step, hour_step = _step(minutes, 60), _step(hours, 24)
    every = None if minute_step is None else words["minute" if minute_step == 1 else "minutes"].format(minute_step)
    if hour_step == 1:
        return every or words["hour"].format(_listed(minutes, words)), False
    if hour_step and len(minutes) == 1:
        return words["hours"].format(*minutes, hour_step), False
    if len(minutes) * len(hours) <= _MOST_MOMENTS:
        moments = [f"{hour:02}:{minute:02}" for hour in sorted(hours) for minute in sorted(minutes)]
        return words["at"].format(_joined(moments, words)), True
    if every:
        return words["in hours"].format(every, _listed(hours, words)), True
    return words["other"].format(_listed(minutes, words), _listed(hours, words)), True


def _weekdays_in_words(weekdays: Set[int | tuple[int, int]], language: str) -> str:
    """Days of the week, also like "the first Monday of the month"."""
    words, names = _words(language), _DAYS[language]
    numbers = {day for day in weekdays if isinstance(day, int)}
    numbers -= {7} if 0 in numbers else set()
    parts = [_listed(numbers, words, names)] if numbers else []
    ordinals = words["ordinals"].split()
    for day, nth in sorted(day for day in weekdays if isinstance(day, tuple)):
        parts.append(words["numbered"].format(ordinals[-1 if nth == CronSim.LAST else nth - 1], names[day]))
    return _joined(parts, words)


def _step(values: Set[int], size: int) -> int | None:
    """n if these are all values from 0 on with the distance n, also over the end of the range."""
    step = size // len(values)
    return step if len(values) > 1 and size % len(values) == 0 and values == set(range(0, size, step)) else None


def _listed(values: Set[int], words: Mapping[str, str], names: Sequence[str] | None = None) -> str:
    """The values or their names, with "to" or a dash for three or more in a row."""
    ordered = sorted(values)
    steps = {later - earlier for earlier, later in pairwise(ordered)}
    if names is None and len(ordered) > _MOST_NUMBERS and len(steps) == 1 and steps != {1}:
        return words["comma"].join([str(ordered[0]), str(ordered[1]), "…", str(ordered[-1])])
    runs: list[list[int]] = []
    for value in ordered:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    parts: list[str] = []
    for run in runs:
        texts = [names[value] if names else str(value) for value in run]
        if len(run) > 2:
            parts.append((words["to"] if names else "-").join((texts[0], texts[-1])))
        else:
            parts += texts
    return _joined(parts, words)


def _joined(parts: Sequence[str], words: Mapping[str, str]) -> str:
    """One part, `a and b`, or `a, b and c`."""
    return words["and"].join([*filter(None, [words["comma"].join(parts[:-1])]), parts[-1]])
