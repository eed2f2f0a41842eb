"""Runs contestants in turn, keeps every reading, and reports medians and ratios."""

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROUNDS = 3


@dataclass(slots=True)
class Readings:
    """measure -> contestant -> values, and which contestant a measure is compared with."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    units: dict[str, str] = field(default_factory=dict)
    base: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def add(self, measure: str, contestant: str, value: float, unit: str = "jobs/s") -> None:
        self.values[measure][contestant].append(value)
        self.units[measure] = unit

    def median(self, measure: str, contestant: str) -> float:
        return statistics.median(self.values[measure][contestant])

    def ratio(self, measure: str, contestant: str) -> float | None:
        base = self.base.get(measure)
        return self.median(measure, contestant) / self.median(measure, base) if base else None


@dataclass(frozen=True, slots=True)
class Contestant:
    """`run` takes the readings and adds to them; it cleans up after itself."""

    name: str
    run: Callable[[Readings], None]
    includes: str = ""


def compete(contestants: list[Contestant], readings: Readings, rounds: int = ROUNDS) -> Readings:
    for number in range(rounds):
        for contestant in contestants:
            started = time.perf_counter()
            contestant.run(readings)
            print(f"  round {number + 1}: {contestant.name} ({time.perf_counter() - started:.1f} s)", flush=True)
    for contestant in contestants:
        if contestant.includes:
            readings.notes[contestant.name] = contestant.includes
    return readings


def report(readings: Readings, out: Path | None = None) -> None:
    for measure, by_contestant in readings.values.items():
        base = readings.base.get(measure)
        print(f"\n{measure} ({readings.units[measure]}){', against ' + base if base else ''}")
        for name, values in by_contestant.items():
            ratio = readings.ratio(measure, name)
            shown = f"{ratio:6.2f} x" if ratio is not None else "        "
            spread = f"({min(values):,.1f} to {max(values):,.1f})"
            print(f"  {shown}  {statistics.median(values):>12,.1f}  {spread:<28} {name}")
    if readings.notes:
        print("\nwhat each includes")
        for name, text in readings.notes.items():
            print(f"  {name}: {text}")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        data = {
            "values": {m: {c: list(v) for c, v in by.items()} for m, by in readings.values.items()},
            "units": readings.units,
            "base": readings.base,
            "notes": readings.notes,
        }
        out.write_text(json.dumps(data, indent=1))
        print(f"\nreadings: {out}")
