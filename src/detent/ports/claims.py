"""Claims: the request of a worker, and the store's answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from detent.core.job import Micros


class Claimed(NamedTuple):
    """A claimed job: the fields that are needed to run its handler."""

    id: str
    token: str
    contract: str
    job_type: str
    queue: str
    tenant_id: str
    payload: str
    execution_no: int
    retries: int
    version: int
    timeout_ms: int | None
    trace_id: str | None
    effect_root: str
    idempotency_key: str | None
    cancel_requested: str | None
    due_at: Micros | None = None
    traceparent: str | None = None
    parent_id: str | None = None
    suspect: bool = False
    """True: its last executions were lost, so the worker must run it alone."""


class Success(NamedTuple):
    """A plain success; the store settles it in SQL, with the statuses of its contract."""

    id: str
    token: str
    contract: str
    result: str | None
    parent_id: str | None = None
    """Required for a child, so that its parent is notified; without it the success is refused and settled alone."""


class NamedClaim(NamedTuple):
    """A job to claim by its id, with its own token, only if its number of failures is exactly this."""

    id: str
    token: str
    failures: int


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """The worker that claims, the jobs it accepts, and the maximum number."""

    worker: str
    token: str
    limit: int
    lease: Micros
    job_types: frozenset[str] | None = None
    """The types the worker can run; None: any."""
    queues: frozenset[str] | None = None
    exclude_contracts: frozenset[str] = frozenset()
    reclaim: bool = False
    """True: also take over expired leases of contracts whose loss rule is RECLAIM."""
    suspects: bool | None = None
    """True: the claim may bring a suspect besides other jobs, because the worker runs it alone. None: only if it brings
    nothing else. False: never. It never brings two of them."""
    only_suspects: bool = False
    """True: claim nothing but suspects. Set by the engine."""
    named: Sequence[NamedClaim] | None = None
    """If set, claim only these jobs, of contracts with `uses_stream`; each id once."""


@dataclass(slots=True)
class StoreBatchResult:
    """The result of one settle-and-claim. refused: successes whose token is stale."""

    claimed: list[Claimed] = field(default_factory=list)
    refused: list[Success] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Extended:
    """The lost leases, and the cancel requests (JSON {actor, reason, at}) of the others, by job id."""

    lost: frozenset[str] = frozenset()
    cancels: Mapping[str, str] = field(default_factory=dict)
