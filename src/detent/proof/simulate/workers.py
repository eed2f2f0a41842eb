"""The real Worker in virtual time, with its heartbeat, sweeper and maintenance: only threads are replaced."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.core.contract.builtin import stream_contract_names
from detent.core.contract.model import Contract
from detent.core.errors import DetentError
from detent.core.job import Micros
from detent.core.outcome import Outcome, Waits
from detent.engine import BatchResult, Engine
from detent.handler.context import Context
from detent.handler.handler import Handler
from detent.observability.settings import Settings
from detent.ports.claims import Claimed
from detent.ports.stream import Delivery
from detent.streams.orchestrator import Orchestrator
from detent.streams.stream_worker import StreamWorker
from detent.worker.heartbeat import Heartbeat, LeaseListener
from detent.worker.runner import Runner
from detent.worker.state import Batch, HeartbeatAnswer
from detent.worker.worker import Worker

from .handler import HANDLER, JOB_TYPE, OLD_HANDLER, has_slices
from .loop import MS, SECOND, Process
from .worker_rules import with_checks

if TYPE_CHECKING:
    from .simulation import Simulation

_GRACE_SECONDS = 2.0
_CANCEL_GRACE_SECONDS = 4.0
RECOVERY_TIME: Micros = 8 * SECOND
"""Without faults, heartbeats are regular again within this time."""


class WorkerProcess(Process):
    """A process that runs one worker. When the worker ends, another process takes its place."""

    def __init__(
        self, simulation: "Simulation", name: str, *, sweep: bool = False, stream: bool = False, old: bool = False
    ) -> None:
        super().__init__(simulation.loop, name)
        self.simulation = simulation
        self.sweeps = sweep
        self.stream = stream
        """True: it takes its jobs from the stream."""
        self.old = old
        """True: it runs the previous version of the handler, which cannot run every payload."""
        self.no_heartbeat_until: Micros = 0
        """Heartbeats are suppressed up to this time (fault "heart")."""
        self.answer_delay: Micros = 0
        """How much later the answer to the next heartbeat arrives, which is the last one before they are suppressed."""
        self.random = simulation.random_stream(name)
        self.is_replaced = True
        """Whether another process takes its place when its worker has ended."""
        self.worker: SimulatedWorker = self.call(self._new_worker)
        self.start(self._run())

    def _new_worker(self) -> "SimulatedWorker":
        simulation = self.simulation
        config, handler = simulation.config, OLD_HANDLER if self.old else HANDLER
        options: dict[str, Any] = {
            "process": self,
            "slots": config.slots,
            "clock": simulation.clock,
            "config": Settings(config.alerts, retention=config.retention, retention_interval_seconds=5.0),
            "block_warning_seconds": 0.0,
            "grace_seconds": _GRACE_SECONDS,
            "cancel_grace_seconds": _CANCEL_GRACE_SECONDS,
        }
        engine, handlers = simulation.new_engine(self), {JOB_TYPE: handler}
        if self.stream:
            return SimulatedStreamWorker(engine, handlers, simulation.transport(self), **options)
        options |= {"lease_seconds": config.lease_seconds, "sweep": self.sweeps}
        excluded = stream_contract_names(engine.contracts) if config.stream_workers else frozenset()
        return SimulatedWorker(engine, handlers, exclude_contracts=excluded, **options)

    async def _run(self) -> None:
        await self.worker.run(handle_signals=False)
        if self.is_replaced:
            self.replace_after(SECOND)
        self.kill()

    def replace_after(self, span: Micros) -> None:
        self.loop.after(span, lambda: self.simulation.new_worker(stream=self.stream))

    @property
    def beats(self) -> bool:
        """Whether no fault has kept it from its heartbeats for a while."""
        troubled_until = max(self.stalled_until, self.no_heartbeat_until, self.slow_until)
        return self.alive and self.loop.now > troubled_until + RECOVERY_TIME

    @property
    def runs_steps(self) -> bool:
        """Whether it runs a handler with several steps that has no timeout."""
        jobs = [(held.claimed, json.loads(held.claimed.payload)) for held in self.worker.state.held.values()]
        return any(has_slices(claimed, arguments) and not claimed.timeout_ms for claimed, arguments in jobs)

    def stop(self) -> None:
        """As SIGTERM does."""
        self.call(self.loop.call_soon, self.worker.stop)

    def drain(self) -> None:
        """As `detent workers drain` does; its successor is running already."""
        self.is_replaced = False
        self.call(self.loop.call_soon, self.worker.drain)

    def crash(self, luck: float) -> None:
        """Kill the process; `luck` decides whether calls it has sent are still executed, and when it is replaced."""
        self.calls_survive = luck < 0.5
        self.kill()
        self.replace_after(int(luck * 5 * SECOND))


class SimulatedWorker(Worker):
    """Tells the simulation of each claim and batch."""

    tick_seconds = 0.3
    _runner: "SimulatedRunner"

    def __init__(
        self, engine: Engine, handlers: Mapping[str, Handler], *, process: WorkerProcess, **options: Any
    ) -> None:
        self.process, self.simulation = process, process.simulation
        self.new_state = with_checks(process.simulation.hooks.state, process.simulation.monitor)
        super().__init__(engine, handlers, **options)
        self.id = process.name
        self._runner = SimulatedRunner(process)
        self.background.sweeper._interval = process.simulation.config.sweep_seconds
        self._stopping_since: Micros | None = None

    def _heartbeat(self, loop: asyncio.AbstractEventLoop, listener: LeaseListener | None = None) -> Heartbeat:
        def later(answer: HeartbeatAnswer) -> None:
            """A handler that blocks the event loop delays the answers of the heartbeat's thread."""
            simulation, random = self.simulation, self.process.random
            longest = 6 * SECOND if random.random() < 0.1 else 20 * MS
            least, self.process.answer_delay = self.process.answer_delay, 0
            delay = least + random.randrange(longest)
            loop.call_later(delay / SECOND, self._on_heartbeat_answer, answer)
            if random.random() < 0.04 and "repeated reply" in simulation.active_faults:
                simulation.count_fault("repeated reply", self.id)
                loop.call_later(random.randrange(9 * SECOND) / SECOND, self._on_heartbeat_answer, answer)

        lease_clock, row = self._lease_clock, self.registration_row
        heartbeat = SimulatedHeartbeat(self.engine, self.state, lease_clock, row, later, self._on_command, listener)
        heartbeat.process = self.process
        return heartbeat

    def _on_heartbeat_answer(self, answer: HeartbeatAnswer) -> None:
        """A lease counts from the moment at which its heartbeat was sent, however late the answer arrives."""
        leases = {job_id: held.lease for job_id, held in self.state.held.items()}
        before = {job_id: lease.confirmed for job_id, lease in leases.items()}
        super()._on_heartbeat_answer(answer)
        for job_id, lease in leases.items():
            if lease.confirmed not in (before[job_id], answer.extended_at):
                detail = (
                    f"{self.id} counts a lease from {lease.confirmed}, its heartbeat was sent at {answer.extended_at}"
                )
                self.simulation.monitor.report(job_id, "lease.trusted", detail)
        self._check_cancels(answer)

    def _check_cancels(self, answer: HeartbeatAnswer) -> None:
        """A handler is told of a cancel request."""
        for job_id in answer.cancels:
            token = answer.tokens.get(job_id, "")
            _, context, _ = self._running.get(job_id, (None, None, None))
            held = self.state.held.get(job_id)
            if context is None or held is None or not held.claimed.token == context._claimed.token == token:
                continue
            if not context.cancelled:
                detail = f"{self.id} did not tell its handler of the cancel request"
                self.simulation.monitor.report(job_id, "cancel.untold", detail)

    async def _settle_and_claim(self, batch: Batch) -> BatchResult:
        monitor = self.simulation.monitor
        if batch.claim_limit and batch.reclaim and not self.state.reclaim_grace.over(self._clock.monotonic()):
            detail = f"{self.id} reclaims leases during its grace after an outage or a jump of the clock"
            monitor.report("", "lease.early", detail)
        if self.state.stopping:
            now = self.process.loop.now
            self._stopping_since = now if self._stopping_since is None else self._stopping_since
            if batch.claim_limit and now > self._stopping_since:  # at that moment a claim may be on its way
                monitor.report("", "stop.claims", f"{self.id} claims jobs after it was told to stop")
        busy = self._runner.running | {(job_id, held.claimed.token) for job_id, held in self.state.held.items()}
        if batch.claim_limit and len(busy) + batch.claim_limit > self.state.slots:
            detail = (
                f"{self.id} claims {batch.claim_limit} jobs, {len(busy)} of its {self.state.slots} slots are in use"
            )
            monitor.report("", "slots.exceeded", detail)
        result = await super()._settle_and_claim(batch)
        if len(result.claimed) > batch.claim_limit:
            detail = f"{self.id} received {len(result.claimed)} jobs, it has room for {batch.claim_limit}"
            monitor.report(result.claimed[-1].id, "claim.excess", detail)
        self.simulation.on_batch_result(self.process, batch.settled, result)
        return result


