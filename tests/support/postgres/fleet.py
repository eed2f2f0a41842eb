"""Worker processes on one Postgres, and what the database, their logs and their diary say of them."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

import detent
from detent.client.connect import store_from
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Move
from detent.core.errors import StoreUnavailable
from detent.engine import Engine, Submission
from detent.proof.verify.verify import verify
from detent.stores.postgres.store import PostgresStore
from detent.system.ids import RandomIds
from support.postgres.outage_app import app
from support.servers.databases import SEARCH_DETENT

SCRIPT = Path(__file__).with_name("outage_app.py")
LEASE_SECONDS = 3.0
PATIENCE = 60.0
LOSSES = sorted({e.event for c in CONTRACTS.values() for e in c.edges if e.move in (Move.EXPIRE, Move.RECLAIM)})
"""Names of the events that take a job from a worker whose lease ran out."""


async def soon(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """The first true answer of a condition, asked in a thread; trouble with the database counts as not yet."""
    end = time.monotonic() + seconds
    while True:
        with suppress(psycopg.OperationalError):
            if answer := await asyncio.to_thread(condition):
                return answer
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


def passed(seconds: float) -> Callable[[], bool]:
    """A condition: so much time has gone by since now."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


class Fleet:
    """Workers started as a user starts them. look: where the tests themselves look into the database."""

    def __init__(self, folder: Path, url: str, look: str | None = None) -> None:
        self.folder = folder
        self.url = url
        self.look = look or url
        self.diary = folder / "diary"
        self.diary.touch()
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(
        self, *words: str, url: str | None = None, lease: float = LEASE_SECONDS, slots: int = 8
    ) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "DIARY": str(self.diary),
            "PYTHONPATH": str(Path(detent.__file__).parent.parent),
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-m", "detent", "worker", str(SCRIPT), "--url", url or self.url]
        command += ["--lease-seconds", str(lease), "--slots", str(slots), *words]
        with self.log_of(len(self.workers)).open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.workers.append(process)
        return process

    def ready(self) -> bool:
        """Every worker has introduced itself."""
        return self.alive() and self.one("SELECT count(*) FROM detent.workers") == len(self.workers)

    def alive(self) -> bool:
        for number, process in enumerate(self.workers):
            log_text = self.log_of(number).read_text()[-3000:]
            assert process.poll() is None, f"worker {number} ended with {process.returncode}:\n{log_text}"
        return True

    def log_of(self, number: int) -> Path:
        return self.folder / f"worker-{number}.log"

    def log_text(self, words: str) -> list[int]:
        """How many lines of each worker's log bear these words (a pattern)."""
        texts = [self.log_of(number).read_text() for number in range(len(self.workers))]
        return [len([line for line in text.splitlines() if re.search(words, line)]) for text in texts]

    def sql(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows, read past Detent."""
        with psycopg.connect(self.look, autocommit=True, connect_timeout=3, options=SEARCH_DETENT) as connection:
            return connection.execute(query, values or None).fetchall()  # type: ignore[arg-type]

    def one(self, query: str, *values: Any) -> Any:
        return self.sql(query, *values)[0][0]

    def ended(self, job_type: str = "%") -> int:
        return int(
            self.one("SELECT count(*) FROM detent.job_list WHERE phase = 'final' AND job_type LIKE %s", job_type)
        )

    def drained(self) -> bool:
        return self.alive() and not self.one("SELECT count(*) FROM detent.job_list WHERE phase <> 'final'")

    def ids(self) -> set[str]:
        return {row[0] for row in self.sql("SELECT id::text FROM detent.job_list")}

    def losses(self) -> list[tuple[Any, ...]]:
        """Every recorded loss of a lease."""
        return self.sql("SELECT job_id::text, seq, event, actor FROM detent.event_list WHERE event = ANY (%s)", LOSSES)

    def executions(self) -> dict[str, list[str]]:
        """Job -> processes that began to run it, in order."""
        found: dict[str, list[str]] = {}
        for line in self.diary.read_text().splitlines():
            verb, job_id, pid = line.split()
            if verb == "started":
                found.setdefault(job_id, []).append(pid)
        return found

    def pickups(self) -> list[float]:
        """Seconds from submit to first start of the jobs that were enqueued after the rest had ended."""
        found = self.sql("SELECT (started_at - created_at) / 1e6 FROM detent.job_list WHERE queue = 'late' ORDER BY id")
        return [float(row[0]) for row in found]

    async def check(self) -> dict[str, int]:
        """Every job ended exactly once and every log agrees with its row; what it took, in numbers."""
        twice = self.sql(
            "SELECT j.id, count(e) FROM detent.job_list j"
            " LEFT JOIN detent.event_list e ON e.job_id = j.id AND e.target = j.status"
            " WHERE j.phase = 'final' GROUP BY j.id HAVING count(e) <> 1"
        )
        assert twice == [], "jobs with another number of final events than one"
        engine = Engine(PostgresStore(self.look))
        await engine.open()
        try:
            report = await verify(engine.store)
        finally:
            await engine.close()
        assert report.ok, report.violations[:5]
        begun = self.executions()
        return {
            "jobs": report.jobs,
            "events": report.events,
            "begun": sum(map(len, begun.values())),
            "begun twice": sum(len(pids) > 1 for pids in begun.values()),
            "refused": self.one("SELECT count(*) FROM detent.notes WHERE name = 'settle.refused'"),
            "lost leases": len(self.losses()),
        }


@contextmanager
def fleet_on(folder: Path, url: str, look: str | None = None) -> Iterator[Fleet]:
    fleet = Fleet(folder, url, look)
    try:
        yield fleet
    finally:
        for process in fleet.workers:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


async def enqueue(url: str, small: int, long: int = 0, seconds: float = 0.0, queue: str = "default") -> None:
    """Small jobs, and long ones of both contracts."""
    engine = Engine(store_from(url))
    await engine.open()
    asks = [app.jobs["small"].using(queue=queue).submission({"n": n}) for n in range(small)]
    for name in ("long", "long-streams"):
        asks += [app.jobs[name].submission({"seconds": seconds})] * long
    try:
        await engine.jobs.submit_many(asks)
    finally:
        await engine.close()


async def opened(url: str, patience: float) -> Engine:
    """An engine on a database that may not be there yet."""
    end = time.monotonic() + patience
    while True:
        engine = Engine(store_from(url))
        try:
            await engine.open()
            return engine
        except StoreUnavailable:
            await engine.close()
            assert time.monotonic() < end, f"nobody answers at {url}"
            await asyncio.sleep(0.1)


async def submit_through(
    url: str, stop: asyncio.Event, patience: float = 5.0, acknowledged: list[str] | None = None
) -> list[str]:
    """Submit small jobs until `stop`, each repeated until it is acknowledged; returns the acknowledged ids.

    acknowledged: a list that grows meanwhile, for a test that waits for the first one.
    """
    engine = await opened(url, patience)
    ids, acknowledged = RandomIds(), [] if acknowledged is None else acknowledged
    try:
        while not stop.is_set():
            ask = Submission("small", {"n": -1}, id=ids.job(), max_retries=50)
            while not stop.is_set():
                try:
                    await asyncio.wait_for(engine.jobs.submit(ask), 15)
                except (StoreUnavailable, TimeoutError):
                    await asyncio.sleep(0.05)
                else:
                    acknowledged.append(ask.id or "")
                    break
            await asyncio.sleep(0.01)
    finally:
        await engine.close()
    return acknowledged


async def prompt_pickup(fleet: Fleet, enough: float, at_least: int = 5, at_most: int = 25) -> float:
    """The median pickup of single jobs by idle workers: below that of a poll only where notifications arrive.

    A disk that is slow for a moment makes any pickup slow: then more of them are looked at.
    """
    engine = Engine(PostgresStore(fleet.look))
    await engine.open()
    try:
        for n in range(at_most):
            await engine.jobs.submit(app.jobs["small"].using(queue="late").submission({"n": n}))
            await soon(fleet.drained, "a job enqueued after the outage is done")
            if n + 1 >= at_least and median(fleet.pickups()) < enough:
                break
    finally:
        await engine.close()
    return median(fleet.pickups())
