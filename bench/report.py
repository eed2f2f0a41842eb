"""Prints a run as tables and writes it as JSON, from which the chart and the docs are generated."""

import datetime
import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .contestants import BY_NAME, Contestant
from .goals import GOALS
from .readings import Measure, MissingReading, Readings

SCHEMA = 1
STORES = {"postgres": "Postgres", "sqlite": "SQLite", "redis": "Redis"}


def format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def format_ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} ×"


def show(readings: Readings, contestants: Sequence[Contestant]) -> None:
    """Print all measures; ratios come first, because absolute numbers depend on the machine."""
    for name, measure in readings.measures.items():
        better = "less" if measure.lower_is_better else "more"
        print(f"\n{name} ({measure.unit}, {better} is better)")
        print(f"  {'of raw':>8}  {'Detent ahead':>12}  {'median':>11}  {'least to most':<22}")
        for store in STORES:
            for contestant_name in readings.ranked(name, store):
                print(_line(readings, name, measure, contestant_name))
    print("\nwhat each row includes")
    for contestant in contestants:
        print(f"  {contestant.name}: {contestant.settings}. {contestant.includes()}")
    show_goals(readings)
    if readings.syncs:
        low, high = min(readings.syncs), max(readings.syncs)
        print(f"\nthe disk synced {format_number(low)} to {format_number(high)} pages a second, once a round")
    for missing in readings.missing:
        print(f"missing: {missing.contestant}{', ' + missing.measure if missing.measure else ''}: {missing.reason}")


def _line(readings: Readings, name: str, measure: Measure, contestant: str) -> str:
    values = measure.values[contestant]
    spread = f"{format_number(min(values))} to {format_number(max(values))}"
    of_raw, ahead = readings.of_raw(name, contestant), readings.detent_ahead(name, contestant)
    ratios = f"{format_ratio(of_raw):>8}  {format_ratio(ahead):>12}"
    return f"  {ratios}  {format_number(statistics.median(values)):>11}  {spread:<22} {contestant}"


def show_goals(readings: Readings) -> None:
    print("\ngoals")
    for goal in GOALS:
        value, met = goal.reached(readings), goal.met(readings)
        bound = f"< {goal.bound:g}" if goal.other is None else f">= {goal.bound:g}"
        verdict = {True: "holds", False: "MISSED", None: "not measured"}[met]
        print(f"  {verdict:<12} {'' if value is None else f'{value:.2f}':>8} {bound:<7} {goal.description}")


def as_json(
    readings: Readings, contestants: Sequence[Contestant], options: dict[str, Any], versions: dict[str, str]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "taken_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(versions),
        "options": options,
        "contestants": {c.name: _described(c) for c in contestants},
        "measures": {name: _measured(readings, name) for name in readings.measures},
        "disk_syncs_per_second": readings.syncs,
        "goals": [
            {"says": g.description, "bound": g.bound, "absolute": g.other is None, "reached": g.reached(readings),
             "met": g.met(readings)}
            for g in GOALS
        ],
        "missing": [{"contestant": m.contestant, "measure": m.measure, "reason": m.reason} for m in readings.missing],
    }  # fmt: skip


def _described(contestant: Contestant) -> dict[str, Any]:
    names = ("store", "settings", "history", "fsync", "handler", "home", "variant")
    return {name: getattr(contestant, name) for name in names}


def _measured(readings: Readings, name: str) -> dict[str, Any]:
    measure = readings.measures[name]
    return {
        "unit": measure.unit,
        "lower_is_better": measure.lower_is_better,
        "readings": measure.values,
        "medians": {contestant: statistics.median(values) for contestant, values in measure.values.items()},
        "of_raw": {contestant: readings.of_raw(name, contestant) for contestant in measure.values},
        "detent_ahead": {contestant: readings.detent_ahead(name, contestant) for contestant in measure.values},
    }


def machine(versions: dict[str, str]) -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def from_json(data: dict[str, Any]) -> Readings:
    """The readings of an earlier run, for the chart and the docs. Raises ValueError for another schema."""
    if data.get("schema") != SCHEMA:
        raise ValueError(f"the results have schema {data.get('schema')}, this version needs {SCHEMA}: measure again")
    readings = Readings(syncs=data["disk_syncs_per_second"])
    for name, measure in data["measures"].items():
        values = {contestant: values for contestant, values in measure["readings"].items() if contestant in BY_NAME}
        readings.measures[name] = Measure(measure["unit"], measure["lower_is_better"], values)
    readings.missing = [MissingReading(m["contestant"], m["measure"], m["reason"]) for m in data["missing"]]
    return readings


def write(data: dict[str, Any], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
