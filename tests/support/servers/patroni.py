"""Three Postgres nodes under Patroni and etcd on loopback, each behind proxies that can cut it off.

etcd must be on PATH (Debian: `apt-get install etcd-server`). Patroni is installed into a scratch folder. Where one is
missing, the drill is skipped and says so.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from support.servers.pair import multi_host
from support.servers.postgres import Server, free_port, installations
from support.servers.programs import program
from support.servers.proxy import Proxy

_REQUIREMENTS = Path(__file__).with_name("patroni-requirements.txt")
_NEEDED = ("pg_basebackup", "pg_rewind", "pg_controldata", "pg_ctl", "pg_isready")
_DCS = {
    "ttl": 20,
    "loop_wait": 1,
    "retry_timeout": 3,
    "synchronous_mode": True,
    "synchronous_mode_strict": True,
    "primary_start_timeout": 0,
    "postgresql": {
        "use_pg_rewind": True,
        "remove_data_directory_on_rewind_failure": True,
        "remove_data_directory_on_diverged_timelines": True,
        "parameters": {
            "wal_log_hints": "on",
            "max_connections": 120,
            "synchronous_commit": "on",
            "wal_sender_timeout": "3s",
            "wal_receiver_timeout": "3s",
        },
    },
}


class Node:
    """One Patroni with its Postgres. Clients, standbys and other Patronis reach it through proxies; so it does etcd."""

    def __init__(
        self, name: str, binaries: Path, etcd_port: int, start: list[str], path: Path, stack: ExitStack
    ) -> None:
        self.name, self._start, self._path = name, start, path
        self.server = Server(binaries)
        stack.callback(self.server.remove)
        self.rest_port = free_port()
        self.postgres = stack.enter_context(Proxy(self.server.port))
        self.rest = stack.enter_context(Proxy(self.rest_port))
        self.etcd = stack.enter_context(Proxy(etcd_port))
        self.process: subprocess.Popen[bytes] | None = None
        self._configuration = self.server.folder / "patroni.json"
        self._configuration.write_text(json.dumps(self._settings()))

    def _settings(self) -> dict[str, Any]:
        folder = self.server.folder
        users = {"superuser": {"username": "detent"}, "replication": {"username": "replicator"}}
        trusted = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
        return {
            "scope": "detent",
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self.rest_port}", "connect_address": f"127.0.0.1:{self.rest.port}"},
            "etcd3": {"hosts": [f"127.0.0.1:{self.etcd.port}"], "use_proxies": True},  # no discovery past the proxy
            "bootstrap": {"dcs": _DCS, "initdb": [{"encoding": "UTF8"}, {"locale": "C"}], "pg_hba": trusted},
            "postgresql": {
                "listen": f"127.0.0.1:{self.server.port}",
                "connect_address": f"127.0.0.1:{self.postgres.port}",
                "data_dir": str(self.server.data),
                "bin_dir": str(self.server.binaries),
                "pgpass": str(folder / "pgpass"),
                "authentication": users,
                "pg_hba": trusted,
                "basebackup": [{"checkpoint": "fast"}],
                "parameters": {"unix_socket_directories": str(folder)},
            },
        }

    def start(self) -> None:
        environment = self.server._env() | {"PYTHONPATH": str(self._path)}
        with (self.server.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._start, str(self._configuration)],
                stdout=log, stderr=log, env=environment, cwd=self.server.folder, **self.server._identity(),
            )  # fmt: skip

    def kill_postgres(self) -> None:
        """kill -9 of the postmaster."""
        os.kill(int((self.server.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    def kill(self) -> None:
        """kill -9 of Patroni and Postgres, as if the host had lost its power."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.kill_postgres()

    def cut_off(self) -> None:
        """Nothing reaches this node or leaves it any more, and nobody is told."""
        for proxy in (self.postgres, self.rest, self.etcd):
            proxy.go_silent()

    def reconnect(self) -> None:
        for proxy in (self.postgres, self.rest, self.etcd):
            proxy.open()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            self.process.kill()
            self.process.wait()
        with suppress(OSError, ValueError, IndexError):
            self.kill_postgres()


