"""Limits as pure functions: no window exceeds the rate, no allocation exceeds a meter."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.core.errors import InvalidInput
from detent.core.limits import (
    MAX_NUMBER,
    JobKind,
    LaneChoice,
    Limit,
    Meter,
    allocate,
    compact_spent,
    entries_within,
    format_spent,
    make_limit,
    parse_spent,
)

RATES = st.integers(1, 20)
GAPS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30)), max_size=120)


@given(RATES, st.integers(1, 1_000), GAPS)
def test_no_window_holds_more_than_the_rate(rate: int, period: int, claims: list[tuple[int, int]]) -> None:
    limit = Limit(rate=rate, period=period)
    meter, now, log = Meter(1, limit), 0, []
    for gap, limit_of_claim in claims:
        now += gap
        number = min(limit_of_claim, meter.room(0, now))
        if number:
            log += [now] * number
            text = format_spent(compact_spent(meter.spent, now, period)) + f"{now}:{number} "
            meter = Meter(1, limit, meter.taken + number, parse_spent(text))
        assert len(meter.spent) <= 66
    for start in log:
        assert sum(start <= at < start + period for at in log) <= rate


@given(RATES, st.integers(1, 1_000), st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 9)), max_size=40))
def test_a_full_meter_returns_when_it_opens(rate: int, period: int, spent: list[tuple[int, int]]) -> None:
    meter = Meter(1, Limit(rate=rate, period=period), 0, tuple(sorted(spent)))
    now = max((at for at, _ in spent), default=0)
    opens = meter.opens_at(now)
    if opens is None:
        assert meter.room(0, now) > 0
    else:
        assert meter.room(0, opens) > 0
        assert opens == now or meter.room(0, opens - 1) == 0


def test_nothing_starts_after_the_clock_was_set_back() -> None:
    meter = Meter(1, Limit(rate=5, period=100), 1, ((1_000, 1),))
    assert (meter.room(0, 1_000), meter.room(0, 999), meter.opens_at(999)) == (4, 0, 1_000)
    assert entries_within(meter.spent, 1_100, 100) == ()


def test_a_full_rate_opens_when_its_oldest_start_leaves_the_window() -> None:
    limit = Limit(rate=2, period=100)
    assert Meter(1, limit, 1, ((10, 1),)).opens_at(30) is None
    assert Meter(1, limit, 2, ((10, 1), (20, 1))).opens_at(30) == 110
    assert Meter(1, limit, 3, ((10, 1), (20, 2))).opens_at(30) == 120


def test_a_meter_that_started_nothing_is_open_at_any_time() -> None:
    meter = Meter(1, Limit(rate=5, period=100))
    assert [(meter.room(0, now), meter.opens_at(now)) for now in (0, 1, 1_000)] == [(5, None)] * 3


@pytest.mark.parametrize("limit", [Limit(rate=1), Limit(period=100)], ids=["rate", "period"])
def test_a_rate_needs_a_number_and_a_period_to_bound_anything(limit: Limit) -> None:
    meter = Meter(1, limit, 2, ((50, 2),))
    assert (meter.room(0, 60), meter.opens_at(60)) == (MAX_NUMBER, None)


LANES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 40), st.sets(st.integers(1, 4))), min_size=1, max_size=12
)


@given(LANES, st.integers(0, 60), st.lists(st.integers(0, 25), min_size=4, max_size=4), st.integers(1, 9))
def test_allocations_respect_lanes_meters_and_the_limit(
    lanes: list[tuple[str, int, set[int]]], limit: int, rooms: list[int], weight: int
) -> None:
    choices = [
        LaneChoice(n, tenant, waiting, tuple(sorted(meters))) for n, (tenant, waiting, meters) in enumerate(lanes)
    ]
    room = dict(enumerate(rooms, 1))
    allocated = allocate(choices, limit, dict(room), {"a": weight})
    assert sum(allocated.values()) <= limit
    left = {
        number: waiting - sum(allocated.get(c.lane, 0) for c in choices if number in c.meters)
        for number, waiting in room.items()
    }
    assert all(number >= 0 for number in left.values())
    for choice in choices:
        assert 0 <= allocated.get(choice.lane, 0) <= choice.available
        open_ = all(left[meter] > 0 for meter in choice.meters)
        wasted = allocated.get(choice.lane, 0) < choice.available and open_ and sum(allocated.values()) < limit
        assert not wasted, "the limit is used while jobs are available"
    free = {c.tenant_id for c in choices if c.available and not c.meters}
    if limit >= len(choices):
        assert free <= {c.tenant_id for c in choices if allocated.get(c.lane)}, "every tenant gets one"


def test_many_starts_are_merged_into_a_bounded_number_of_entries() -> None:
    period = 3_200
    spent = tuple((at, 2) for at in range(1, 65))
    assert compact_spent(spent, 64, period) == spent, "64 entries are kept as they are"
    spent = tuple((at, 2) for at in range(100, 165))
    assert compact_spent(spent, 200, period) == ((164, 130),), "a granule is a 32nd of the period"
    spent = tuple((at, 1) for at in range(80, 145))
    assert compact_spent(spent, 200, period) == ((99, 20), (144, 45))
    assert compact_spent(tuple((at // 5, 1) for at in range(70)), 13, 14) == tuple((at, 5) for at in range(14))


def test_room_is_what_concurrency_and_rate_leave() -> None:
    assert Meter(1, Limit(concurrency=5)).room(3, 0) == 2
    assert Meter(1, Limit(concurrency=5)).room(6, 0) == 0
    both = Limit(concurrency=5, rate=10, period=100)
    assert Meter(1, both, 8, ((50, 8),)).room(1, 60) == 2
    assert Meter(1, both, 8, ((50, 8),)).room(4, 60) == 1
    assert (Meter(1, both).taken, Limit().id) == (0, 0)


def lanes(*rows: tuple[str, int, tuple[int, ...]]) -> list[LaneChoice]:
    return [LaneChoice(number, *row) for number, row in enumerate(rows)]


def test_tenants_share_a_claim_by_weight_and_lanes_of_a_tenant_evenly() -> None:
    two = lanes(("a", 50, ()), ("b", 50, ()))
    assert allocate(two, 8, {}, {"a": 3}) == {0: 6, 1: 2}
    assert allocate(lanes(("a", 50, ()), ("a", 50, ())), 8, {}, {}) == {0: 4, 1: 4}
    assert allocate(lanes(("a", 50, ()), ("a", 50, ()), ("b", 50, ())), 2, {}, {}) == {0: 1, 2: 1}
    assert allocate(lanes(*[("a", 50, ())] * 3), 2, {}, {}) == {0: 1, 1: 1}, "fewer jobs than lanes"


def test_lanes_under_one_meter_share_its_room() -> None:
    room = {1: 8}
    assert allocate(lanes(("a", 50, (1,)), ("b", 50, ())), 16, room, {}) == {0: 8, 1: 8}
    assert room == {1: 0}
    three = lanes(("a", 9, (1,)), ("b", 9, (1,)), ("c", 9, (1,)))
    assert allocate(three, 30, {1: 3}, {}) == {0: 1, 1: 1, 2: 1}


def test_a_limit_applies_to_the_jobs_that_match_its_fields() -> None:
    kind = JobKind("mail", "send", "acme", "k")
    other = JobKind("x", "x", "x", "x")
    for field, value in kind._asdict().items():
        limit = Limit(**{field: value}, concurrency=1)
        assert (limit.subject(kind), limit.subject(other)) == ("", None), field
    subjects = {per: Limit(per=per, concurrency=1).subject(kind) for per in JobKind._fields}
    assert subjects == {"queue": "mail", "job_type": "send", "tenant_id": "acme", "limit_key": "acme\x1fk"}
    assert Limit(per="limit_key", concurrency=1).subject(kind._replace(limit_key="")) is None
    assert Limit(per="queue", tenant_id="acme", concurrency=1).subject(other) is None


LIMITS = [
    (
        {"queue": "mail", "job_type": "send", "tenant": "acme", "key": "k", "rate": (10, 0.5)},
        ("mail", "send", "acme", "k", ""),
        "queue mail, type send, tenant acme, key k",
        {"queue": "mail", "job_type": "send", "tenant_id": "acme", "key": "k", "rate": 10, "period_seconds": 0.5},
    ),
    ({"queue": "q", "concurrency": 1_000_000_000}, ("q", "", "", "", ""), "queue q",
     {"queue": "q", "concurrency": 1_000_000_000}),
    *(
        ({"per": per, "concurrency": 3}, ("", "", "", "", field), f"each {label}", {"per": label, "concurrency": 3})
        for per, field, label in (
            ("queue", "queue", "queue"),
            ("type", "job_type", "type"),
            ("job_type", "job_type", "type"),
            ("tenant", "tenant_id", "tenant"),
            ("key", "limit_key", "key"),
        )
    ),
    ({"concurrency": 1}, ("",) * 5, "everything", {"concurrency": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("options", "scope", "description", "shown"), LIMITS)
def test_a_limit_is_made_described_and_shown(
    options: dict[str, Any], scope: tuple[str, ...], description: str, shown: dict[str, Any]
) -> None:
    limit = make_limit(**options)
    names = ("queue", "job_type", "tenant_id", "key", "per", "concurrency", "rate", "period_seconds")
    assert (limit.scope, limit.describe()) == (scope, description)
    assert limit.as_dict() == dict.fromkeys(names) | shown


INVALID: list[tuple[dict[str, Any], str, str]] = [
    ({}, "concurrency", "needs concurrency"),
    ({"concurrency": 1, "per": "colour"}, "per", "colour"),
    *(
        ({"concurrency": 1, name: value}, name, f"{name} must be")
        for name in ("queue", "job_type", "tenant", "key")
        for value in ("", " ", "a\n", 5)
    ),
    ({"concurrency": 0}, "concurrency", "pause it"),
    ({"concurrency": -1}, "concurrency", "from 1 to"),
    ({"concurrency": 1_000_000_001}, "concurrency", "from 1 to"),
    ({"rate": (0, 1)}, "rate", "pause it"),
    ({"rate": (True, 1)}, "rate", "whole number"),
    ({"rate": 5}, "rate", "(number, seconds)"),
    ({"rate": (5, 0.000_999)}, "rate", "0.001"),
    ({"rate": (5, 366 * 86_400 + 0.01)}, "rate", "0.001"),
]


@pytest.mark.parametrize(("options", "field", "message"), INVALID)
def test_an_invalid_limit_is_refused_with_its_field(options: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make_limit(**options)
    assert (caught.value.code, caught.value.extra) == ("LIMIT_INVALID", {"field": field})
    assert message in str(caught.value)


@pytest.mark.parametrize(("seconds", "period"), [(0.001, 1_000), (366 * 86_400, 366 * 86_400 * 1_000_000)])
def test_the_shortest_and_the_longest_period(seconds: float, period: int) -> None:
    limit = make_limit(rate=(1, seconds))
    assert (limit.rate, limit.period) == (1, period)
