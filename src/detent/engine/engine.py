"""The engine: every act on a job, each one transaction on the store, each change decided by its contract."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from detent.core.approval_rules import ApprovalPolicy
from detent.core.contract.builtin import CONTRACTS, DEFAULT
from detent.core.contract.model import Contract, Phase
from detent.core.errors import DetentError, InvalidInput, StaleLease, StoreRefused, StoreUnavailable, UnknownContract
from detent.core.job import DeadLetter, Job, Micros
from detent.core.outcome import Cancelled, Outcome, Succeeded
from detent.core.retry import Jitter, steady_jitter
from detent.core.times import SECOND
from detent.engine.control.limits import LimitActs
from detent.engine.execution.settle import Settlement, check_outcome, settle_in, sort_out
from detent.engine.reads.views import History
from detent.engine.submit.prepare import Submitted
from detent.engine.submit.submission import MAX_PAYLOAD, Submission, check_name
from detent.engine.submit.submit import SubmitActs
from detent.ports.access import Audit
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
    """What one settle-and-claim did: jobs to run, and settlements that were refused, by job id."""

    claimed: list[Claimed] = field(default_factory=list)
    refused: dict[str, DetentError] = field(default_factory=dict)
    later: list[Settlement] = field(default_factory=list)
    """Not settled because somebody else holds the row; say them again in a while."""


class Engine(ApprovalActs, SubmitActs, LimitActs):
    """One door to a store. Knows the contracts, decides nothing itself, spells no status."""

    tracer: "Tracer | None" = None

    def __init__(
        self,
        store: Store,
        contracts: Mapping[str, Contract] | None = None,
        *,
        ids: Ids | None = None,
        jitter: Jitter = steady_jitter,
        max_payload: int = MAX_PAYLOAD,
        approval_policy: ApprovalPolicy | None = None,
    ) -> None:
        self.store = store
        self._own = dict(contracts or {})
        self.contracts: dict[str, Contract] = {**CONTRACTS, **self._own}
        self.ids: Ids = ids or RandomIds()
        self.jitter = jitter
        self.max_payload = max_payload
        self.approval_policy = approval_policy

    async def open(self) -> None:
        await self.store.open(self._own, CONTRACTS)
        self.contracts = self.store.contracts

    async def close(self) -> None:
        await self.store.close()

    def sibling(self) -> "Engine":
        """The same engine for another event loop; open it there."""
        kept: dict[str, Any] = {"ids": self.ids, "jitter": self.jitter, "max_payload": self.max_payload}
        return Engine(self.store.sibling(), self._own, approval_policy=self.approval_policy, **kept)

    def contract(self, name: str | None) -> Contract:
        try:
            return self.contracts[DEFAULT if name is None else name]
        except (KeyError, TypeError):
            known = ", ".join(sorted(self.contracts))
            raise UnknownContract(f"contract {name!r} is not known; known are {known}", contract=name) from None

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        return (await self.settle_and_claim([], request)).claimed

    def claim_request(
        self, worker: str, limit: int, lease_seconds: float | None = None, **options: Any
    ) -> ClaimRequest:
        lease = lease_seconds if lease_seconds is not None else self.contract(None).lease_seconds
        if not 0 < lease <= MAX_LEASE or limit < 0:
            raise InvalidInput("a claim needs a lease above 0 s and a limit of at least 0", code="CLAIM_INVALID")
        return ClaimRequest(worker, self.ids.token(), limit, int(lease * SECOND), **options)

    async def settle(self, job_id: str, token: str, outcome: Outcome) -> Job:
        """End one execution; the same settlement said again answers the same."""
        check_outcome(outcome)

        async def act(tx: Tx) -> Job | Refused:
            job = (await tx.lock([job_id])).get(job_id)
            name = job.contract if job else ""
            return await settle_in(self, tx, job, Settlement(job_id, token, name, outcome))

        return unwrap(await self._again(act))

    async def settle_and_claim(self, settled: Sequence[Settlement], request: ClaimRequest | None) -> BatchResult:
        """Settle what is finished and claim what is next, in one transaction."""
        said, odd, bad = sort_out(settled)
        try:
            done, doubtful = await self._settle_batch(said, request)
        except StoreRefused:  # one culprit must not stall the others: each for itself, then the claim
            done, doubtful = await self._settle_batch([], request)
            odd = [*said, *odd]
        done.refused |= bad
        try:
            for one in (*await self._not_ours(done, doubtful), *odd):
                await self._look_again(done, one)
        except StoreUnavailable:  # what was claimed is ours all the same; what was not settled is said again
            done.later = [*doubtful, *odd]
            return done
        with suppress(StoreUnavailable):
            room = request.limit - len(done.claimed) if request else 0
            if request and request.reclaim and room > 0:
                rest = replace(request, limit=room)
                done.claimed += await self._again(lambda tx: sweep.reclaim(self, tx, rest))
            if any(claimed.cancel_requested for claimed in done.claimed):
                done.claimed = await self._without_cancelled(done)
        return done

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
            return await self._again(lambda tx: self._mixed(tx, plain, other, request))
        answer = await self.store.settle_and_claim(plain, request)
        return BatchResult(answer.claimed), [_said(success) for success in answer.refused]

    async def _mixed(
        self, tx: Tx, plain: list[Success], other: list[Settlement], request: ClaimRequest | None
    ) -> tuple[BatchResult, list[Settlement]]:
        done = BatchResult()
        unsettled = await tx.succeed(plain) if plain else []
        tx.related_ids.update(s.parent_id for s in plain if s.parent_id is not None)
        doubtful = [_said(success) for success in unsettled]
        rows = await tx.lock([s.id for s in other], wait=False) if other else {}
        for said in other:
            if said.id not in rows:
                doubtful.append(said)
                continue
            answer = await settle_in(self, tx, rows[said.id], said)
            if isinstance(answer, Refused):
                done.refused[said.id] = answer.error
        done.claimed = await tx.claim(request) if request else []
        return done, doubtful

    async def _not_ours(self, done: BatchResult, doubtful: list[Settlement]) -> list[Settlement]:
        """Rows a batch passed over: those that still bear our token go into the next batch, the others are returned."""
        if not doubtful or not self.store.skips_locked_rows:
            return doubtful
        rows = await self.store.read(lambda tx: tx.lock([said.id for said in doubtful]))
        rest = []
        for said in doubtful:
            row = rows.get(said.id)
            ours = row is not None and row.phase is Phase.LEASED and row.token == said.token
            if ours and row is not None and (row.contract, row.parent_id) == (said.contract, said.parent_id):
                done.later.append(said)
            else:
                rest.append(said)
        return rest

    async def _look_again(self, done: BatchResult, said: Settlement) -> None:
        """A row a batch passed over: settled by now, lost, or still held by somebody else's transaction."""

        async def act(tx: Tx) -> Job | Refused | None:
            job = (await tx.lock([said.id], wait=False)).get(said.id)
            return await settle_in(self, tx, job, said) if job else None

        answer = await self._again(act)
        if answer is None:
            there = (await self.store.read(lambda tx: tx.lock([said.id]))).get(said.id)
            if there is not None and there.token == said.token:
                done.later.append(said)
                return
            answer = Refused(StaleLease(f"job {said.id} is no longer ours; drop the result", job_id=said.id))
        if isinstance(answer, Refused):
            done.refused[said.id] = answer.error

    async def _without_cancelled(self, done: BatchResult) -> list[Claimed]:
        """A cancel asked for before this claim is made true by it: claimed, then cancelled."""
        kept = []
        for job in done.claimed:
            if job.cancel_requested:
                reason = Cancelled("requested before the claim")
                await self._look_again(done, Settlement(job.id, job.token, job.contract, reason))
            else:
                kept.append(job)
        return kept

    async def extend(self, held: Mapping[str, str], lease_seconds: float) -> Extended:
        """Lengthen leases {id: token} in one batch; tells which are lost and which were asked to stop."""
        return await self.store.write(lambda tx: tx.extend(held, int(lease_seconds * SECOND))) if held else Extended()

    async def expire(self, limit: int = 100) -> list[Job]:
        return await self._again(lambda tx: sweep.expire(self, tx, limit))

    async def wake(self, limit: int = 100) -> list[Job]:
        return await self._again(lambda tx: sweep.wake(self, tx, limit))

    async def signal(
        self, job_id: str, name: str, data: Any = None, *, actor: str | None = None, tenant: str | None = None
    ) -> tuple[Job, bool]:
        return await self._again(lambda tx: job_control.signal(self, tx, job_id, name, data, actor, tenant))

    async def cancel(
        self, job_id: str, *, actor: str, reason: str | None = None, tenant: str | None = None, force: bool = False
    ) -> Job:
        return unwrap(await self._again(lambda tx: job_control.cancel(self, tx, job_id, actor, reason, tenant, force)))

    async def abort(self, job_id: str, *, actor: str, reason: str | None = None, tenant: str | None = None) -> Job:
        return unwrap(await self._again(lambda tx: job_control.abort(self, tx, job_id, actor, reason, tenant)))

    async def reopen(self, job_id: str, *, actor: str, reason: str | None = None, tenant: str | None = None) -> Job:
        return unwrap(await self._again(lambda tx: job_control.reopen(self, tx, job_id, actor, reason, tenant)))

    async def transition(self, job_id: str, new_status: str, *, actor: str, tenant: str | None = None) -> Job:
        return unwrap(await self._again(lambda tx: job_control.transition(self, tx, job_id, new_status, actor, tenant)))

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
        fresh = new_id or self.ids.job()
        return await self._again(
            lambda tx: dead_letter_acts.requeue(self, tx, dlq_id, actor, reason, payload, tenant, fresh, take_steps)
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
        """A new job linked to one that has ended; its dead letter, if it left an open one, is answered by it."""
        fresh = new_id or self.ids.job()
        return unwrap(
            await self._again(
                lambda tx: dead_letter_acts.requeue_job(self, tx, job_id, actor, reason, payload, tenant, fresh)
            )
        )

    async def discard(
        self, dlq_id: str, *, person: str, reason: str | None, tenant: str | None = None
    ) -> dead_letter_acts.Discard:
        return await self._again(lambda tx: dead_letter_acts.discard(self, tx, dlq_id, person, reason, tenant))

    async def pause(self, kind: str, name: str, *, actor: str, reason: str | None = None) -> None:
        check_name(name, kind)
        if kind not in PAUSABLE:
            raise InvalidInput(f"{kind!r} cannot be paused; pause a {', a '.join(PAUSABLE)}", code="PAUSE_INVALID")

        async def act(tx: Tx) -> None:
            await tx.pause(kind, name, actor, reason)
            await tx.add_audit(Audit(actor, f"{kind}.pause", name, None, reason))

        await self._again(act)

    async def resume(self, kind: str, name: str, *, actor: str) -> None:
        async def act(tx: Tx) -> None:
            await tx.resume(kind, name)
            await tx.add_audit(Audit(actor, f"{kind}.resume", name))

        await self._again(act)

    async def job(self, job_id: str, *, tenant: str | None = None) -> Job:
        return await self.store.read(lambda tx: find(tx, job_id, tenant))

    async def jobs(self, filter: Filter) -> list[Job]:
        return await self.store.read(lambda tx: tx.jobs(filter))

    async def dead_letter(self, dlq_id: str, *, tenant: str | None = None) -> DeadLetter:
        return await self.store.read(lambda tx: dead_letter_acts.find_dead_letter(tx, dlq_id, tenant))

    async def dead_letters(self, filter: Filter) -> list[DeadLetter]:
        return await self.store.read(lambda tx: tx.dead_letters(filter))

    async def history(self, job_id: str, *, tenant: str | None = None) -> History:
        """A job with everything that was ever logged of it, in one snapshot."""

        async def act(tx: Tx) -> History:
            job = await find(tx, job_id, tenant)
            return History(self.contract(job.contract), job, await tx.events(job_id), await tx.notes(job_id))

        return await self.store.read(act)

    async def prune(
        self,
        older_than: float,
        *,
        batches: int | None = None,
        export: pruning.Export | None = None,
        **choice: Any,
    ) -> pruning.Pruned:
        """Delete jobs that ended more than so many seconds ago; contract=, queue=, status=, keep_keys_for=, batch=."""
        try:
            asked = pruning.Choice(older_than, **choice)
        except TypeError as error:
            raise InvalidInput(f"prune(): {error}", code="PRUNE_INVALID") from None
        return await pruning.prune(self, asked, batches, export)

    async def audit(self, limit: int = 100) -> list[tuple[int, Micros, Audit]]:
        return await self.store.read(lambda tx: tx.audit(limit))


def _said(success: Success) -> Settlement:
    return Settlement(success.id, success.token, success.contract, Succeeded(success.result), success.parent_id)