class Cluster:
    """etcd and three nodes with one synchronous standby."""

    def __init__(self, stack: ExitStack) -> None:
        self._etcd_program = program("etcd", "the Patroni drill needs it (Debian: apt-get install etcd-server)")
        binaries = _binaries()
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="detent-patroni-")))
        path.chmod(0o755)
        start = _install(path)
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="detent-etcd-")))
        self._ports = free_port(), free_port()
        self._etcd: subprocess.Popen[bytes] | None = None
        self.nodes = [Node(f"node{n}", binaries, self._ports[0], start, path, stack) for n in (1, 2, 3)]

    @property
    def url(self) -> str:
        return multi_host([node.postgres.port for node in self.nodes])

    def start(self) -> "Cluster":
        self.start_etcd()
        for node in self.nodes:
            node.start()
        self.wait(self.healthy, "a leader and two standbys", 120)
        return self

    def start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self._ports)
        words = [
            "--data-dir",
            str(self._folder / "data"),
            "--listen-client-urls",
            client,
            "--advertise-client-urls",
            client,
        ]
        words += [
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
            "--initial-cluster",
            f"default={peer}",
        ]
        with (self._folder / "log").open("ab") as log:
            self._etcd = subprocess.Popen([self._etcd_program, *words], stdout=log, stderr=log)

    def stop_etcd(self) -> None:
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()
            self._etcd = None

    def members(self) -> dict[str, dict[str, Any]]:
        """Name -> role, state and lag, as a node that answers sees it."""
        for node in self.nodes:
            with suppress(OSError, ValueError), urllib.request.urlopen(self._rest(node, "cluster"), timeout=2) as reply:
                return {member["name"]: member for member in json.loads(reply.read())["members"]}
        return {}

    @staticmethod
    def _rest(node: Node, route: str) -> str:
        return f"http://127.0.0.1:{node.rest_port}/{route}"

    def leader(self) -> Node | None:
        """The node that holds the leader key and says of itself that it is the primary."""
        for node in self.nodes:
            with suppress(OSError), urllib.request.urlopen(self._rest(node, "primary"), timeout=2):
                return node
        return None

    def healthy(self) -> bool:
        """One leader, everybody else streams, and one of them is synchronous."""
        members = list(self.members().values())
        roles = sorted(member["role"] for member in members)
        streaming = sum(member["state"] == "streaming" for member in members)
        return roles == ["leader", "replica", "sync_standby"] and streaming == 2 and self.leader() is not None

    def switch_over(self) -> None:
        leader = self.leader()
        assert leader is not None
        body = json.dumps({"leader": leader.name}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._rest(leader, "switchover"), body, headers, method="POST")
        try:
            urllib.request.urlopen(request, timeout=60).read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"switchover: {error.code} {error.read().decode()}") from None

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = 90.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what}\n{self.members()}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join((node.server.folder / "log").read_text()[-1500:] for node in self.nodes)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        self.stop_etcd()


def _binaries() -> Path:
    for folder in reversed(installations().values()):
        if all((folder / tool).exists() for tool in _NEEDED):
            return folder
    pytest.skip(f"no Postgres with {', '.join(_NEEDED)}: install one (Debian: apt-get install postgresql)")


def _install(folder: Path) -> list[str]:
    """Install Patroni into `folder`; the words that start it as the user that Postgres runs as."""
    python = _python()
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--target", str(folder)]
    try:
        subprocess.run([*command, "-r", str(_REQUIREMENTS)], check=True, capture_output=True, timeout=300)
    except subprocess.SubprocessError as error:
        pytest.skip(f"pip could not install Patroni: {type(error).__name__}")
    return [python, "-m", "patroni"]


def _python() -> str:
    """This interpreter, or another one if the user that Postgres runs as cannot execute this one."""
    identity = Server(next(iter(installations().values())))
    try:
        for python in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
            with suppress(OSError, subprocess.CalledProcessError):
                if python:
                    subprocess.run([python, "-c", ""], check=True, capture_output=True, **identity._identity())
                    return python
    finally:
        identity.remove()
    pytest.skip("no python3 that an unprivileged user can execute: Patroni cannot run as root")


@contextmanager
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        nodes = Cluster(stack)
        stack.callback(nodes.stop)
        yield nodes.start()
