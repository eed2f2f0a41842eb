"""Goals checked after a run: Detent compared with the raw loop, with the minimal queue, and with the best peer."""

from dataclasses import dataclass

from .readings import Readings

_ALONGSIDE = "server CPU per 1,000 jobs, enqueue included"
_SNAPSHOT = "drain beside an open snapshot"


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the ratio of `mine` to `other`; without `other`, an upper bound on the value itself.

    mine_measure: what `mine` is measured by, if that is not `measure`.
    """

    description: str
    measure: str
    mine: str
    other: str | None
    bound: float
    mine_measure: str | None = None

    def reached(self, readings: Readings) -> float | None:
        if self.other is None:
            return readings.median(self.measure, self.mine)
        if self.mine_measure is not None:
            mine, other = readings.median(self.mine_measure, self.mine), readings.median(self.measure, self.other)
            return mine / other if mine and other else None
        return readings.ratio(self.measure, self.mine, self.other)

    def met(self, readings: Readings) -> bool | None:
        """None if it was not measured."""
        value = self.reached(readings)
        if value is None:
            return None
        return value < self.bound if self.other is None else value >= self.bound


GOALS = (
    Goal(
        "Postgres, CPU of the server, enqueue included, of the minimal row",
        _ALONGSIDE,
        "detent-postgres",
        "minimal-postgres",
        1 / 1.4,
    ),
    Goal(
        "Postgres drain beside an open snapshot, of without",
        "drain",
        "detent-postgres",
        "detent-postgres",
        0.7,
        _SNAPSHOT,
    ),
    Goal("Postgres, log of a drained job, bytes", "log written a drained job", "detent-postgres", None, 1_300.0),
    Goal("Postgres, kept of a finished job, bytes", "bytes kept a job", "detent-postgres", None, 1_000.0),
    Goal("Postgres drain, of graphile-worker", "drain", "detent-postgres", "graphile-worker", 1.2),
    Goal(
        "Postgres drain by 2 workers, of graphile-worker",
        "drain by 2 workers",
        "detent-postgres",
        "graphile-worker",
        1.0,
    ),
    Goal(
        "Postgres drain by 4 workers, of graphile-worker",
        "drain by 4 workers",
        "detent-postgres",
        "graphile-worker",
        1.0,
    ),
    Goal(
        "Postgres drain with three limits and a weight, of without",
        "drain",
        "detent-postgres-limited",
        "detent-postgres",
        0.9,
    ),
    Goal("Postgres enqueue one by one, of pgqueuer", "enqueue one by one", "detent-postgres", "pgqueuer", 1.0),
    Goal("Postgres bulk, of graphile-worker", "enqueue in bulk", "detent-postgres", "graphile-worker", 1.0),
    Goal("Postgres bulk, of pgqueuer", "enqueue in bulk", "detent-postgres", "pgqueuer", 1.0),
    Goal("Postgres pickup p50, of graphile-worker", "pickup p50", "detent-postgres", "graphile-worker", 1.0),
    Goal("Postgres pickup p50, of pgqueuer", "pickup p50", "detent-postgres", "pgqueuer", 1.0),
    Goal("Postgres pickup p99, of graphile-worker", "pickup p99", "detent-postgres", "graphile-worker", 1.0),
    Goal("Postgres pickup p99, of pgqueuer", "pickup p99", "detent-postgres", "pgqueuer", 1.0),
    Goal("Postgres, ten steps a job, of DBOS", "ten recorded steps a job", "detent-postgres", "dbos", 2.0),
    Goal("SQLite drain, of the minimal row", "drain", "detent-sqlite", "minimal-sqlite", 0.3),
    Goal("SQLite enqueue one by one, of huey with fsync", "enqueue one by one", "detent-sqlite", "huey-fsync", 0.85),
    Goal("SQLite pickup p99, of plainjob", "pickup p99", "detent-sqlite", "plainjob", 1.0),
    Goal("SQLite pickup p99, of huey with fsync", "pickup p99", "detent-sqlite", "huey-fsync", 1.0),
    Goal("Redis Streams drain, of bullmq", "drain", "detent-streams", "bullmq", 1.0),
)
