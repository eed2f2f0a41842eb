"""`detent bench`: all measures, no file left behind, and only finished jobs in a named database."""

import tempfile
from pathlib import Path

import pytest

from detent.cli.run.bench import MEASURES
from support.cli.console import Cli


def test_a_named_database(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'mine.db'}"
    result = cli("bench", "--jobs", "30", "--url", url, "--json").json
    assert [reading["measure"] for reading in result["readings"]] == list(MEASURES)
    assert all(reading["value"] > 0 for reading in result["readings"])
    counts = cli("stats", "--url", url, "--json").json
    assert {phase: n for phase, n in counts["phases"].items() if n} == {"final": 30 + 30 + 30 + 51}
    assert cli("verify", "--url", url, "--json").json["ok"]


def test_the_temporary_file_is_deleted(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("DETENT_URL", raising=False)
    result = cli("bench", "--jobs", "5")
    assert result.out.startswith("on a temporary SQLite file (fsync on every commit), 5 jobs\n")
    assert not list(tmp_path.glob("detent-bench-*"))
