"""What the engine needs from the outside: a store, a clock, fresh ids. Small protocols, no code."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from detent.core.contract.model import Contract
from detent.core.job import Change, DeadLetter, Event, Job, Micros, Note, Signal, Step

from .access import Audit
from .approvals import ApprovalTx
from .children import ChildrenTx
from .claims import Claimed, ClaimRequest, Extended, Success
from .limits import LimitTx
from .listing import Backlog, Filter, WorkerRow
from .outbox import OutboxTx
from .pruning import PruneTx
from .schedules import ScheduleTx

T = TypeVar("T")


class Tx(ChildrenTx, ApprovalTx, ScheduleTx, OutboxTx, PruneTx, LimitTx, Protocol):
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

    async def dead_letter_window(self, filter: Filter, scan: int) -> tuple[list[DeadLetter], str | None]:
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

    async def dead_letter_counts(self) -> dict[str, int]:
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
