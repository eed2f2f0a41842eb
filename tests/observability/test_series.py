"""Time series by queue, job type and tenant: exact counts, percentiles, bounded size; the histograms of Prometheus."""

import random
from statistics import quantiles

import pytest

from detent.core.outcome import Succeeded
from detent.core.times import SECOND
from detent.engine import Engine
from detent.engine.metrics import time_series
from detent.engine.metrics.buckets import upper_seconds
from detent.engine.metrics.series_views import Dimension, groups_view, latency_view, series_view
from detent.engine.metrics.time_series import ALL, GROUP_SPANS, KEEP, SPANS, SeriesRecorder
from detent.engine.reads.operations import SpanName
from detent.ports.metrics import Subject
from detent.ports.tx import Tx
from support.acts import PERMANENT, claim, retryable, submit
from support.clock import FakeClock

from .test_metrics import page_of, summed

pytestmark = pytest.mark.anyio
DIMENSIONS: dict[Dimension, str] = {"queue": "queue", "job_type": "job_type", "tenant": "tenant_id"}
"""Dimension of the series -> field of a submission."""


async def run(engine: Engine, clock: FakeClock, wait: float, seconds: float, **fields: str) -> None:
    """One job that waits and then runs for so long."""
    await submit(engine, "standard", **fields)
    clock.advance(wait)
    (job,) = await claim(engine, 1)
    clock.advance(seconds)
    await engine.settle(job.id, job.token, Succeeded("1"))


async def rows_of(engine: Engine) -> list[tuple[int, int]]:
    """(width, number of slots) that are stored."""

    async def read(tx: Tx) -> list[tuple[int, int]]:
        numbers = []
        for width in (0, *KEEP):
            slots = [await tx.series.read_slots(width, 0, 1 << 50, kind, None) for kind in time_series.MAX_SUBJECTS]
            numbers.append((width, sum(map(len, slots))))
        return numbers

    return await engine.store.read(read)


async def test_percentiles_are_those_of_the_jobs(engine: Engine, clock: FakeClock) -> None:
    generator = random.Random(5)
    waits = [generator.lognormvariate(-2, 1) for _ in range(60)]
    runs = [generator.lognormvariate(0, 1.5) for _ in range(60)]
    for wait, seconds in zip(waits, runs, strict=True):
        await run(engine, clock, wait, seconds, queue="q", job_type="report", tenant_id="acme")
    await run(engine, clock, 9, 0, queue="other", job_type="other", tenant_id="other")
    recorder = SeriesRecorder(engine)
    assert await recorder.catch_up()
    clock.advance(120)
    for subject in (Subject("queue", "q"), Subject("job_type", "report"), Subject("tenant", "acme")):
        total = (await series_view(engine, "hour", subject))["total"]
        for view, values in ((total["wait"], waits), (total["run"], runs)):
            cuts = quantiles(values, n=100, method="inclusive")
            assert view["number"] == 60 and view["mean_seconds"] == pytest.approx(sum(values) / 60, rel=1e-3)
            assert view["p50_seconds"] == pytest.approx(cuts[49], rel=0.2)
            assert view["p95_seconds"] == pytest.approx(cuts[94], rel=0.2)
    assert (await series_view(engine, "hour", ALL))["total"]["ended_well"] == 61
    names = [item["name"] for item in (await groups_view(engine, "hour", "job_type"))["items"]]
    assert names == ["report", "other"]


async def test_percentiles_of_equal_durations_are_off_by_less_than_a_tenth(engine: Engine, clock: FakeClock) -> None:
    durations = [0.001, 0.0135, 0.2, 0.21, 0.238, 1.35, 60, 3_600]
    for number, seconds in enumerate(durations):
        await run(engine, clock, seconds, seconds, queue=f"q{number}")
    await SeriesRecorder(engine).catch_up()
    for number, seconds in enumerate(durations):
        total = (await series_view(engine, "day", Subject("queue", f"q{number}")))["total"]
        for latency in (total["wait"], total["run"]):
            percentiles = [latency["p50_seconds"], latency["p95_seconds"], latency["p99_seconds"]]
            assert percentiles == [pytest.approx(seconds, rel=0.1)] * 3


