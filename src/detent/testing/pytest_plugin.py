"""The pytest plugin, active where Detent is installed: an application in memory, and a run at every crash point.

    async def test_an_order_is_charged(detent_worker):
        await place_order(7)
        detent_worker.assert_enqueued(charge, order_id=7)
        await detent_worker.drain()

The setting `detent_app = shop.jobs:app` names the application; or override the fixture `detent_application`.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from detent.client.app import Detent
    from detent.client.job import JobDefinition

    from .crash_points import CrashReport, Effects
    from .memory import TestWorker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("detent_app", "The application under test, as module:app; see the fixture detent_app.")


@pytest.fixture
def detent_application(pytestconfig: pytest.Config) -> "Detent":
    """The application under test: that of the setting `detent_app`, else a new one. Override it to return your own."""
    from detent.client.app import Detent

    spec = pytestconfig.getini("detent_app")
    if not spec:
        return Detent("sqlite:///:memory:")
    module, _, name = str(spec).partition(":")
    app = getattr(import_module(module), name or "app")
    if not isinstance(app, Detent):
        raise pytest.UsageError(f"detent_app = {spec}: this is a {type(app).__name__}, not a Detent")
    return app


@pytest.fixture
def detent_worker(detent_application: "Detent") -> "Iterator[TestWorker]":
    """A worker in virtual time for the application, which has a new database in memory for this test."""
    from .memory import on_memory

    with on_memory(detent_application) as worker:
        yield worker


@pytest.fixture
def detent_app(detent_worker: "TestWorker") -> "Detent":
    """The application under test on a new database in memory. Its jobs run when `detent_worker` is told to."""
    return detent_worker.app


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
