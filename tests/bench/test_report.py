"""The output of a run: JSON, chart, screen, and the tables of the docs."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import chart, docs, report
from bench.__main__ import main
from bench.contestants import BY_NAME
from bench.measures import MEASURES
from bench.readings import MissingReading, Readings

NAMES = ("detent-postgres", "raw-postgres", "graphile-worker", "detent-sqlite", "bullmq")
_MEASURE: dict[str, type | tuple[type, ...]] = {
    "unit": str, "lower_is_better": bool, "readings": dict, "medians": dict, "of_raw": dict, "detent_ahead": dict,
}  # fmt: skip
_GOAL: dict[str, Any] = {
    "says": str, "bound": float, "absolute": bool, "reached": (float, type(None)), "met": (bool, type(None)),
}  # fmt: skip
SHAPE: dict[str, type] = {
    "schema": int, "taken_at": str, "machine": dict, "options": dict, "contestants": dict, "measures": dict,
    "disk_syncs_per_second": list, "goals": list, "missing": list,
}  # fmt: skip


@pytest.fixture
def readings() -> Readings:
    readings = Readings(syncs=[1000.0, 3000.0], missing=[MissingReading("huey", "drain", "no <output> & exit 1")])
    for place, name in enumerate(NAMES, 1):
        for value in (place * 100.0, place * 90.0, place * 110.0):
            readings.add("drain", name, value)
            readings.add("pickup p50", name, value / 50, "ms", lower=True)
    readings.add("cost a job, backlog of 1,000", "detent-postgres", 50.0, "µs", lower=True)
    return readings


@pytest.fixture
def data(readings: Readings) -> dict[str, Any]:
    options = {"full": False, "rounds": 3, "jobs": 100, "measures": ["drain"]}
    results = report.as_json(readings, [BY_NAME[name] for name in NAMES], options, {"postgres": "PostgreSQL 17"})
    return json.loads(json.dumps(results))  # type: ignore[no-any-return]


def test_the_json_has_the_declared_fields(data: dict[str, Any]) -> None:
    assert data.keys() == SHAPE.keys()
    _check_types(data, SHAPE)
    for measure in data["measures"].values():
        _check_types(measure, _MEASURE)
        assert all(isinstance(value, float) for values in measure["readings"].values() for value in values)
    for goal in data["goals"]:
        _check_types(goal, _GOAL)
    for contestant in data["contestants"].values():
        assert {"store", "settings", "history", "fsync", "handler"} <= contestant.keys()
    assert data["missing"] == [{"contestant": "huey", "measure": "drain", "reason": "no <output> & exit 1"}]


def _check_types(data: dict[str, Any], shape: dict[str, Any]) -> None:
    for name, kind in shape.items():
        assert isinstance(data[name], kind), (name, data[name])


def test_readings_are_restored_from_the_json(readings: Readings, data: dict[str, Any]) -> None:
    assert report.from_json(data) == readings
    with pytest.raises(ValueError, match="measure again"):
        report.from_json({"schema": 0})


def test_the_chart_is_valid_xml(readings: Readings) -> None:
    root = ElementTree.fromstring(chart.svg(readings))
    bars = [part for part in root.iter() if part.tag.endswith("rect")]
    assert len(bars) == 2 * len(NAMES)
    assert all(0 < float(bar.get("width", "0")) <= chart.WIDTH for bar in bars)
    assert ElementTree.fromstring(chart.svg(Readings())).tag.endswith("svg")


def test_ratios_and_reasons_are_on_the_screen(readings: Readings, capsys: pytest.CaptureFixture[str]) -> None:
    report.show(readings, [BY_NAME[name] for name in NAMES])
    shown = capsys.readouterr().out
    assert "missing: huey, drain: no <output> & exit 1" in shown
    assert "MISSED" in shown
    assert "handler calls: one a job" in shown
    assert any(line.split()[:2] == ["0.50", "×"] and line.endswith("detent-postgres") for line in shown.splitlines())


def test_blocks_of_the_docs_are_generated_and_the_rest_is_unchanged(data: dict[str, Any], readings: Readings) -> None:
    page = "before\n<!-- bench drain -->\nold\n<!-- /bench -->\nbetween\n<!-- bench steps -->\n<!-- /bench -->\nafter\n"
    text = docs.filled(page, data, readings)
    assert text.startswith("before\n<!-- bench drain -->\n| drain, jobs/s |") and text.endswith("after\n")
    assert "old" not in text and "between" in text and "*Not measured in this run: steps.*" in text
    assert docs.filled(text, data, readings) == text


def test_every_block_of_the_pages_can_be_generated(data: dict[str, Any], readings: Readings) -> None:
    for name in docs.PAGES:
        text = (Path(docs.homes.ROOT) / "docs" / name).read_text()
        assert text.count("<!-- bench ") == text.count("<!-- /bench -->") > 0
        assert docs.filled(text, data, readings)


def test_the_list_shows_all_contestants_and_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name in BY_NAME)
    assert all(f" {name} " in shown for name in MEASURES) and "ten recorded steps a job" in shown
