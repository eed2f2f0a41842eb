"""`detent bench` measures what it says, leaves no file of its own, and only ended jobs where it was sent."""

import tempfile
from pathlib import Path

import pytest

from detent.cli.run.bench_run import MEASURES

from .conftest import Cli


def test_a_database_that_was_named(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'mine.db'}"
    told = cli("bench", "--jobs", "30", "--url", url, "--json").json
    assert [one["measure"] for one in told["readings"]] == list(MEASURES)
    assert all(one["value"] > 0 for one in told["readings"])
    counts = cli("stats", "--url", url, "--json").json
    assert {phase: n for phase, n in counts["phases"].items() if n} == {"final": 30 + 30 + 30 + 51}
    assert cli("verify", "--url", url, "--json").json["ok"]


def test_a_file_of_its_own_is_gone(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("DETENT_URL", raising=False)
    said = cli("bench", "--jobs", "5")
    assert said.out.startswith("on a SQLite file of its own (fsync on every commit), 5 jobs\n")
    assert not list(tmp_path.glob("detent-bench-*"))
