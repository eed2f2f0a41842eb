"""The transaction port: every read and write of the engine on jobs, events, notes and dead letters."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from detent.core.contract.model import Contract
from detent.core.job import Change, DeadLetter, Event, Job, Micros, Note, Signal, SignalKey, Step

from .access import Audit
from .approvals import ApprovalTx
from .children import ChildrenTx
from .claims import Claimed, ClaimRequest, Extended, Success
from .limits import LimitTx
from .listing import Backlog, Filter, WorkerRow
from .outbox import OutboxTx
from .pruning import PruneTx
from .schedules import ScheduleTx


class Tx(ChildrenTx, ApprovalTx, ScheduleTx, OutboxTx, PruneTx, LimitTx, Protocol):
    """One write transaction. Everything done through it commits together or not at all."""

    now: Micros

    async def lock(self, ids: Sequence[str], *, wait: bool = True) -> dict[str, Job]:
        """Jobs by id, their rows locked until the end of the transaction. wait False: skip rows that are locked."""
        ...

    async def insert(self, changes: Sequence[Change]) -> set[str]:
        """Insert new jobs; returns the ids that existed before (a repeated submit) and were not changed."""
        ...

    async def apply(self, changes: Sequence[Change]) -> None: ...

    async def add_notes(self, notes: Sequence[Note]) -> None: ...

    async def key_owners(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """(space, key) -> the job that owns it; free keys are absent."""
        ...

    async def take_all_keys(self, owned: Sequence[tuple[str, str, str]]) -> int: ...

    async def take_keys(self, keys: Sequence[tuple[str, str]], job_id: str) -> bool:
        """Take all of these keys for a job; False if another job owns one."""
        ...

    async def next_attempt(self, task_id: str) -> int: ...

    async def succeed(self, successes: Sequence[Success]) -> list[Success]: ...

    async def claim(self, request: ClaimRequest) -> list[Claimed]: ...

    async def extend(self, held: Mapping[str, str], lease: Micros) -> Extended:
        """Extend the leases {id: token} in one batch."""
        ...

    async def put_worker(self, worker: WorkerRow) -> None: ...

    async def workers(self) -> list[WorkerRow]: ...

    async def drop_worker(self, worker_id: str) -> None: ...

    async def check_leases(self, held: Mapping[str, str]) -> Extended:
        """The answer of `extend`, without extending."""
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

    async def promote(self, limit: int) -> int: ...

    async def expired(self, limit: int, contracts: Sequence[str]) -> list[Job]: ...

    async def due_blocked(self, limit: int, contracts: Sequence[str]) -> list[Job]: ...

    async def has_ready_suspect(self) -> bool:
        """True if a suspect may be claimed now, by some worker."""
        ...

    async def suspects(self) -> list[tuple[str, str, int, str]]:
        """(queue, job type, losses in a row, id) of claimable and leased suspects, at most 1,000."""
        ...

    async def reclaimable(self, request: ClaimRequest, contracts: Sequence[str]) -> list[Job]:
        """Jobs of these contracts with an expired lease that this request may claim."""
        ...

    async def events(self, job_id: str) -> list[Event]: ...

    async def notes(self, job_id: str) -> list[Note]: ...

    async def signal(self, job_id: str, name: str) -> Signal | None: ...

    async def add_signal(self, signal: Signal) -> None: ...

    async def missed_signals(self, after: SignalKey | None, limit: int) -> tuple[list[str], SignalKey | None]:
        """Reads the next signals in the order of (job id, name): the jobs among them that are blocked and wait for
        their signal, and the position to continue after; None: no more signals follow."""
        ...

    async def count_signals(self, job_id: str) -> int: ...

    async def step(self, job_id: str, name: str) -> Step | None: ...

    async def steps(self, job_id: str) -> list[Step]: ...

    async def put_step(self, step: Step) -> None: ...

    async def record_step(self, step: Step, token: str) -> bool:
        """Record a step if the token is valid and no finished step has its name; False if not."""
        ...

    async def dead_letter(self, dlq_id: str) -> DeadLetter | None: ...

    async def put_dead_letter(self, item: DeadLetter) -> None: ...

    async def dead_letters(self, filter: Filter) -> list[DeadLetter]: ...

    async def dead_letter_window(self, filter: Filter, scan: int) -> tuple[list[DeadLetter], str | None]:
        """Like `job_window`, for dead letters."""
        ...

    async def count_dead_letters(self, filter: Filter) -> dict[str, int]:
        """The number of matching dead letters by contract; paging is ignored."""
        ...

    async def jobs(self, filter: Filter) -> list[Job]: ...

    async def job_window(self, filter: Filter, scan: int) -> tuple[list[Job], str | None]:
        """The matches among the next `scan` jobs by id, and the last id read; None: no more jobs follow."""
        ...

    async def counts(self) -> list[tuple[str, str, str, int]]:
        """(contract, status, phase, number) over all jobs."""
        ...

    async def dead_letter_counts(self) -> dict[str, int]:
        """Number of dead letters by status."""
        ...

    async def backlog(self) -> list[Backlog]:
        """One row per contract, queue and type that was ever submitted; finished jobs are not counted."""
        ...

    async def jobs_ahead(self, job_id: str, at_most: int) -> int:
        """How many jobs of its lane are claimed before this one, counted up to `at_most`."""
        ...

    async def contracts(self) -> dict[str, Contract]:
        """The contracts registered in the database."""
        ...

    async def query(self, name: str, where: str | None = None, /, **values: Any) -> list[Any]:
        """Raw rows of a named query of the store, for parts that own their tables (`verify`, tallies, alerts)."""
        ...

    async def change(self, name: str, /, **values: Any) -> int:
        """Run a named statement of the store; returns the number of changed rows."""
        ...

    async def pause(self, kind: str, name: str, actor: str, reason: str | None) -> None: ...

    async def resume(self, kind: str, name: str) -> None: ...

    async def pauses(self) -> list[tuple[str, str, str, str | None, Micros]]: ...

    async def add_audit(self, entry: Audit) -> None: ...

    async def audit(self, limit: int = 100) -> list[tuple[int, Micros, Audit]]: ...

    async def audit_of(self, subject: str, limit: int = 100) -> list[tuple[int, Micros, Audit]]:
        """The last audit entries about one subject."""
        ...
