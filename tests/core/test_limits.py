"""Limits as pure functions: windows that never hold too much, shares that never exceed a meter."""

from hypothesis import given
from hypothesis import strategies as st

from detent.core.limits import Choice, Limit, Meter, compacted, share_out, spent_from, spent_text, within

RATES = st.integers(1, 20)
GAPS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30)), max_size=120)


@given(RATES, st.integers(1, 1_000), GAPS)
def test_no_window_holds_more_than_the_rate(rate: int, period: int, asks: list[tuple[int, int]]) -> None:
    limit = Limit(rate=rate, period=period)
    meter, now, log = Meter(1, limit), 0, []
    for gap, wanted in asks:
        now += gap
        number = min(wanted, meter.room(0, now))
        if number:
            log += [now] * number
            text = spent_text(compacted(meter.spent, now, period)) + f"{now}:{number} "
            meter = Meter(1, limit, meter.taken + number, spent_from(text))
        assert len(meter.spent) <= 66
    for start in log:
        assert sum(start <= at < start + period for at in log) <= rate


@given(RATES, st.integers(1, 1_000), st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 9)), max_size=40))
def test_a_full_meter_says_when_it_opens(rate: int, period: int, spent: list[tuple[int, int]]) -> None:
    meter = Meter(1, Limit(rate=rate, period=period), 0, tuple(sorted(spent)))
    now = max((at for at, _ in spent), default=0)
    opens = meter.opens_at(now)
    if opens is None:
        assert meter.room(0, now) > 0
    else:
        assert meter.room(0, opens) > 0
        assert opens == now or meter.room(0, opens - 1) == 0


def test_a_clock_that_was_set_back_opens_nothing() -> None:
    meter = Meter(1, Limit(rate=5, period=100), 1, ((1_000, 1),))
    assert (meter.room(0, 1_000), meter.room(0, 999), meter.opens_at(999)) == (4, 0, 1_000)
    assert within(meter.spent, 1_100, 100) == ()


LANES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 40), st.sets(st.integers(1, 4))), min_size=1, max_size=12
)


@given(LANES, st.integers(0, 60), st.lists(st.integers(0, 25), min_size=4, max_size=4), st.integers(1, 9))
def test_shares_obey_lanes_meters_and_what_is_wanted(
    lanes: list[tuple[str, int, set[int]]], wanted: int, rooms: list[int], weight: int
) -> None:
    choices = [Choice(n, who, there, tuple(sorted(meters))) for n, (who, there, meters) in enumerate(lanes)]
    room = dict(enumerate(rooms, 1))
    given_ = share_out(choices, wanted, dict(room), {"a": weight})
    assert sum(given_.values()) <= wanted
    left = {
        number: there - sum(given_.get(c.lane, 0) for c in choices if number in c.meters)
        for number, there in room.items()
    }
    assert all(number >= 0 for number in left.values())
    for choice in choices:
        assert 0 <= given_.get(choice.lane, 0) <= choice.available
        open_ = all(left[meter] > 0 for meter in choice.meters)
        wasted = given_.get(choice.lane, 0) < choice.available and open_ and sum(given_.values()) < wanted
        assert not wasted, "nothing that could be taken is left while more was wanted"
    free = {c.tenant_id for c in choices if c.available and not c.meters}
    if wanted >= len(choices):
        assert free <= {c.tenant_id for c in choices if given_.get(c.lane)}, "every tenant gets one"
