"""A database, a Redis, and orchestrator and worker processes that a test can signal."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

import detent
from detent import Detent
from detent.engine import Engine
from detent.proof.verify.verify import verify
from support.servers.databases import Database, house, newest
from support.servers.valkey import fresh_url
from support.streams.task_app import app as application
from support.waiting import until_now

APP = Path(__file__).with_name("task_app.py")
TASKS, RESULTS, DEAD_LETTERS, WORKERS = "stream:task", "stream:result", "stream:dlq", "cg:workers"


class ProcessHarness:
    """One database and one Redis with the processes on them, their diary and their log."""

    def __init__(self, folder: Path, url: str, redis_url: str, seconds: float = 300.0) -> None:
        self.folder, self.url, self.redis_url, self.seconds = folder, url, redis_url, seconds
        self.diary = folder / "diary"
        self.diary.touch()
        self.log = folder / "log"
        self.redis: Any = redis.Redis.from_url(redis_url, decode_responses=True, protocol=2)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.database: Database | None = None
        self.app: Detent = application
        self.app.url = url

    def orchestrate(self, *options: str) -> subprocess.Popen[bytes]:
        return self.start(sys.executable, "-m", "detent", "orchestrate", "--url", self.url, *options)

    def work(self, *options: str) -> subprocess.Popen[bytes]:
        arguments = ("--transport", "redis", "--url", self.url, *options)
        return self.start(sys.executable, "-m", "detent", "worker", str(APP), *arguments)

    def start(self, *command: str, **variables: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "DETENT_URL": self.url,
            "DETENT_REDIS_URL": self.redis_url,
            "DETENT_VISIBILITY_TIMEOUT_S": str(self.seconds),
            "DIARY": str(self.diary),
            "PYTHONPATH": str(Path(detent.__file__).parent.parent),
            **variables,
        }
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self.folder)
        self.processes.append(process)
        return process

    def enqueue(self, name: str, many: int = 1, key: str | None = None, **payload: Any) -> list[str]:
        job = self.app.jobs[name].using(key=key) if key else self.app.jobs[name]

        async def act() -> list[str]:
            async with self.app:
                return [handle.id for handle in await job.enqueue_many([payload] * many)]

        return asyncio.run(act())

    def run(self, act: Any) -> Any:
        """Run an act on a new engine."""

        async def run() -> Any:
            engine: Engine = self.app.make_engine()
            await engine.open()
            try:
                return await act(engine)
            finally:
                await engine.close()

        return asyncio.run(run())

    def history(self, job_id: str) -> list[str]:
        """Events and notes by name, in order."""
        return [entry["event"] for entry in self.run(lambda e: e.jobs.history(job_id)).as_dict()["events"]]

    def entries(self, job_id: str, name: str) -> list[dict[str, Any]]:
        entries = self.run(lambda e: e.jobs.history(job_id)).as_dict()["events"]
        return [entry for entry in entries if entry["event"] == name]

    def status(self, job_id: str) -> str:
        return str(self.run(lambda e: e.jobs.get(job_id)).status)

    def until_ended(self, *job_ids: str, seconds: float = 40.0) -> None:
        def ended() -> bool:
            self.check_alive()
            return all(self.run(lambda e, job_id=job_id: e.jobs.get(job_id)).phase == "final" for job_id in job_ids)

        until_now(ended, seconds)

    def until_written(self, *words: object) -> list[str]:
        """Wait for the first line of the diary that begins with these words."""
        head = " ".join(map(str, words)) + " "

        def first_line() -> list[str]:
            self.check_alive()
            return next((line.split() for line in self.lines() if (line + " ").startswith(head)), [])

        return until_now(first_line)  # type: ignore[no-any-return]

    def lines(self) -> list[str]:
        return self.diary.read_text().splitlines()

    def check_alive(self) -> None:
        for process in self.processes:
            code = process.poll()
            assert code in (None, 0, -9), f"ended with {code}:\n{self.log.read_text()[-4000:]}"

    def pending(self) -> int:
        with suppress(redis.ResponseError):
            return int(self.redis.xpending(TASKS, WORKERS)["pending"])
        return 0

    def check_integrity(self) -> None:
        report = self.run(lambda engine: verify(engine.store))
        assert report.ok, report.violations[:10]

    def close(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
        self.redis.close()


@contextmanager
def process_harness(
    folder: Path, store: str, seconds: float = 300.0, redis_url: str | None = None
) -> Iterator[ProcessHarness]:
    database = house(newest()).database() if store == "postgres" else None
    url = database.url if database else f"sqlite:///{folder / 'jobs.db'}"
    harness = ProcessHarness(folder, url, redis_url or fresh_url(), seconds)
    harness.database = database
    try:
        yield harness
    finally:
        harness.close()
        if database:
            database.release()
