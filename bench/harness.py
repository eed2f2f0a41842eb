"""Runs every measure for all contestants in turn, round by round; a failure is recorded and the others continue."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .contestants import Contestant
from .measures import MEASURES, ContestantRun, Sizes
from .readings import MissingReading, Readings
from .services import Services

ROUNDS = 3
_MAX_FAILURES = 2


def compete(
    contestants: Sequence[Contestant],
    measures: Sequence[str],
    sizes: Sizes,
    rounds: int,
    folder: Path,
    services: Services,
) -> Readings:
    """Run each measure for all contestants before the next measure; every second round reverses their order."""
    readings = Readings()
    runs = _prepare(contestants, folder, services, readings)
    failures: Counter[str] = Counter()
    try:
        for number in range(rounds):
            readings.syncs.append(syncs_a_second(folder))
            for measure in measures:
                for run in runs if number % 2 == 0 else reversed(runs):
                    included = run.contestant.measures
                    if failures[run.name] < _MAX_FAILURES and (included is None or measure in included):
                        failures[run.name] += not _measure(number + 1, measure, run, sizes, readings)
    finally:
        for run in runs:
            run.close()
    return readings


def _prepare(
    contestants: Sequence[Contestant], folder: Path, services: Services, readings: Readings
) -> list[ContestantRun]:
    runs = []
    for contestant in contestants:
        reason = contestant.missing()
        try:
            if reason is None:
                runs.append(ContestantRun(contestant, services.for_contestant(contestant), folder / contestant.name))
        except (OSError, RuntimeError) as error:
            reason = str(error)
        if reason is not None:
            readings.missing.append(MissingReading(contestant.name, "", reason))
    return runs


def _measure(number: int, measure: str, run: ContestantRun, sizes: Sizes, readings: Readings) -> bool:
    started = time.monotonic()
    try:
        MEASURES[measure][0](run, sizes, readings)
    except Exception as error:
        run.close()
        reason = f"{type(error).__name__}: {error}"
        readings.missing.append(MissingReading(run.name, measure, reason))
        print(f"  round {number}: {measure}: {run.name} FAILED: {reason}", flush=True)
        return False
    spent = time.monotonic() - started
    if spent > 0.01:
        print(f"  round {number}: {measure}: {run.name} ({spent:.1f} s)", flush=True)
    return True


def syncs_a_second(folder: Path, seconds: float = 0.3) -> float:
    """How many single-page writes the disk syncs per second now. It varies, and enqueue rates vary with it."""
    path = folder / "sync"
    page = b"\0" * 4096
    sync = getattr(os, "fdatasync", os.fsync)
    count = 0
    with path.open("wb", buffering=0) as file:
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            file.write(page)
            sync(file.fileno())
            count += 1
        spent = time.monotonic() - started
    path.unlink()
    return count / spent
