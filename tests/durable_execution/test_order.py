"""examples/order.py: it runs, and with a crash at any point it charges, refunds and ships once."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import detent
from detent.testing.crash_points import Effects, crash_everywhere

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).parent.parent.parent / "examples" / "order.py"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The example as a module, with a new database."""
    monkeypatch.setenv("DETENT_URL", f"sqlite:///{tmp_path / 'jobs.db'}")
    spec = importlib.util.spec_from_file_location("order_example", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def count_effects(shop: ModuleType, monkeypatch: pytest.MonkeyPatch, effects: Effects, *, keys: bool) -> None:
    """Replace the services by ones that count their calls; with keys a repeated key is not counted."""

    def counted(name: str) -> Any:
        real = getattr(shop, name)

        async def service(*args: Any, idempotency_key: str) -> Any:
            effects.record(name, idempotency_key if keys else None)
            value = real(*args, idempotency_key=idempotency_key)
            return await value if hasattr(value, "__await__") else value

        return service

    for name in ("pay", "refund", "ship"):
        monkeypatch.setattr(shop, name, counted(name))
    monkeypatch.setattr(shop.asyncio, "sleep", _at_once)


async def _at_once(_seconds: float) -> None:
    return None


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_crash_at_every_point(shop: ModuleType, monkeypatch: pytest.MonkeyPatch, confirmed: bool) -> None:
    effects = Effects()
    count_effects(shop, monkeypatch, effects, keys=True)
    signals = {"confirmed": {"user": "ann"}} if confirmed else {}
    report = await crash_everywhere(
        shop.app, shop.order, {"order_id": 7, "amount": 100}, effects=effects, signals=signals
    )
    report.check()
    second = "ship" if confirmed else "refund"
    assert report.expected is not None and report.expected.effects == {"pay": 1, second: 1}
    assert json.loads(report.expected.result or "").get("parcel") == (1_007 if confirmed else None)
    calls = {point.call for point in report.points}
    assert {"write: record_step 'charge'", f"write: record_step '{second}'", "settlement: Waits"} <= calls


async def test_a_recorded_step_is_not_run_again(shop: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without keys an effect is repeated only by a death between the call and its record: one point for each step."""
    effects = Effects()
    count_effects(shop, monkeypatch, effects, keys=False)
    report = await crash_everywhere(
        shop.app, shop.order, {"order_id": 7, "amount": 1}, effects=effects, signals={"confirmed": {"user": "ann"}}
    )
    assert sorted(str(finding.point).partition(" (")[2] for finding in report.findings) == [
        "write: record_step 'charge')",
        "write: record_step 'ship')",
    ]
    assert all(finding.point.when == "before" for finding in report.findings)


def test_it_runs(tmp_path: Path) -> None:
    environment = os.environ | {
        "DETENT_URL": f"sqlite:///{tmp_path / 'jobs.db'}",
        "PYTHONPATH": str(Path(detent.__file__).parent.parent),
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "'by': 'ann'" in done.stdout and "'parcel': 1007" in done.stdout
