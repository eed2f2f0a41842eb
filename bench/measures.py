"""What is measured, the same way for every contestant: enqueueing, draining, picking up, growing."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .contestants import Contestant
from .processes import Client, Failed, Usage, Workers
from .readings import Readings, percentile
from .services import Service

CALLERS = 16
_DRAIN_SECONDS = 180.0
_START_SECONDS = 60.0
_LEFT_SECONDS = 0.005
STEPS_A_JOB = 10
STEPS = "ten recorded steps a job"
_STEPPED_AT_MOST = 4_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done for one reading."""

    jobs: int
    seconds: float = 1.0
    """Of enqueueing."""
    pickups: int = 100
    pause: float = 0.05
    growth: tuple[int, ...] = ()
    sample: int = 10_000
    """Jobs whose cost is taken before a backlog, and after a history."""
    workers: tuple[int, ...] = ()


class Contender:
    """A contestant at work: its client, opened when first needed, and its place."""

    def __init__(self, contestant: Contestant, service: Service, folder: Path) -> None:
        self.contestant = contestant
        self.name = contestant.name
        self.service = service
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.url = service.url(contestant, folder)
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self.contestant, self.url, self.folder)
        return self._client

    def workers(self, part: str = "drain", number: int = 1) -> Workers:
        return Workers(self.contestant, self.url, self.folder, part, number)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


Run = Callable[[Contender, Sizes, Readings], None]


def enqueue(contender: Contender, sizes: Sizes, readings: Readings) -> None:
    _enqueue_by(1, "enqueue one by one", contender, sizes, readings)


def callers(contender: Contender, sizes: Sizes, readings: Readings) -> None:
    if contender.contestant.callers:
        _enqueue_by(CALLERS, f"enqueue by {CALLERS} callers", contender, sizes, readings)


def _enqueue_by(number: int, label: str, contender: Contender, sizes: Sizes, readings: Readings) -> None:
    contender.client.ask("reset")
    told = contender.client.ask("enqueue", seconds=sizes.seconds, at_most=max(sizes.jobs, number), callers=number)
    if contender.contestant.ours and (left := contender.client.ask("left")["left"]) <= told["jobs"]:
        raise Failed(f"{told['jobs']} jobs and one to warm up were enqueued, {left} are there")
    readings.add(label, contender.name, told["jobs"] / told["seconds"])


