"""Workers as others see them: who holds what, orders from afar, and what was taken from those that were lost."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.core.contract.model import Phase
from detent.core.errors import InvalidInput, NotFound
from detent.core.job import Change, Loss, Micros
from detent.core.times import SECOND, iso
from detent.engine.metrics.event_counts import count_losses
from detent.ports.access import Audit
from detent.ports.listing import WorkerRow
from detent.ports.tx import Tx

from .why import is_live, queues_of, types_of

if TYPE_CHECKING:
    from detent.engine.engine import Engine

DRAIN, STOP = "drain", "stop"
ORDERS = (DRAIN, STOP)
_HELD_AT_MOST = 10_000
_LOSSES_AT_MOST = 10_000
KEEP_LOSSES = 7 * 86_400 * SECOND
KEEP_WORKERS = 86_400 * SECOND


class WorkerCommand(NamedTuple):
    """What a worker was told from afar. drain: finish what runs, then end; stop: as SIGTERM would."""

    worker: str
    act: str
    actor: str
    reason: str | None
    at: Micros


class HeldJob(NamedTuple):
    """A job in a worker's hands. since: when this execution began."""

    id: str
    worker: str
    contract: str
    queue: str
    job_type: str
    tenant_id: str
    execution_no: int
    since: Micros
    lease_until: Micros

    def view(self) -> dict[str, Any]:
        told = self._asdict()
        return {**told, "since": iso(self.since), "lease_until": iso(self.lease_until)}


@dataclass(frozen=True, slots=True)
class WorkerOverview:
    """Every worker that introduced itself, what each holds, and what it was told."""

    now: Micros
    workers: list[WorkerRow]
    held: dict[str, list[HeldJob]]
    orders: dict[str, WorkerCommand]

    def views(self) -> list[dict[str, Any]]:
        return [self.view(worker) for worker in self.workers]

    def view(self, row: WorkerRow) -> dict[str, Any]:
        order = self.orders.get(row.id)
        return {
            "id": row.id,
            "live": is_live(row, self.now),
            "state": row.state,
            "host": row.host,
            "pid": row.pid,
            "version": row.version,
            "queues": queues_of(row),
            "job_types": types_of(row),
            "slots": row.slots,
            "busy": row.busy,
            "load": round(row.busy / row.slots, 3) if row.slots else 0.0,
            "lease_seconds": row.lease / SECOND,
            "started_at": iso(row.started_at),
            "seen_at": iso(row.seen_at),
            "held": [job.view() for job in self.held.get(row.id, [])],
            "order": {**order._asdict(), "at": iso(order.at)} if order else None,
        }


async def read_workers(engine: "Engine") -> WorkerOverview:
    async def act(tx: Tx) -> WorkerOverview:
        held: dict[str, list[HeldJob]] = {}
        for row in await tx.query("held_jobs", limit=_HELD_AT_MOST):
            job = HeldJob(*row)
            held.setdefault(job.worker, []).append(job)
        orders = {row[0]: WorkerCommand(*row) for row in await tx.query("orders")}
        return WorkerOverview(tx.now, await tx.workers(), held, orders)

    return await engine.store.read(act)


async def order(engine: "Engine", worker: str, act: str, *, actor: str, reason: str | None = None) -> WorkerCommand:
    """Tell one worker to drain or to stop; it sees the order within a second or so."""
    if act not in ORDERS:
        raise InvalidInput(f"a worker can be told to {' or '.join(ORDERS)}, not {act!r}", code="WORKER_ORDER_INVALID")

    async def write(tx: Tx) -> WorkerCommand:
        row = next((row for row in await tx.workers() if row.id == worker), None)
        if row is None or not is_live(row, tx.now):
            raise NotFound(f"there is no live worker {worker!r}; `detent workers` lists them", code="WORKER_NOT_FOUND")
        await tx.change("put_order", worker=worker, act=act, actor=actor, reason=reason, now=tx.now)
        await tx.add_audit(Audit(actor, f"worker.{act}", worker, None, reason))
        return WorkerCommand(worker, act, actor, reason, tx.now)

    return await engine.store.write(write)


async def order_of(tx: Tx, worker: str) -> WorkerCommand | None:
    rows = await tx.query("order_of", worker=worker)
    return WorkerCommand(*rows[0]) if rows else None


async def note_losses(tx: Tx, changes: Sequence[Change]) -> None:
    """Remember what was taken from whom, in the transaction that takes it."""
    if not changes:
        return
    seen = {row.id: row.seen_at for row in await tx.workers()}
    charged = 0
    for change in changes:
        before, after = change.before, change.after
        assert before is not None and before.worker is not None, "what is lost was held"
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
            seen_at=seen.get(before.worker),
            lease_until=before.lease_until or tx.now,
            at=tx.now,
            charged=was_charged,
            given_up=after.phase is Phase.FINAL,
            target=after.status,
        )
        await tx.change("add_loss", **asdict(loss))
    await count_losses(tx, charged, len(changes) - charged)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of the jobs one lost worker held."""

    worker: str
    losses: list[Loss]

    @property
    def took(self) -> Micros:
        """From the worker's last sign of life, or the first lease that ran out, to the last job taken back."""
        begun = min(loss.seen_at if loss.seen_at is not None else loss.lease_until for loss in self.losses)
        return max(0, max(loss.at for loss in self.losses) - begun)

    def view(self) -> dict[str, Any]:
        seen = [loss.seen_at for loss in self.losses if loss.seen_at is not None]
        return {
            "worker": self.worker,
            "last_seen_at": iso(min(seen)) if seen else None,
            "began_at": iso(min(loss.at for loss in self.losses)),
            "ended_at": iso(max(loss.at for loss in self.losses)),
            "took_seconds": self.took / SECOND,
            "reclaimed": len(self.losses),
            "charged": sum(loss.charged for loss in self.losses),
            "given_up": sum(loss.given_up for loss in self.losses),
            "jobs": [
                {
                    "id": loss.job_id,
                    "job_type": loss.job_type,
                    "queue": loss.queue,
                    "execution_no": loss.execution_no,
                    "charged": bool(loss.charged),
                    "status": loss.target,
                    "at": iso(loss.at),
                }
                for loss in self.losses
            ],
        }

    def sentence(self) -> str:
        told = self.view()
        return (
            f"recovered from the loss of {self.worker}: {told['reclaimed']} jobs reclaimed, {told['charged']} charged, "
            f"{told['given_up']} given up, {told['took_seconds']:.1f} s after its last sign of life"
        )


async def recoveries(engine: "Engine", since: Micros = 0) -> list[Recovery]:
    """One report a lost worker, the newest first; kept for a week."""
    rows = await engine.store.read(lambda tx: tx.query("losses", since=since, limit=_LOSSES_AT_MOST))
    by_worker: dict[str, list[Loss]] = {}
    for row in rows:
        loss = Loss(*row)
        by_worker.setdefault(loss.worker, []).append(loss)
    return [Recovery(worker, losses) for worker, losses in by_worker.items()]


async def tidy(engine: "Engine") -> None:
    """Drop what was kept of workers and losses long ago."""
    await engine.store.write(_tidy)


async def _tidy(tx: Tx) -> None:
    await tx.change("drop_losses", before=tx.now - KEEP_LOSSES)
    await tx.change("drop_workers", before=tx.now - KEEP_WORKERS)
    await tx.change("drop_orders", before=tx.now - KEEP_WORKERS)