class SimulatedStreamWorker(StreamWorker, SimulatedWorker):
    """The real stream worker."""

    async def _claim(self, batch: Batch, deliveries: Sequence[Delivery]) -> BatchResult:
        if self.simulation.hooks.acknowledges_early:
            await self.transport.tasks.acknowledge([settlement.token for settlement in batch.settled])
        return await super()._claim(batch, deliveries)


class OrchestratorProcess(Process):
    """A process that runs the real orchestrator."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation.loop, name)
        self.orchestrator = self.call(self._new_orchestrator, simulation)
        self.start(self.orchestrator.run())

    def _new_orchestrator(self, simulation: "Simulation") -> Orchestrator:
        orchestrator = Orchestrator(simulation.new_engine(self), simulation.transport(self), simulation.clock)
        orchestrator.id = self.name
        return orchestrator


class SimulatedHeartbeat(Heartbeat):
    """Beats on the loop of its worker instead of a thread's."""

    process: WorkerProcess
    _task: "asyncio.Task[Any] | None" = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._beat_forever())

    def stop(self) -> None:
        assert self._task is not None, "it was started"
        self._task.cancel()

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def send(self) -> None:
        process = self.process
        if process.loop.now >= process.no_heartbeat_until or process.answer_delay:
            try:
                await super().send()
            except (DetentError, TimeoutError):  # the store did not answer
                raise
            except Exception as error:  # which the heartbeat logs and survives
                process.simulation.monitor.report("", "heartbeat.error", f"{process.name}: {error!r}")


