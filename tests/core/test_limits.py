"""Limits as pure functions: no window exceeds the rate, no allocation exceeds a meter."""

from hypothesis import given
from hypothesis import strategies as st

from detent.core.limits import (
    LaneChoice,
    Limit,
    Meter,
    allocate,
    compact_spent,
    entries_within,
    format_spent,
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
