"""Fire times of schedules, and plans for due and missed fires."""

from typing import Any

import pytest

from detent.core.errors import InvalidInput
from detent.core.schedule import (
    MAX_COUNTED_FIRES,
    Advance,
    Misfire,
    Overlap,
    Schedule,
    ScheduleKind,
    fire_key,
    fires_between,
    first_fire_only,
    format_interval,
    jitter_delay,
    next_fire,
    parse_interval,
    plan,
)
from detent.core.times import SECOND, from_iso, iso

NOON = from_iso("2026-02-25T12:00:00Z", field="noon")
MINUTE = 60 * SECOND


def schedule(kind: str = "cron", expression: str = "* * * * *", **fields: Any) -> Schedule:
    values: dict[str, Any] = {
        "id": "s",
        "tenant_id": "default",
        "name": "s",
        "kind": kind,
        "expression": expression,
        "timezone": "UTC",
        "anchor": NOON,
        "starts_at": None,
        "ends_at": None,
        "jitter": 0,
        "misfire": "once",
        "misfire_limit": 3,
        "misfire_grace": 30 * SECOND,
        "overlap": "allow",
        "job_type": "mail",
        "payload": "{}",
        "contract": "standard",
        "queue": "default",
        "priority": 0,
        "max_retries": None,
        "timeout_ms": None,
        "limit_key": "",
        "declared": None,
        "paused_at": None,
        "version": 1,
        "created_at": NOON,
        "updated_at": NOON,
        "next_fire_at": NOON + MINUTE,
    }
    return Schedule(**{**values, **fields})


def minutes(*numbers: int) -> tuple[int, ...]:
    return tuple(NOON + number * MINUTE for number in numbers)


@pytest.mark.parametrize(
    ("misfire", "late", "fires", "missed", "last_missed"),
    [
        # On time: one fire, whatever the policy.
        ("skip", 61, minutes(1), 0, None),
        ("once", 90, minutes(1), 0, None),
        ("all", 60, minutes(1), 0, None),
        # Later than the grace, before the next.
        ("skip", 100, (), 1, 1),
        ("once", 100, minutes(1), 1, 1),
        ("all", 100, minutes(1), 1, 1),
        # Five are due; the last of them is on time.
        ("skip", 310, minutes(5), 4, 4),
        ("once", 310, minutes(5), 4, 4),
        ("all", 310, minutes(3, 4, 5), 4, 4),
        # Five are due; all are late.
        ("skip", 340, (), 5, 5),
        ("once", 340, minutes(5), 5, 5),
        ("all", 340, minutes(3, 4, 5), 5, 5),
    ],
)
def test_misfires(misfire: str, late: int, fires: tuple[int, ...], missed: int, last_missed: int | None) -> None:
    planned = plan(schedule(misfire=misfire), NOON + late * SECOND)
    assert planned.fires == fires
    assert (planned.missed, planned.last_missed) == (missed, None if last_missed is None else minutes(last_missed)[0])
    assert planned.next == NOON + (late // 60 + 1) * MINUTE


@pytest.mark.parametrize(("kind", "expression"), [("cron", "* * * * *"), ("every", "1m"), ("cron", "* * * 12 *")])
def test_a_year_of_missed_fires_is_planned_quickly(kind: str, expression: str) -> None:
    definition = schedule(kind, expression, misfire="all", misfire_limit=100)
    first_missed = next_fire(definition, NOON) or 0
    later = from_iso("2027-02-25T12:00:30Z", field="later")
    planned = plan(schedule(kind, expression, misfire="all", misfire_limit=100, next_fire_at=first_missed), later)
    assert len(planned.fires) == 100 and planned.missed >= MAX_COUNTED_FIRES - 1
    newest = "2026-12-31T23:59:00Z" if "12" in expression else "2027-02-25T12:00:00Z"
    assert iso(planned.fires[-1]) == newest
    assert [b - a for a, b in zip(planned.fires, planned.fires[1:], strict=False)] == [MINUTE] * 99


def test_every_counts_from_its_anchor() -> None:
    definition = schedule("every", "90s")
    assert next_fire(definition, NOON) == NOON + 90 * SECOND
    assert next_fire(definition, NOON + 90 * SECOND) == NOON + 180 * SECOND
    assert next_fire(definition, NOON - 91 * SECOND) == NOON - 90 * SECOND, "a backfill may go back before the anchor"
    started = schedule("every", "90s", anchor=NOON + 7, starts_at=NOON + 7)
    assert list(fires_between(started, NOON - MINUTE, NOON + MINUTE)) == [NOON + 7], "the start is a fire"


def test_at_fires_once() -> None:
    definition = schedule("at", "2026-02-25T12:01:00Z")
    assert next_fire(definition, NOON) == NOON + MINUTE
    assert next_fire(definition, NOON + MINUTE) is None
    assert plan(definition, NOON + MINUTE).next is None


def test_start_and_end_are_included() -> None:
    definition = schedule(starts_at=NOON + 2 * MINUTE, ends_at=NOON + 4 * MINUTE)
    assert list(fires_between(definition, 0, NOON + 100 * MINUTE)) == list(minutes(2, 3, 4))
    ended = plan(schedule(ends_at=NOON + 3 * MINUTE, misfire="all"), NOON + 10 * MINUTE)
    assert ended.fires == minutes(1, 2, 3) and ended.next is None


def test_jitter_is_deterministic_per_fire() -> None:
    definition = schedule(jitter=10 * SECOND)
    delays = [jitter_delay(definition, moment) for moment in minutes(*range(200))]
    assert delays == [jitter_delay(definition, moment) for moment in minutes(*range(200))]
    assert 0 <= min(delays) < SECOND and 9 * SECOND < max(delays) <= 10 * SECOND
    assert jitter_delay(schedule(), NOON) == 0


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("90s", 90, "1m30s"),
        ("5m", 300, "5m"),
        ("1H30M", 5_400, "1h30m"),
        ("2d", 172_800, "2d"),
        ("1.5s", 1.5, "1.5s"),
        ("1w", 604_800, "1w"),
    ],
)
def test_intervals(text: str, seconds: float, canonical: str) -> None:
    assert parse_interval(text) == round(seconds * SECOND)
    assert format_interval(parse_interval(text)) == canonical
    assert parse_interval(canonical) == parse_interval(text)