@pytest.mark.parametrize("contract", ["standard", "gate-b2"])
async def test_waiting_starts_when_the_job_is_due(engine: Engine, clock: FakeClock, contract: str) -> None:
    """A job for later and a retry do not wait before their time."""
    await submit(engine, contract, "later", delay=500)
    clock.advance(500)
    await engine.wake()
    clock.advance(2)
    (job,) = await claim(engine, 1)
    await engine.settle(job.id, job.token, retryable(job.contract))
    assert await SeriesRecorder(engine).catch_up()
    clock.advance(120)
    wait = (await series_view(engine, "hour", Subject("job_type", "later")))["total"]["wait"]
    assert wait["number"] == 1 and wait["mean_seconds"] == pytest.approx(2, abs=0.1)
    due_at = (await engine.jobs.get(job.id)).due_at
    assert due_at is not None
    clock.advance(max(0.0, (due_at - engine.store.now()) / SECOND) + 3)
    await engine.wake()
    (again,) = await claim(engine, 1)
    await engine.settle(again.id, again.token, PERMANENT)
    assert await SeriesRecorder(engine).catch_up()
    clock.advance(120)
    total = (await series_view(engine, "hour", Subject("job_type", "later")))["total"]
    assert total["wait"]["number"] == 2 and (total["wait"]["mean_seconds"] or 0) < 130
    assert (total["ended_badly"], total["retries"], total["run"]["number"]) == (1, 1, 2)


async def test_two_recorders_add_every_event_once(engine: Engine, clock: FakeClock) -> None:
    first, second = SeriesRecorder(engine), SeriesRecorder(engine)
    for number in range(5):
        await run(engine, clock, 1, 1, queue=f"q{number % 2}")
        await (first, second)[number % 2].catch_up()
    assert await second.catch_up() and await first.catch_up()
    clock.advance(120)
    for span in SPANS:
        view = await series_view(engine, span, ALL)
        assert (view["total"]["submitted"], view["total"]["ended_well"], view["total"]["run"]["number"]) == (5, 5, 5)
        rule = SPANS[span]
        assert len(view["points"]) == rule.seconds // rule.point
        assert sum(point["submitted"] for point in view["points"]) == 5
    assert [item["submitted"] for item in (await groups_view(engine, "hour", "queue"))["items"]] == [3, 2]


async def test_every_span_is_kept_for_its_length_and_no_slot_for_longer(engine: Engine, clock: FakeClock) -> None:
    await run(engine, clock, 1, 1, queue="old", job_type="old", tenant_id="old")
    recorder = SeriesRecorder(engine)
    await recorder.catch_up()
    seen: dict[SpanName, float] = {}
    start = engine.store.now()
    while (age := (engine.store.now() - start) / SECOND) < 2 * KEEP[7_200]:
        await submit(engine, "standard", queue="new")
        await recorder.catch_up()
        for span in SPANS:
            if (await series_view(engine, span, Subject("queue", "old")))["total"]["ended_well"]:
                seen[span] = age
        clock.advance(60 if age < 600 else age * 0.3)
    for span, rule in SPANS.items():
        assert seen[span] >= rule.seconds * 0.6, "each step is a third longer than the last one"
    await run(engine, clock, 1, 1, queue="new")
    await recorder.catch_up()
    clock.advance(120)
    rows = dict(await rows_of(engine))
    assert rows == {0: 2, 10: 8, 60: 4, 300: 4, 900: 4, 7_200: 12, 86_400: 12}, (
        "all, queue, type, tenant; two older jobs within 31 days"
    )
    groups = await groups_view(engine, "30d", "queue")
    assert [item["name"] for item in groups["items"]] == ["new"]


