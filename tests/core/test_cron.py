"""Cron times across changes of the UTC offset; every expected instant is written out."""

import zoneinfo
from datetime import UTC

import pytest

from detent.core import cron
from detent.core.cron import cron_of
from detent.core.errors import InvalidInput
from detent.core.times import from_iso, iso


def upcoming(expression: str, timezone: str, after: str, count: int) -> list[str]:
    moment = from_iso(after, field="after")
    times = []
    for _ in range(count):
        following = cron_of(expression, timezone).next(moment)
        assert following is not None and following > moment
        moment = following
        times.append((iso(moment) or "").removesuffix(":00Z"))
    return times


TABLE = [
    # A time of day in a DST gap fires once, right after the gap.
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-28T01:30 2026-03-29T01:00 2026-03-30T00:30"),
    ("15,45 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:00 2026-03-30T00:15 2026-03-30T00:45"),
    ("0 3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00 2026-03-30T01:00"),
    ("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00 2026-03-30T00:00 2026-03-30T01:00"),
    ("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T07:00 2026-03-09T06:30"),
    ("0 30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T07:00 2026-03-09T06:30"),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T12:00:00Z", "2026-10-02T15:45 2026-10-03T15:30 2026-10-04T15:15"),
    # A time of day in a repeated hour fires at its first occurrence.
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30 2026-10-26T01:30"),
    ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-26T01:30"),
    ("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", "2026-11-01T05:30 2026-11-02T06:30"),
    ("0 30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", "2026-11-01T05:30 2026-11-02T06:30"),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-04T14:45 2026-04-05T15:15"),
    # Intervals continue evenly through both.
    ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T00:30 2026-03-29T01:00 2026-03-29T01:30"),
    ("0 * * * *", "Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-25T00:00 2026-10-25T01:00 2026-10-25T02:00"),
    ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T00:00 2026-03-30T00:30"),
    (
        "*/30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T12:00:00Z",
        "2026-10-25T00:00 2026-10-25T00:30 2026-10-25T01:00 2026-10-25T01:30 2026-10-26T01:00",
    ),
    ("*/20 3 * * *", "Australia/Lord_Howe", "2026-04-04T14:40:00Z", "2026-04-04T16:30 2026-04-04T16:50"),
    ("*/20 3 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", "2026-10-03T16:00 2026-10-03T16:20"),
    (
        "*/30 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T13:00:00Z",
        "2026-04-04T14:00 2026-04-04T14:30 2026-04-04T15:00",
    ),
    ("0 * * * *", "Australia/Lord_Howe", "2026-04-04T13:30:00Z", "2026-04-04T14:00 2026-04-04T15:30 2026-04-04T16:30"),
    # A zone without changes, and the years in which it had some.
    ("30 2 * * *", "Asia/Shanghai", "2026-03-28T12:00:00Z", "2026-03-28T18:30 2026-03-29T18:30"),
    ("30 2 * * *", "Asia/Shanghai", "1991-04-13T00:00:00Z", "1991-04-13T18:00 1991-04-14T17:30"),
    ("30 1 * * *", "Asia/Shanghai", "1991-09-14T00:00:00Z", "1991-09-14T16:30 1991-09-15T17:30"),
    # A day that did not exist.
    ("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", "2011-12-29T22:00 2011-12-30T10:00 2011-12-30T22:00"),
    # The forms of an expression.
    ("0 0 9 * * MON-FRI", "UTC", "2026-02-27T12:00:00Z", "2026-03-02T09:00 2026-03-03T09:00"),
    ("0 9 * FEB,APR mon", "UTC", "2026-02-25T12:00:00Z", "2026-04-06T09:00"),
    ("0 0 L * *", "UTC", "2026-02-25T12:00:00Z", "2026-02-28T00:00 2026-03-31T00:00 2026-04-30T00:00"),
    ("0 0 * * FRI#2", "UTC", "2026-02-25T12:00:00Z", "2026-03-13T00:00 2026-04-10T00:00"),
    ("0 0 * * 5L", "UTC", "2026-02-25T12:00:00Z", "2026-02-27T00:00 2026-03-27T00:00"),
    ("0 0 29 2 *", "UTC", "2026-02-25T12:00:00Z", "2028-02-29T00:00 2032-02-29T00:00"),
    ("@daily", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T05:00 2026-03-09T04:00"),
    ("@hourly", "UTC", "2026-02-25T12:00:00Z", "2026-02-25T13:00"),
    ("@weekly", "UTC", "2026-02-25T12:00:00Z", "2026-03-01T00:00"),
    ("@monthly", "UTC", "2026-02-25T12:00:00Z", "2026-03-01T00:00"),
    ("@yearly", "UTC", "2026-02-25T12:00:00Z", "2027-01-01T00:00"),
]


@pytest.mark.parametrize(("expression", "timezone", "after", "expected"), TABLE)
def test_instants(expression: str, timezone: str, after: str, expected: str) -> None:
    assert upcoming(expression, timezone, after, len(expected.split())) == expected.split()


def test_seconds() -> None:
    moment = from_iso("2026-02-25T12:00:00.5Z", field="after")
    assert iso(cron_of("*/15 * * * * *", "UTC").next(moment)) == "2026-02-25T12:00:15Z"
    assert iso(cron_of("59 59 23 31 12 *", "UTC").next(moment)) == "2026-12-31T23:59:59Z"


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "* * * * * * *",
        "61 * * * *",
        "a b c d e",
        "0 0 30 2 *",
        "@reboot",
        "* * * * 8",
        "*/0 * * * *",
        "L * * * *",
    ],
)
def test_invalid_expressions(expression: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        cron_of(expression, "UTC")
    assert (caught.value.code, caught.value.extra) == ("SCHEDULE_INVALID", {"field": "cron"})


@pytest.mark.parametrize("name", ["Europe", "", "Mars/Base", "../UTC", "x" * 300, "UTC\0"])
def test_invalid_zones(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        cron_of("@daily", name)
    assert (caught.value.code, caught.value.extra) == ("SCHEDULE_INVALID", {"field": "tz"})


def test_a_system_without_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cron, "ZoneInfo", lambda name: zoneinfo.ZoneInfo.no_cache(f"nowhere/{name}"))
    monkeypatch.setattr(cron, "available_timezones", set)
    assert cron.zone_of("UTC") is UTC
    with pytest.raises(InvalidInput, match="pip install tzdata"):
        cron.zone_of("Europe/Berlin")
