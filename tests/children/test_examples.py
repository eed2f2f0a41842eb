"""examples/agent.py and nightly_report.py: they run, and a crash at any point changes neither results nor effects."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import detent
from detent import Context, Detent, Workflow
from detent.testing.crash_points import Effects, crash_everywhere

pytestmark = pytest.mark.anyio
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Loads an example as a module, with a database in memory."""

    def load(name: str) -> ModuleType:
        monkeypatch.setenv("DETENT_URL", "sqlite:///:memory:")
        spec = importlib.util.spec_from_file_location(f"{name}_example", EXAMPLES / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(module.asyncio, "sleep", _at_once)
        return module

    return load


async def _at_once(_seconds: float) -> None:
    return None


@pytest.mark.parametrize("granted", [True, False])
async def test_the_agent_crashes_at_every_point(
    example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, granted: bool
) -> None:
    agent, effects = example("agent"), Effects()

    def counted(name: str) -> Any:
        real = getattr(agent, name)

        async def tool(*, key: str, **arguments: Any) -> Any:
            effects.record(name, key)
            return await real(**arguments, key=key)

        return tool

    for name in list(agent.TOOLS):
        monkeypatch.setitem(agent.TOOLS, name, counted(name))
    report = await crash_everywhere(
        agent.app, agent.agent, {"task": "broken"}, effects=effects, signals={"approval": granted}
    )
    report.check()
    assert report.expected is not None
    assert report.expected.effects == {"look_up": 1, "mail": 1, **({"refund": 1} if granted else {})}
    assert '"calls":["look_up","refund","mail"]' in (report.expected.result or "")
    calls = {point.call for point in report.points}
    assert {"write: record_step 'tool 0' begun", "write: record_step 'tool 0'", "settlement: Waits"} <= calls


async def test_the_report_crashes_at_every_point(
    example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    nightly, effects = example("nightly_report"), Effects()
    monkeypatch.setattr(nightly, "SHOPS", 3)
    real = nightly.send

    async def send(text: str, *, idempotency_key: str) -> str:
        effects.record("mail", idempotency_key)
        return str(await real(text, idempotency_key=idempotency_key))

    monkeypatch.setattr(nightly, "send", send)
    report = await crash_everywhere(nightly.app, nightly.nightly_report, {"day": "monday"}, effects=effects)
    report.check()
    assert report.expected is not None
    assert (report.expected.result, report.expected.effects) == ('"monday: 3 shops took 60"', {"mail": 1})
    calls = [point.call for point in report.points]
    assert any(act.startswith("write: ") and act.endswith("insert, add_notes 'children.enqueued'") for act in calls)
    assert calls.count("settlement: Succeeded") >= 16, "four jobs settle, and each child then processes its parent"


async def test_a_workflow_crashes_at_every_point() -> None:
    effects = Effects()
    app = Detent("sqlite:///:memory:")
    flow = Workflow(app, "flow", max_retries=5)

    @flow.node(max_retries=5)
    async def first(ctx: Context, n: int) -> int:
        effects.record("first", ctx.effect_key("first"))
        return n + 1

    @flow.node(after="first", max_retries=5)
    async def left(ctx: Context, first: int) -> int:
        effects.record("left", ctx.effect_key("left"))
        return first * 2

    @flow.node(after=["first", "left"], max_retries=5)
    async def last(ctx: Context, first: int, left: int) -> int:
        effects.record("last", ctx.effect_key("last"))
        return first + left

    report = await crash_everywhere(app, flow.job, {"n": 1}, effects=effects)
    report.check()
    assert report.expected is not None
    assert report.expected.result == '{"first":2,"left":4,"last":6}'
    assert report.expected.effects == {"first": 1, "left": 1, "last": 1}


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("agent", ["approval requested: refund of", "'answer': 'order 7 arrived broken: done in 3 calls'"]),
        ("nightly_report", ["2026-02-25: 200 shops took 201,000"]),
    ],
)
def test_it_runs(tmp_path: Path, name: str, output: list[str]) -> None:
    environment = os.environ | {
        "DETENT_URL": f"sqlite:///{tmp_path / 'jobs.db'}",
        "PYTHONPATH": str(Path(detent.__file__).parent.parent),
    }
    script = str(EXAMPLES / f"{name}.py")
    done = subprocess.run(
        [sys.executable, script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in output), done.stdout
