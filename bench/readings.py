"""Readings and their arithmetic: medians, ratios, percentiles. No I/O."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from .contestants import BY_NAME, OURS, RAW


@dataclass(slots=True)
class Measure:
    """One measured quantity: {contestant: one value per round}."""

    unit: str = "jobs/s"
    lower_is_better: bool = False
    values: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MissingReading:
    """A measure that a contestant did not finish, and the reason; measure "": it could not run at all."""

    contestant: str
    measure: str
    reason: str


@dataclass(slots=True)
class Readings:
    """All readings of one run."""

    measures: dict[str, Measure] = field(default_factory=dict)
    missing: list[MissingReading] = field(default_factory=list)
    syncs: list[float] = field(default_factory=list)
    """Page syncs per second of the disk, once per round; see harness.syncs_a_second."""

    def add(self, measure: str, contestant: str, value: float, unit: str = "jobs/s", *, lower: bool = False) -> None:
        readings = self.measures.setdefault(measure, Measure(unit, lower))
        assert (readings.unit, readings.lower_is_better) == (unit, lower), f"{measure} was read in another unit"
        readings.values.setdefault(contestant, []).append(value)

    def median(self, measure: str, contestant: str) -> float | None:
        values = self.measures[measure].values.get(contestant) if measure in self.measures else None
        return statistics.median(values) if values else None

    def ratio(self, measure: str, contestant: str, other: str) -> float | None:
        """How many times better than `other`: above 1 is better, also for measures where lower is better."""
        mine, theirs = self.median(measure, contestant), self.median(measure, other)
        if mine is None or theirs is None:
            return None
        top, bottom = (theirs, mine) if self.measures[measure].lower_is_better else (mine, theirs)
        return top / bottom if bottom else None

    def of_raw(self, measure: str, contestant: str) -> float | None:
        raw = RAW.get(BY_NAME[contestant].store)
        return self.ratio(measure, contestant, raw) if raw else None

    def detent_ahead(self, measure: str, contestant: str) -> float | None:
        """How many times better Detent is than this contestant, on the same store."""
        return self.ratio(measure, OURS[BY_NAME[contestant].store], contestant)

    def ranked(self, measure: str, store: str) -> list[str]:
        """Contestants of one store, the best first."""
        readings = self.measures[measure]
        names = [name for name in readings.values if BY_NAME[name].store == store]
        higher_first = not readings.lower_is_better
        return sorted(names, key=lambda name: statistics.median(readings.values[name]), reverse=higher_first)


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