class SimulatedRunner(Runner):
    def __init__(self, process: WorkerProcess) -> None:
        super().__init__(process.simulation.config.slots)
        self._process = process
        self.running: set[tuple[str, str]] = set()
        """(job id, token) of executions that have not ended, also of those whose job the worker no longer holds."""

    async def run(self, handler: Handler, contract: Contract, claimed: Claimed, context: Context) -> Outcome:
        held = self._process.worker.state.held.values()
        beside = [other.claimed for other in held if other.started and other.claimed.id != claimed.id]
        if beside and (claimed.suspect or any(other.suspect for other in beside)):
            detail = f"{self._process.name} runs a suspect and {len(beside)} other jobs at the same time"
            self._process.simulation.monitor.report(claimed.id, "suspect.shared", detail)
        self.running.add((claimed.id, claimed.token))
        try:
            outcome = await super().run(handler, contract, claimed, context)
        finally:
            self.running.discard((claimed.id, claimed.token))
        if isinstance(outcome, Waits) and self._process.random.random() < 0.5:
            await self._until_a_child_ended(outcome.wait.children)
        return outcome

    async def _until_a_child_ended(self, children: Sequence[str]) -> None:
        """Delay a wait for children, as a busy event loop may, until one of them has ended since it was checked."""
        for _ in range(50):
            if not children or self._process.simulation.monitor.any_ended(children):
                return
            await asyncio.sleep(0.1)
