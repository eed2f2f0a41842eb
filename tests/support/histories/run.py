"""Records a history: workers and clients as processes on a server of their own; faults until the clients are done."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import psycopg

import detent
from detent.system.ids import RandomIds
from support.servers.postgres import Server

from . import processes
from .checker import NEVER, Call, Rules, by_job
from .recording import Recorder, calls

RULES = Rules(
    lease=0.9 * processes.LEASE_SECONDS,
    retries=lambda job_type: processes.RETRIES[job_type],
    backoff=0.9 * float(processes.BACKOFF),
)
"""Times are a little shorter than they are: the clocks of server and clients run apart."""
CALM_SECONDS = 0.5
"""Between two faults, so that calls succeed most of the time."""
_TESTS = Path(__file__).parents[2]


class Fleet:
    """The processes of one run, and what is done to them."""

    def __init__(self, server: Server, folder: Path, random: Random) -> None:
        self.server, self.folder, self.random = server, folder, random
        self.workers: list[subprocess.Popen[bytes]] = []
        self.clients: list[subprocess.Popen[bytes]] = []
        self.faults: Counter[str] = Counter()
        self._next_faults: list[Callable[[], None]] = []
        self.recorder = Recorder(folder, "faults")

    def start(self, role: str, *words: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": f"{Path(detent.__file__).parents[1]}{os.pathsep}{_TESTS}"}
        command = [
            sys.executable,
            "-m",
            "support.histories.processes",
            role,
            self.server.url(),
            str(self.folder),
            *words,
        ]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def inject(self) -> None:
        """One fault, over when this returns; each kind once before one comes again."""
        if not self._next_faults:
            self._next_faults = [self.kill_worker, self.stop_worker, self.cut_connections, self.restart, self.kill]
            self.random.shuffle(self._next_faults)
        fault = self._next_faults.pop()
        self.faults[fault.__name__] += 1
        fault()

    def kill_worker(self) -> None:
        number = self.random.randrange(len(self.workers))
        self.workers[number].kill()
        self.workers[number].wait()
        self.workers[number] = self.start("worker")

    def stop_worker(self) -> None:
        """A worker that does not run for longer than its lease, and then goes on as if nothing had happened."""
        worker = self.random.choice(self.workers)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(processes.LEASE_SECONDS + 1.5)
        worker.send_signal(signal.SIGCONT)

    def cut_connections(self) -> None:
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                               " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")  # fmt: skip

    def restart(self) -> None:
        self._crash(lambda: self.server.stop("immediate"))

    def kill(self) -> None:
        self._crash(self.server.kill)

    def _crash(self, stop: Callable[[], None]) -> None:
        number = self.recorder.invoke("crash")
        stop()
        self.recorder.respond(number, "ok")
        self.server.start()

    def alive(self) -> None:
        for process in (*self.workers, *self.clients):
            assert process.poll() in (None, 0), (self.folder / "log").read_text()[-3000:]

    def end(self) -> None:
        for process in (*self.workers, *self.clients):
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


@contextmanager
def fleet_on(server: Server, folder: Path, seed: int) -> Iterator[Fleet]:
    fleet = Fleet(server, folder, Random(seed))
    try:
        yield fleet
    finally:
        fleet.end()


def record(server: Server, folder: Path, jobs: int, seed: int, workers: int = 2, clients: int = 2) -> dict[str, int]:
    """Run these many jobs under faults; returns numbers of the run. The history is in the folder."""
    ids, shared_file = RandomIds(), folder / "shared"
    kinds = ("waiter", "slow", "flaky", "quick")
    shared = [(kinds[n % 4], ids.job()) for n in range(min(400, jobs // 50))]
    shared_file.write_text(json.dumps(shared))
    with fleet_on(server, folder, seed) as fleet:
        fleet.workers = [fleet.start("worker") for _ in range(workers)]
        fleet.clients = [fleet.start("client", str(jobs // clients), str(shared_file)) for _ in range(clients)]
        while any(client.poll() is None for client in fleet.clients):
            fleet.alive()
            pause = time.monotonic() + CALM_SECONDS * (0.5 + fleet.random.random())
            while any(client.poll() is None for client in fleet.clients) and time.monotonic() < pause:
                time.sleep(0.1)
            fleet.inject()
        fleet.alive()
        read = asyncio.run(processes.finish(server.url(), folder))
        for worker in fleet.workers:
            worker.terminate()
        for worker in fleet.workers:
            worker.wait(60)
        return {"jobs read": read, "faults": fleet.faults.total(), **fleet.faults}


def load(folder: Path) -> tuple[dict[str, list[Call]], Rules]:
    """The calls by job, and the rules with the crashes and lost claims of the run.

    A job that the listing at the end leaves out was read as one that does not exist.
    """
    jobs = by_job(calls(folder))
    others = jobs.pop("", [])
    pages = [call for call in others if call.kind == "listing"]
    listed = {job_id for page in pages for job_id in page.arguments}
    for job_id in jobs.keys() - listed if pages else ():
        if any(call.kind == "submit" for call in jobs[job_id]):
            jobs[job_id].append(Call("read", pages[0].begin, pages[-1].end, (), (None, 0)))
    lost = min((call.begin for call in others if call.kind == "claim"), default=NEVER)
    crashes = [(call.begin, call.end) for call in others if call.kind == "crash"]
    return jobs, RULES._replace(lost_claims_from=lost, crashes=crashes)


def count(jobs: dict[str, list[Call]]) -> Counter[str]:
    """The number of calls by kind and answer."""
    answers = ("refused", "unknown")
    return Counter(f"{c.kind} {c.answer if c.answer in answers else 'ok'}" for found in jobs.values() for c in found)
