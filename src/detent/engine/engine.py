"""The engine: every operation on jobs. Each runs in one store transaction; the job's contract decides each change."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from detent.core.access import Reach
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract, Phase
from detent.core.errors import DetentError, InvalidInput, StaleLease, StoreUnavailable
from detent.core.job import Change, Job, SignalKey
from detent.core.outcome import Cancelled, Outcome, Succeeded
from detent.core.times import SECOND
from detent.ports.access import AuditRow
from detent.ports.claims import Claimed, ClaimRequest, Extended, Success
from detent.ports.store import Store
from detent.ports.tx import Tx

from . import pruning
from .control.access import Tokens
from .control.limits import Limits
from .control.sessions import Sessions
from .dead_letters import DeadLetters
from .execution import sweep
from .execution.approvals import Approvals
from .execution.executions import Executions
from .execution.parents import process_pending_child_events
from .execution.settle import UNWRITABLE_ERRORS, Settlement, check_outcome, settle_job, split_settlements, unwritable
from .jobs import Jobs
from .metrics.webhooks import Webhooks
from .reads.awaited_results import Results
from .reads.stats import Statistics
from .reads.workers import Workers
from .refusal import SETTLE_REFUSED, Refused, refuse
from .runtime import Runtime, Service, affected_parents, operators_only
from .schedules.schedules import Schedules
from .submit.declarations import Declarations
from .submit.quotas import QuotaCache

MAX_LEASE = 86_400.0 * 365
CLOSE_SECONDS = 3.0
"""How long `close` waits for hooks."""


@dataclass(slots=True)
class BatchResult:
    """The result of one settle_and_claim: the claimed jobs, and the refused settlements by job id."""

    claimed: list[Claimed] = field(default_factory=list)
    refused: dict[str, DetentError] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    """What the settlements changed, without plain successes, and the jobs that were reclaimed."""
    later: list[Settlement] = field(default_factory=list)
    """Not settled, because another transaction holds the row lock or the store was unavailable; pass them again."""


class Engine(Runtime):
    """All operations on the jobs of one store, which it opens and closes.

    Operations of people and programs are in the services, for example `engine.jobs`; those of workers are methods.
    Status names and transitions come from the contracts only; the engine contains none.
    """

    jobs = cached_property(Jobs)
    dead_letters = cached_property(DeadLetters)
    schedules = cached_property(Schedules)
    approvals = cached_property(Approvals)
    limits = cached_property(Limits)
    workers = cached_property(Workers)
    executions = cached_property(Executions)
    webhooks = cached_property(Webhooks)
    stats = cached_property(Statistics)
    results = cached_property(Results)
    tokens = cached_property(Tokens)
    sessions = cached_property(Sessions)

    @operators_only
    async def open(self) -> None:
        await self.store.open(self.declared_contracts, CONTRACTS)
        self.contracts = {name: self._with_stream_retry(stored) for name, stored in self.store.contracts.items()}

    def _with_stream_retry(self, contract: Contract) -> Contract:
        if not self.stream_retry or not contract.uses_stream or contract.retry.frozen:
            return contract
        return contract.with_options(retry=replace(contract.retry, **self.stream_retry))

    @operators_only
    async def close(self) -> None:
        self.results.close()
        if self.relay is not None:
            await self.relay.close()
        if self.observer is not None:
            await self.observer.wait_for_hooks(0, CLOSE_SECONDS)
            self.observer.close()
        await self.store.close()

    @operators_only
    def sibling(self) -> "Engine":
        """An engine with the same settings for use in another event loop; open it in that loop."""
        return self.on_store(self.store.sibling(), relay=None, observer=None)

    @operators_only
    def on_store(self, store: Store, **changes: Any) -> "Engine":
        """An engine with the same settings, and these other attributes, on another store."""
        declarations = Declarations(store)
        declarations.own = self.declarations.own
        return self._copy(store=store, quota_cache=QuotaCache(store), declarations=declarations, **changes)

    def scoped(self, *, tenant: str | None, payloads: bool = True, reach: Reach | None = None) -> "Engine":
        """This engine limited to one tenant; None: to no other than it is. payloads False: it neither searches,
        compares nor shows payloads. reach: the queues and job types to which it is limited as well.

        Its operations see and change nothing else: an id of another tenant, or out of reach, is unknown (NotFound).
        What names another tenant, and the operations of operators and workers, raise TenantViolation.
        """
        tenant, payloads = self.tenant_for(tenant, f"tenant {tenant}"), payloads and self.payloads
        reach = self.reach if reach is None else reach
        if (tenant, payloads, reach) == (self.tenant, self.payloads, self.reach):
            return self
        return self._copy(tenant=tenant, payloads=payloads, reach=reach)

    def _copy(self, **changes: Any) -> "Engine":
        """This engine with other attributes; its services are built anew."""
        engine = copy(self)
        kept = {name: value for name, value in vars(self).items() if not isinstance(value, Service)}
        engine.__dict__ = {**kept, **changes}
        return engine

    @operators_only
    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        return (await self.settle_and_claim([], request)).claimed

    @operators_only
    def claim_request(
        self, worker: str, limit: int, lease_seconds: float | None = None, **options: Any
    ) -> ClaimRequest:
        lease = lease_seconds if lease_seconds is not None else self.contract(None).lease_seconds
        if not 0 < lease <= MAX_LEASE or limit < 0:
            raise InvalidInput(
                f"lease_seconds must be above 0 and at most {MAX_LEASE:.0f}, and limit at least 0", code="CLAIM_INVALID"
            )
        if self.reach.is_limited:
            options["queues"] = self.reach.within_queues(options.get("queues"))
            options["job_types"] = self.reach.within_types(options.get("job_types"))
        return ClaimRequest(worker, self.ids.token(), limit, int(lease * SECOND), **options)

    @operators_only
    async def settle(self, job_id: str, token: str, outcome: Outcome) -> Job:
        """End one execution. Idempotent: the same settlement again returns the same job."""
        check_outcome(outcome)

        async def act(tx: Tx) -> Change | Refused:
            job = (await self._reached(tx, [job_id])).get(job_id)
            name = job.contract if job else ""
            return await settle_job(self, tx, job, Settlement(job_id, token, name, outcome))

        return await self.change(act)

    @operators_only
    async def settle_and_claim(self, settled: Sequence[Settlement], request: ClaimRequest | None) -> BatchResult:
        """Settle finished executions and claim the next jobs, in one transaction."""
        done = await self._settle_and_claim(settled, request)
        successes: list[tuple[Claimed, str | None]] = []
        if self.observer is not None and self.observer.wants_successes:
            unsettled = done.refused.keys() | {settlement.id for settlement in done.later}
            successes = [
                (s.claimed, s.outcome.result)
                for s in settled
                if s.claimed is not None and isinstance(s.outcome, Succeeded) and s.id not in unsettled
            ]
        self.report(done.changes, successes)
        return done

    async def _settle_and_claim(self, settled: Sequence[Settlement], request: ClaimRequest | None) -> BatchResult:
        batch, alone, refused = split_settlements(settled)
        try:
            done, skipped = await self._settle_batch(batch, request)
        except UNWRITABLE_ERRORS:  # one bad settlement must not block the others: claim, then settle each one alone
            if not batch:
                raise
            done, skipped = await self._settle_batch([], request)
            alone = [*batch, *alone]
        done.refused |= refused
        try:
            for settlement in (*await self._defer_rows_still_leased(done, skipped), *alone):
                await self._settle_alone(done, settlement)
        except StoreUnavailable:  # the claim is committed; what is not settled yet must be passed again
            settled_now = {(change.after.id, change.after.token) for change in done.changes}
            done.later = [s for s in (*skipped, *alone) if (s.id, s.token) not in settled_now]
            return done
        with suppress(StoreUnavailable):
            room = request.limit - len(done.claimed) if request else 0
            if request and request.reclaim and room > 0:
                suspects = False if request.suspects is None and done.claimed else request.suspects
                remaining = replace(request, limit=room, suspects=suspects)
                changes = await self.run(lambda tx: sweep.reclaim(self, tx, remaining), affected_parents)
                done.changes += changes
                _add_claims(done, [sweep.claimed_of(job, remaining.token) for job in sweep.leased(changes)])
            may_claim_suspect = request is not None and self._may_claim_suspect(request, done.claimed)
            if request and may_claim_suspect and await self.store.read(lambda tx: tx.claims.has_ready_suspect()):
                _add_claims(done, await self.run(lambda tx: sweep.claim_suspect(tx.claims, request)))
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
            done, skipped, _ = await self.run(
                lambda tx: self._settle_mixed_batch(tx, plain, other, request), lambda batch: batch[2]
            )
            return done, [settlement for settlement in settled if settlement.id in skipped]
        result = await self.store.settle_and_claim(plain, request)
        refused = {success.id for success in result.refused}
        return BatchResult(result.claimed), [settlement for settlement in settled if settlement.id in refused]

    async def _settle_mixed_batch(
        self, tx: Tx, plain: list[Success], other: list[Settlement], request: ClaimRequest | None
    ) -> tuple[BatchResult, set[str], set[str]]:
        """(the result, ids of locked rows, parents of the children that ended in this batch)."""
        done = BatchResult()
        unsettled = await tx.claims.succeed(plain) if plain else []
        parents = {success.parent_id for success in plain if success.parent_id is not None}
        skipped = {success.id for success in unsettled}
        rows = await tx.jobs.lock([s.id for s in other], wait=False) if other else {}
        for settlement in other:
            if settlement.id not in rows:
                skipped.add(settlement.id)
                continue
            result = await settle_job(self, tx, rows[settlement.id], settlement)
            if isinstance(result, Refused):
                done.refused[settlement.id] = result.error
            else:
                done.changes.append(result)
                parents |= result.affected_parents
        done.claimed = await tx.claims.claim(request) if request else []
        return done, skipped, parents

    async def _defer_rows_still_leased(self, done: BatchResult, skipped: list[Settlement]) -> list[Settlement]:
        """Of the settlements a batch skipped, defer those whose lease is still ours; return the others."""
        if not skipped or not self.store.skips_locked_rows:
            return skipped
        rows = await self.store.read(lambda tx: tx.jobs.lock([settlement.id for settlement in skipped]))
        others, now = [], self.store.now()
        for settlement in skipped:
            row = rows.get(settlement.id)
            ours = (settlement.token, settlement.contract, settlement.parent_id)
            leased = row is not None and row.phase is Phase.LEASED and row.times_out_at >= now
            if row is not None and leased and (row.token, row.contract, row.parent_id) == ours:
                done.later.append(settlement)
            else:
                others.append(settlement)
        return others

    async def _settle_alone(self, done: BatchResult, settlement: Settlement) -> None:
        """Settle in a separate transaction. Deferred if the row is locked, refused if the lease is lost."""
        job_id = settlement.id

        async def act(tx: Tx) -> Change | Refused | None:
            job = (await tx.jobs.lock([job_id], wait=False)).get(job_id)
            return await settle_job(self, tx, job, settlement) if job else None

        try:
            result = await self.run(act, lambda result: affected_parents([result]))
        except UNWRITABLE_ERRORS as error:
            result = Refused(unwritable(error))
        if result is None:
            row = (await self.store.read(lambda tx: tx.jobs.lock([job_id]))).get(job_id)
            if row is not None and row.token == settlement.token:
                done.later.append(settlement)
                return
            stale = StaleLease(f"the lease on job {job_id} was lost; drop the result", job_id=job_id)
            result = Refused(stale) if row is None else await self._note_refusal(row, stale)
        if isinstance(result, Refused):
            done.refused[job_id] = result.error
        elif settlement.claimed is None or not isinstance(settlement.outcome, Succeeded):
            done.changes.append(result)

    async def _note_refusal(self, job: Job, error: DetentError) -> Refused:
        """Write the note of a refused settlement, for which the row need not be locked."""
        return await self.store.write(lambda tx: refuse(tx, job, error, SETTLE_REFUSED, job.worker))

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

    @operators_only
    async def extend(self, held: Mapping[str, str], lease_seconds: float) -> Extended:
        """Extend leases {job id: token} in one batch; returns the lost ones and those with a requested cancel."""
        if not held:
            return Extended()
        lease = int(lease_seconds * SECOND)
        if not self.reach.is_limited:
            return await self.store.write(lambda tx: tx.claims.extend(held, lease))

        async def act(tx: Tx) -> Extended:
            rows = await self._reached(tx, list(held))
            extended = await tx.claims.extend({job_id: held[job_id] for job_id in rows}, lease)
            return replace(extended, lost=extended.lost | (held.keys() - rows.keys()))

        return await self.store.write(act)

    async def _reached(self, tx: Tx, ids: Sequence[str]) -> dict[str, Job]:
        """Lock these jobs; those that this engine does not reach are left out, as if they did not exist."""
        rows = await tx.jobs.lock(ids)
        return {job_id: job for job_id, job in rows.items() if self.reach.includes(job.queue, job.job_type)}

    @operators_only
    async def expire(self, limit: int = 100) -> list[Job]:
        """Take up to `limit` jobs back from workers whose lease has expired; part of every sweep."""
        return await self.change_all(lambda tx: sweep.expire(self, tx, limit))

    @operators_only
    async def wake(self, limit: int = 100) -> list[Job]:
        """Wake blocked jobs that are due and end jobs past their deadline; part of every sweep."""
        return await self.change_all(lambda tx: sweep.wake(self, tx, limit))

    @operators_only
    async def wake_missed_signals(
        self, after: SignalKey | None = None, limit: int = 100
    ) -> tuple[list[Job], SignalKey | None]:
        """Wake jobs that wait although their signal is on record, among the next `limit` signals.

        Returns them and the position to continue after; None: no more signals follow. Part of the sweeps.
        """
        woken, position = await self.run(lambda tx: sweep.wake_missed_signals(self, tx, after, limit))
        return [change.after for change in woken], position

    @operators_only
    async def process_child_events(self, limit: int = 100) -> list[str]:
        """Process parents with unprocessed ends of children; part of every sweep. Returns the parents' ids."""
        return await process_pending_child_events(self.store, self.contracts, limit)

    @operators_only
    async def prune(
        self, older_than: float, *, batches: int | None = None, export: pruning.Export | None = None, **options: Any
    ) -> pruning.Pruned:
        """Delete jobs that finished more than older_than seconds ago; more options: see PruneOptions.

        batches: stop after so many. export: called with the histories of each batch before it is deleted.
        """
        try:
            prune_options = pruning.PruneOptions(older_than, **options)
        except TypeError as error:
            raise InvalidInput(f"prune(): {error}", code="PRUNE_INVALID") from None
        return await pruning.prune(self, prune_options, batches, export)

    async def audit(self, limit: int = 100, *, before: int | None = None, subject: str | None = None) -> list[AuditRow]:
        """The last entries of the audit log, newest first; optionally below a number, or about one subject."""
        return await self.store.read(lambda tx: self.audit_entries(tx, limit, before=before, subject=subject))


def _add_claims(done: BatchResult, claimed: Sequence[Claimed]) -> None:
    """Add the claims of a later transaction. They replace earlier ones of the same jobs, whose leases have run out."""
    done.claimed = list({claim.id: claim for claim in (*done.claimed, *claimed)}.values())
