"""Tools for tests of applications that use Detent. Import them from these modules:

- `detent.testing.pytest_plugin`: the fixtures `detent_app`, `detent_worker`, `detent_crashes` and `detent_effects`.
  Pytest loads it by itself where Detent is installed; nothing needs to be imported.
- `detent.testing.memory`: `on_memory` is behind `detent_worker`, for Django's `TestCase` and for tests without pytest.
- `detent.testing.fake_context`: `FakeContext` calls a handler as a function.
- `detent.testing.crash_points`: `crash_everywhere` runs a job with a crash before and after each call to the database
  and compares results and effects; `Effects` counts effects; `CrashReport`, `CrashPoint`, `Finding`.
- `detent.testing.failure_injection`: `FailureInjector` and `Fault` raise failures at named points of a handler.
- `detent.testing.single_step_worker`: `SingleStepWorker` runs jobs one at a time in memory, without real time; raising
  `ProcessDied` in a handler simulates the death of the worker process.
- `detent.testing.clocks`: `ManualClock`, a clock that only moves when the test moves it.

Examples are in docs/guides/testing.md.
"""
