"""Times as ISO-8601 text and back."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.core.errors import InvalidInput
from detent.core.times import from_datetime, from_iso, iso

NOON = 1_772_020_800_000_000


@pytest.mark.parametrize(
    "text, micros",
    [
        ("2026-02-25T12:00:00Z", NOON),
        ("2026-02-25T12:00:00+00:00", NOON),
        ("2026-02-25T14:00:00+02:00", NOON),
        ("2026-02-25T12:00:00.000001Z", NOON + 1),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59Z", -1_000_000),
    ],
)
def test_iso_is_read(text, micros):
    assert from_iso(text, field="due_at") == micros


def test_iso_is_written_in_utc():
    assert iso(NOON) == "2026-02-25T12:00:00Z"
    assert iso(NOON + 1) == "2026-02-25T12:00:00.000001Z"
    assert iso(None) is None


@settings(deadline=None)
@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_formatted_times_parse_back(micros):
    assert from_iso(iso(micros), field="t", utc_only=True) == micros


@pytest.mark.parametrize(
    "text", ["noon", "", "2026-02-25", "2026-02-25T12:00:00", "2026-13-01T00:00:00Z", None, 5, True]
)
@pytest.mark.parametrize("utc_only", [True, False])
def test_an_invalid_time_is_refused_with_its_field(text, utc_only):
    with pytest.raises(InvalidInput) as refused:
        from_iso(text, field="due_at", utc_only=utc_only)
    assert refused.value.http_status == 422
    assert refused.value.extra == {"field": "due_at"}
    assert "due_at" in refused.value.message


@pytest.mark.parametrize("text", ["2026-02-25T12:00:00+02:00", "2026-02-25T12:00:00-00:01"])
def test_utc_only_refuses_other_offsets(text):
    with pytest.raises(InvalidInput):
        from_iso(text, field="scheduled_at", utc_only=True)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_outside_the_calendar_is_refused(text):
    with pytest.raises(InvalidInput):
        from_iso(text, field="due_at")


def test_a_datetime_needs_a_zone():
    assert from_datetime(datetime(2026, 2, 25, 14, tzinfo=timezone(timedelta(hours=2)))) == NOON
    with pytest.raises(InvalidInput):
        from_datetime(datetime(2026, 2, 25, 12))
