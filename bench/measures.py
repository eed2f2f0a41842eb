"""The measures, the same for every contestant: enqueue, drain, pickup, steps, growth."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .contestants import Contestant
from .processes import Client, MeasurementFailed, Usage, Workers
from .readings import Readings, percentile
from .services import Service

CALLERS = 16
_DRAIN_SECONDS = 180.0
_START_SECONDS = 60.0
_POLL_SECONDS = 0.005
STEPS_PER_JOB = 10
STEPS = "ten recorded steps a job"
_MAX_JOBS_WITH_STEPS = 4_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much work one reading takes."""

    jobs: int
    seconds: float = 1.0
    """Duration of an enqueue measure."""
    pickups: int = 100
    pause: float = 0.05
    growth: tuple[int, ...] = ()
    sample: int = 10_000
    """Number of jobs whose cost is measured at the start of a backlog, and after a history."""
    workers: tuple[int, ...] = ()
    alongside: int = 0
    """Jobs that are enqueued and drained at the same time."""


class ContestantRun:
    """A contestant in a run: its folder, its URL, and its client process, which is started on first use."""

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


MeasureFunction = Callable[[ContestantRun, Sizes, Readings], None]


def enqueue(run: ContestantRun, sizes: Sizes, readings: Readings) -> None:
    _enqueue_by(1, "enqueue one by one", run, sizes, readings)


def callers(run: ContestantRun, sizes: Sizes, readings: Readings) -> None:
    if run.contestant.concurrent_callers:
        _enqueue_by(CALLERS, f"enqueue by {CALLERS} callers", run, sizes, readings)


def _enqueue_by(number: int, label: str, run: ContestantRun, sizes: Sizes, readings: Readings) -> None:
    run.client.request("reset")
    answer = run.client.request("enqueue", seconds=sizes.seconds, at_most=max(sizes.jobs, number), callers=number)
    jobs = answer["jobs"]
    if run.contestant.ours and (stored := run.client.request("left")["left"]) <= jobs:
        raise MeasurementFailed(f"{jobs} jobs and one warm-up job were enqueued, but the store has {stored}")
    readings.add(label, run.name, jobs / answer["seconds"])


