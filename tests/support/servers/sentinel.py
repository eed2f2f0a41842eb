"""A primary, its replicas, and the sentinels that watch them: real processes on free ports."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from support.servers.postgres import free_port
from support.servers.valkey import Server, program

SERVICE = "jobs"
_CONFIGURATION = """\
port {port}
bind 127.0.0.1
dir {folder}
sentinel monitor {service} 127.0.0.1 {primary} {quorum}
sentinel down-after-milliseconds {service} {down_after}
sentinel failover-timeout {service} 3000
"""


class SentinelGroup:
    """One service: `servers[0]` is the first primary, the others are its replicas."""

    def __init__(self, *, replicas: int, sentinels: int, down_after: int, words: tuple[str, ...] = ()) -> None:
        words = ("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0", *words)
        self.servers = [Server(*words) for _ in range(1 + replicas)]
        self.ports = [free_port() for _ in range(sentinels)]
        self.down_after = down_after
        self.folder = Path(tempfile.mkdtemp(prefix="detent-sentinel-"))
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def start(self) -> "SentinelGroup":
        first, *others = self.servers
        first.start()
        for server in others:
            server.words = (*server.words, "--replicaof", "127.0.0.1", str(first.port))
            server.start()
        _wait(lambda: self._online(first) == len(others), "every replica is in step")
        for number, port in enumerate(self.ports):
            self._start_sentinel(number, port, first.port)
        _wait(
            lambda: all(self._knows_all(port) for port in self.ports), "the sentinels know each other and all servers"
        )
        return self

    def _start_sentinel(self, number: int, port: int, primary: int) -> None:
        folder = self.folder / str(number)
        folder.mkdir()
        values: dict[str, Any] = {"port": port, "folder": folder, "primary": primary, "service": SERVICE}
        values |= {"quorum": len(self.ports) // 2 + 1, "down_after": self.down_after}
        (folder / "sentinel.conf").write_text(_CONFIGURATION.format(**values))
        with (folder / "log").open("wb") as log:
            command = [program(), str(folder / "sentinel.conf"), "--sentinel"]
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    @staticmethod
    def _online(server: Server) -> int:
        replication = server.client().info("replication")
        return sum(1 for name, state in replication.items() if name.startswith("slave") and state["state"] == "online")

    def _knows_all(self, port: int) -> bool:
        try:
            (state,) = self.ask(port, "SENTINEL", "MASTERS")
        except redis.ConnectionError:
            return False
        fields = dict(zip(state[::2], state[1::2], strict=True))
        known = int(fields["num-slaves"]), int(fields["num-other-sentinels"])
        return known == (len(self.servers) - 1, len(self.ports) - 1) and fields["flags"] == "master"

    def ask(self, port: int, *command: str) -> Any:
        with redis.Redis(port=port, decode_responses=True, protocol=2) as client:
            client.response_callbacks.clear()
            return client.execute_command(*command)

    def primary(self) -> Server:
        """The server that a majority of the sentinels names."""
        ports = [int(self.ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1]) for port in self.ports]
        named = max(set(ports), key=ports.count)
        return next(server for server in self.servers if server.port == named)

    def fail_over(self) -> None:
        """An orderly failover, by request."""
        self.ask(self.ports[0], "SENTINEL", "FAILOVER", SERVICE)

    def replicas_in_step(self) -> bool:
        try:
            return self._online(self.primary()) == len(self.servers) - 1
        except redis.RedisError:
            return False

    def remove(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for server in self.servers:
            server.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


def _wait(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.02)


@contextmanager
def sentinel_group(
    *, replicas: int = 1, sentinels: int = 1, down_after: int = 300, words: tuple[str, ...] = ()
) -> Iterator[SentinelGroup]:
    group = SentinelGroup(replicas=replicas, sentinels=sentinels, down_after=down_after, words=words)
    try:
        yield group.start()
    finally:
        group.remove()
