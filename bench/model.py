"""How many jobs a second W workers and one server should do, from the CPU one job costs; and what was measured."""

from dataclasses import dataclass

from .readings import Readings


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds a job takes: in the worker process (one core each), in the server (all of its processes)."""

    worker: float
    server: float

    def predicted(self, workers: int, cores: int) -> float:
        """Workers and server share the cores of one machine, as in the benchmark.

        A worker is one process on one core; so is the server process that serves its hot connection. The machine as a
        whole cannot spend more than its cores.
        """
        one = 1 / max(self.worker, self.server)
        return min(workers * one, cores / (self.worker + self.server))

    def server_alone(self, cores: int) -> float:
        """Workers elsewhere: what a server of so many cores holds."""
        return cores / self.server

    def workers_needed(self, cores: int) -> float:
        """Worker cores that keep such a server busy."""
        return self.server_alone(cores) * self.worker


def cost_of(readings: Readings, name: str) -> Cost | None:
    worker = readings.median("worker CPU per 1,000 jobs", name)
    server = readings.median("server CPU per 1,000 jobs", name)
    if not worker or not server:
        return None
    return Cost(worker / 1e6, server / 1e6)


def measured(readings: Readings, name: str) -> dict[int, float]:
    """Worker processes -> jobs a second."""
    found = {1: readings.median("drain", name)}
    for number in (2, 4):
        found[number] = readings.median(f"drain by {number} workers", name)
    return {number: rate for number, rate in found.items() if rate is not None}
