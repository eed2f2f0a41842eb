"""Runs every measure over all contestants in turn, round by round; whoever fails is named, the others go on."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .contestants import Contestant
from .measures import MEASURES, Contender, Sizes
from .readings import Miss, Readings
from .services import Services

ROUNDS = 3
_FAILURES_AT_MOST = 2


def compete(
    contestants: Sequence[Contestant],
    measures: Sequence[str],
    sizes: Sizes,
    rounds: int,
    folder: Path,
    services: Services,
) -> Readings:
    """Within a round a measure is read from all contestants before the next one is; each round runs the other way."""
    readings = Readings()
    contenders = _assembled(contestants, folder, services, readings)
    failures: Counter[str] = Counter()
    try:
        for number in range(rounds):
            readings.syncs.append(syncs_a_second(folder))
            for measure in measures:
                for contender in contenders if number % 2 == 0 else reversed(contenders):
                    wanted = contender.contestant.measures
                    if failures[contender.name] < _FAILURES_AT_MOST and (wanted is None or measure in wanted):
                        failures[contender.name] += not _measured(number + 1, measure, contender, sizes, readings)
    finally:
        for contender in contenders:
            contender.close()
    return readings


def _assembled(
    contestants: Sequence[Contestant], folder: Path, services: Services, readings: Readings
) -> list[Contender]:
    found = []
    for contestant in contestants:
        reason = contestant.missing()
        try:
            if reason is None:
                found.append(Contender(contestant, services.of(contestant), folder / contestant.name))
        except (OSError, RuntimeError) as error:
            reason = str(error)
        if reason is not None:
            readings.missing.append(Miss(contestant.name, "", reason))
    return found


def _measured(number: int, measure: str, contender: Contender, sizes: Sizes, readings: Readings) -> bool:
    started = time.monotonic()
    try:
        MEASURES[measure][0](contender, sizes, readings)
    except Exception as error:
        contender.close()
        reason = f"{type(error).__name__}: {error}"
        readings.missing.append(Miss(contender.name, measure, reason))
        print(f"  round {number}: {measure}: {contender.name} FAILED: {reason}", flush=True)
        return False
    spent = time.monotonic() - started
    if spent > 0.01:
        print(f"  round {number}: {measure}: {contender.name} ({spent:.1f} s)", flush=True)
    return True


def syncs_a_second(folder: Path, seconds: float = 0.3) -> float:
    """How often the disk takes a page and syncs it now; it drifts, and one-job-a-commit figures with it."""
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
