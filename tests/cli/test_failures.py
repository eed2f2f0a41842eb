"""Failures on the command line: log lines of `up`, companions that raise, tracebacks of `show` and `why`."""

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from detent.cli.run.live import keep_running
from support.cli.console import Cli

pytestmark = pytest.mark.anyio
FAILING = """
from detent import Detent

app = Detent("sqlite:///failing.db")
started = []


@app.job("fails", max_retries=1, backoff=[0])
async def fails(secret: str) -> None:
    raise ValueError("no such order")


@app.companion
async def produce() -> None:
    started.append(1)
    if len(started) == 1:
        raise OSError("the feed is not reachable")
    await fails.enqueue(secret="hunter2")
"""


def run(cli: Cli, command: list[str]) -> list[str]:
    done = subprocess.run([sys.executable, "-m", "detent", *command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "hunter2" not in done.stderr
    return done.stderr.splitlines()


def test_up_logs_failures_and_restarts_companions(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING + STOP)
    lines = run(cli, ["up", "failing.py", "--no-screen", "--port", "0", "--log-format", "json"])
    found = [json.loads(line) for line in lines]
    companion = next(line for line in found if "companion produce failed" in line["message"])
    assert companion["level"] == "ERROR" and "OSError: the feed is not reachable" in companion["error"]
    events = [(line["level"], line["event"]) for line in found if "event" in line]
    assert events == [("WARNING", "execution_failed")] * 2 + [("ERROR", "dead_letter")]
    assert all("ValueError: no such order" in line["error"] for line in found if "event" in line)


STOP = """

import os
import signal


@app.on_dead_letter
def stop(ended) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
"""


def test_log_level_and_queues(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    cli("migrate", "--url", "sqlite:///failing.db")
    cli("enqueue", "fails", "--url", "sqlite:///failing.db", "--max-retries", "0", "--payload", '{"secret": "hunter2"}')
    lines = run(cli, ["worker", "failing.py", "--until-idle", "--log-level", "error", "--queues", "default,typo"])
    assert [" ERROR " in line for line in lines if line[:2] == "20"] == [True]
    assert lines[1] == "Traceback (most recent call last):" and lines[-1] == "ValueError: no such order"
    lines = run(cli, ["worker", "failing.py", "--until-idle", "--queues", "default,typo"])
    assert any("no job, limit or pause has the queue typo" in line for line in lines)


def test_tracebacks_are_shown(cli: Cli, tmp_path: Path) -> None:
    url = ["--url", "sqlite:///failing.db"]
    (tmp_path / "failing.py").write_text(FAILING)
    cli("migrate", *url)
    job_id = cli("enqueue", "fails", *url, "--max-retries", "0", "--payload", '{"secret": "x"}').id
    run(cli, ["worker", "failing.py", "--until-idle"])
    dead_letter = cli("dlq", "list", *url).id
    for command in (["jobs", "why", job_id], ["jobs", "show", job_id], ["dlq", "show", dead_letter]):
        printed = cli(*command, *url).out
        assert printed.endswith('    raise ValueError("no such order")\nValueError: no such order\n'), command
        assert printed.count("Traceback") == 1
    assert "ValueError" in cli("jobs", "why", job_id, *url, "--json").json["details"]["traceback"]


async def test_a_companion_is_started_again_with_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    pauses = list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def companion() -> None:
        if len(pauses) < 9:
            raise RuntimeError("again")

    await keep_running(companion, sleep)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 9
    assert "companion" in caplog.messages[0] and caplog.messages[0].endswith("starting it again in 0.5 s")

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await keep_running(cancelled, sleep)
