"""One run as a table on the screen and as JSON; the JSON holds all that the chart and the docs are made from."""

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
from .readings import Measure, Miss, Readings

SCHEMA = 1
STORES = {"postgres": "Postgres", "sqlite": "SQLite", "redis": "Redis"}


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} ×"


def show(readings: Readings, contestants: Sequence[Contestant]) -> None:
    """Ratios first: absolute numbers are this machine's."""
    for name, measure in readings.measures.items():
        better = "less" if measure.lower_is_better else "more"
        print(f"\n{name} ({measure.unit}, {better} is better)")
        print(f"  {'of raw':>8}  {'Detent ahead':>12}  {'median':>11}  {'least to most':<22}")
        for store in STORES:
            for who in readings.ranked(name, store):
                print(_line(readings, name, measure, who))
    print("\nwhat each row includes")
    for contestant in contestants:
        print(f"  {contestant.name}: {contestant.settings}. {contestant.includes()}")
    show_goals(readings)
    if readings.syncs:
        low, high = min(readings.syncs), max(readings.syncs)
        print(f"\nthe disk synced {number(low)} to {number(high)} pages a second, once a round")
    for miss in readings.missing:
        print(f"missing: {miss.contestant}{', ' + miss.measure if miss.measure else ''}: {miss.reason}")


def _line(readings: Readings, name: str, measure: Measure, who: str) -> str:
    values = measure.values[who]
    spread = f"{number(min(values))} to {number(max(values))}"
    ratios = f"{times(readings.of_raw(name, who)):>8}  {times(readings.detent_ahead(name, who)):>12}"
    return f"  {ratios}  {number(statistics.median(values)):>11}  {spread:<22} {who}"


def show_goals(readings: Readings) -> None:
    print("\nwhat must hold")
    for goal in GOALS:
        value, met = goal.reached(readings), goal.met(readings)
        bound = f"< {goal.bound:g}" if goal.other is None else f">= {goal.bound:g}"
        said = {True: "holds", False: "MISSED", None: "not measured"}[met]
        print(f"  {said:<12} {'' if value is None else f'{value:.2f}':>8} {bound:<7} {goal.says}")


def as_json(
    readings: Readings, contestants: Sequence[Contestant], options: dict[str, Any], versions: dict[str, str]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "taken_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": state(versions),
        "options": options,
        "contestants": {c.name: _described(c) for c in contestants},
        "measures": {name: _measured(readings, name) for name in readings.measures},
        "disk_syncs_per_second": readings.syncs,
        "goals": [
            {"says": g.says, "bound": g.bound, "absolute": g.other is None, "reached": g.reached(readings),
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
        "medians": {who: statistics.median(values) for who, values in measure.values.items()},
        "of_raw": {who: readings.of_raw(name, who) for who in measure.values},
        "detent_ahead": {who: readings.detent_ahead(name, who) for who in measure.values},
    }


def state(versions: dict[str, str]) -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.state()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def from_json(data: dict[str, Any]) -> Readings:
    """The readings of an earlier run, for the chart and the docs."""
    if data.get("schema") != SCHEMA:
        raise ValueError(f"results of schema {data.get('schema')}, this harness writes {SCHEMA}: measure again")
    readings = Readings(syncs=data["disk_syncs_per_second"])
    for name, told in data["measures"].items():
        known = {who: values for who, values in told["readings"].items() if who in BY_NAME}
        readings.measures[name] = Measure(told["unit"], told["lower_is_better"], known)
    readings.missing = [Miss(m["contestant"], m["measure"], m["reason"]) for m in data["missing"]]
    return readings


def write(data: dict[str, Any], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
