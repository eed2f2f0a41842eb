"""The pytest plugin, active where Detent is installed: fixtures that run a job at every crash point.

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


class CrashTester:
    """What the fixture `detent_crashes` returns. Call it with a job and its arguments."""

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
        """Run the job at every crash point and raise AssertionError if a crash changes its result or effects.

        effects: instead of those of the fixture `detent_effects`. signals, reset: as in `crash_everywhere`. In a
        coroutine test use `await detent_crashes.run(...)`.
        """
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
        """The same for coroutine tests."""
        from .crash_points import crash_everywhere

        effects = effects or self.effects
        report = await crash_everywhere(job.app, job, arguments, effects=effects, signals=signals, reset=reset)
        report.check()
        return report


@pytest.fixture
def detent_effects() -> "Effects":
    """Counts effects: a handler under test calls `detent_effects.record(name, key=…)`."""
    from .crash_points import Effects

    return Effects()


@pytest.fixture
def detent_crashes(detent_effects: "Effects") -> CrashTester:
    """Runs a job once for each crash point; fails if effects or result differ from the run without a crash."""
    return CrashTester(detent_effects)
