"""An application on a fresh database in memory, with a clock that the test moves: behind the fixtures `detent_app` and
`detent_worker`."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from detent.client.app import Detent
from detent.client.job import JobDefinition
from detent.core.job import Job
from detent.handler.blocking import Blocking, blocking
from detent.ports.listing import Filter
from detent.system.run_now import run_now

from .clocks import ManualClock
from .single_step_worker import SingleStepWorker

_MOST_JOBS = 10_000


class SyncWorker(Blocking["TestWorker"]):
    """`detent_worker.sync`: the calls for plain test functions."""

    drain = blocking(SingleStepWorker.drain)
    advance = blocking(SingleStepWorker.advance)
    run = blocking(SingleStepWorker.run)


class TestWorker(SingleStepWorker):
    """Runs the jobs of an application in the test's own event loop, in virtual time.

        await charge.enqueue(order_id=7)
        await worker.drain()
        await worker.advance("2 h")

    In a plain test function: `worker.sync.drain()`, `worker.sync.advance("2 h")`.
    """

    __test__ = False  # for pytest: not a test class

    @property
    def sync(self) -> SyncWorker:
        return SyncWorker(self, self.app.sync.run)

    def enqueued(self, job: JobDefinition[Any, Any], **arguments: Any) -> list[Job]:
        """The jobs of this type whose arguments include these, oldest first, in whatever status they are."""
        wanted: dict[str, Any] = json.loads(json.dumps(arguments, default=str))
        listed = run_now(self.engine.jobs.list(Filter(job_type=job.name, limit=_MOST_JOBS)))
        found = [one for one in listed if _includes(json.loads(one.payload), wanted)]
        return sorted(found, key=lambda one: one.id)

    def assert_enqueued(self, job: JobDefinition[Any, Any], /, *, times: int | None = None, **arguments: Any) -> Job:
        """Fail unless a job of this type was enqueued with these arguments; returns the newest one.

        times: exactly so many. Arguments that are not named may have any value.
        """
        found = self.enqueued(job, **arguments)
        if not found or (times is not None and len(found) != times):
            others = [json.loads(one.payload) for one in self.enqueued(job)]
            expected = "" if times is None else f" {times} times"
            raise AssertionError(
                f"{job.name} was not enqueued{expected} with {arguments}, but {len(found)} times; "
                f"all {job.name} jobs: {others or 'none'}"
            )
        return found[-1]

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Within the block every enqueue runs the job, and all that is due, before it returns."""
        jobs, draining = self.engine.jobs, False

        def with_drain(submit: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def submit_and_drain(*arguments: Any) -> Any:
                nonlocal draining
                submitted = await submit(*arguments)
                if not draining:
                    draining = True
                    try:
                        await self.drain()
                    finally:
                        draining = False
                return submitted

            return submit_and_drain

        before = {name: getattr(jobs, name) for name in ("submit_many", "submit_uniform")}  # `submit` calls the first
        for name, submit in before.items():
            setattr(jobs, name, with_drain(submit))
        try:
            yield
        finally:
            for name, submit in before.items():
                setattr(jobs, name, submit)


@contextmanager
def on_memory(app: Detent, clock: ManualClock | None = None) -> Iterator[TestWorker]:
    """Within the block every call of this application uses a new, empty database in memory, and the worker's clock.

    with on_memory(app) as worker:
        app.sync.enqueue(charge, order_id=7)
        worker.sync.drain()
    """
    worker = TestWorker(app, clock=clock)
    run_now(worker.engine.open())
    with app.test_engine(worker.engine):
        run_now(worker.engine.limits.declare(app.limits))
        run_now(app.schedules.declare())
        try:
            yield worker
        finally:
            worker.close_now()


def _includes(payload: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in payload and payload[name] == value for name, value in wanted.items())
