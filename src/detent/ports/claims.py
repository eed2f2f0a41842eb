"""Claims and leases: the request of a worker, the store's answer, and what is due."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from detent.core.job import Job, Micros


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


class ClaimLimits(Protocol):
    """Whether limits kept jobs from the last claim, and the time at which a rate limit allows the next start."""

    held_back: bool
    opens_at: Micros | None


@dataclass(frozen=True, slots=True)
class Extended:
    """The lost leases, and the cancel requests (JSON {actor, reason, at}) of the others, by job id."""

    lost: frozenset[str] = frozenset()
    cancels: Mapping[str, str] = field(default_factory=dict)


class Suspect(NamedTuple):
    """A claimable or leased job whose last executions were lost. losses: how many in a row."""

    queue: str
    job_type: str
    losses: int
    id: str


class HeldJob(NamedTuple):
    """A job that a worker holds. since: when this execution started."""

    id: str
    worker: str
    contract: str
    queue: str
    job_type: str
    tenant_id: str
    execution_no: int
    since: Micros
    lease_until: Micros


class HeldJobs(NamedTuple):
    """The held jobs of one queue and type, and since when the oldest is held."""

    queue: str
    job_type: str
    number: int
    since: Micros


class ClaimTable(Protocol):
    """Claims, successes and leases."""

    async def claim(self, request: ClaimRequest) -> list[Claimed]: ...

    async def succeed(self, successes: Sequence[Success]) -> list[Success]:
        """Settle plain successes; returns those whose token does not hold a leased job."""
        ...

    async def extend(self, held: Mapping[str, str], lease: Micros) -> Extended:
        """Extend the leases {id: token} in one batch."""
        ...

    async def check_leases(self, held: Mapping[str, str]) -> Extended:
        """The answer of `extend`, without extending."""
        ...

    async def expire_leases(self, held: Mapping[str, str]) -> None:
        """End these leases {id: token} now, because their holder is lost: another worker may reclaim the jobs."""
        ...

    async def expired(self, limit: int, contracts: Sequence[str], timed_out: Sequence[str] = ()) -> list[Job]:
        """Jobs of `contracts` with an expired lease, and those of `timed_out` whose lease their timeout has ended."""
        ...

    async def reclaimable(self, request: ClaimRequest, contracts: Sequence[str]) -> list[Job]:
        """Jobs of these contracts with an expired lease that this request may claim."""
        ...

    async def has_ready_suspect(self) -> bool:
        """True if a suspect may be claimed now, by some worker."""
        ...

    async def suspects(self) -> list[Suspect]:
        """At most 1,000."""
        ...

    async def held_jobs(self, limit: int, *, queue: str | None = None, job_type: str | None = None) -> list[HeldJob]:
        """The jobs that workers hold, of one queue and type or of all; the first to expire first."""
        ...

    async def held_by_type(self) -> list[HeldJobs]: ...


class DueTable(Protocol):
    """Jobs that become claimable, wake, or pass their deadline with time."""

    async def due_blocked(self, limit: int, contracts: Sequence[str]) -> list[Job]: ...

    async def past_deadline(self, limit: int, contracts: Sequence[str]) -> list[Job]:
        """Jobs that are not leased and whose start deadline has passed."""
        ...

    async def next_due(self) -> Micros | None:
        """The next time at which a job becomes claimable or a blocked job wakes."""
        ...

    async def next_wake(self) -> Micros | None:
        """The next time at which a blocked job wakes."""
        ...

    async def any_leased_or_due(self, job_types: Sequence[str], horizon: Micros) -> bool:
        """True if a job of these types is leased, or due within the horizon."""
        ...

    async def oldest_due(self) -> dict[int, Micros]:
        """Lane group -> since when its oldest due job is due. Jobs of paused tenants are left out."""
        ...
