"""What the engine needs from the outside: a store, a clock, fresh ids. Small protocols, no code."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from .core.contract import Contract
from .core.job import Change, DeadLetter, Event, Job, Micros, Note, Signal, Step
from .family_port import ApprovalTx, FamilyTx
from .limit_port import LimitTx
from .pruning_port import PruneTx
from .schedule_port import ScheduleTx
from .wire import Named, OutboxTx

T = TypeVar("T")


class Clock(Protocol):
    def now(self) -> Micros: ...

    def monotonic(self) -> float: ...


class Ids(Protocol):
    def job(self) -> str: ...

    def token(self) -> str: ...


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
    named: Sequence[Named] | None = None
    """If given, these jobs of wired contracts and no others; each id once."""


@dataclass(slots=True)
class Cycle:
    """What one settle-and-claim did. refused: successes whose token no longer stands on the row."""

    claimed: list[Claimed] = field(default_factory=list)
    refused: list[Success] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs a listing shows; None means any. Pages run by id, newest first."""

    contract: str | None = None
    status: str | None = None
    phase: str | None = None
    queue: str | None = None
    tenant_id: str | None = None
    job_type: str | None = None
    text: str | None = None
    before: str | None = None
    limit: int = 50
    error_code: str | None = None
    since: Micros | None = None
    """Made at this moment or later; until: at this moment or before."""
    until: Micros | None = None
    text_outside: str | None = None
    """The same as text, but found in ids, keys and codes only: for people who may not see payloads."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as others see it; gone when it has not been seen for three leases."""

    id: str
    host: str
    pid: int
    version: str
    queues: str | None
    job_types: str
    slots: int
    busy: int
    state: str
    started_at: Micros
    seen_at: Micros
    lease: Micros


@dataclass(frozen=True, slots=True)
class Extended:
    """Leases that were lost, and the cancel requests ({actor, reason, at} as JSON) found on the others."""

    lost: frozenset[str] = frozenset()
    cancels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Audit:
    """Who did what to which thing, and why."""

    actor: str
    act: str
    subject: str
    tenant_id: str | None = None
    reason: str | None = None
    data: Mapping[str, Any] | None = None


class Backlog(NamedTuple):
    """What is left to do of one kind of job: due now, due or waking by itself later, held by a worker."""

    contract: str
    queue: str
    job_type: str
    due: int
    later: int
    held: int
    oldest_due: Micros | None