@pytest.mark.parametrize("text", ["", "0s", "0.5s", "5", "m5", "-5m", "5m1h", "4000d", "1e3s", "٣m", None])
def test_invalid_intervals(text: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_interval(text)
    assert (caught.value.code, caught.value.extra) == ("SCHEDULE_INVALID", {"field": "every"})


def test_fires_between_two_times_include_both_ends() -> None:
    assert list(fires_between(schedule(), NOON + MINUTE, NOON + 3 * MINUTE)) == list(minutes(1, 2, 3))
    assert list(fires_between(schedule(), NOON + MINUTE + 1, NOON + 3 * MINUTE - 1)) == list(minutes(2))


def test_a_fire_is_due_at_its_own_time() -> None:
    planned = plan(schedule(misfire="all"), NOON + 2 * MINUTE)
    assert planned == (minutes(1, 2), 1, NOON + MINUTE, NOON + 3 * MINUTE)


def test_missed_fires_are_counted_up_to_a_thousand() -> None:
    assert plan(schedule(), NOON + 1_000 * MINUTE + 40 * SECOND).missed == 1_000
    assert plan(schedule(), NOON + 1_001 * MINUTE + 40 * SECOND).missed == 1_000
    new = schedule()
    assert (new.fires, new.misfires, new.overlapped) == (0, 0, 0)
    assert Advance(new, plan(new, NOON + MINUTE), None)[3:] == (0, 0, None)


def test_the_first_of_several_fires_alone_leaves_the_others_due() -> None:
    definition = schedule(misfire="all", misfire_limit=3)
    planned = plan(definition, NOON + 5 * MINUTE)
    assert planned.fires == minutes(3, 4, 5)
    assert first_fire_only(definition, planned) == (minutes(3), 3, NOON + 3 * MINUTE, NOON + 4 * MINUTE)


def test_the_key_of_a_fire_is_its_schedule_and_time() -> None:
    assert fire_key("s", NOON) == "schedule:s:2026-02-25T12:00:00Z"


def test_the_longest_interval_is_ten_years() -> None:
    assert parse_interval("3660d") == 3_660 * 86_400 * SECOND
    with pytest.raises(InvalidInput):
        parse_interval("3660d1s")
    assert (parse_interval("1s"), format_interval(SECOND), format_interval(10 * SECOND)) == (SECOND, "1s", "10s")


def test_the_words_that_a_schedule_is_declared_with() -> None:
    assert [str(word) for word in ScheduleKind] == ["at", "cron", "every"]
    assert [str(word) for word in Misfire] == ["skip", "once", "all"]
    assert [str(word) for word in Overlap] == ["allow", "skip", "cancel"]
