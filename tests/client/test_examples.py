"""examples/quickstart.py and demo.py run as their docstrings describe."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import detent
from support.waiting import until_now

ROOT = Path(detent.__file__).parent.parent.parent
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"DETENT_URL": f"sqlite:///{tmp_path / 'jobs.db'}", "PYTHONPATH": str(ROOT / "src")}


@contextmanager
def running(arguments: list[str], environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments], env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def test_quickstart(tmp_path: Path, environment: dict[str, str]) -> None:
    script = str(EXAMPLES / "quickstart.py")
    with running(["-m", "detent", "worker", script], environment, tmp_path) as worker:
        done = subprocess.run(
            [sys.executable, script],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "hello world\n", "")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    assert len((EXAMPLES / "quickstart.py").read_text().splitlines()) <= 30


@pytest.mark.long
def test_demo(tmp_path: Path, environment: dict[str, str]) -> None:
    """A few seconds of `detent up`: jobs of each contract run, and SIGINT stops it cleanly."""

    def stats() -> dict[str, dict[str, int]]:
        command = [sys.executable, "-m", "detent", "stats", "--json"]
        completed = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        return json.loads(completed.stdout)["statuses"] if completed.returncode == 0 else {}

    with running(
        ["-m", "detent", "up", str(EXAMPLES / "demo.py"), "--no-screen", "--port", "0"], environment, tmp_path
    ) as up:
        until_now(lambda: stats().get("standard", {}).get("succeeded") and stats().get("gate-b2"))
        until_now(lambda: set(stats()) >= {"standard", "gate-b2", "p3c"})
        up.send_signal(signal.SIGINT)
        assert up.wait(30) == 0
    log = (tmp_path / "log").read_text()
    intended = log.count("\ndetent.handler.outcomes.")  # the last line of a traceback of Retry or Fail
    assert "up on sqlite" in log and log.count("Traceback") == intended, log
