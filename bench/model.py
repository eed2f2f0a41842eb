"""Predicts jobs per second for W workers and one server from the CPU cost of one job, to compare with measurements."""

from dataclasses import dataclass

from .readings import Readings


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds per job: in the worker process (which uses one core), and in the server (all its processes)."""

    worker: float
    server: float

    def predicted(self, workers: int, cores: int) -> float:
        """Jobs per second if workers and server share one machine, as in the benchmark.

        A worker process uses one core, and so does the server process of its connection; the slower of the two limits
        that worker. All together cannot use more than all cores.
        """
        per_worker = 1 / max(self.worker, self.server)
        return min(workers * per_worker, cores / (self.worker + self.server))

    def server_alone(self, cores: int) -> float:
        """Jobs per second if the server has all these cores and the workers run on other machines."""
        return cores / self.server

    def workers_needed(self, cores: int) -> float:
        """Worker cores that saturate a server of this many cores."""
        return self.server_alone(cores) * self.worker


def cost_of(readings: Readings, name: str) -> Cost | None:
    worker = readings.median("worker CPU per 1,000 jobs", name)
    server = readings.median("server CPU per 1,000 jobs", name)
    if not worker or not server:
        return None
    return Cost(worker / 1e6, server / 1e6)


def measured_rates(readings: Readings, name: str) -> dict[int, float]:
    """{number of worker processes: jobs per second}"""
    rates = {1: readings.median("drain", name)}
    for number in (2, 4):
        rates[number] = readings.median(f"drain by {number} workers", name)
    return {number: rate for number, rate in rates.items() if rate is not None}
