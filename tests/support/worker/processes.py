"""Starts worker processes for tests, and reads their database and the diary of their handlers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

import detent
from support.waiting import until_now
from support.worker.job_app import app

SCRIPT = Path(__file__).with_name("job_app.py")


class Bench:
    """A folder with a database and a diary, and the worker processes on it."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "jobs.db"
        self.url = f"sqlite:///{self.database}"
        self.diary = folder / "diary"
        self.diary.touch()
        self.log = folder / "log"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.app = app
        self.app.url = self.url

    def start(self, *, ready: bool = True, **options: Any) -> subprocess.Popen[bytes]:
        """Start a worker process; with `ready`, return after it has registered."""
        environment = os.environ | {
            "DETENT_URL": self.url,
            "DIARY": str(self.diary),
            "PYTHONPATH": str(Path(detent.__file__).parent.parent),
        }
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT), json.dumps(options)], env=environment, stdout=log, stderr=log
            )
        self.processes.append(process)
        if ready:
            until_now(lambda: self.registered(process) or self.died(process))
        return process

    def registered(self, process: subprocess.Popen[bytes]) -> bool:
        return bool(self.sql("SELECT 1 FROM detent_workers WHERE pid = ?", process.pid))

    def died(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, f"the worker ended with {process.returncode}:\n{self.log.read_text()[-3000:]}"
        return False

    def sql(self, query: str, *values: Any) -> list[Any]:
        """Rows read directly from the file; none while the tables do not exist yet."""
        connection = apsw.Connection(str(self.database))
        connection.set_busy_timeout(10_000)
        try:
            return list(connection.execute(query, values))
        except apsw.SQLError:
            return []
        finally:
            connection.close()

    def ended(self) -> int:
        return int((self.sql("SELECT count(*) FROM detent_job_list WHERE phase = 'final'") or [(0,)])[0][0])

    def diary_entries(self, verb: str) -> list[str]:
        """The job ids of the diary's lines with this verb."""
        lines = [line.split() for line in self.diary.read_text().splitlines()]
        return [line[1] if len(line) > 1 else "" for line in lines if line and line[0] == verb]


@contextmanager
def bench_in(folder: Path) -> Iterator[Bench]:
    bench = Bench(folder)
    try:
        yield bench
    finally:
        for process in bench.processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