def drain(contender: Contender, sizes: Sizes, readings: Readings) -> None:
    """Jobs enqueued beforehand, one worker process; start-up is not counted. The filling is the bulk reading."""
    jobs = min(sizes.jobs, contender.contestant.most)
    service, name = contender.service, contender.name
    contender.client.ask("reset")
    before = service.kept(contender.url)
    told = contender.client.ask("fill", _DRAIN_SECONDS, jobs=jobs)
    if told["bulk"]:
        readings.add("enqueue in bulk", name, jobs / told["seconds"])
    service.settle(contender.url)
    with contender.workers() as workers:
        began = _Cost.of(workers, service)
        counted = workers.wait_for(1, _START_SECONDS)
        started = _Cost.of(workers, service)
        done = _emptied(contender, workers, jobs)
        ended = _Cost.of(workers, service)
    readings.add("drain", name, jobs / (done - counted.first))
    kept = service.kept(contender.url)
    if before is not None and kept is not None:
        readings.add("bytes kept a job", name, max(0, kept - before) / jobs, "bytes", lower=True)
    if began.written is not None and ended.written is not None:
        readings.add("log written a drained job", name, (ended.written - began.written) / jobs, "bytes", lower=True)
    if jobs > 2 * started.calls:
        _add_costs(name, started, ended, readings)


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a worker and its server have used up to the moment of so many calls."""

    calls: int
    worker: Usage
    server: float | None
    written: int | None

    @staticmethod
    def of(workers: Workers, service: Service) -> "_Cost":
        return _Cost(workers.counts().calls, workers.usage(), service.cpu(), service.written())


def _add_costs(name: str, started: _Cost, ended: _Cost, readings: Readings) -> None:
    thousands = (ended.calls - started.calls) / 1_000
    if not ended.worker.cpu:
        return  # no /proc on this machine
    cpu = (ended.worker.cpu - started.worker.cpu) / thousands
    readings.add("worker CPU per 1,000 jobs", name, cpu * 1_000, "ms", lower=True)
    if started.server is not None and ended.server is not None:
        readings.add("server CPU per 1,000 jobs", name, (ended.server - started.server) / thousands * 1_000, "ms",
                     lower=True)  # fmt: skip
    grown = max(0, ended.worker.resident - started.worker.resident) / thousands / 1024
    readings.add("worker memory grown per 1,000 jobs", name, grown, "KiB", lower=True)
    readings.add("worker memory at the most", name, ended.worker.peak / 1024**2, "MiB", lower=True)


def _emptied(contender: Contender, workers: Workers, jobs: int) -> float:
    """The moment every handler was called and the store shows none left."""
    end = time.monotonic() + _DRAIN_SECONDS
    workers.wait_for(jobs, _DRAIN_SECONDS)
    while (left := contender.client.ask("left")["left"]) > 0:
        if time.monotonic() > end:
            raise Failed(f"every handler was called, but {left} jobs are left in the store")
        time.sleep(_LEFT_SECONDS)
    return time.monotonic()


def pickup(contender: Contender, sizes: Sizes, readings: Readings) -> None:
    """Handler start minus the moment before the enqueue call, a worker with nothing else to do."""
    if not contender.contestant.calls_handlers:
        return
    contender.client.ask("reset")
    with contender.workers("pickup") as workers:
        for _ in range(3):
            since = contender.client.ask("pickup", jobs=1, pause=0.1)["since"]
            _heard(workers, since, 1, _START_SECONDS)
        time.sleep(0.3)
        since = contender.client.ask("pickup", jobs=sizes.pickups, pause=sizes.pause)["since"]
        delays = _heard(workers, since, sizes.pickups, 15.0)
    _add_delays("", contender.name, delays, readings)


def _heard(workers: Workers, since: float, number: int, seconds: float) -> list[float]:
    end = time.monotonic() + seconds
    while len(delays := workers.delays(since)) < number:
        if time.monotonic() > end:
            raise Failed(f"{len(delays)} of {number} jobs were picked up within {seconds:.0f} s")
        workers.check()
        time.sleep(0.05)
    return delays


def _add_delays(where: str, name: str, delays: list[float], readings: Readings) -> None:
    for percent in (50, 99):
        readings.add(f"pickup p{percent}{where}", name, percentile(delays, percent) * 1_000, "ms", lower=True)


def pickup_here(contender: Contender, sizes: Sizes, readings: Readings) -> None:
    """The same with client and worker in one process."""
    if not contender.contestant.here:
        return
    contender.client.ask("reset")
    delays = contender.client.ask("pickup here", jobs=sizes.pickups, pause=sizes.pause)["delays"]
    _add_delays(", same process", contender.name, delays, readings)


def growth(contender: Contender, sizes: Sizes, readings: Readings) -> None:
    """The cost of the first jobs before a backlog, and of a few more after as long a history."""
    if not contender.contestant.grows:
        return
    for size in sizes.growth:
        size = min(size, 10 * contender.contestant.most)
        sample = min(sizes.sample, size)
        contender.client.ask("reset")
        contender.client.ask("fill", _DRAIN_SECONDS, jobs=size)
        contender.service.settle(contender.url)
        with contender.workers() as workers:
            counted = workers.wait_for(sample, _DRAIN_SECONDS)
            cost = (counted.last - counted.first) / counted.calls * 1_000_000
            readings.add(f"cost a job, backlog of {size:,}", contender.name, cost, "µs", lower=True)
            _emptied(contender, workers, size)
        contender.client.ask("fill", _DRAIN_SECONDS, jobs=sample)
        contender.service.settle(contender.url)
        with contender.workers() as workers:
            first = workers.wait_for(1, _START_SECONDS).first
            cost = (_emptied(contender, workers, sample) - first) / sample * 1_000_000
            readings.add(f"cost a job, history of {size:,}", contender.name, cost, "µs", lower=True)


def several_workers(contender: Contender, sizes: Sizes, readings: Readings) -> None:
    """The same drain shared by several worker processes."""
    who = contender.contestant
    if not (who.grows and who.calls_handlers) or who.store != "postgres":
        return
    jobs = min(sizes.jobs, who.most)
    for number in sizes.workers:
        contender.client.ask("reset")
        contender.client.ask("fill", _DRAIN_SECONDS, jobs=jobs)
        contender.service.settle(contender.url)
        with contender.workers(number=number) as workers:
            first = workers.wait_for(1, _START_SECONDS).first
            done = _emptied(contender, workers, jobs)
        readings.add(f"drain by {number} workers", contender.name, jobs / (done - first))


def steps(contender: Contender, sizes: Sizes, readings: Readings) -> None:
    """The drain of jobs that record ten steps each before they end."""
    client, jobs = contender.client, min(sizes.jobs, _STEPPED_AT_MOST, contender.contestant.most // STEPS_A_JOB)
    client.ask("reset")
    if not client.ask("fill stepped", _DRAIN_SECONDS, jobs=jobs)["jobs"]:
        return
    contender.service.settle(contender.url)
    with contender.workers("steps") as workers:
        first = workers.wait_for(1, _START_SECONDS).first
        done = _emptied(contender, workers, jobs)
    readings.add(STEPS, contender.name, jobs / (done - first))


MEASURES: dict[str, tuple[Run, str]] = {
    "enqueue": (enqueue, "enqueue one by one"),
    "callers": (callers, f"enqueue by {CALLERS} callers at once"),
    "drain": (drain, "enqueue in bulk, drain, CPU, memory, bytes kept and logged"),
    "pickup": (pickup, "pickup p50 and p99, idle worker process"),
    "here": (pickup_here, "pickup with the worker in the client's process"),
    "steps": (steps, f"{STEPS}, drained (full form)"),
    "growth": (growth, "cost a job as backlog and history grow (full form)"),
    "workers": (several_workers, "drain by several worker processes (full form)"),
}
