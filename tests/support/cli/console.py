"""The `cli` fixture: runs commands in a temporary folder with its own database."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.cli import run

SHOP = '''"""A small shop."""

from detent import Context, Detent, Fail

app = Detent("sqlite:///shop.db")


@app.job("charge", queue="billing")
async def charge(ctx: Context, order_id: int) -> dict[str, int]:
    return {"charged": order_id}


@app.job("ship")
async def ship(ctx: Context, order_id: int) -> str:
    answer = await ctx.wait_for("packed", timeout=3600)
    return str(answer["by"])


@app.job("refund")
async def refund(ctx: Context, order_id: int) -> None:
    raise Fail("no such order", code="ORDER_UNKNOWN", retryable=False)
'''


@dataclass(frozen=True)
class CliResult:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def id(self) -> str:
        """The first id in the output."""
        match = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", self.out)
        assert match, self.out
        return match[0]


class Cli:
    """Call it with the arguments of a command and the expected exit code."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> CliResult:
        self._capsys.readouterr()
        exit_code = run(arguments)
        out, err = self._capsys.readouterr()
        assert exit_code == code, f"detent {' '.join(arguments)} exited with {exit_code}\n{out}{err}"
        assert "Traceback" not in err
        return CliResult(exit_code, out, err)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DETENT_URL", "sqlite:///shop.db")
    monkeypatch.setenv("DETENT_ACTOR", "ann")
    monkeypatch.setenv("PYTHONPATH", str(Path(detent.__file__).parent.parent))  # for commands that run in a subprocess
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "shop.py").write_text(SHOP)
    return Cli(capsys)
