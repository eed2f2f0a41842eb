"""A tiny run of the contestants on SQLite, as separate processes, through the whole harness."""

from pathlib import Path

import pytest

from bench.contestants import BY_NAME, Contestant
from bench.harness import compete
from bench.measures import Sizes
from bench.services import Services

SIZES = Sizes(200, seconds=0.1, pickups=5, pause=0.02)


@pytest.mark.long
def test_the_sqlite_contestants_run(tmp_path: Path) -> None:
    names = ["detent-sqlite", "raw-sqlite", "minimal-sqlite"]
    services = Services()
    try:
        measures = ["enqueue", "drain", "pickup"]
        readings = compete([BY_NAME[name] for name in names], measures, SIZES, 1, tmp_path, services)
    finally:
        services.close()
    assert not readings.missing
    for measure in ("enqueue one by one", "enqueue in bulk", "drain"):
        assert all(readings.median(measure, name) for name in names), measure
    assert 0 < (readings.median("pickup p50", "detent-sqlite") or 0) < 1_000
    assert readings.syncs


def test_missing_and_failing_contestants_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DETENT_BENCH_HOME", str(tmp_path / "empty"))
    broken = Contestant("broken", "sqlite", "no_such_script", "", "", "")
    readings = compete([BY_NAME["huey"], broken], ["enqueue"], SIZES, 1, tmp_path, Services())
    assert [(missing.contestant, missing.measure) for missing in readings.missing] == [
        ("huey", ""),
        ("broken", "enqueue"),
    ]
    assert readings.missing[0].reason == "not installed: python -m bench --install huey"
    assert "No module named" in readings.missing[1].reason
    assert "broken FAILED" in capsys.readouterr().out
