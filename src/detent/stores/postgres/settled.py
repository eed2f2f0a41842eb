"""What the hot statements are told of jobs that have succeeded, and which of them they did not settle."""

from collections.abc import Sequence
from typing import Any

from ...ports import Success


def told_settled(successes: Sequence[Success]) -> dict[str, Any]:
    """What the statements are told of those that have ended; most have nothing to return."""
    results = [s[3] for s in successes]
    return {
        "ids": [s[0] for s in successes],
        "tokens": [s[1] for s in successes],
        "results": results if results.count(None) < len(results) else [],
    }


def unsettled_of(settled: str | None, successes: Sequence[Success]) -> list[Success]:
    """settled: the ids that were, if not all."""
    if settled is None:
        return []
    done = set(settled.split(","))
    return [success for success in successes if success.id not in done]
