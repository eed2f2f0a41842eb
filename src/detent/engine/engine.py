"""The engine: every operation on jobs. Each runs in one store transaction; the job's contract decides each change."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from detent.core.approval_rules import ApprovalPolicy
from detent.core.contract.builtin import CONTRACTS, DEFAULT
from detent.core.contract.model import Contract, Phase
from detent.core.errors import DetentError, InvalidInput, StaleLease, StoreRefused, StoreUnavailable, UnknownContract
from detent.core.job import DeadLetter, Job, SignalKey
from detent.core.outcome import Cancelled, Outcome, Succeeded
from detent.core.retry import Jitter, deterministic_jitter
from detent.core.times import SECOND
from detent.engine.control.limits import LimitActs
from detent.engine.execution.settle import Settlement, check_outcome, settle_job, split_settlements
from detent.engine.reads.views import History
from detent.engine.submit.prepare import Submitted
from detent.engine.submit.submission import MAX_PAYLOAD, Submission, check_name
from detent.engine.submit.submit import SubmitActs
from detent.ports.access import Audit, AuditRow
from detent.ports.claims import Claimed, ClaimRequest, Extended, Success
from detent.ports.ids import Ids
from detent.ports.listing import Filter
from detent.ports.store import Store
from detent.ports.tx import Tx
from detent.system.ids import RandomIds

from . import pruning
from .control import dead_letters as dead_letter_acts
from .control import job_control
from .execution import sweep
from .refusal import Refused, find, unwrap
from .transaction import ApprovalActs

if TYPE_CHECKING:
    from .tracing import Tracer

__all__ = ["BatchResult", "Engine", "History", "Settlement", "Submission", "Submitted"]

MAX_LEASE = 86_400.0 * 365
T = TypeVar("T")
PAUSABLE = ("queue", "job_type", "tenant")


@dataclass(slots=True)
class BatchResult:
    """The result of one settle_and_claim: the claimed jobs, and the refused settlements by job id."""

    claimed: list[Claimed] = field(default_factory=list)
    refused: dict[str, DetentError] = field(default_factory=dict)
    later: list[Settlement] = field(default_factory=list)
    """Not settled, because another transaction holds the row lock or the store was unavailable; pass them again."""


class Engine(ApprovalActs, SubmitActs, LimitActs):
    """All operations on the jobs of one store, which it opens and closes.

    Status names and transitions come from the contracts only; the engine contains none.
    """

    tracer: "Tracer | None" = None

    def __init__(
        self,
        store: Store,
        contracts: Mapping[str, Contract] | None = None,
        *,
        ids: Ids | None = None,
        jitter: Jitter = deterministic_jitter,
        max_payload: int = MAX_PAYLOAD,
        approval_policy: ApprovalPolicy | None = None,
    ) -> None:
        self.store = store
        self._declared_contracts = dict(contracts or {})
        self.contracts: dict[str, Contract] = {**CONTRACTS, **self._declared_contracts}
        self.ids: Ids = ids or RandomIds()
        self.jitter = jitter
        self.max_payload = max_payload
        self.approval_policy = approval_policy

    async def open(self) -> None:
        await self.store.open(self._declared_contracts, CONTRACTS)
        self.contracts = self.store.contracts

    async def close(self) -> None:
        await self.store.close()

    def sibling(self) -> "Engine":
        """An engine with the same settings for use in another event loop; open it in that loop."""
        settings: dict[str, Any] = {"ids": self.ids, "jitter": self.jitter, "max_payload": self.max_payload}
        return Engine(self.store.sibling(), self._declared_contracts, approval_policy=self.approval_policy, **settings)

    def contract(self, name: str | None) -> Contract:
        try:
            return self.contracts[DEFAULT if name is None else name]
        except (KeyError, TypeError):
            names = ", ".join(sorted(self.contracts))
            raise UnknownContract(f"unknown contract {name!r}; use one of {names}", contract=name) from None

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        return (await self.settle_and_claim([], request)).claimed

    def claim_request(
        self, worker: str, limit: int, lease_seconds: float | None = None, **options: Any
    ) -> ClaimRequest:
        lease = lease_seconds if lease_seconds is not None else self.contract(None).lease_seconds
        if not 0 < lease <= MAX_LEASE or limit < 0:
            raise InvalidInput(
                f"lease_seconds must be above 0 and at most {MAX_LEASE:.0f}, and limit at least 0", code="CLAIM_INVALID"
            )
        return ClaimRequest(worker, self.ids.token(), limit, int(lease * SECOND), **options)

    async def settle(self, job_id: str, token: str, outcome: Outcome) -> Job:
        """End one execution. Idempotent: the same settlement again returns the same job."""
        check_outcome(outcome)

        async def act(tx: Tx) -> Job | Refused:
            job = (await tx.jobs.lock([job_id])).get(job_id)
            name = job.contract if job else ""
            return await settle_job(self, tx, job, Settlement(job_id, token, name, outcome))

        return unwrap(await self._retry_on_conflict(act))

    async def settle_and_claim(self, settled: Sequence[Settlement], request: ClaimRequest | None) -> BatchResult:
        """Settle finished executions and claim the next jobs, in one transaction."""
        batch, alone, refused = split_settlements(settled)
        try:
            done, skipped = await self._settle_batch(batch, request)
        except StoreRefused:  # one bad settlement must not block the others: claim, then settle each one alone
            done, skipped = await self._settle_batch([], request)
            alone = [*batch, *alone]
        done.refused |= refused
        try:
            for settlement in (*await self._defer_rows_still_leased(done, skipped), *alone):
                await self._settle_alone(done, settlement)
        except StoreUnavailable:  # the claim is committed; what is not settled yet must be passed again
            done.later = [*skipped, *alone]
            return done
        with suppress(StoreUnavailable):
            room = request.limit - len(done.claimed) if request else 0
            if request and request.reclaim and room > 0:
                suspects = False if request.suspects is None and done.claimed else request.suspects
                remaining = replace(request, limit=room, suspects=suspects)
                done.claimed += await self._retry_on_conflict(lambda tx: sweep.reclaim(self, tx, remaining))
            may_claim_suspect = request is not None and self._may_claim_suspect(request, done.claimed)
            if request and may_claim_suspect and await self.store.read(lambda tx: tx.claims.has_ready_suspect()):
                done.claimed += await self._retry_on_conflict(lambda tx: sweep.claim_suspect(tx.claims, request))
            if any(claimed.cancel_requested for claimed in done.claimed):
                done.claimed = await self._cancel_requested_claims(done)
        return done

    def _may_claim_suspect(self, request: ClaimRequest, claimed: Sequence[Claimed]) -> bool:
        if request.suspects is False or request.named is not None or len(claimed) >= request.limit:
            return False
        return not claimed or (request.suspects is True and not any(other.suspect for other in claimed))

    async def _settle_batch(
        self, settled: list[Settlement], request: ClaimRequest | None
    ) -> tuple[BatchResult, list[Settlement]]:
        plain = [
            Success(s.id, s.token, s.contract, s.outcome.result, s.parent_id)
            for s in settled
            if isinstance(s.outcome, Succeeded)
        ]
        if len(plain) < len(settled) or any(s.parent_id is not None for s in plain):
            other = [s for s in settled if not isinstance(s.outcome, Succeeded)]
            return await self._retry_on_conflict(lambda tx: self._settle_mixed_batch(tx, plain, other, request))
        result = await self.store.settle_and_claim(plain, request)
        return BatchResult(result.claimed), [_settlement_of(success) for success in result.refused]

    async def _settle_mixed_batch(
        self, tx: Tx, plain: list[Success], other: list[Settlement], request: ClaimRequest | None
    ) -> tuple[BatchResult, list[Settlement]]:
        done = BatchResult()
        unsettled = await tx.claims.succeed(plain) if plain else []
        tx.parents_to_process.update(s.parent_id for s in plain if s.parent_id is not None)
        skipped = [_settlement_of(success) for success in unsettled]
        rows = await tx.jobs.lock([s.id for s in other], wait=False) if other else {}
        for settlement in other:
            if settlement.id not in rows:
                skipped.append(settlement)
                continue
            result = await settle_job(self, tx, rows[settlement.id], settlement)
            if isinstance(result, Refused):
                done.refused[settlement.id] = result.error
        done.claimed = await tx.claims.claim(request) if request else []
        return done, skipped

    async def _defer_rows_still_leased(self, done: BatchResult, skipped: list[Settlement]) -> list[Settlement]:
        """Of the settlements a batch skipped, defer those whose lease is still ours; return the others."""
        if not skipped or not self.store.skips_locked_rows:
            return skipped
        rows = await self.store.read(lambda tx: tx.jobs.lock([settlement.id for settlement in skipped]))
        others = []
        for settlement in skipped:
            row = rows.get(settlement.id)
            leased = row is not None and row.phase is Phase.LEASED and row.token == settlement.token
            same = row is not None and (row.contract, row.parent_id) == (settlement.contract, settlement.parent_id)
            if leased and same:
                done.later.append(settlement)
            else:
                others.append(settlement)
        return others

    async def _settle_alone(self, done: BatchResult, settlement: Settlement) -> None:
        """Settle in a separate transaction. Deferred if the row is locked, refused if the lease is lost."""
        job_id = settlement.id

        async def act(tx: Tx) -> Job | Refused | None:
            job = (await tx.jobs.lock([job_id], wait=False)).get(job_id)
            return await settle_job(self, tx, job, settlement) if job else None

        result = await self._retry_on_conflict(act)
        if result is None:
            row = (await self.store.read(lambda tx: tx.jobs.lock([job_id]))).get(job_id)
            if row is not None and row.token == settlement.token:
                done.later.append(settlement)
                return
            result = Refused(StaleLease(f"the lease on job {job_id} was lost; drop the result", job_id=job_id))
        if isinstance(result, Refused):
            done.refused[job_id] = result.error

    async def _cancel_requested_claims(self, done: BatchResult) -> list[Claimed]:
        """Cancel claimed jobs whose cancel was requested before the claim; return the others."""
        kept = []
        for job in done.claimed:
            if job.cancel_requested:
                reason = Cancelled("requested before the claim")
                await self._settle_alone(done, Settlement(job.id, job.token, job.contract, reason))
            else:
                kept.append(job)
        return kept

    async def extend(self, held: Mapping[str, str], lease_seconds: float) -> Extended:
        """Extend leases {job id: token} in one batch; returns the lost ones and those with a requested cancel."""
        return (
            await self.store.write(lambda tx: tx.claims.extend(held, int(lease_seconds * SECOND)))
            if held
            else Extended()
        )

    async def expire(self, limit: int = 100) -> list[Job]:
        """Take up to `limit` jobs back from workers whose lease has expired; part of every sweep."""
        return await self._retry_on_conflict(lambda tx: sweep.expire(self, tx, limit))

    async def wake(self, limit: int = 100) -> list[Job]:
        """Wake blocked jobs that are due and end jobs past their deadline; part of every sweep."""
        return await self._retry_on_conflict(lambda tx: sweep.wake(self, tx, limit))

    async def wake_missed_signals(
        self, after: SignalKey | None = None, limit: int = 100
    ) -> tuple[list[Job], SignalKey | None]:
        """Wake jobs that wait although their signal is on record, among the next `limit` signals.

        Returns them and the position to continue after; None: no more signals follow. Part of the sweeps.
        """
        return await self._retry_on_conflict(lambda tx: sweep.wake_missed_signals(self, tx, after, limit))

    async def signal(
        self, job_id: str, name: str, data: Any = None, *, actor: str | None = None, tenant: str | None = None
    ) -> tuple[Job, bool]:
        """Send a named signal; returns the job, and False if a signal of this name was received before."""
        return await self._retry_on_conflict(lambda tx: job_control.signal(self, tx, job_id, name, data, actor, tenant))

    async def cancel(
        self, job_id: str, *, actor: str, reason: str | None = None, tenant: str | None = None, force: bool = False
    ) -> Job:
        """Cancel the job; a running one is only requested to stop, unless force is true."""
        return unwrap(
            await self._retry_on_conflict(lambda tx: job_control.cancel(self, tx, job_id, actor, reason, tenant, force))
        )

    async def abort(self, job_id: str, *, actor: str, reason: str | None = None, tenant: str | None = None) -> Job:
        """Make a job fail that no worker holds."""
        return unwrap(
            await self._retry_on_conflict(lambda tx: job_control.abort(self, tx, job_id, actor, reason, tenant))
        )

    async def reopen(self, job_id: str, *, actor: str, reason: str | None = None, tenant: str | None = None) -> Job:
        """Make a finished job claimable again, if its contract has such an edge."""
        return unwrap(
            await self._retry_on_conflict(lambda tx: job_control.reopen(self, tx, job_id, actor, reason, tenant))
        )

    async def transition(self, job_id: str, new_status: str, *, actor: str, tenant: str | None = None) -> Job:
        """Move the job to a status along an edge of its contract; refused if there is no such edge."""
        return unwrap(
            await self._retry_on_conflict(
                lambda tx: job_control.transition(self, tx, job_id, new_status, actor, tenant)
            )
        )

    async def requeue(
        self,
        dlq_id: str,
        *,
        actor: str,
        reason: str | None = None,
        payload: dict[str, Any] | None = None,
        tenant: str | None = None,
        new_id: str | None = None,
        take_steps: bool = False,
    ) -> Submitted:
        """Create a new job from an open dead letter. take_steps: copy the recorded steps of the old job."""
        requeued_id = new_id or self.ids.job()
        return await self._retry_on_conflict(
            lambda tx: dead_letter_acts.requeue(
                self, tx, dlq_id, actor, reason, payload, tenant, requeued_id, take_steps
            )
        )

    async def requeue_job(
        self,
        job_id: str,
        *,
        actor: str,
        reason: str | None = None,
        payload: dict[str, Any] | None = None,
        tenant: str | None = None,
        new_id: str | None = None,
    ) -> Submitted:
        """Create a new job linked to a finished one; if that left an open dead letter, this requeues it."""
        requeued_id = new_id or self.ids.job()
        return unwrap(
            await self._retry_on_conflict(
                lambda tx: dead_letter_acts.requeue_job(self, tx, job_id, actor, reason, payload, tenant, requeued_id)
            )
        )

    async def discard(
        self, dlq_id: str, *, person: str, reason: str | None, tenant: str | None = None
    ) -> dead_letter_acts.Discard:
        """Discard a dead letter; where the contract needs two people, the first call only proposes it."""
        return await self._retry_on_conflict(
            lambda tx: dead_letter_acts.discard(self, tx, dlq_id, person, reason, tenant)
        )

    async def pause(self, kind: str, name: str, *, actor: str, reason: str | None = None) -> None:
        """Stop claims of a queue, job type or tenant (kind) until resume."""
        check_name(name, kind)
        if kind not in PAUSABLE:
            raise InvalidInput(f"{kind!r} cannot be paused; use one of {', '.join(PAUSABLE)}", code="PAUSE_INVALID")

        async def act(tx: Tx) -> None:
            await tx.pauses.pause(kind, name, actor, reason)
            await tx.audit.add_audit(Audit(actor, f"{kind}.pause", name, None, reason))

        await self._retry_on_conflict(act)

    async def resume(self, kind: str, name: str, *, actor: str) -> None:
        async def act(tx: Tx) -> None:
            await tx.pauses.resume(kind, name)
            await tx.audit.add_audit(Audit(actor, f"{kind}.resume", name))

        await self._retry_on_conflict(act)

    async def job(self, job_id: str, *, tenant: str | None = None) -> Job:
        return await self.store.read(lambda tx: find(tx.jobs, job_id, tenant))

    async def jobs(self, filter: Filter) -> list[Job]:
        return await self.store.read(lambda tx: tx.jobs.list_jobs(filter))

    async def dead_letter(self, dlq_id: str, *, tenant: str | None = None) -> DeadLetter:
        return await self.store.read(lambda tx: dead_letter_acts.find_dead_letter(tx.dead_letters, dlq_id, tenant))

    async def dead_letters(self, filter: Filter) -> list[DeadLetter]:
        return await self.store.read(lambda tx: tx.dead_letters.list_dead_letters(filter))

    async def history(self, job_id: str, *, tenant: str | None = None) -> History:
        """A job with all its events and notes, read in one snapshot."""

        async def act(tx: Tx) -> History:
            job = await find(tx.jobs, job_id, tenant)
            return History(self.contract(job.contract), job, await tx.log.events(job_id), await tx.log.notes(job_id))

        return await self.store.read(act)

    async def prune(
        self,
        older_than: float,
        *,
        batches: int | None = None,
        export: pruning.Export | None = None,
        **options: Any,
    ) -> pruning.Pruned:
        """Delete jobs that finished more than older_than seconds ago; more options: see PruneOptions.

        batches: stop after so many. export: called with the histories of each batch before it is deleted.
        """
        try:
            prune_options = pruning.PruneOptions(older_than, **options)
        except TypeError as error:
            raise InvalidInput(f"prune(): {error}", code="PRUNE_INVALID") from None
        return await pruning.prune(self, prune_options, batches, export)

    async def audit(self, limit: int = 100) -> list[AuditRow]:
        return await self.store.read(lambda tx: tx.audit.list_audit(limit))


def _settlement_of(success: Success) -> Settlement:
    return Settlement(success.id, success.token, success.contract, Succeeded(success.result), success.parent_id)
