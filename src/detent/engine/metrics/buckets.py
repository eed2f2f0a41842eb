"""Buckets of durations: four per doubling, from 100 microseconds on, so that a percentile is off by less than a tenth.

Bucket 0 holds what is shorter than 100 microseconds; the upper bound of bucket b is 100 * 2 ** (b / 4). The query
time_events of the stores computes the bucket of each duration.
"""

from detent.core.times import SECOND
from detent.ports.metrics import BucketCounts

SHORTEST_MICROS = 100
PER_DOUBLING = 4
LAST = 140
"""Of 2,591,000 seconds, about 30 days; longer durations count as that."""


def upper_seconds(bucket: int) -> float:
    micros: float = SHORTEST_MICROS * 2 ** (bucket / PER_DOUBLING)
    return micros / SECOND


def quantile(histogram: BucketCounts, share: float) -> float | None:
    """The duration in seconds that this share of the values does not exceed; None if there are none."""
    total = sum(histogram.values())
    if not total:
        return None
    rank, below = share * total, 0
    for bucket, number in sorted(histogram.items()):
        if below + number >= rank:
            lower = upper_seconds(bucket - 1) if bucket else 0.0
            return lower + (upper_seconds(bucket) - lower) * max(rank - below, 0) / number
        below += number
    raise AssertionError("the last bucket reaches the total")
