"""One simulation: workers, sweepers, producers and operators in one process, on a store that fails as the seed decides.

A run has two phases. In the first, faults are injected. In the second there are no faults, and every job must end.
The InvariantMonitor checks the database after every commit.
"""

import asyncio
import random as source
import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract, Move, Phase
from detent.core.errors import DetentError, StaleLease, StoreRefused, StoreUnavailable
from detent.core.job import CHILDREN, Micros
from detent.engine import BatchResult, Engine, Settlement
from detent.ports.claims import Claimed
from detent.ports.stream import StreamSettings, StreamTransport
from detent.ports.verification import EventRow
from detent.proof.controlled_store import DEFAULT_HOOKS, ControlledStore, Hooks, ManualClock, run_all
from detent.proof.verify.verify import verify
from detent.stores.sqlite.session import Act, Session
from detent.system.ids import SeededIds, seeded_random

from .clients import Client, ForeignWorker, Operator, Producer
from .config import LIMITS, MAX_DELIVERIES, QUOTAS, Config
from .loop import MS, SECOND, Process, new_loop
from .monitor import InvariantMonitor
from .schedules import ScheduleOperator
from .story import EVENT_SEPARATOR
from .stream_server import SimulatedTransport, StreamServer
from .workers import RECOVERY_TIME, OrchestratorProcess, WorkerProcess

T = TypeVar("T")
SCHEDULED_FAULTS = (
    "crash", "stall", "stall", "heart", "stop", "clock", "deploy", "outage", "slow disk",
    "stream restart", "stream outage", "orchestrator crash",
)  # fmt: skip
"""Faults injected at random times, stalls twice as often as the others; the other kinds hit a call."""
_MAX_QUEUE: Micros = 6 * SECOND
"""The longest that calls wait for a slow disk."""
_LONGEST_OVERLAP: Micros = SECOND // 3
"""A stalled worker whose job was claimed again resumes within this time, so that both executions of the job run."""
_OLD_SHARE = 0.15
_END_CHECK: Micros = 50 * MS
DRAIN_TIMEOUT: Micros = 240 * SECOND
"""How long the phase without faults may take; the longest chain of backoffs and waits is far shorter."""


