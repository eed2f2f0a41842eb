"""A run told onwards: the JSON's shape, the chart, the screen, the tables of the docs."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import chart, docs, report
from bench.__main__ import main
from bench.contestants import BY_NAME
from bench.measures import MEASURES
from bench.readings import Miss, Readings

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
    made = Readings(syncs=[1000.0, 3000.0], missing=[Miss("huey", "drain", "it <said> nothing & left")])
    for place, name in enumerate(NAMES, 1):
        for value in (place * 100.0, place * 90.0, place * 110.0):
            made.add("drain", name, value)
            made.add("pickup p50", name, value / 50, "ms", lower=True)
    made.add("cost a job, backlog of 1,000", "detent-postgres", 50.0, "µs", lower=True)
    return made


@pytest.fixture
def data(readings: Readings) -> dict[str, Any]:
    options = {"full": False, "rounds": 3, "jobs": 100, "measures": ["drain"]}
    made = report.as_json(readings, [BY_NAME[name] for name in NAMES], options, {"postgres": "PostgreSQL 17"})
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]


def test_the_json_has_its_shape(data: dict[str, Any]) -> None:
    assert data.keys() == SHAPE.keys()
    _holds(data, SHAPE)
    for measure in data["measures"].values():
        _holds(measure, _MEASURE)
        assert all(isinstance(value, float) for values in measure["readings"].values() for value in values)
    for goal in data["goals"]:
        _holds(goal, _GOAL)
    for told in data["contestants"].values():
        assert {"store", "settings", "history", "fsync", "handler"} <= told.keys()
    assert data["missing"] == [{"contestant": "huey", "measure": "drain", "reason": "it <said> nothing & left"}]


def _holds(found: dict[str, Any], shape: dict[str, Any]) -> None:
    for name, kind in shape.items():
        assert isinstance(found[name], kind), (name, found[name])


def test_readings_come_back_from_the_json(readings: Readings, data: dict[str, Any]) -> None:
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
    assert "missing: huey, drain: it <said> nothing & left" in shown
    assert "MISSED" in shown
    assert "handler calls: one a job" in shown
    assert any(line.split()[:2] == ["0.50", "×"] and line.endswith("detent-postgres") for line in shown.splitlines())


def test_blocks_of_the_docs_are_made_anew_and_the_rest_is_left(data: dict[str, Any], readings: Readings) -> None:
    page = "before\n<!-- bench drain -->\nold\n<!-- /bench -->\nbetween\n<!-- bench steps -->\n<!-- /bench -->\nafter\n"
    made = docs.filled(page, data, readings)
    assert made.startswith("before\n<!-- bench drain -->\n| drain, jobs/s |") and made.endswith("after\n")
    assert "old" not in made and "between" in made and "*Not measured in this run: steps.*" in made
    assert docs.filled(made, data, readings) == made


def test_every_block_of_the_pages_can_be_made(data: dict[str, Any], readings: Readings) -> None:
    for name in docs.PAGES:
        text = (Path(docs.homes.ROOT) / "docs" / name).read_text()
        assert text.count("<!-- bench ") == text.count("<!-- /bench -->") > 0
        assert docs.filled(text, data, readings)


def test_the_list_names_everybody_and_every_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name in BY_NAME)
    assert all(f" {name} " in shown for name in MEASURES) and "ten recorded steps a job" in shown
