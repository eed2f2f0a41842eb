"""Every Python block of docs/guides/testing.md is a test file that passes."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import detent

SOURCE = Path(detent.__file__).parent.parent
PAGE = SOURCE.parent / "docs" / "guides" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def pytest_command() -> list[str]:
    installed = any(entry.value == "detent.testing.pytest_plugin" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "detent.testing.pytest_plugin"]
    hang = ["-o", "faulthandler_timeout=60", "-o", "faulthandler_exit_on_timeout=true"]
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *hang, *plugin]


def run_pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(pytest_command(), cwd=folder, env=environment, capture_output=True, text=True)


def test_the_blocks_pass(tmp_path: Path) -> None:
    assert len(BLOCKS) == 9
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"test_block_{number}.py").write_text(block)
    done = run_pytest(tmp_path)
    assert "12 passed" in done.stdout, done.stdout + done.stderr


def test_without_the_key_its_block_fails(tmp_path: Path) -> None:
    text = BLOCKS[2].replace(', key=ctx.effect_key("pay")', "")
    assert text != BLOCKS[0]
    (tmp_path / "test_block.py").write_text(text)
    done = run_pytest(tmp_path)
    assert "effect 'payment' happened 2 times instead of 1" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module",
    ["clocks", "crash_points", "failure_injection", "fake_context", "memory", "pytest_plugin", "single_step_worker"],
)
def test_the_page_and_the_package_name_every_module(module: str) -> None:
    import detent.testing

    assert f"detent.testing.{module}" in (detent.testing.__doc__ or "")
    assert module == "pytest_plugin" or f"detent.testing.{module}" in PAGE.read_text("utf-8")
