"""`detent serve` in a subprocess."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import detent

START_SECONDS = 120.0
SOURCES = str(Path(detent.__file__).parent.parent)


@contextmanager
def serving(folder: Path, url: str, *arguments: str, **environment: str) -> Iterator[str]:
    """Run `detent serve` on this database; yields its URL and terminates the process afterwards."""
    command = [sys.executable, "-m", "detent", "serve", "--port", "0", "--json", "--url", url, *arguments]
    process_environment = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONUNBUFFERED": "1", **environment}
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=process_environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
        (folder / "serve.pid").write_text(str(process.pid))
        try:
            yield str(first_json(process)["at"])
        finally:
            process.terminate()
            process.wait(15)
            assert process.stdout is not None
            process.stdout.close()


def first_json(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The first JSON object that the process prints, over several lines. A process that prints none is killed."""
    watchdog = threading.Timer(START_SECONDS, process.kill)
    watchdog.start()
    try:
        return _read_json(process)
    finally:
        watchdog.cancel()


def _read_json(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    text = ""
    while True:
        line = process.stdout.readline()
        assert line, f"the process printed no JSON object: {text!r}"
        text += line
        try:
            parsed: dict[str, Any] = json.loads(text)
        except ValueError:
            continue
        return parsed