def drain(run: ContestantRun, sizes: Sizes, readings: Readings) -> None:
    """Drain jobs with one worker process, start-up excluded; enqueueing them beforehand is the bulk reading."""
    jobs = min(sizes.jobs, run.contestant.max_jobs)
    service, name = run.service, run.name
    run.client.request("reset")
    before = service.data_size(run.url)
    answer = run.client.request("fill", _DRAIN_SECONDS, jobs=jobs)
    if answer["bulk"]:
        readings.add("enqueue in bulk", name, jobs / answer["seconds"])
    service.prepare(run.url)
    with run.workers() as workers:
        before_start = _Cost.of(workers, service)
        counts = workers.wait_for(1, _START_SECONDS)
        started = _Cost.of(workers, service)
        done = _wait_until_drained(run, workers, jobs)
        ended = _Cost.of(workers, service)
    readings.add("drain", name, jobs / (done - counts.first))
    after = service.data_size(run.url)
    if before is not None and after is not None:
        readings.add("bytes kept a job", name, max(0, after - before) / jobs, "bytes", lower=True)
    if before_start.log_bytes is not None and ended.log_bytes is not None:
        log_bytes = (ended.log_bytes - before_start.log_bytes) / jobs
        readings.add("log written a drained job", name, log_bytes, "bytes", lower=True)
    if jobs > 2 * started.calls:
        _add_costs(name, started, ended, readings)


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a worker and its server have used so far."""

    calls: int
    worker: Usage
    server: float | None
    log_bytes: int | None

    @staticmethod
    def of(workers: Workers, service: Service) -> "_Cost":
        return _Cost(workers.counts().calls, workers.usage(), service.cpu(), service.log_bytes())


def _add_costs(name: str, started: _Cost, ended: _Cost, readings: Readings) -> None:
    thousands = (ended.calls - started.calls) / 1_000
    if not ended.worker.cpu:
        return  # no /proc on this machine
    cpu = (ended.worker.cpu - started.worker.cpu) / thousands
    readings.add("worker CPU per 1,000 jobs", name, cpu * 1_000, "ms", lower=True)
    if started.server is not None and ended.server is not None:
        readings.add("server CPU per 1,000 jobs", name, (ended.server - started.server) / thousands * 1_000, "ms",
                     lower=True)  # fmt: skip
    growth = max(0, ended.worker.resident - started.worker.resident) / thousands / 1024
    readings.add("worker memory grown per 1,000 jobs", name, growth, "KiB", lower=True)
    readings.add("worker memory at the most", name, ended.worker.peak / 1024**2, "MiB", lower=True)


def _wait_until_drained(run: ContestantRun, workers: Workers, jobs: int) -> float:
    """Wait until every handler was called and the store has no job left; returns the monotonic time."""
    end = time.monotonic() + _DRAIN_SECONDS
    workers.wait_for(jobs, _DRAIN_SECONDS)
    while (left := run.client.request("left")["left"]) > 0:
        if time.monotonic() > end:
            raise MeasurementFailed(f"every handler was called, but the store has {left} unfinished jobs")
        time.sleep(_POLL_SECONDS)
    return time.monotonic()


def pickup(run: ContestantRun, sizes: Sizes, readings: Readings) -> None:
    """The time from before the enqueue call to the start of the handler, with an idle worker."""
    if not run.contestant.calls_handlers:
        return
    run.client.request("reset")
    with run.workers("pickup") as workers:
        for _ in range(3):
            since = run.client.request("pickup", jobs=1, pause=0.1)["since"]
            _wait_for_delays(workers, since, 1, _START_SECONDS)
        time.sleep(0.3)
        since = run.client.request("pickup", jobs=sizes.pickups, pause=sizes.pause)["since"]
        delays = _wait_for_delays(workers, since, sizes.pickups, 15.0)
    _add_delays("", run.name, delays, readings)


def _wait_for_delays(workers: Workers, since: float, number: int, seconds: float) -> list[float]:
    end = time.monotonic() + seconds
    while len(delays := workers.delays(since)) < number:
        if time.monotonic() > end:
            raise MeasurementFailed(f"{len(delays)} of {number} jobs were picked up within {seconds:.0f} s")
        workers.check()
        time.sleep(0.05)
    return delays


def _add_delays(suffix: str, name: str, delays: list[float], readings: Readings) -> None:
    for percent in (50, 99):
        readings.add(f"pickup p{percent}{suffix}", name, percentile(delays, percent) * 1_000, "ms", lower=True)


def pickup_here(run: ContestantRun, sizes: Sizes, readings: Readings) -> None:
    """The pickup time with client and worker in one process."""
    if not run.contestant.in_process:
        return
    run.client.request("reset")
    delays = run.client.request("pickup here", jobs=sizes.pickups, pause=sizes.pause)["delays"]
    _add_delays(", same process", run.name, delays, readings)


def growth(run: ContestantRun, sizes: Sizes, readings: Readings) -> None:
    """The cost per job at the start of a long backlog, and after a history of the same length."""
    if not run.contestant.measure_growth:
        return
    for size in sizes.growth:
        size = min(size, 10 * run.contestant.max_jobs)
        sample = min(sizes.sample, size)
        run.client.request("reset")
        run.client.request("fill", _DRAIN_SECONDS, jobs=size)
        run.service.prepare(run.url)
        with run.workers() as workers:
            counts = workers.wait_for(sample, _DRAIN_SECONDS)
            cost = (counts.last - counts.first) / counts.calls * 1_000_000
            readings.add(f"cost a job, backlog of {size:,}", run.name, cost, "µs", lower=True)
            _wait_until_drained(run, workers, size)
        run.client.request("fill", _DRAIN_SECONDS, jobs=sample)
        run.service.prepare(run.url)
        with run.workers() as workers:
            first = workers.wait_for(1, _START_SECONDS).first
            cost = (_wait_until_drained(run, workers, sample) - first) / sample * 1_000_000
            readings.add(f"cost a job, history of {size:,}", run.name, cost, "µs", lower=True)


def several_workers(run: ContestantRun, sizes: Sizes, readings: Readings) -> None:
    """The drain with several worker processes."""
    contestant = run.contestant
    if not (contestant.measure_growth and contestant.calls_handlers) or contestant.store != "postgres":
        return
    jobs = min(sizes.jobs, contestant.max_jobs)
    for number in sizes.workers:
        run.client.request("reset")
        run.client.request("fill", _DRAIN_SECONDS, jobs=jobs)
        run.service.prepare(run.url)
        with run.workers(number=number) as workers:
            first = workers.wait_for(1, _START_SECONDS).first
            done = _wait_until_drained(run, workers, jobs)
        readings.add(f"drain by {number} workers", run.name, jobs / (done - first))


def alongside(run: ContestantRun, sizes: Sizes, readings: Readings) -> None:
    """CPU of the server per job, from the enqueue to the end, while jobs are enqueued and drained at the same time."""
    if run.contestant.store != "postgres" or not run.contestant.in_short_form or run.contestant.variant == "200":
        return
    jobs = min(sizes.alongside, 10 * run.contestant.max_jobs)
    run.client.request("reset")
    run.service.prepare(run.url)
    before = run.service.cpu()
    _enqueue_and_drain(run, jobs)
    after = run.service.cpu()
    if before is not None and after is not None:
        cost = (after - before) / jobs * 1e6
        readings.add("server CPU per 1,000 jobs, enqueue included", run.name, cost, "ms", lower=True)


def _enqueue_and_drain(run: ContestantRun, jobs: int) -> None:
    """A tenth of the jobs is enqueued beforehand, so that the worker always finds some."""
    run.client.request("fill", _DRAIN_SECONDS, jobs=jobs // 10)
    with run.workers() as workers:
        workers.wait_for(1, _START_SECONDS)
        run.client.request("fill", _DRAIN_SECONDS, jobs=jobs - jobs // 10)
        _wait_until_drained(run, workers, jobs)


def snapshot(run: ContestantRun, sizes: Sizes, readings: Readings) -> None:
    """The drain while another transaction has kept its snapshot since many jobs ago, so that nothing is vacuumed."""
    if run.contestant.store != "postgres" or not run.contestant.measure_growth or not run.contestant.calls_handlers:
        return
    jobs = min(sizes.jobs, run.contestant.max_jobs)
    run.client.request("reset")
    with run.service.open_snapshot(run.url):
        _enqueue_and_drain(run, min(sizes.alongside, 10 * run.contestant.max_jobs))
        run.client.request("fill", _DRAIN_SECONDS, jobs=jobs)
        with run.workers() as workers:
            first = workers.wait_for(1, _START_SECONDS).first
            done = _wait_until_drained(run, workers, jobs)
    readings.add("drain beside an open snapshot", run.name, jobs / (done - first))


def steps(run: ContestantRun, sizes: Sizes, readings: Readings) -> None:
    """The drain of jobs that record ten steps each."""
    client, jobs = run.client, min(sizes.jobs, _MAX_JOBS_WITH_STEPS, run.contestant.max_jobs // STEPS_PER_JOB)
    client.request("reset")
    if not client.request("fill stepped", _DRAIN_SECONDS, jobs=jobs)["jobs"]:
        return
    run.service.prepare(run.url)
    with run.workers("steps") as workers:
        first = workers.wait_for(1, _START_SECONDS).first
        done = _wait_until_drained(run, workers, jobs)
    readings.add(STEPS, run.name, jobs / (done - first))


MEASURES: dict[str, tuple[MeasureFunction, str]] = {
    "enqueue": (enqueue, "enqueue one by one"),
    "callers": (callers, f"enqueue by {CALLERS} callers at once"),
    "drain": (drain, "enqueue in bulk, drain, CPU, memory, bytes kept and logged"),
    "pickup": (pickup, "pickup p50 and p99, idle worker process"),
    "here": (pickup_here, "pickup with the worker in the client's process"),
    "steps": (steps, f"{STEPS}, drained (full form)"),
    "growth": (growth, "cost a job as backlog and history grow (full form)"),
    "workers": (several_workers, "drain by several worker processes (full form)"),
    "alongside": (alongside, "CPU of the server while jobs are enqueued and drained (full form)"),
    "snapshot": (snapshot, "drain while an old snapshot is open (full form)"),
}