@pytest.mark.parametrize("span", SPANS)
async def test_totals_and_charts_include_the_current_minute(engine: Engine, clock: FakeClock, span: SpanName) -> None:
    """The chart from ten seconds on: a page that is opened in the first minute of a server is not empty."""
    clock.advance(86_400 - engine.store.now() / SECOND % 86_400)
    await run(engine, clock, 1, 1, queue="new")
    await SeriesRecorder(engine).catch_up()
    total = (await series_view(engine, span, ALL))["total"]
    assert (total["submitted"], total["ended_well"], total["run"]["number"]) == (1, 1, 1)
    clock.advance(8)
    points = (await series_view(engine, span, ALL))["points"]
    assert [point["ended_well"] for point in points if point["submitted"]] == [1]


@pytest.mark.parametrize("span", SPANS)
async def test_groups_include_the_current_minute(engine: Engine, clock: FakeClock, span: SpanName) -> None:
    clock.advance(86_400 - engine.store.now() / SECOND % 86_400)
    await run(engine, clock, 1, 1, queue="new")
    await SeriesRecorder(engine).catch_up()
    (item,) = (await groups_view(engine, span, "queue"))["items"]
    assert (item["submitted"], item["ended_well"], sum(item["finished"])) == (1, 1, 0)


@pytest.mark.parametrize("span", SPANS)
async def test_the_sums_tell_how_much_time_they_cover(engine: Engine, clock: FakeClock, span: SpanName) -> None:
    """Ten seconds after a point began, it takes the place of the oldest one: the sums cover less than the span."""
    clock.advance(86_400 + 9 - engine.store.now() / SECOND % 86_400)
    for age in (9, 10):
        series, groups = await series_view(engine, span, ALL), await groups_view(engine, span, "queue")
        for view, rule in ((series, SPANS[span]), (groups, GROUP_SPANS[span])):
            assert view["seconds"] == rule.seconds + (9 if age == 9 else 10 - rule.point)
        clock.advance(1)


async def test_the_number_of_subjects_is_bounded(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_series, "MAX_SUBJECTS", dict.fromkeys(time_series.MAX_SUBJECTS, 3))
    for number in range(6):
        await run(engine, clock, 1, 1, **{field: f"{by}-{number}" for by, field in DIMENSIONS.items()})
        await SeriesRecorder(engine).catch_up()
    clock.advance(120)
    for by in DIMENSIONS:
        items = (await groups_view(engine, "hour", by))["items"]
        assert {item["name"] for item in items[1:]} == {f"{by}-{n}" for n in range(3)}
        assert items[0]["name"] is None and items[0]["ended_well"] == 3, "the others are counted together"


async def test_prometheus_gets_waiting_and_running_times_by_queue_and_type(engine: Engine, clock: FakeClock) -> None:
    recorder = SeriesRecorder(engine)
    for seconds in (0.01, 0.5, 40.0):
        await run(engine, clock, 2, seconds, queue="q", job_type="t")
        await recorder.catch_up()
    clock.advance(90 * 86_400)
    await run(engine, clock, 2, 0.5, queue="q", job_type="u")
    await recorder.catch_up()
    page = await page_of(engine)
    for name in ("detent_job_wait_seconds", "detent_job_run_seconds"):
        assert summed(page, f"{name}_count", "queue", "job_type") == {("q", "t"): 3, ("q", "u"): 1}
    assert summed(page, "detent_job_run_seconds_sum", "job_type")[("t",)] == pytest.approx(40.51)
    buckets = summed(page, "detent_job_run_seconds_bucket", "job_type", "le")
    upto = {float(le): number for (job_type, le), number in buckets.items() if job_type == "t"}
    assert upto[upper_seconds(28)] == 1 and upto[upper_seconds(56)] == 2 and upto[float("inf")] == 3
    assert list(upto.values()) == sorted(upto.values()), "cumulative"


def test_percentiles_of_nothing_are_unknown() -> None:
    assert latency_view({}, 0) == {
        "number": 0,
        "mean_seconds": None,
        "p50_seconds": None,
        "p95_seconds": None,
        "p99_seconds": None,
    }
