"""The real Worker in virtual time, with its heartbeat, sweeper and maintenance: only threads are replaced."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from detent.core.job import Micros
from detent.core.outcome import Outcome, Waits
from detent.engine import BatchResult
from detent.observability.settings import Settings
from detent.worker.heartbeat import Heartbeat, LeaseListener
from detent.worker.runner import Runner
from detent.worker.state import Batch, HeartbeatAnswer
from detent.worker.worker import Worker

from .handler import HANDLER, JOB_TYPE, OLD_HANDLER
from .loop import MS, SECOND, Process

if TYPE_CHECKING:
    from .simulation import Simulation

_GRACE_SECONDS = 2.0
_CANCEL_GRACE_SECONDS = 4.0


class WorkerProcess(Process):
    """A process that runs one worker. When the worker ends, another process takes its place."""

    def __init__(self, simulation: "Simulation", name: str, *, sweep: bool, old: bool = False) -> None:
        super().__init__(simulation.loop, name)
        self.simulation = simulation
        self.sweeps = sweep
        self.old = old
        """True: it runs the previous version of the handler, which cannot run every payload."""
        self.no_heartbeat_until: Micros = 0
        """Heartbeats are suppressed up to this time (fault "heart")."""
        self.random = simulation.random_stream(name)
        self.worker: SimulatedWorker = self.call(SimulatedWorker, self)
        self.start(self._run())

    async def _run(self) -> None:
        await self.worker.run(handle_signals=False)
        self.simulation.loop.after(SECOND, self.simulation.new_worker)
        self.kill()

    def stop(self) -> None:
        """As SIGTERM does."""
        self.call(self.loop.call_soon, self.worker.stop)


class SimulatedWorker(Worker):
    """Tells the simulation of each claim and batch."""

    def __init__(self, process: WorkerProcess) -> None:
        simulation = process.simulation
        self.process, self.simulation = process, simulation
        self.new_state = simulation.hooks.state
        super().__init__(
            simulation.new_engine(process),
            {JOB_TYPE: OLD_HANDLER if process.old else HANDLER},
            slots=simulation.config.slots,
            lease_seconds=simulation.config.lease_seconds,
            sweep=process.sweeps,
            clock=simulation.clock,
            config=Settings(retention=simulation.config.retention, retention_interval_seconds=5.0),
            block_warning_seconds=0.0,
            grace_seconds=_GRACE_SECONDS,
            cancel_grace_seconds=_CANCEL_GRACE_SECONDS,
        )
        self.id = process.name
        self._runner = SimulatedRunner(process)

    def _heartbeat(self, loop: asyncio.AbstractEventLoop, listener: LeaseListener | None = None) -> Heartbeat:
        def later(answer: HeartbeatAnswer) -> None:
            loop.call_later(self.process.random.randrange(20 * MS) / SECOND, self._on_heartbeat_answer, answer)

        lease_clock, row = self._lease_clock, self.registration_row
        return SimulatedHeartbeat(self.engine, self.state, lease_clock, row, later, self._on_command, listener)

    async def _settle_and_claim(self, batch: Batch) -> BatchResult:
        monitor = self.simulation.monitor
        if batch.claim_limit and batch.reclaim and not self.state.reclaim_grace.over(self._clock.monotonic()):
            detail = f"{self.id} reclaims leases during its grace after an outage or a jump of the clock"
            monitor.report("", "lease.early", detail)
        result = await super()._settle_and_claim(batch)
        self.simulation.on_batch_result(self.process, batch.settled, result)
        return result


class SimulatedHeartbeat(Heartbeat):
    """Beats on the loop of its worker instead of a thread's."""

    _task: "asyncio.Task[Any] | None" = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._beat_forever())

    def stop(self) -> None:
        assert self._task is not None, "it was started"
        self._task.cancel()

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def send(self) -> None:
        process = self._row.__self__.process  # type: ignore[attr-defined]
        if process.loop.now >= process.no_heartbeat_until:
            await super().send()


class SimulatedRunner(Runner):
    def __init__(self, process: WorkerProcess) -> None:
        super().__init__(process.simulation.config.slots)
        self._process = process

    async def run(self, *args: Any) -> Outcome:
        outcome = await super().run(*args)
        if isinstance(outcome, Waits) and self._process.random.random() < 0.5:
            await self._until_a_child_ended(outcome.wait.children)
        return outcome

    async def _until_a_child_ended(self, children: Sequence[str]) -> None:
        """Delay a wait for children, as a busy event loop may, until one of them has ended since it was checked."""
        for _ in range(50):
            if not children or self._process.simulation.monitor.any_ended(children):
                return
            await asyncio.sleep(0.1)
