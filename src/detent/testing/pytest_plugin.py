"""The pytest plugin: fixtures that try a job's handler at every crash point.

def test_charge_survives_crashes(detent_crashes, detent_effects):
    detent_crashes(charge, {"order_id": 7}, signals={"confirmed": {"user": "ann"}})
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from detent.client.job import JobDefinition

    from .crash_points import CrashReport, Effects


class Crashes:
    """Call it with a job and its arguments; it fails the test at the first job that is not crash-safe."""

    def __init__(self, effects: "Effects") -> None:
        self.effects = effects

    def __call__(
        self,
        job: "JobDefinition[Any, Any]",
        arguments: Mapping[str, Any] | None = None,
        *,
        effects: "Effects | None" = None,
        signals: Mapping[str, Any] | None = None,
        reset: Callable[[], object] = lambda: None,
    ) -> "CrashReport":
        """For plain tests; a coroutine test awaits `run`."""
        return asyncio.run(self.run(job, arguments, effects=effects, signals=signals, reset=reset))

    async def run(
        self,
        job: "JobDefinition[Any, Any]",
        arguments: Mapping[str, Any] | None = None,
        *,
        effects: "Effects | None" = None,
        signals: Mapping[str, Any] | None = None,
        reset: Callable[[], object] = lambda: None,
    ) -> "CrashReport":
        from .crash_points import crash_everywhere

        seen = effects or self.effects
        report = await crash_everywhere(job.app, job, arguments, effects=seen, signals=signals, reset=reset)
        report.check()
        return report


@pytest.fixture
def detent_effects() -> "Effects":
    """What the outside world saw: a handler under test calls `detent_effects.record(name, key=…)`."""
    from .crash_points import Effects

    return Effects()


@pytest.fixture
def detent_crashes(detent_effects: "Effects") -> Crashes:
    """Runs a job once per crash point and fails unless effects and result are those of a run without a crash."""
    return Crashes(detent_effects)
