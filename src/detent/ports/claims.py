"""What a worker asks for when it claims jobs, and what the store answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from detent.core.job import Micros

T = TypeVar("T")


class Claimed(NamedTuple):
    """What a worker is handed: enough to run the handler, no more."""

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


class Success(NamedTuple):
    """A plain success, decided in SQL with the statuses of its contract."""

    id: str
    token: str
    contract: str
    result: str | None
    parent_id: str | None = None
    """Must be told for a child, so that its parent hears of it; a child settled without is refused and looked at."""


class NamedClaim(NamedTuple):
    """One job to be claimed by its id, under a token of its own, if it has failed so often and no oftener."""

    id: str
    token: str
    failures: int


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Who claims, what it can run, and how much at the most."""

    worker: str
    token: str
    limit: int
    lease: Micros
    job_types: frozenset[str] | None = None
    """None: any type. A worker names the types it can run."""
    queues: frozenset[str] | None = None
    exclude_contracts: frozenset[str] = frozenset()
    reclaim: bool = False
    """True: also take over expired leases of contracts whose lost jobs go from holder to holder."""
    named: Sequence[NamedClaim] | None = None
    """If given, these jobs of wired contracts and no others; each id once."""


@dataclass(slots=True)
class StoreBatchResult:
    """What one settle-and-claim did. refused: successes whose token no longer stands on the row."""

    claimed: list[Claimed] = field(default_factory=list)
    refused: list[Success] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Extended:
    """Leases that were lost, and the cancel requests ({actor, reason, at} as JSON) found on the others."""

    lost: frozenset[str] = frozenset()
    cancels: Mapping[str, str] = field(default_factory=dict)
