"""mypy and pyright check a sample application: wrong arguments are errors, right ones are not."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import detent

SAMPLE = Path(__file__).with_name("sample.py")
SOURCE = Path(detent.__file__).parent.parent
ROOT = SAMPLE.parent.parent.parent


def lines_marked() -> set[int]:
    text = SAMPLE.read_text().splitlines()
    return {number for number, line in enumerate(text, 1) if line.endswith("# wrong")}


def run(arguments: list[str], **environment: str) -> str:
    environment = {**os.environ, "MYPYPATH": str(SOURCE), "PYTHONPATH": str(SOURCE), **environment}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env=environment,
        cwd=SAMPLE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, f"{arguments[0]} exited with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def mypy() -> dict[int, str]:
    cache = ROOT / ".mypy_cache" / "sample"
    arguments = [
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--no-error-summary",
        "--cache-dir",
        str(cache),
        "sample.py",
    ]
    matches = [re.match(r"sample\.py:(\d+): error: (.*)", line) for line in run(arguments).splitlines()]
    return {int(match[1]): match[2] for match in matches if match}


def pyright(folder: Path) -> dict[int, str]:
    shutil.copy(SAMPLE, folder)
    settings = {"include": [SAMPLE.name], "extraPaths": [str(SOURCE)], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    arguments = ["pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(folder)]
    report = json.loads(run(arguments, PYRIGHT_PYTHON_IGNORE_WARNINGS="1"))
    errors = [item for item in report["generalDiagnostics"] if item["severity"] == "error"]
    return {item["range"]["start"]["line"] + 1: item["message"] for item in errors}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_wrong_arguments_are_errors_and_right_ones_are_not(checker: str, tmp_path: Path) -> None:
    marked = lines_marked()
    assert len(marked) == 40
    errors = mypy() if checker == "mypy" else pyright(tmp_path)
    assert {line: message for line, message in errors.items() if line not in marked} == {}, (
        "errors in lines that are right"
    )
    assert marked - errors.keys() == set(), "these lines should be errors"
