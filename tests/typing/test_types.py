"""mypy and pyright read a sample application: wrong arguments are errors, right ones are none."""

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


def run(words: list[str], **environment: str) -> str:
    environment = {**os.environ, "MYPYPATH": str(SOURCE), "PYTHONPATH": str(SOURCE), **environment}
    done = subprocess.run(
        [sys.executable, "-m", *words], env=environment, cwd=SAMPLE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, f"{words[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def mypy() -> dict[int, str]:
    cache = ROOT / ".mypy_cache" / "sample"
    words = [
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--no-error-summary",
        "--cache-dir",
        str(cache),
        "sample.py",
    ]
    found = [re.match(r"sample\.py:(\d+): error: (.*)", line) for line in run(words).splitlines()]
    return {int(match[1]): match[2] for match in found if match}


def pyright(folder: Path) -> dict[int, str]:
    shutil.copy(SAMPLE, folder)
    settings = {"include": [SAMPLE.name], "extraPaths": [str(SOURCE)], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    words = ["pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(folder)]
    said = json.loads(run(words, PYRIGHT_PYTHON_GLOBAL_NODE="1", PYRIGHT_PYTHON_IGNORE_WARNINGS="1"))
    told = [one for one in said["generalDiagnostics"] if one["severity"] == "error"]
    return {one["range"]["start"]["line"] + 1: one["message"] for one in told}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_wrong_arguments_are_errors_and_right_ones_are_not(checker: str, tmp_path: Path) -> None:
    marked = lines_marked()
    assert len(marked) == 20
    errors = mypy() if checker == "mypy" else pyright(tmp_path)
    assert {line: told for line, told in errors.items() if line not in marked} == {}, "an error that should be none"
    assert marked - errors.keys() == set(), "these lines should be errors"
