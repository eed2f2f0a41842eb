"""A server in a process of its own, as people start it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import detent

SOURCES = str(Path(detent.__file__).parent.parent)


@contextmanager
def serving(folder: Path, url: str, *words: str, **environment: str) -> Iterator[str]:
    """The address of `detent serve` on this database; the process is gone afterwards."""
    command = [sys.executable, "-m", "detent", "serve", "--port", "0", "--json", "--url", url, *words]
    told = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONUNBUFFERED": "1", **environment}
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=told, stdout=subprocess.PIPE, stderr=log, text=True)
        (folder / "serve.pid").write_text(str(process.pid))
        try:
            yield str(first_json(process)["at"])
        finally:
            process.terminate()
            process.wait(15)
            assert process.stdout is not None
            process.stdout.close()


def first_json(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What it says at its start, which is one JSON object over several lines."""
    assert process.stdout is not None
    text = ""
    while True:
        line = process.stdout.readline()
        assert line, f"it ended or said nothing: {text!r}"
        text += line
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError:
            continue
        return found