class Simulation:
    """Built from a config and run once."""

    def __init__(self, config: Config, hooks: Hooks = DEFAULT_HOOKS, *, keep_trace: bool = False) -> None:
        self.config = config
        self.hooks = hooks
        self.clock = ManualClock()
        self.loop = new_loop(self.clock)
        self.store = store = ControlledStore(self.clock, hooks)
        self.ids = SeededIds(("ids", config.seed))
        self.engine: Engine = hooks.engine(store, ids=self.ids)
        """Its calls are not part of the simulation: no delays, no faults."""
        run_all(self.engine.open())
        self.connection = store.session.connection
        for limit in LIMITS[: config.limits]:
            run_all(self.engine.limits.set(Scope("world"), **limit))
        for tenant, most in QUOTAS[: config.quotas]:
            run_all(self.engine.limits.set_quota(tenant, Scope("world"), max_backlog=most))
        limits = run_all(self.engine.limits.list())
        keep = None if config.keep_seconds is None else config.keep_seconds * SECOND
        self.monitor = InvariantMonitor(
            self.connection,
            self.engine.contracts,
            self.clock,
            limits,
            keep,
            dict(QUOTAS[: config.quotas]),
            MAX_DELIVERIES if config.orchestrators else None,
        )
        self.monitor.on_violation = self.loop.stop
        self.monitor.is_kept = self._is_kept
        self.faults: dict[str, int] = {}
        self.stale_refused = 0
        self.trace: list[str] | None = [] if keep_trace else None
        self.trace_digest = blake2b(digest_size=16)
        self._store_random = self.random_stream("store")
        self.notify_random = self.random_stream("notify")
        self._fault_random = self.random_stream("chaos")
        self._faults_healed = False
        self._healed_at: Micros = 0
        self._store_down_until: Micros = 0
        self._disk_slow_until: Micros = 0
        self._disk_free_at: Micros = 0
        self.job_numbers: dict[str, int] = {}
        self._grants: dict[tuple[str, str], str] = {}
        self._process_count = 0
        self.workers: list[WorkerProcess] = []
        self.stores: list[SimulatedStore] = []
        self.orchestrators: list[OrchestratorProcess] = []
        lease = config.lease_seconds
        settings = StreamSettings(
            "simulated",
            visibility_timeout_s=lease,
            heartbeat_interval_s=lease / 3,
            max_deliveries=self.monitor.max_deliveries,
        )
        self.stream_server = StreamServer(self, settings)

    def random_stream(self, name: str) -> source.Random:
        """Each actor has its own random stream, so removing one actor hardly changes what the others do."""
        return seeded_random((self.config.seed, name))

    def run(self) -> None:
        for _ in range(self.config.workers):
            self.new_worker()
        for _ in range(self.config.stream_workers):
            self.new_worker(stream=True)
        for number in range(self.config.orchestrators):
            self._new_orchestrator()
            ForeignWorker(self, f"foreign-{number}")
        jobs = self.config.jobs
        shares = [share for share in (jobs - jobs // 2, jobs // 2) if share]
        producers = [Producer(self, f"producer-{n}", share) for n, share in enumerate(shares)]
        operators = [Operator(self, f"operator-{n}") for n in range(self.config.operators)]
        planners = [ScheduleOperator(self, self.config.schedules)] if self.config.schedules else []
        self._schedule_faults()
        self.loop.run(self.config.seconds * SECOND)
        self._heal_faults([*producers, *operators, *planners])
        self._stop_when_all_ended([*producers, *planners])
        self.loop.run(self.loop.now + DRAIN_TIMEOUT)
        for error in self.loop.errors:
            self.monitor.report("", "worker.error", error)
        for job_id, times in self.store.effects.items():
            if times > 1:
                self.monitor.report(job_id, "once.twice", f"a once was executed {times} times")
        for finding in self.store.handler_findings:
            self.monitor.report(*finding)
        if not self._has_violation():
            self.monitor.final_check(self._healed_at)
        if not self._has_violation():
            for broken in run_all(verify(self.store, self.engine.contracts, read_ahead=False)).violations:
                self.monitor.report(broken.job_id or "", broken.rule, broken.detail, broken.seq)
        if not self._has_violation():
            for row in self.monitor.unfinished_jobs():
                detail = f"{row.contract} job never ended, its status is {row.status}"
                self.monitor.report(row.id, "liveness", detail, row.version)

    def close(self) -> None:
        """Break the reference cycles, so that thousands of simulations do not pile up before garbage collection."""
        self.loop.close()
        self.connection.close()

    def digest(self) -> str:
        """A hash of all trace lines and all stored rows: equal digests mean equal runs.

        Names of actors and texts of notes, payloads and errors are hashed too: changing one changes every digest.
        """
        digest = self.trace_digest.copy()
        for table in _DIGESTED_TABLES:
            for row in self.connection.execute(f"SELECT * FROM detent_{table} ORDER BY 1, 2"):
                values = [_TRACEBACK.sub("", value) if isinstance(value, str) else value for value in row]
                digest.update(repr(values).encode())
        return digest.hexdigest()

    def note(self, text: str) -> None:
        """Add a line to the trace and the digest."""
        line = f"{self.loop.time():10.6f} s  {text}"
        self.trace_digest.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    def _describe_event(self, event: EventRow) -> str:
        """An event for the trace; jobs are numbered in the order in which they were created."""
        path = event.target if event.source in (None, event.target) else f"{event.source} -> {event.target}"
        kind = ""
        if event.job_id not in self.job_numbers:
            self.job_numbers[event.job_id] = len(self.job_numbers) + 1
            query = "SELECT contract, parent_id FROM detent_job_list WHERE id = ?"
            for contract, parent in self.connection.execute(query, (event.job_id,)):
                kind = f" ({contract}{f', child of {self.name_job(parent)}' if parent else ''})"
        return f"{self.name_job(event.job_id)}{kind} {event.event} ({path})"

    def name_job(self, job_id: str) -> str:
        return f"job {self.job_numbers.get(job_id, 0)}"

    def count_fault(self, kind: str, target: str) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + 1
        self.note(f"fault: {kind}: {target}")

    def new_engine(self, process: Process) -> Engine:
        """An engine for a process, with a store that has its own caches, as in another process."""
        store = SimulatedStore(self, process)
        self.stores = [*(other for other in self.stores if other.process.alive), store]
        engine: Engine = self.hooks.engine(store, ids=self.ids)
        store.open_now({})
        return engine

    def transport(self, process: Process, *, foreign: bool = False) -> StreamTransport:
        return SimulatedTransport(self.stream_server, process, foreign=foreign)

    @property
    def active_faults(self) -> tuple[str, ...]:
        return () if self._faults_healed else self.config.faults

    def _is_kept(self, job_id: str, token: str | None) -> bool:
        """Whether a worker holds this lease that has no reason to lose it: there was no fault for a while."""
        calm = self.loop.now > self.config.seconds * SECOND + RECOVERY_TIME
        workers = [process.worker.state for process in self.workers if calm and process.beats]
        return any(job_id in state.held and state.held[job_id].claimed.token == token for state in workers)

    def on_claimed(self, worker: WorkerProcess, claimed: Claimed) -> None:
        self.monitor.check_claimed(claimed)
        holder = self._grants.setdefault((claimed.id, claimed.token), worker.name)
        if holder != worker.name:
            self.monitor.report(claimed.id, "holder.two", f"{holder} and {worker.name} got the same token")
        for other in self.workers:
            if other.stalled_until > self.loop.now and claimed.id in other.worker.state.held:
                other.stall(self._fault_random.randrange(_LONGEST_OVERLAP))

    def on_batch_result(self, worker: WorkerProcess, settled: list[Settlement], result: BatchResult) -> None:
        stale = [job_id for job_id, error in result.refused.items() if isinstance(error, StaleLease)]
        self.stale_refused += len(stale)
        times = Counter(settlement.id for settlement in settled)
        for settlement in settled:  # of two executions of a job, the answer does not say which one was refused
            if settlement.id in stale and times[settlement.id] == 1:
                self.monitor.check_refusal(settlement)
        for claimed in result.claimed:
            self.on_claimed(worker, claimed)
        for job_id, refusal in result.refused.items():
            self.note(f"{worker.name}: the result of {self.name_job(job_id)} was refused: {refusal.code}")
        for claimed in result.claimed:
            self.note(f"{worker.name} received {self.name_job(claimed.id)} for execution {claimed.execution_no}")

    def _new_orchestrator(self) -> None:
        self._process_count += 1
        self.orchestrators = [process for process in self.orchestrators if process.alive]
        self.orchestrators.append(OrchestratorProcess(self, f"orchestrator-{self._process_count}"))

    def new_worker(self, *, stream: bool = False, old: bool | None = None) -> None:
        """old: whether it runs the previous version of the handler; None: drawn."""
        self.workers = [worker for worker in self.workers if worker.alive]
        self._process_count += 1
        random, healed = self._fault_random, self._faults_healed
        sweepers = [worker for worker in self.workers if worker.sweeps and worker.is_replaced]
        sweep = not stream and len(sweepers) < self.config.sweepers
        if old is None:
            old = "old version" in self.config.faults and not healed and random.random() < _OLD_SHARE
        name = f"{'stream-' if stream else ''}worker-{self._process_count}"
        self.workers.append(WorkerProcess(self, name, sweep=sweep, stream=stream, old=old))
        if old:
            self.count_fault("old version", self.workers[-1].name)

    async def call_store(self, process: Process, session: Session, act: Act[T]) -> T:
        """Send a call to the store with a delay each way; it may fail, lose its reply, be slow, or kill its process."""
        random, faults = self._store_random.random, self.active_faults
        reply: asyncio.Future[T] = self.loop.create_future()
        request_delay, reply_delay = MS + int(random() * 7 * MS), MS + int(random() * 7 * MS)
        luck = random()
        fault = _CALL_FAULTS[int(luck * 1000)]
        if fault is not None and fault not in faults:
            fault = None
        if fault == "error before commit":
            self.count_fault(fault, process.name)
            self.loop.after(request_delay + reply_delay, lambda: _fail(reply, "before"))
            return await reply
        if fault == "slow call":
            self.count_fault(fault, process.name)
            request_delay += int(random() * 12 * SECOND)
        if self.loop.now < self._disk_slow_until:
            self._disk_free_at = max(self.loop.now, self._disk_free_at) + int(random() * 160 * MS)
            request_delay += min(self._disk_free_at - self.loop.now, _MAX_QUEUE)
        self.loop.after(request_delay, partial(self._execute, process, session, act, reply, reply_delay, fault))
        return await reply

    def _execute(
        self,
        process: Process,
        session: Session,
        act: Act[Any],
        reply: "asyncio.Future[Any]",
        reply_delay: Micros,
        fault: str | None,
    ) -> None:
        """The store executes a call. fault: one that hits this call."""
        if not process.alive and not process.calls_survive:
            return
        if self.loop.now < self._store_down_until:
            self.loop.after(reply_delay, lambda: _fail(reply, "before"))
            return
        result: Any = None
        error: DetentError | None = None
        try:
            result = self._run_in_part(process, session, act) if fault == "torn batch" else session.run(act)
        except StoreRefused as refusal:
            error = refusal
            self.monitor.report("", "store.refused", refusal.message)
        except DetentError as refusal:
            error = refusal
        except Exception as exception:
            detail = f"{process.name}: {type(exception).__name__}: {exception}"
            self.monitor.report("", "engine", detail)
            return
        if new_events := self.monitor.check_commit():
            self.note(f"{process.name}: {EVENT_SEPARATOR.join(map(self._describe_event, new_events))}")
            for store in self.stores:
                store.notify()
        if fault == "crash in a call" and isinstance(process, WorkerProcess) and process.alive:
            self.count_fault(fault, process.name)
            process.crash(self._store_random.random())
        elif fault == "error after commit":
            self.count_fault(fault, process.name)
            self.loop.after(reply_delay, lambda: _fail(reply, "after"))
        else:
            self.loop.after(reply_delay, lambda: _answer(reply, result, error))

    def _run_in_part(self, process: Process, session: Session, act: Act[T]) -> T:
        """The store fails after a few statements of the transaction, unless it has fewer."""
        left, failed = 1 + int(self._store_random.random() * 25), False

        def on_statement(_: Any, sql: str, __: Any) -> bool:
            nonlocal left, failed
            left -= 1
            failed = left <= 0
            if failed and sql != "ROLLBACK":
                raise StoreUnavailable("injected fault: the store failed in the middle of a transaction")
            return True

        before = self.monitor.fingerprint()
        self.connection.exec_trace = on_statement
        try:
            return session.run(act)
        finally:
            self.connection.exec_trace = None
            if failed:
                self.count_fault("torn batch", process.name)
                self.monitor.check_rolled_back(before)

    def _schedule_faults(self) -> None:
        random = self._fault_random
        moment = 0.0
        while moment < self.config.seconds:
            moment += random.expovariate(1 / 2.0)
            kind, luck = random.choice(SCHEDULED_FAULTS), random.random()
            if kind in self.config.faults:
                self.loop.after(int(moment * SECOND), partial(self._inject_fault, kind, luck))

    def _inject_fault(self, kind: str, luck: float) -> None:
        """`luck` selects the target and the size of the fault; it was drawn when the fault was scheduled."""
        if self._faults_healed:
            return
        if kind == "clock":
            span = int((luck - 0.35) * 30 * SECOND)
            self.count_fault(kind, f"{span} µs")
            self.loop.jump_wall_clock(span)
            return
        if kind in ("outage", "slow disk"):
            end = self.loop.now + int((1 + luck * 6) * SECOND)
            self.count_fault(kind, f"for {1 + luck * 6:.1f} s")
            if kind == "outage":
                self._store_down_until = end
            else:
                self._disk_slow_until = end
            return
        if kind in ("stream restart", "stream outage"):
            if self.config.orchestrators and kind == "stream restart":
                self.count_fault(kind, "all data lost" if luck < 0.3 else "the last writes lost")
                self.stream_server.restart(lose_all=luck < 0.3)
            elif self.config.orchestrators:
                self.count_fault(kind, f"for {1 + luck * 6:.1f} s")
                self.stream_server.down_until = self.loop.now + int((1 + luck * 6) * SECOND)
            return
        if kind == "orchestrator crash":
            for process in self.orchestrators[:1]:
                self.count_fault(kind, process.name)
                process.calls_survive = luck < 0.5
                process.kill()
                self.loop.after(int(luck * 5 * SECOND), self._new_orchestrator)
            return
        workers = [process for process in self.workers if process.alive and not process.worker.state.stopping]
        targets = [process for process in workers if process.worker.state.held] or workers
        if kind in ("crash", "stall") and self.config.schedules and luck * 10 % 1 < 0.3:
            # perhaps between reading a due schedule and firing it
            targets = [process for process in workers if process.sweeps]
        if kind == "heart":
            targets = [process for process in workers if process.runs_steps]
            if not targets:
                self.loop.after(SECOND // 2, lambda: self._inject_fault(kind, luck))
        if not targets:
            return
        target = targets[int(luck * len(targets))]
        self.count_fault(kind, target.name)
        if kind == "stall":
            target.stall(int((2 + luck * 28) * SECOND))
        elif kind == "crash":
            target.crash(luck)
        elif kind == "deploy":
            target.drain()
            self.new_worker(stream=target.stream, old=not target.old and "old version" in self.config.faults)
        elif kind == "heart":
            target.no_heartbeat_until = target.slow_until = self.loop.now + int((6 + luck * 10) * SECOND)
            target.answer_delay = int((3 + luck * 2) * SECOND)
        else:
            target.stop()

    def _heal_faults(self, clients: list[Client]) -> None:
        """Begin the phase without faults: clients stop, and the WaitResolver answers whatever jobs wait for."""
        if self._has_violation():
            return
        self.note("no more faults from here on")
        self._faults_healed = True
        stalled = max((process.stalled_until - self.loop.now for process in self.workers), default=0)
        self._healed_at = self.clock.highest + max(0, stalled)
        self._store_down_until = self._disk_slow_until = self.stream_server.down_until = 0
        for client in clients:
            client.faults_healed = True
        for process in self.workers:
            if process.old and process.alive:
                process.stop()
        WaitResolver(self)

    def _has_violation(self) -> bool:
        return bool(self.monitor.violations)

    def _stop_when_all_ended(self, clients: list[Producer | ScheduleOperator]) -> None:
        """End the run when every client is done and every job is final."""
        if all(client.done for client in clients) and not self.monitor.unfinished:
            self.loop.stop()
        self.loop.after(_END_CHECK, lambda: self._stop_when_all_ended(clients))


class SimulatedStore(ControlledStore):
    """The store of one process: its own session, so its own caches, on the database of the simulation."""

    def __init__(self, simulation: Simulation, process: Process) -> None:
        super().__init__(simulation.clock, simulation.hooks)
        self.simulation, self.process = simulation, process
        self.effects, self.handler_findings = simulation.store.effects, simulation.store.handler_findings
        self.max_batches_in_flight = simulation.config.batches_in_flight
        self._watches: list[SimulatedWatch] = []

    def open_now(self, own: Mapping[str, Contract], builtin: Mapping[str, Contract] = CONTRACTS) -> None:
        shared = self.simulation.store
        self._writer = self._reader = Session(
            shared.session.connection, "BEGIN IMMEDIATE", self._clock, self._hooks.transaction
        )
        self._use_contracts(dict(shared.contracts))

    async def open(self, own: Mapping[str, Contract], builtin: Mapping[str, Contract]) -> None:
        """It was opened when it was created."""

    async def _on(self, session: Session | None, act: Act[T], *, short: bool = False, relaxed: bool = False) -> T:
        assert session is not None, "the store is open"
        return await self.simulation.call_store(self.process, session, act)

    def watch(self, *, ends: bool = False) -> "SimulatedWatch":  # type: ignore[override]
        watch = SimulatedWatch()
        self._watches.append(watch)
        return watch

    def notify(self) -> None:
        """Another transaction has committed; the notification takes a while."""
        if self._watches and self.process.alive:
            delay = self.simulation.notify_random.randrange(700 * MS)
            for watch in self._watches:
                if not watch.pending:
                    watch.pending = True
                    self.simulation.loop.after(delay, watch.deliver)


class SimulatedWatch:
    """Notifications of commits; those that arrive together are merged."""

    def __init__(self) -> None:
        self.pending = False
        self._arrived = asyncio.Event()

    def deliver(self) -> None:
        self.pending = False
        self._arrived.set()

    async def changed(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self._arrived.wait()
        except TimeoutError:
            return False
        self._arrived.clear()
        return True


def _answer(reply: "asyncio.Future[Any]", result: Any, error: DetentError | None) -> None:
    if reply.done():  # the caller no longer waits
        return
    if error is None:
        reply.set_result(result)
    else:
        reply.set_exception(error)


def _fail(reply: "asyncio.Future[Any]", when: str) -> None:
    _answer(reply, None, StoreUnavailable(f"injected fault: the store failed {when} the commit"))


class WaitResolver(Client):
    """In the phase without faults it resumes queues, approves held jobs and sends signals, so no job waits forever."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, "closer")
        self.start(self._resolve_waits())

    async def _resolve_waits(self) -> None:
        engine, hurries = self.engine, self.simulation.config.hurries
        for kind, name, *_ in await engine.store.read(lambda tx: tx.pauses.list_pauses()):
            await engine.limits.resume(kind, name, self.scope)
        while True:
            await asyncio.sleep(2)
            for row in self.simulation.monitor.unfinished_jobs(f"wait_kind IS NOT '{CHILDREN}'"):
                contract = engine.contract(row.contract)
                try:
                    if row.status in contract.approval_statuses:
                        for person in ("closer", "other closer"):
                            await engine.approvals.approve(row.id, Scope(person))
                    elif row.phase == Phase.BLOCKED and row.wait_name and (hurries or row.due_at is None):
                        await engine.jobs.signal(row.id, row.wait_name, self.scope)
                    elif hurries and row.phase == Phase.CLAIMABLE and (row.due_at or 0) > engine.store.now():
                        end = engine.jobs.abort if contract.edge(row.status, Move.FAIL) else engine.jobs.cancel
                        await end(row.id, self.scope)
                except DetentError:
                    continue


_CALL_FAULTS: list[str | None] = [
    *["error before commit"] * 12, *["torn batch"] * 20, *["crash in a call"] * 2, *["slow call"] * 6,
    *["error after commit"] * 12, *[None] * 948,
]  # fmt: skip
"""The fault that hits a call, by the thousandth that the call draws."""
_TRACEBACK = re.compile(r'"(?:traceback|settlement)":"(?:[^"\\]|\\.)*"')
"""Tracebacks, and the digests of settlements that contain them, differ between machines and versions of Python."""
_DIGESTED_TABLES = (
    "jobs", "events", "notes", "dead_letters", "signals", "steps", "keys", "audit", "schedules", "fires",
)  # fmt: skip
