"""Readings and their arithmetic: medians, ratios, percentiles. Nothing here runs anything."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from .contestants import BY_NAME, OURS, RAW


@dataclass(slots=True)
class Measure:
    """One measured quantity: contestant -> one value a round."""

    unit: str = "jobs/s"
    lower_is_better: bool = False
    values: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Miss:
    """A contestant that did not finish something, and why; measure "" means all of it."""

    contestant: str
    measure: str
    reason: str


@dataclass(slots=True)
class Readings:
    """Everything one run has read."""

    measures: dict[str, Measure] = field(default_factory=dict)
    missing: list[Miss] = field(default_factory=list)
    syncs: list[float] = field(default_factory=list)
    """How many pages a second the disk synced, once a round: it drifts, and one-job-a-commit figures with it."""

    def add(self, measure: str, contestant: str, value: float, unit: str = "jobs/s", *, lower: bool = False) -> None:
        kept = self.measures.setdefault(measure, Measure(unit, lower))
        assert (kept.unit, kept.lower_is_better) == (unit, lower), f"{measure} was read in another unit"
        kept.values.setdefault(contestant, []).append(value)

    def median(self, measure: str, contestant: str) -> float | None:
        values = self.measures[measure].values.get(contestant) if measure in self.measures else None
        return statistics.median(values) if values else None

    def ratio(self, measure: str, contestant: str, other: str) -> float | None:
        """How many times as good: above 1 means ahead of the other, whichever way the measure runs."""
        mine, theirs = self.median(measure, contestant), self.median(measure, other)
        if mine is None or theirs is None:
            return None
        top, bottom = (theirs, mine) if self.measures[measure].lower_is_better else (mine, theirs)
        return top / bottom if bottom else None

    def of_raw(self, measure: str, contestant: str) -> float | None:
        raw = RAW.get(BY_NAME[contestant].store)
        return self.ratio(measure, contestant, raw) if raw else None

    def detent_ahead(self, measure: str, contestant: str) -> float | None:
        """How many times as good as this contestant Detent is, in the same store (for Redis: on Postgres)."""
        return self.ratio(measure, OURS[BY_NAME[contestant].store], contestant)

    def ranked(self, measure: str, store: str) -> list[str]:
        """Contestants of one store, the best first."""
        kept = self.measures[measure]
        names = [name for name in kept.values if BY_NAME[name].store == store]
        return sorted(names, key=lambda name: statistics.median(kept.values[name]), reverse=not kept.lower_is_better)


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank: the smallest value that so many percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
