"""Workers: the jobs they hold, the commands sent to them, and the jobs that were taken back from lost workers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from detent.core.access import Scope
from detent.core.contract.model import Phase
from detent.core.errors import InvalidInput, NotFound
from detent.core.job import Change, Loss, Micros
from detent.core.times import DAY, SECOND, iso
from detent.engine.metrics.event_counts import count_losses
from detent.engine.metrics.worker_throughput import read_throughput
from detent.engine.refusal import audit
from detent.engine.runtime import Service, operators_only, reads, writes
from detent.ports.claims import HeldJob
from detent.ports.listing import WorkerCommand, WorkerRow
from detent.ports.tx import Tx

from . import operations
from .responses import show
from .stats import read_running
from .why import is_live, queues_of, types_of

DRAIN, STOP = "drain", "stop"
COMMANDS = (DRAIN, STOP)
_STATES = {DRAIN: "draining", STOP: "stopping"}
_MAX_HELD_JOBS = 10_000
_MAX_LOSSES = 10_000
KEEP_LOSSES = 7 * DAY
KEEP_WORKERS = DAY
_MAX_EXPIRED_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class WorkerOverview:
    """All registered workers, the jobs each holds, and the commands sent to them."""

    now: Micros
    workers: list[WorkerRow]
    held: dict[str, list[HeldJob]]
    commands: dict[str, WorkerCommand]

    def views(self) -> list[operations.Worker]:
        return [self.view(worker) for worker in self.workers]

    def view(self, row: WorkerRow) -> operations.Worker:
        command = self.commands.get(row.id)
        return show(
            operations.Worker,
            row,
            live=is_live(row, self.now),
            queues=queues_of(row),
            job_types=types_of(row),
            load=round(row.busy / row.slots, 3) if row.slots else 0.0,
            lease_seconds=row.lease / SECOND,
            blocked=_blocked_loop(row),
            held=[show(operations.HeldJob, job) for job in self.held.get(row.id, [])],
            order=show(operations.WorkerCommand, command) if command else None,
        )


def _blocked_loop(row: WorkerRow) -> operations.BlockedLoop | None:
    if row.blocked is None:
        return None
    block = json.loads(row.blocked)
    names = {name: block.get(name) for name in ("job_id", "job_type")}
    return show(operations.BlockedLoop, None, since=iso(block["since"]), location=block["location"], **names)


class Workers(Service):
    """`engine.workers`: the registered workers, the commands sent to them, and recoveries from lost ones."""

    @operators_only
    @reads
    async def overview(self, tx: Tx) -> WorkerOverview:
        held: dict[str, list[HeldJob]] = {}
        for job in await tx.claims.held_jobs(_MAX_HELD_JOBS):
            held.setdefault(job.worker, []).append(job)
        commands = {command.worker: command for command in await tx.workers.commands()}
        return WorkerOverview(tx.now, await tx.workers.list_workers(), held, commands)

    @operators_only
    @reads
    async def detail(self, tx: Tx, worker: str) -> operations.WorkerDetail:
        """One worker, what it runs now and what it has done lately. Raises NotFound if it is not registered."""
        row = await tx.workers.worker(worker)
        if row is None:
            raise NotFound(f"no worker has the id {worker!r}; it may have ended", code="WORKER_NOT_FOUND")
        held, command = await tx.workers.held_by(worker, _MAX_HELD_JOBS), await tx.workers.command_of(worker)
        running = await read_running(tx, held, payloads=self._runtime.payloads)
        recent = await read_throughput(tx, worker, self._runtime.contracts)
        overview = WorkerOverview(tx.now, [row], {worker: held}, {worker: command} if command else {})
        details = {"running_jobs": running, "recent": recent, "at": iso(tx.now)}
        return cast(operations.WorkerDetail, {**overview.view(row), **details})

    @operators_only
    @writes
    async def check_in(self, tx: Tx, row: WorkerRow) -> str | None:
        """Register a worker that speaks HTTP before it claims; returns the command that was sent to it, or None.

        Another host or process under the same name, and one that was not live, begins without a command.
        """
        stored = await tx.workers.worker(row.id)
        same = stored is not None and is_live(stored, tx.now) and (stored.host, stored.pid) == (row.host, row.pid)
        if stored is not None and same:
            row = replace(row, started_at=stored.started_at)
        else:
            await tx.workers.drop_worker(row.id)
        return await self._record(tx, row, len(await tx.workers.held_by(row.id, _MAX_HELD_JOBS)))

    @operators_only
    @writes
    async def record_heartbeat(self, tx: Tx, worker: str, busy: int) -> str | None:
        """Record that a worker that speaks HTTP is alive and holds `busy` jobs; returns the command sent to it."""
        row = await tx.workers.worker(worker)
        return None if row is None else await self._record(tx, row, busy)

    async def _record(self, tx: Tx, row: WorkerRow, busy: int) -> str | None:
        command = await tx.workers.command_of(row.id)
        state = "working" if command is None else _STATES[command.act]
        await tx.workers.put_worker(replace(row, busy=busy, seen_at=tx.now, state=state))
        return command.act if command else None

    @operators_only
    @reads
    async def command(self, tx: Tx, worker: str) -> str | None:
        """The command that was sent to this worker, or None."""
        command = await tx.workers.command_of(worker)
        return command.act if command else None

    @operators_only
    @writes
    async def deregister(self, tx: Tx, worker: str) -> None:
        """Delete the row of a worker that has ended, and the command sent to it."""
        await tx.workers.drop_worker(worker)

    @operators_only
    @writes
    async def send_command(self, tx: Tx, worker: str, act: str, scope: Scope) -> WorkerCommand:
        """Send drain or stop to one worker; it reads the command within about a second."""
        if act not in COMMANDS:
            choices = " or ".join(COMMANDS)
            raise InvalidInput(f"unknown worker command {act!r}; use {choices}", code="WORKER_ORDER_INVALID")
        if not any(row.id == worker and is_live(row, tx.now) for row in await tx.workers.list_workers()):
            message = f"no live worker has the id {worker!r}; `detent workers` lists all workers"
            raise NotFound(message, code="WORKER_NOT_FOUND")
        command = WorkerCommand(worker, act, scope.actor, scope.reason, tx.now)
        await tx.workers.put_command(command)
        await audit(tx, scope, f"worker.{act}", worker)
        return command

    @operators_only
    @reads
    async def recoveries(self, tx: Tx, since: Micros = 0) -> list["Recovery"]:
        """One report per lost worker, newest first; losses are kept for a week."""
        by_worker: dict[str, list[Loss]] = {}
        for loss in await tx.workers.losses(since, _MAX_LOSSES):
            by_worker.setdefault(loss.worker, []).append(loss)
        return [Recovery(worker, losses) for worker, losses in by_worker.items()]

    @operators_only
    @writes
    async def delete_old_rows(self, tx: Tx) -> None:
        """Delete old rows of workers, commands and losses, and expired sessions."""
        await tx.workers.drop_losses(tx.now - KEEP_LOSSES)
        await tx.workers.drop_old_workers(tx.now - KEEP_WORKERS)
        await tx.sessions.drop_expired_sessions(_MAX_EXPIRED_SESSIONS)


async def record_losses(tx: Tx, changes: Sequence[Change]) -> None:
    """Record the jobs taken back from workers, in the transaction that takes them back."""
    if not changes:
        return
    seen_at = {row.id: row.seen_at for row in await tx.workers.list_workers()}
    charged = 0
    for change in changes:
        before, after = change.before, change.after
        assert before is not None and before.worker is not None, "a lost job was held by a worker"
        was_charged = after.failures > before.failures
        charged += was_charged
        loss = Loss(
            job_id=before.id,
            execution_no=before.execution_no,
            worker=before.worker,
            job_type=before.job_type,
            queue=before.queue,
            contract=before.contract,
            tenant_id=before.tenant_id,
            seen_at=seen_at.get(before.worker),
            lease_until=before.lease_until or tx.now,
            at=tx.now,
            charged=was_charged,
            given_up=after.phase is Phase.FINAL,
            target=after.status,
        )
        await tx.workers.add_loss(loss)
    await count_losses(tx.event_counts, charged, len(changes) - charged)


@dataclass(frozen=True, slots=True)
class Recovery:
    """The jobs that were taken back from one lost worker."""

    worker: str
    losses: list[Loss]

    @property
    def duration(self) -> Micros:
        """From the worker's last heartbeat, or its first expired lease, to the last job taken back."""
        start = min(loss.seen_at if loss.seen_at is not None else loss.lease_until for loss in self.losses)
        return max(0, max(loss.at for loss in self.losses) - start)

    def view(self) -> operations.WorkerRecovery:
        seen = [loss.seen_at for loss in self.losses if loss.seen_at is not None]
        return show(
            operations.WorkerRecovery,
            self,
            last_seen_at=iso(min(seen, default=None)),
            began_at=iso(min(loss.at for loss in self.losses)),
            ended_at=iso(max(loss.at for loss in self.losses)),
            took_seconds=self.duration / SECOND,
            reclaimed=len(self.losses),
            charged=sum(loss.charged for loss in self.losses),
            given_up=sum(loss.given_up for loss in self.losses),
            jobs=[
                show(operations.LostJob, loss, id=loss.job_id, charged=bool(loss.charged), status=loss.target)
                for loss in self.losses
            ],
        )

    def sentence(self) -> str:
        view = self.view()
        return (
            f"recovered from the loss of worker {self.worker}: {view['reclaimed']} jobs reclaimed, "
            f"{view['charged']} counted as failures, {view['given_up']} failed permanently, "
            f"{view['took_seconds']:.1f} s after its last heartbeat"
        )
