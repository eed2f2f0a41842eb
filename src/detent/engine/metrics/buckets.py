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


def upper_seconds(bucket: float) -> float:
    micros: float = SHORTEST_MICROS * 2 ** (bucket / PER_DOUBLING)
    return micros / SECOND


def quantile(histogram: BucketCounts, share: float) -> float | None:
    """The duration in seconds that this share of the values does not exceed, as the middle of its bucket.

    None if there are no values. Within a bucket nothing is interpolated: for values that are alike the result would be
    at the end of the bucket, which is off by almost a fifth.
    """
    rank, below = share * sum(histogram.values()), 0
    for bucket, number in sorted(histogram.items()):
        below += number
        if below >= rank:
            return upper_seconds(bucket - 0.5)
    return None