class Tx(FamilyTx, ApprovalTx, ScheduleTx, OutboxTx, PruneTx, LimitTx, Protocol):
    """One write transaction. Everything done through it commits together or not at all."""

    now: Micros

    async def lock(self, ids: Sequence[str], *, wait: bool = True) -> dict[str, Job]:
        """Jobs by id, nobody else's until the commit. wait False leaves out rows that somebody else holds."""
        ...

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        """Write new jobs; returns the ids that were already there (a repeated submit) and were left alone."""
        ...

    async def apply(self, changes: Sequence[Change]) -> None: ...

    async def add_notes(self, notes: Sequence[Note]) -> None: ...

    async def key_owners(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """(space, key) -> the job that owns it; free keys are absent."""
        ...

    async def take_all_keys(self, owned: Sequence[tuple[str, str, str]]) -> int: ...

    async def take_keys(self, keys: Sequence[tuple[str, str]], job_id: str) -> bool:
        """Take all of these for a job; False if another took one in between."""
        ...

    async def next_attempt(self, task_id: str) -> int: ...

    async def succeed(self, successes: Sequence[Success]) -> list[Success]: ...

    async def claim(self, request: ClaimRequest) -> list[Claimed]: ...

    async def extend(self, held: Mapping[str, str], lease: Micros) -> Extended:
        """Lengthen the leases {id: token} in one batch."""
        ...

    async def put_worker(self, worker: WorkerRow) -> None: ...

    async def workers(self) -> list[WorkerRow]: ...

    async def drop_worker(self, worker_id: str) -> None: ...

    async def standing(self, held: Mapping[str, str]) -> Extended:
        """What extend would tell, without writing."""
        ...

    async def next_due(self) -> Micros | None:
        """The first moment at which something becomes claimable or wakes by itself."""
        ...

    async def next_wake(self) -> Micros | None:
        """The first moment at which a blocked job wakes by itself."""
        ...

    async def anything_left(self, job_types: Sequence[str], horizon: Micros) -> bool:
        """Is a job of these types leased, or due within the horizon?"""
        ...

    async def promote(self, limit: int) -> int: ...

    async def expired(self, limit: int, contracts: Sequence[str]) -> list[Job]: ...

    async def due_blocked(self, limit: int, contracts: Sequence[str]) -> list[Job]: ...

    async def lost_to(self, request: ClaimRequest, contracts: Sequence[str]) -> list[Job]:
        """Expired leases of these contracts that this claimer may take over."""
        ...

    async def events(self, job_id: str) -> list[Event]: ...

    async def notes(self, job_id: str) -> list[Note]: ...

    async def signal(self, job_id: str, name: str) -> Signal | None: ...

    async def add_signal(self, signal: Signal) -> None: ...

    async def count_signals(self, job_id: str) -> int: ...

    async def step(self, job_id: str, name: str) -> Step | None: ...

    async def steps(self, job_id: str) -> list[Step]: ...

    async def put_step(self, step: Step) -> None: ...

    async def record_step(self, step: Step, token: str) -> bool:
        """Write it if this token holds the job and nothing finished stands under its name; False if not."""
        ...

    async def dead_letter(self, dlq_id: str) -> DeadLetter | None: ...

    async def put_dead_letter(self, item: DeadLetter) -> None: ...

    async def dead_letters(self, filter: Filter) -> list[DeadLetter]: ...

    async def letter_window(self, filter: Filter, scan: int) -> tuple[list[DeadLetter], str | None]:
        """As job_window, of dead letters."""
        ...

    async def count_dead_letters(self, filter: Filter) -> dict[str, int]:
        """How many match, by contract; pages do not matter."""
        ...

    async def jobs(self, filter: Filter) -> list[Job]: ...

    async def job_window(self, filter: Filter, scan: int) -> tuple[list[Job], str | None]:
        """The matches among the next `scan` jobs by id, and the last id looked at; None: those were all."""
        ...

    async def counts(self) -> list[tuple[str, str, str, int]]:
        """(contract, status, phase, how many) over all jobs."""
        ...

    async def count_letters(self) -> dict[str, int]:
        """Dead letters by what became of them."""
        ...

    async def backlog(self) -> list[Backlog]:
        """One row for every kind of job that was ever submitted; finished jobs are not looked at."""
        ...

    async def ahead(self, job_id: str, at_most: int) -> int:
        """How many jobs of its lane are claimed before this one, counted up to a bound."""
        ...

    async def contracts(self) -> dict[str, Contract]:
        """The contracts the database knows, as they were declared to it."""
        ...

    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[Any]:
        """Raw rows of one of the store's named queries, for rooms that own their tables (`verify`, tallies, alerts)."""
        ...

    async def change(self, name: str, /, **values: Any) -> int:
        """Run one of the store's named statements; how many rows it changed."""
        ...

    async def pause(self, kind: str, name: str, actor: str, reason: str | None) -> None: ...

    async def resume(self, kind: str, name: str) -> None: ...

    async def pauses(self) -> list[tuple[str, str, str, str | None, Micros]]: ...

    async def add_audit(self, entry: Audit) -> None: ...

    async def audit(self, limit: int = 100) -> list[tuple[int, Micros, Audit]]: ...

    async def audit_of(self, subject: str, limit: int = 100) -> list[tuple[int, Micros, Audit]]:
        """The last acts on one thing."""
        ...


class Watch(Protocol):
    """One listener's view of what has been committed since it last heard."""

    async def changed(self, timeout: float) -> bool:
        """Wait until anyone may have committed something, at most this many seconds; True if so."""
        ...


class OpenTransaction(Protocol):
    """A transaction in a user's hands, on the database the jobs are in."""

    connection: Any

    async def commit(self, act: Callable[[Any], Awaitable[T]]) -> T:
        """One last act in it, then the commit; if either fails, nothing of it has happened."""
        ...

    async def rollback(self) -> None: ...


class Store(Protocol):
    """Where jobs live. `write` and `read` run one act in one transaction; acts must await nothing but the tx."""

    contracts: dict[str, Contract]
    """What the database knows once it is open."""
    skips_locked_rows: bool
    """True: a batch passes over rows that somebody else's transaction holds."""
    cycles_at_once: int
    """How many cycles of one worker are worth having under way together."""

    async def open(self, own: Mapping[str, Contract], carried: Mapping[str, Contract]) -> None:
        """own: declared by this application, they win; carried: Detent's, they fill what is missing."""
        ...

    async def close(self) -> None: ...

    def now(self) -> Micros: ...

    async def uptime(self) -> float:
        """Seconds since the database started, as far as it can tell."""
        ...

    def sibling(self) -> "Store":
        """The same database for another event loop; itself where loops do not matter."""
        ...

    async def write(self, act: Callable[[Any], Awaitable[T]]) -> T: ...

    async def read(self, act: Callable[[Any], Awaitable[T]]) -> T: ...

    async def insert(self, changes: Sequence[Change]) -> set[str]: ...

    async def record_step(self, step: Step, token: str) -> bool:
        """As Tx.record_step, alone and in one round trip. False may also mean: somebody held the row, look again."""
        ...

    async def begin(self) -> OpenTransaction: ...

    def held_back(self) -> tuple[bool, Micros | None]:
        """Did limits keep the last claim from jobs, and when does a rate let the next one begin?"""
        ...

    def watch(self) -> "Watch":
        """From now on, hear of commits; take the watch first, then look, then wait."""
        ...

    async def cycle(self, successes: Sequence[Success], request: ClaimRequest | None) -> Cycle: ...
