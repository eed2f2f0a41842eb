"""Goals checked after a run: Detent compared with the raw loop, with the minimal queue, and with the best peer."""

from dataclasses import dataclass

from .readings import Readings


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the ratio of `mine` to `other`; without `other`, an upper bound on the value itself."""

    description: str
    measure: str
    mine: str
    other: str | None
    bound: float

    def reached(self, readings: Readings) -> float | None:
        if self.other is None:
            return readings.median(self.measure, self.mine)
        return readings.ratio(self.measure, self.mine, self.other)

    def met(self, readings: Readings) -> bool | None:
        """None if it was not measured."""
        value = self.reached(readings)
        if value is None:
            return None
        return value < self.bound if self.other is None else value >= self.bound


_CALLERS = "enqueue by 16 callers"
GOALS = (
    Goal("Postgres drain, of raw", "drain", "detent-postgres", "raw-postgres", 0.8),
    Goal("Postgres drain, of raw at Detent's batch", "drain", "detent-postgres", "raw-postgres-200", 0.8),
    Goal("Postgres drain, of graphile-worker", "drain", "detent-postgres", "graphile-worker", 1.0),
    Goal("Detent's tables, of the minimal row", "drain", "raw-postgres", "minimal-postgres", 0.8),
    Goal("SQLite drain, of raw", "drain", "detent-sqlite", "raw-sqlite", 0.5),
    Goal("SQLite drain, of raw at Detent's batch", "drain", "detent-sqlite", "raw-sqlite-200", 0.5),
    Goal("Redis Streams drain, of bullmq", "drain", "detent-streams", "bullmq", 1.0),
    Goal("Postgres enqueue one by one, of raw", "enqueue one by one", "detent-postgres", "raw-postgres", 0.9),
    Goal("SQLite enqueue one by one, of raw", "enqueue one by one", "detent-sqlite", "raw-sqlite", 0.9),
    Goal("Postgres, 16 callers, of raw", _CALLERS, "detent-postgres", "raw-postgres", 0.9),
    Goal("Postgres bulk, of graphile-worker", "enqueue in bulk", "detent-postgres", "graphile-worker", 1.0),
    Goal("Postgres pickup p50, of graphile-worker", "pickup p50", "detent-postgres", "graphile-worker", 1.0),
    Goal("Postgres pickup p99, of graphile-worker", "pickup p99", "detent-postgres", "graphile-worker", 1.0),
    Goal("Postgres, ten steps a job, of DBOS", "ten recorded steps a job", "detent-postgres", "dbos", 2.0),
    Goal("SQLite pickup p50, same process, ms", "pickup p50, same process", "detent-sqlite", None, 1.0),
    Goal("SQLite pickup p50, other process, ms", "pickup p50", "detent-sqlite", None, 12.0),
)
