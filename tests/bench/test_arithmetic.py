"""The arithmetic of the harness on constant readings: medians, ratios, percentiles, goals, the model."""

import pytest

from bench.contestants import BY_NAME, CONTESTANTS, OURS, RAW, select
from bench.goals import GOALS, Goal
from bench.homes import HOMES
from bench.model import Cost, cost_of, measured_rates
from bench.readings import Readings, percentile


@pytest.fixture
def readings() -> Readings:
    readings = Readings()
    for values, name in (([90, 10, 80], "detent-postgres"), ([100, 100, 400], "raw-postgres"), ([40], "bullmq"),
                         ([120], "detent-streams")):  # fmt: skip
        for value in values:
            readings.add("drain", name, value)
    for value, name in ((4.0, "detent-postgres"), (6.0, "graphile-worker")):
        readings.add("pickup p50", name, value, "ms", lower=True)
    return readings


def test_a_median_is_of_all_rounds(readings: Readings) -> None:
    assert readings.median("drain", "detent-postgres") == 80
    assert readings.median("drain", "huey") is None
    assert readings.median("nothing", "detent-postgres") is None


def test_a_ratio_above_one_is_better_also_where_lower_is_better(readings: Readings) -> None:
    assert readings.ratio("drain", "detent-postgres", "raw-postgres") == 0.8
    assert readings.ratio("pickup p50", "detent-postgres", "graphile-worker") == 1.5
    assert readings.of_raw("drain", "detent-postgres") == 0.8
    assert readings.of_raw("drain", "bullmq") is None
    assert readings.detent_ahead("drain", "bullmq") == 3.0, "Redis peers are compared with Detent over Redis Streams"
    assert readings.ratio("drain", "detent-postgres", "huey") is None


def test_the_best_comes_first(readings: Readings) -> None:
    assert readings.ranked("drain", "postgres") == ["raw-postgres", "detent-postgres"]
    assert readings.ranked("pickup p50", "postgres") == ["detent-postgres", "graphile-worker"]
    assert readings.ranked("pickup p50", "sqlite") == []


def test_a_measure_keeps_its_unit(readings: Readings) -> None:
    with pytest.raises(AssertionError, match="another unit"):
        readings.add("drain", "huey", 1.0, "ms", lower=True)


def test_percentiles_are_nearest_rank() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert (percentile(values, 50), percentile(values, 99), percentile([7.0], 99)) == (50, 99, 7)


def test_goals_are_met_missed_or_not_measured(readings: Readings) -> None:
    met = {goal.description: goal.met(readings) for goal in GOALS}
    assert met["Postgres pickup p50, of graphile-worker"] is True
    assert met["SQLite drain, of the minimal row"] is None
    assert Goal("", "drain", "detent-postgres", "raw-postgres", 0.81).met(readings) is False
    assert Goal("", "pickup p50", "detent-postgres", None, 4.0).met(readings) is False
    assert {goal.mine for goal in GOALS} | {goal.other for goal in GOALS if goal.other} <= BY_NAME.keys()


def test_the_model_is_limited_by_the_busiest_core_and_by_the_sum_of_cores() -> None:
    cost = Cost(worker=20e-6, server=40e-6)
    assert cost.predicted(1, 16) == pytest.approx(25_000)
    assert cost.predicted(4, 16) == pytest.approx(100_000)
    assert cost.predicted(4, 2) == pytest.approx(2 / 60e-6)
    assert cost.server_alone(8) == pytest.approx(200_000)
    assert cost.workers_needed(8) == pytest.approx(4)


def test_the_model_reads_the_costs(readings: Readings) -> None:
    assert cost_of(readings, "detent-postgres") is None
    for name, value in (("worker CPU per 1,000 jobs", 20.0), ("server CPU per 1,000 jobs", 40.0)):
        readings.add(name, "detent-postgres", value, "ms", lower=True)
    assert cost_of(readings, "detent-postgres") == Cost(20e-6, 40e-6)
    assert measured_rates(readings, "detent-postgres") == {1: 80}


def test_contestants_describe_what_they_include() -> None:
    assert len(BY_NAME) == len(CONTESTANTS)
    assert {*RAW.values(), *OURS.values()} <= BY_NAME.keys()
    assert {c.home for c in CONTESTANTS if c.home} == HOMES.keys() - {"valkey"}
    for contestant in CONTESTANTS:
        assert contestant.settings and contestant.history and contestant.fsync and contestant.handler
        assert contestant.store in {"sqlite", "postgres", "redis"}
    assert [c.name for c in select(["huey", "rq"], full=False)] == ["huey", "rq"]
    assert select(None, full=True) == list(CONTESTANTS)
    with pytest.raises(SystemExit, match="unknown contestants: nobody"):
        select(["nobody"], full=False)
